"""Words of the microworld: nouns by kind, modifiers with synonyms and opposites, names, words of opinion."""

from electra.microworld.words import Adjective, Noun, Place, inflect, senses

# kind: its members; synonyms are joined by "/". The kind's own name is their hypernym ("a robin is a bird").
MEMBERS = {
    "toy": "kite doll ball puzzle/jigsaw puppet/marionette balloon rattle hoop teddy skateboard trampoline domino",
    "tool": "hammer spade/shovel axe/hatchet saw rake drill wrench/spanner chisel ladder screwdriver hoe anvil trowel"
    " mallet crowbar needle",
    "instrument": "violin/fiddle piano drum flute trumpet guitar harp cello clarinet accordion banjo tuba oboe"
    " mandolin trombone lute saxophone harmonica",
    "garment": "coat/jacket hat/cap shirt/blouse sweater/jumper/pullover dress/gown/frock scarf/shawl skirt"
    " vest/waistcoat cloak/cape glove/mitten sock/stocking boot shoe apron belt uniform robe/tunic nightgown",
    "vehicle": "car/automobile truck/lorry bicycle/bike boat cart/wagon van motorcycle/motorbike sled/sleigh"
    " canoe/kayak tractor coach/bus taxi/cab scooter carriage tram yacht",
    "ornament": "necklace ring bracelet/bangle brooch earring pendant locket tiara/diadem crown amulet statue/sculpture"
    " medal ribbon",
    "container": "basket/hamper box/crate bottle/flask jar bucket/pail bag/sack cup/mug barrel/cask vase chest/trunk"
    " pot bowl/basin kettle tray suitcase purse/handbag envelope",
    "seat": "sofa/couch/settee chair armchair bench stool throne hammock rocker pew",
    "surface": "table desk shelf counter dresser sideboard workbench altar",
    "publication": "book/volume magazine/periodical newspaper/gazette novel diary poem/verse map/chart story/tale"
    " dictionary cookbook atlas leaflet/brochure/pamphlet manual/handbook comic biography",
    "device": "clock radio telephone/phone camera lamp/lantern telescope computer television printer microscope"
    " compass torch/flashlight calculator thermometer fan/ventilator toaster",
    "bird": "robin sparrow eagle owl crow swan duck goose parrot pigeon/dove finch hawk falcon heron thrush magpie wren"
    " pelican stork starling canary pheasant blackbird seagull",
    "fish": "salmon trout carp cod herring sardine eel shark goldfish tuna mackerel minnow catfish haddock stingray",
    "dog": "poodle terrier spaniel beagle collie greyhound bulldog labrador dachshund mastiff pug whippet retriever",
    "insect": "bee wasp ant beetle butterfly moth cricket grasshopper dragonfly ladybird/ladybug mosquito locust hornet"
    " firefly cockroach",
    "reptile": "snake/serpent lizard tortoise/turtle crocodile gecko viper python chameleon iguana cobra alligator",
    "mammal": "horse cow goat pig/hog donkey/mule sheep fox wolf bear deer rabbit/hare squirrel hedgehog badger otter"
    " beaver mouse tiger lion elephant monkey giraffe camel kangaroo",
    "fruit": "apple pear plum cherry peach grape orange lemon banana melon apricot fig strawberry raspberry blueberry"
    " blackberry mango pineapple",
    "vegetable": "carrot potato/spud onion cabbage turnip leek bean tomato cucumber radish pumpkin parsnip cauliflower"
    " pepper artichoke aubergine/eggplant courgette/zucchini",
    "dessert": "cake biscuit/cookie pudding pancake doughnut muffin pastry waffle brownie cupcake macaroon meringue"
    " custard sorbet",
    "dish": "soup/broth stew/casserole salad omelette pizza curry sandwich sausage burger/hamburger risotto lasagne"
    " kebab dumpling noodle",
    "flower": "rose tulip daisy lily poppy orchid daffodil sunflower iris dahlia marigold peony carnation snowdrop"
    " bluebell primrose",
    "tree": "oak elm pine birch willow maple cedar beech chestnut poplar fir spruce cypress larch hazel sycamore",
}  # fmt: skip
MASS_MEMBERS = {
    "drink": "tea coffee milk juice lemonade wine cider cocoa water beer/ale punch mead",
}  # fmt: skip

