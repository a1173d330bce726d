"""Words of the microworld: nouns, names and adjectives, and verb senses with the objects and places they select."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

T = TypeVar("T")
VOWELS = "aeiou"
IRREGULAR_PLURALS = {
    "mouse": "mice", "goose": "geese", "sheep": "sheep", "deer": "deer", "wolf": "wolves", "calf": "calves",
    "shelf": "shelves", "scarf": "scarves", "trout": "trout", "salmon": "salmon", "carp": "carp", "cod": "cod",
    "goldfish": "goldfish", "catfish": "catfish", "fish": "fish", "leaf": "leaves", "knife": "knives",
    "potato": "potatoes", "tomato": "tomatoes", "mosquito": "mosquitoes", "mango": "mangoes",
}  # fmt: skip
# lemma: past, past participle
IRREGULAR_VERBS = {
    "buy": "bought bought", "sell": "sold sold", "give": "gave given", "lend": "lent lent", "send": "sent sent",
    "bring": "brought brought", "find": "found found", "lose": "lost lost", "hide": "hid hidden",
    "steal": "stole stolen", "break": "broke broken", "wear": "wore worn", "sew": "sewed sewn", "read": "read read",
    "write": "wrote written", "drive": "drove driven", "eat": "ate eaten", "drink": "drank drunk",
    "grow": "grew grown", "see": "saw seen", "catch": "caught caught", "feed": "fed fed", "draw": "drew drawn",
    "build": "built built", "choose": "chose chosen", "forget": "forgot forgotten", "cut": "cut cut",
    "run": "ran run", "sleep": "slept slept", "swim": "swam swum", "sing": "sang sung", "weep": "wept wept",
    "teach": "taught taught", "hold": "held held", "sit": "sat sat", "stand": "stood stood", "ride": "rode ridden",
    "fly": "flew flown", "mistake": "mistook mistaken", "weave": "wove woven", "tear": "tore torn",
    "have": "had had", "think": "thought thought", "feel": "felt felt", "know": "knew known", "keep": "kept kept",
    "make": "made made", "take": "took taken", "leave": "left left", "go": "went gone", "show": "showed shown",
    "shrink": "shrank shrunk", "throw": "threw thrown", "fling": "flung flung", "overlook": "overlooked overlooked",
}  # fmt: skip
DOUBLING = frozenset("spot wrap swap shut chat jog chop snap drop sip nap plan trim scrub fit cut run swim sit pat stop"
                     " grab knit sob hum mop tug regret pet".split())  # fmt: skip


def plural(noun: str) -> str:
    """Plural of a singular noun."""
    if noun in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[noun]
    if noun.endswith("man"):
        return noun[:-2] + "en"
    if noun.endswith(("s", "x", "ch", "sh", "z")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in VOWELS:
        return noun[:-1] + "ies"
    return noun + "s"


def third_person(verb: str) -> str:
    """Third person singular of the present tense."""
    return {"have": "has", "go": "goes"}.get(verb) or plural(verb)


def _regular_past(verb: str) -> str:
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in VOWELS:
        return verb[:-1] + "ied"
    return verb + (verb[-1] if verb in DOUBLING else "") + "ed"


def _progressive(verb: str) -> str:
    if verb.endswith("e") and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    return verb + (verb[-1] if verb in DOUBLING else "") + "ing"


def indefinite(following: str) -> str:
    """``a`` or ``an``, by the word that follows."""
    if following.startswith(("uni", "use", "eu")) or following[0] not in VOWELS:
        return "a"
    return "an"


@dataclass(frozen=True, eq=False, slots=True)
class VerbForms:
    """One verb lemma with its inflected forms."""

    base: str
    third: str
    past: str
    participle: str
    progressive: str


def inflect(lemma: str) -> VerbForms:
    """All forms of a verb."""
    past, participle = IRREGULAR_VERBS[lemma].split() if lemma in IRREGULAR_VERBS else (_regular_past(lemma),) * 2
    return VerbForms(lemma, third_person(lemma), past, participle, _progressive(lemma))


@dataclass(frozen=True, eq=False, slots=True)
class Noun:
    """A noun sense; ``words`` are synonyms, ``plurals`` stand in the same order. Mass nouns have no plural."""

    words: tuple[str, ...]
    kind: str
    mass: bool = False
    plurals: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plurals", self.words if self.mass else tuple(plural(word) for word in self.words))


@dataclass(frozen=True, eq=False, slots=True)
class Adjective:
    """An adjective (or adverb) sense; ``group`` holds what excludes each other: colours, or a pair of antonyms."""

    words: tuple[str, ...]
    group: str


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """A place sense with the preposition that goes with it."""

    words: tuple[str, ...]
    preposition: str
    kind: str


@dataclass(frozen=True, eq=False, slots=True)
class Verb:
    """A verb sense: synonyms, the kinds of its object (none: intransitive), the kinds of place it happens at."""

    forms: tuple[VerbForms, ...]
    objects: tuple[str, ...]
    places: tuple[str, ...]
    recipient: bool = False


def senses(text: str) -> list[tuple[str, ...]]:
    """Split ``"sofa/couch table"`` into ``[("sofa", "couch"), ("table",)]``."""
    return [tuple(group.split("/")) for group in text.split()]


def zipf_table(items: Sequence[T], *, offset: float, exponent: float = 1.0, resolution: float = 40.0) -> tuple[T, ...]:
    """Items repeated by rank so that a uniform draw from the table is Zipf-like: weight 1 / (rank + offset)^exponent.

    Drawing from a table is one multiplication; every item stands in it at least once.
    """
    table: list[T] = []
    for rank, item in enumerate(items):
        table.extend([item] * max(1, round(resolution * ((1 + offset) / (rank + 1 + offset)) ** exponent)))
    return tuple(table)


def pick(rng: Random, table: Sequence[T]) -> T:
    """A uniform draw (faster than ``rng.choice``)."""
    return table[int(rng.random() * len(table))]


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
