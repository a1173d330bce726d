"""Things, animals, food, plants, jobs and places of the microworld, by kind."""

from electra.microworld.words import Noun, Place, senses

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