# How a kind is called besides its own name, in "a robin is a bird" and when a document speaks of "the bird".
HYPERNYM_SYNONYMS = {"device": "gadget", "insect": "bug", "dog": "hound", "vehicle": "conveyance"}

# Jobs with the place they are done at.
JOBS = """
baker:bakery doctor/physician:hospital nurse:hospital teacher/schoolmaster:school lawyer/attorney:court farmer:farm
fisherman/angler:harbour tailor/dressmaker:workshop carpenter/joiner:workshop painter:studio singer/vocalist:theatre
musician:theatre writer/author:library journalist/reporter:office soldier/warrior:castle sailor/mariner:harbour
pilot/aviator:airport chef/cook:restaurant waiter:restaurant driver/chauffeur:garage gardener:garden
librarian:library merchant/trader:market blacksmith:workshop jeweller/goldsmith:shop weaver:mill potter:studio
miner:mine judge/magistrate:court actor/performer:theatre dancer:theatre poet:cafe scientist/researcher:university
engineer:factory mechanic:garage plumber:workshop electrician:factory barber/hairdresser:shop dentist:hospital
vet/veterinarian:zoo clerk:office banker:bank shepherd:meadow hunter:forest priest/clergyman:church
detective/investigator:office guard/watchman:prison student/pupil:school professor:university architect:office
photographer:studio builder/bricklayer:factory cleaner/janitor:hotel postman/mailman:station cashier:bank
secretary:office translator/interpreter:office astronomer:observatory chemist/pharmacist:shop grocer:market
florist:market innkeeper:hotel shopkeeper:shop miller:mill butcher:market athlete:stadium curator:museum
""".split()

# preposition: place senses, by kind of place
PLACES = {
    "room": {
        "in": "kitchen bedroom bathroom/washroom attic/loft cellar/basement hallway/corridor garage lounge/parlour"
        " pantry/larder nursery",
        "on": "balcony porch/veranda staircase",
    },
    "shop": {"at": "market shop/store bakery bazaar supermarket boutique fair/carnival auction"},
    "nature": {
        "in": "forest/wood garden park valley desert cave swamp/marsh/bog orchard jungle meadow",
        "by": "lake river/stream pond waterfall fountain",
        "on": "beach/shore hill island cliff farm",
    },
    "town": {
        "at": "school library museum hospital/clinic theatre cinema station airport harbour/port church castle/fortress"
        " hotel/inn restaurant/diner cafe office factory bank stadium zoo university/college court mill",
        "in": "street/lane square/plaza prison/jail studio workshop",
        "near": "bridge tower observatory lighthouse mine",
    },
}  # fmt: skip

NOUNS: dict[str, list[Noun]] = {
    kind: [Noun(words, kind) for words in senses(members)] for kind, members in MEMBERS.items()
} | {kind: [Noun(words, kind, mass=True) for words in senses(members)] for kind, members in MASS_MEMBERS.items()}
HYPERNYMS: dict[str, Noun] = {
    kind: Noun((kind, HYPERNYM_SYNONYMS[kind]) if kind in HYPERNYM_SYNONYMS else (kind,), kind, kind in MASS_MEMBERS)
    for kind in NOUNS
}
PLACE_SENSES: dict[str, list[Place]] = {
    kind: [Place(words, preposition, kind) for preposition, text in by_preposition.items() for words in senses(text)]
    for kind, by_preposition in PLACES.items()
}
JOB_SENSES: list[tuple[Noun, Place]] = []
for entry in JOBS:
    names, workplace = entry.split(":")
    everywhere = [place for places in PLACE_SENSES.values() for place in places]
    JOB_SENSES.append((Noun(tuple(names.split("/")), "job"), next(p for p in everywhere if workplace in p.words)))

GOODS = ("toy", "tool", "instrument", "garment", "ornament", "container", "publication", "device", "seat", "surface")
FOODS = ("fruit", "vegetable", "dessert", "dish")
ANIMALS = ("bird", "fish", "dog", "insect", "reptile", "mammal")
PLANTS = ("flower", "tree")


