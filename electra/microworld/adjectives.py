"""Adjectives, colours, materials, adverbs and times: modifiers with their synonyms and opposites."""

from electra.microworld.words import Adjective, senses

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
