"""The world of one seed: how frequent every word is, who lives where, what every kind of thing is like."""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeVar

from electra.microworld import lexicon, words
from electra.microworld.words import Adjective, Noun, Place, VerbForms, zipf_table

T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True)
class Person:
    """One inhabitant. First names are unique; job, town and favourites hold at the start of every document."""

    name: str
    surname: str
    female: bool
    job: Noun
    workplace: Place
    town: str
    favourite: Noun
    traits: tuple[Adjective, Adjective]

    @property
    def subject(self) -> str:
        return "she" if self.female else "he"

    @property
    def possessive(self) -> str:
        return "her" if self.female else "his"


@dataclass(frozen=True, eq=False, slots=True)
class Nature:
    """Facts about every member of a kind: the looks and the home of robins."""

    modifiers: tuple[Adjective, ...]
    place: Place
    second_place: Place


class Arrange(Protocol):
    """Any choice or repetition of items."""

    def __call__(self, items: Sequence[T], /) -> tuple[T, ...]: ...


@dataclass(frozen=True, eq=False, slots=True)
class Opinions:
    """Words of one polarity; repeated by frequency where they are drawn from."""

    adjectives: tuple[str, ...]
    adverbs: tuple[str, ...]
    nouns: tuple[str, ...]
    verbs: tuple[VerbForms, ...]
    feelings: tuple[str, ...]

    def arranged(self, arrange: Arrange) -> "Opinions":
        """The same parts of speech, each ``arrange``d."""
        verbs = arrange(self.verbs)
        return Opinions(
            arrange(self.adjectives), arrange(self.adverbs), arrange(self.nouns), verbs, arrange(self.feelings)
        )


ALL_OPINIONS = {
    True: Opinions(
        tuple(lexicon.POSITIVE_ADJECTIVES),
        tuple(lexicon.POSITIVE_ADVERBS),
        tuple(lexicon.POSITIVE_NOUNS),
        tuple(lexicon.POSITIVE_VERBS),
        tuple(lexicon.POSITIVE_FEELINGS),
    ),
    False: Opinions(
        tuple(lexicon.NEGATIVE_ADJECTIVES),
        tuple(lexicon.NEGATIVE_ADVERBS),
        tuple(lexicon.NEGATIVE_NOUNS),
        tuple(lexicon.NEGATIVE_VERBS),
        tuple(lexicon.NEGATIVE_FEELINGS),
    ),
}


class World:
    """All tables of a seed, drawn in a fixed order from ``random.Random(f"{seed}/world")``.

    Tables are made for :func:`electra.microworld.words.pick`: frequent items stand in them many times.
    """

    def __init__(self, seed: int):
        rng = Random(f"{seed}/world")

        def ranked(items: Iterable[T], offset: float, exponent: float = 1.0) -> tuple[T, ...]:
            shuffled = list(items)
            rng.shuffle(shuffled)
            return zipf_table(shuffled, offset=offset, exponent=exponent)

        def collocates(items: Iterable[T]) -> tuple[T, ...]:
            return ranked(items, offset=1, exponent=1.5)

        def opinions(offset: float) -> dict[bool, Opinions]:
            return {good: words.arranged(lambda part: ranked(part, offset)) for good, words in ALL_OPINIONS.items()}

        self.seed = seed
        self.nouns = {kind: ranked(members, 2) for kind, members in lexicon.NOUNS.items()}
        self.places = {kind: ranked(places, 3) for kind, places in lexicon.PLACE_SENSES.items()}
        self.verbs = ranked(words.TRANSITIVE, 5)
        self.activities = ranked(words.INTRANSITIVE, 3)
        self.towns = ranked(lexicon.TOWNS, 3)
        self.regions = {town: rng.choice(lexicon.REGIONS) for town in lexicon.TOWNS}
        self.people = ranked(self._inhabitants(rng), 3)
        # collocations: what a thing mostly is like, what is mostly done with it, and where
        everything = [noun for members in lexicon.NOUNS.values() for noun in members]
        self.looks = {noun: collocates(lexicon.MODIFIERS[noun.kind]) for noun in everything}
        self.natures = {noun: self._nature(rng, noun) for noun in everything}
        self.verbs_for = {kind: ranked(words.VERBS_FOR[kind], 2) for kind in lexicon.NOUNS}
        self.places_of = {
            verb: collocates(place for kind in verb.places for place in lexicon.PLACE_SENSES[kind])
            for verb in words.TRANSITIVE + words.INTRANSITIVE
        }
        # praise and blame in general, and as one usually speaks of a topic
        self.opinions = opinions(12)
        self.topic_opinions = {topic: opinions(3) for topic in lexicon.TOPICS}

    def _inhabitants(self, rng: Random) -> list[Person]:
        people: list[Person] = []
        favourites = [noun for kind in lexicon.FOODS for noun in lexicon.NOUNS[kind]]
        for name in lexicon.FEMALE + lexicon.MALE:
            job, workplace = rng.choice(lexicon.JOB_SENSES)
            female = len(people) < len(lexicon.FEMALE)
            surname, town = rng.choice(lexicon.SURNAMES), rng.choice(self.towns)
            first, second = (rng.choice(pair) for pair in rng.sample(lexicon.PAIRS["person"], 2))
            favourite = rng.choice(favourites)
            people.append(Person(name, surname, female, job, workplace, town, favourite, (first, second)))
        return people

    def _nature(self, rng: Random, noun: Noun) -> Nature:
        usual: dict[str, Adjective] = {}
        for modifier in self.looks[noun]:  # the most frequent come first
            usual.setdefault(modifier.group, modifier)
        where = "nature" if noun.kind in lexicon.ANIMALS + lexicon.PLANTS else rng.choice(("room", "shop", "town"))
        first, second = rng.sample(lexicon.PLACE_SENSES[where], 2)
        return Nature(tuple(usual.values())[:3], first, second)

    def narrowed(self, share: float) -> "World":
        """A view of this world in which only ``share`` of people, things, towns and places are spoken of."""
        rng = Random(f"{self.seed}/narrowed")

        def some(table: tuple[T, ...]) -> tuple[T, ...]:
            members = list(dict.fromkeys(table))
            kept = set(rng.sample(members, min(len(members), max(2, round(share * len(members))))))
            return tuple(item for item in table if item in kept)

        narrow = copy(self)
        narrow.people, narrow.towns = some(self.people), some(self.towns)
        narrow.nouns = {kind: some(table) for kind, table in self.nouns.items()}
        narrow.places_of = {verb: some(table) for verb, table in self.places_of.items()}
        return narrow