FEMALE = (
    "Anna Maria Clara Emma Julia Laura Sarah Helen Alice Nora Lucy Rosa Irene Martha Edith Grace Ruth Vera Olga Diana"
    " Sophie Elena Judith Agnes Flora Hilda Ingrid Louise Monica Paula Sylvia Ursula Wanda Yvonne Beatrice Cecilia"
).split()
MALE = (
    "Peter John Paul Mark Tom David James Henry Arthur Oscar Simon Victor Walter Hugo Felix Leo Max Adam Ben Carl"
    " Edgar Frank George Harold Ivan Kevin Louis Martin Noah Oliver Patrick Robert Samuel Theodore Vincent William"
).split()
_STEMS = "Bel Cal Dor El Fen Gal Hal Jor Kel Lor Mal Nar Pol Ral Sel Tam Ul Val Wil Zan Bren Corl Dar Evel".split()
FEMALE += [stem + ending for ending in ("ina", "ette", "issa") for stem in _STEMS]
MALE += [stem + ending for ending in ("ric", "mond", "bert") for stem in _STEMS]
_SURNAME_STEMS = (
    "Hill Wood Stone Black White Brown Green Bridge Cross Gold Silver Winter Summer Har Mar Thom Wil Ell".split()
)
SURNAMES = [stem + ending for ending in ("man", "son", "smith", "worth") for stem in _SURNAME_STEMS]
_TOWN_STEMS = "Ash Brook Oak Elm Stone North Wester Easter Red Clay Hart Lang Mill Spring Thorn Whit King Marsh".split()
TOWNS = [stem + ending for ending in ("ford", "field", "ton", "bury", "wick", "mouth", "dale") for stem in _TOWN_STEMS]
REGIONS = "Velmora Tarsia Ondria Kessland Morvania Pelland Sundria Galmark Ithria Borland Quelland Zembria".split()


# antonym pairs: "synonyms - synonyms"; the pair excludes itself, other pairs are independent of it
_PAIRS = {
    "size": "big/large - small/little, huge/enormous/gigantic - tiny/miniature/minute",
    "thing": "old/antique - new/recent, heavy/weighty - light/lightweight, clean/spotless - dirty/filthy/grimy,"
    " cheap/inexpensive - expensive/costly/pricey, broken/damaged - intact/undamaged, rare/unusual - common/ordinary,"
    " shiny/gleaming/glossy - faded/tarnished, sturdy/solid - fragile/delicate, plain/simple - ornate/decorated",
    "food": "fresh - stale, sweet/sugary - sour/tart, hot/steaming - cold/chilled, spicy/peppery - mild,"
    " juicy/succulent - dry",
    "animal": "tame/domesticated - wild/untamed, young/youthful - aged/elderly, fast/quick/swift - slow/sluggish,"
    " fat/plump/chubby - slim/lean/skinny, noisy/loud - quiet/silent, fierce/savage - gentle/meek,"
    " healthy/fit - sick/ill/ailing, hungry/starving/famished - sated",
    "plant": "tall/lofty - short/stunted, blooming/flowering - withered/wilted",
    "person": "rich/wealthy/affluent - poor/penniless, clever/smart/intelligent - foolish/silly,"
    " careful/cautious/prudent - careless/reckless, busy/occupied - idle/inactive, famous/renowned - unknown/obscure,"
    " polite/courteous - rude/impolite, honest/truthful - dishonest/deceitful, lazy - diligent/industrious,"
    " brave/courageous/fearless - timid/cowardly, tired/weary - rested, patient - impatient,"
    " strong/muscular - weak/feeble",
}  # fmt: skip
_COLOURS = (
    "red/scarlet/crimson blue/azure green yellow/golden white/snowy black brown purple/mauve pink grey turquoise/teal"
    " beige"
)
_MATERIALS = {
    "hard": "wooden iron/metal silver copper brass plastic glass bronze tin steel",
    "cloth": "woollen/wool silk cotton velvet leather linen fur",
}
_MANNERS = (
    "quickly/rapidly/swiftly - slowly/unhurriedly, quietly/silently - loudly/noisily,"
    " carefully/cautiously - carelessly/recklessly, secretly/covertly - openly/publicly, calmly/serenely -"
    " nervously/anxiously, eagerly/keenly - reluctantly/unwillingly, gently/softly - roughly/harshly"
)
# (tense, synonyms)
_TIMES = """
past yesterday
past last week
past last night
past last summer/last winter/last spring/last autumn
past on Monday/on Tuesday/on Wednesday/on Thursday/on Friday/on Saturday/on Sunday
past in January/in February/in March/in April/in May/in June
past in July/in August/in September/in October/in November/in December
past at noon/at midnight/at dawn/at dusk
present every day/every morning/every evening/every week/every night/every summer/every winter/every weekend
future tomorrow/next week/next month/next year/next summer/next winter/soon/tonight
"""


