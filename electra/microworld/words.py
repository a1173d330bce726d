"""Senses, inflection and Zipf tables: what the word lists of this room are made of.

A sense is a set of synonyms with one meaning. No word belongs to two senses of the same part of speech, so that a
label such as "same meaning" follows from comparing senses.
"""

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
