"""Verb senses with their selection: which objects they take and where they happen."""

from electra.microworld.words import Verb, inflect

# synonyms : kinds of object : kinds of place; a leading "+" marks verbs with a recipient ("give Ben a kite")
_TRANSITIVE = """
buy/purchase : toy tool instrument garment ornament container publication device seat surface vehicle : shop
+give/hand : toy tool garment ornament container publication fruit flower dessert : town nature
+sell : toy tool instrument garment ornament vehicle device seat surface vegetable : shop
+lend/loan : tool instrument garment publication device vehicle : town
+show/present : ornament publication toy device bird dog : town room
+send/mail : publication ornament garment toy flower : town
+bring/deliver : dessert dish container publication flower fruit : room town
find/discover : toy tool ornament container publication device garment : room nature
lose/misplace : toy tool ornament garment publication device : town nature
hide/conceal : ornament container publication toy tool : room nature
steal/swipe : ornament device vehicle instrument : shop town
repair/fix/mend : tool vehicle device seat surface instrument toy : room town
break/smash/shatter : container device toy instrument seat : room
clean/wash/scrub : garment container vehicle surface seat vegetable : room
carry/haul : container surface seat tool instrument : room town
wear : garment ornament : town nature
sew/stitch : garment : room
knit : garment : room
iron : garment : room
play : instrument : town room
tune : instrument : room town
practise : instrument : room
read/peruse : publication : room nature
write/compose : publication : room town
publish : publication : town
drive/steer : vehicle : nature town
park : vehicle : town
polish/buff : ornament vehicle surface : room
eat/devour/consume : fruit vegetable dessert dish : room town
taste/sample : fruit dessert dish drink : shop room
cook/prepare : vegetable dish : room
bake : dessert : room
burn/scorch : dessert dish vegetable : room
cut/slice/chop : fruit vegetable dessert : room
peel : fruit vegetable : room
drink/sip : drink : room town
pour : drink : room
spill : drink dish : room
order/request : dish dessert drink : town
serve : dish dessert drink : town room
pick/gather/harvest : fruit flower vegetable : nature
grow/cultivate : fruit vegetable flower tree : nature
plant : tree flower vegetable : nature
climb : tree : nature
see/spot/notice : bird fish dog insect reptile mammal : nature
watch/observe : bird fish insect reptile mammal : nature
catch/capture : fish insect reptile bird : nature
feed : dog bird mammal fish : nature
chase/pursue : dog mammal insect : nature
photograph : bird mammal insect flower tree : nature
draw/sketch : bird mammal flower tree vehicle : room nature
paint : seat surface toy vehicle flower : room
train : dog bird mammal : nature
stroke/pet : dog mammal : room nature
rescue/save : dog bird mammal reptile : nature
build/construct/assemble : surface seat vehicle toy : room town
open/unlock : container : room
close/shut/seal : container : room
fill : container : room nature
choose/select : garment ornament publication seat device : shop
borrow : tool publication instrument vehicle : town
forget : garment publication device container : town
inspect/examine : device vehicle instrument tool : town shop
wrap : toy ornament publication garment : room shop
throw/toss/fling : toy fruit : nature
collect : ornament toy publication : town shop
design : garment ornament device vehicle : room town
sharpen : tool : room town
use/employ : tool device : room
describe : bird insect reptile tree flower : town
"""
_INTRANSITIVE = """
walk/stroll : nature town
run/jog/sprint : nature town
sleep/doze/slumber : room
swim : nature
sing : town room
dance : town room
work/labour : town
rest/relax : room nature
wait/linger : town shop
wander/roam : nature town
laugh/chuckle/giggle : room town
weep/cry/sob : room town
shout/yell/scream : town shop
hike/trek : nature
study : room town
daydream : nature room
"""


def _transitive(line: str) -> Verb:
    words, objects, places = (part.strip() for part in line.split(":"))
    forms = tuple(inflect(word) for word in words.removeprefix("+").split("/"))
    return Verb(forms, tuple(objects.split()), tuple(places.split()), recipient=words.startswith("+"))


def _intransitive(line: str) -> Verb:
    words, places = (part.strip() for part in line.split(":"))
    return Verb(tuple(inflect(word) for word in words.split("/")), (), tuple(places.split()))


TRANSITIVE = [_transitive(line) for line in _TRANSITIVE.strip().splitlines()]
INTRANSITIVE = [_intransitive(line) for line in _INTRANSITIVE.strip().splitlines()]
VERBS_FOR: dict[str, list[Verb]] = {
    kind: [verb for verb in TRANSITIVE if kind in verb.objects]
    for kind in sorted({k for v in TRANSITIVE for k in v.objects})
}