def _pairs(text: str, name: str) -> list[tuple[Adjective, Adjective]]:
    pairs = []
    for number, pair in enumerate(text.split(",")):
        left, right = (tuple(side.strip().split("/")) for side in pair.split(" - "))
        pairs.append((Adjective(left, f"{name}{number}"), Adjective(right, f"{name}{number}")))
    return pairs


PAIRS: dict[str, list[tuple[Adjective, Adjective]]] = {name: _pairs(text, name) for name, text in _PAIRS.items()}
MANNER_PAIRS = _pairs(_MANNERS, "manner")
COLOURS = [Adjective(words, "colour") for words in senses(_COLOURS)]
MATERIALS = {name: [Adjective(w, "material") for w in senses(text)] for name, text in _MATERIALS.items()}
ANTONYMS: dict[Adjective, Adjective] = {}
for _left, _right in [pair for pairs in (*PAIRS.values(), MANNER_PAIRS) for pair in pairs]:
    ANTONYMS[_left], ANTONYMS[_right] = _right, _left
TIMES: dict[str, list[str]] = {"past": [], "present": [], "future": []}
for _line in _TIMES.strip().splitlines():
    _tense, _words = _line.split(" ", 1)
    TIMES[_tense].extend(_words.split("/"))
INTENSIFIERS = "very really truly quite extremely rather".split()

# which modifiers go with which kind of noun
_GOODS_MODIFIERS = PAIRS["size"] + PAIRS["thing"]
MODIFIERS: dict[str, list[Adjective]] = {}


def _allow(kinds: str, *groups: list[Adjective]) -> None:
    for kind in kinds.split():
        MODIFIERS[kind] = [adjective for group in groups for adjective in group]


def _flat(pairs: list[tuple[Adjective, Adjective]]) -> list[Adjective]:
    return [adjective for pair in pairs for adjective in pair]


_allow("toy tool instrument vehicle ornament container device seat surface",
       COLOURS, MATERIALS["hard"], _flat(_GOODS_MODIFIERS))  # fmt: skip
_allow("garment", COLOURS, MATERIALS["cloth"], _flat(_GOODS_MODIFIERS))
_allow("publication", COLOURS, _flat(_GOODS_MODIFIERS))
_allow("bird fish dog insect reptile mammal", COLOURS, _flat(PAIRS["size"]), _flat(PAIRS["animal"]))
_allow("fruit vegetable dessert dish", _flat(PAIRS["food"]), _flat(PAIRS["size"]))
_allow("drink", _flat(PAIRS["food"][1:3]))
_allow("flower tree", COLOURS, _flat(PAIRS["plant"]), _flat(PAIRS["size"]))


POSITIVE_ADJECTIVES = """
wonderful excellent superb brilliant marvellous fantastic splendid magnificent delightful charming lovely beautiful
gorgeous stunning amazing astonishing outstanding remarkable exceptional terrific fabulous glorious graceful elegant
impressive inspiring uplifting heartwarming touching moving captivating enchanting fascinating gripping thrilling
exciting entertaining amusing hilarious witty funny enjoyable pleasant pleasing satisfying rewarding refreshing
memorable unforgettable perfect flawless faultless masterful skilful polished refined admirable commendable worthy
great good fine nice decent generous welcoming friendly cosy comfortable inviting adorable lively vibrant vivid
original inventive imaginative creative thoughtful tender sincere radiant dazzling sparkling
breathtaking sensational spectacular sublime divine heavenly exquisite luxurious stylish tasteful classy
praiseworthy laudable likeable lovable endearing engaging absorbing riveting compelling convincing
""".split()
NEGATIVE_ADJECTIVES = """
terrible awful horrible dreadful atrocious abysmal appalling disgusting revolting repulsive hideous ugly ghastly
lousy miserable dismal dreary boring tedious dull monotonous tiresome lifeless shallow pointless
senseless stupid ridiculous absurd laughable pathetic pitiful clumsy awkward
sloppy messy shoddy tacky tasteless vulgar crude nasty vile foul unpleasant annoying irritating infuriating maddening
frustrating disappointing unsatisfying uninspired unoriginal predictable forgettable mediocre inferior worthless
useless hopeless disastrous catastrophic embarrassing shameful disgraceful offensive insulting bad horrid wretched
gloomy depressing grim bleak cheerless unfriendly hostile uncomfortable cramped shabby dingy squalid
overpriced overrated pretentious contrived confusing incoherent muddled chaotic painful unbearable intolerable
insufferable excruciating mindless soulless charmless humourless joyless stilted lame feeble flawed
defective deplorable lamentable sickening nauseating
""".split()
POSITIVE_ADVERBS = """
wonderfully superbly brilliantly marvellously splendidly magnificently delightfully charmingly beautifully
elegantly gracefully skilfully masterfully perfectly flawlessly admirably impressively convincingly cleverly
wittily tastefully imaginatively sensitively warmly generously exquisitely expertly faultlessly
""".split()
NEGATIVE_ADVERBS = """
awfully badly poorly horribly dreadfully atrociously abysmally appallingly miserably clumsily awkwardly
sloppily shoddily crudely pathetically feebly lazily ineptly tediously painfully ridiculously hopelessly shamefully
disgracefully woefully lamely stupidly
""".split()
POSITIVE_NOUNS = """
masterpiece triumph delight joy treasure gem pleasure success marvel wonder blessing treat inspiration miracle
highlight bargain winner sensation jewel
""".split()
NEGATIVE_NOUNS = """
disaster failure disgrace mess nightmare catastrophe insult embarrassment bore flop fiasco shambles disappointment
mistake waste letdown calamity eyesore mockery
""".split()
POSITIVE_VERBS = [
    inflect(word)
    for word in "love adore enjoy admire praise recommend treasure cherish appreciate applaud like".split()
]
NEGATIVE_VERBS = [
    inflect(word) for word in "hate loathe dislike detest despise criticise regret condemn resent abhor curse".split()
]
POSITIVE_FEELINGS = """
happy glad delighted pleased cheerful joyful thrilled grateful proud satisfied overjoyed ecstatic content merry
jubilant elated relieved hopeful enthusiastic charmed
""".split()
NEGATIVE_FEELINGS = """
sad upset angry disappointed annoyed furious unhappy bitter ashamed frustrated disgusted bored irritated
depressed outraged offended heartbroken sorrowful dejected resentful
""".split()

# what is reviewed: its parts (singular; a plural ends in "+")
TOPICS = {
    "film": "plot acting ending dialogue soundtrack script costumes+ characters+ story cast",
    "concert": "music singer sound stage orchestra songs+ band audience programme",
    "hotel": "room bed staff service pool breakfast view lobby towels+",
    "restaurant": "food service menu waiter soup dessert wine kitchen portions+ sauce",
    "novel": "plot style ending author chapters+ characters+ language title story",
    "show": "host jokes+ music costumes+ stage performers+ dialogue",
    "museum": "exhibits+ guide garden paintings+ hall collection building",
    "trip": "weather guide hotel scenery food beaches+ route view",
    "meal": "soup meat sauce vegetables+ dessert wine cheese bread",
    "game": "players+ rules+ graphics+ design music controls+ story",
    "lecture": "speaker slides+ examples+ topic voice language",
    "party": "music food host guests+ drinks+ decorations+ mood",
}  # fmt: skip
