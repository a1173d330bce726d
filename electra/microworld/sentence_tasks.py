"""Tasks over one sentence: acceptability (CoLA) and sentiment (SST-2)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from electra.microworld import names, nouns
from electra.microworld.adjectives import MANNER_PAIRS
from electra.microworld.corpus import TOPIC_NAMES, opinion
from electra.microworld.grammar import draw_event, sentence, tell
from electra.microworld.stories import activity
from electra.microworld.verbs import INTRANSITIVE, TRANSITIVE
from electra.microworld.words import pick
from electra.microworld.world import ALL_OPINIONS, Opinions, World

T = TypeVar("T")
FORMS = [form for verb in TRANSITIVE + INTRANSITIVE for form in verb.forms]
PAST_OF = {form.base: form.past for form in FORMS if form.past != form.base}
BASE_OF_PARTICIPLE = {form.participle: form.base for form in FORMS if form.participle != form.base}
FINITE = {form.past: form.progressive for form in FORMS} | {form.third: form.progressive for form in FORMS}
NOUN_SENSES = [noun for members in nouns.NOUNS.values() for noun in members if not noun.mass]
SINGULARS = {p: w for noun in NOUN_SENSES for w, p in zip(noun.words, noun.plurals, strict=True) if w != p}
PLURALS = {singular: many for many, singular in SINGULARS.items()}
SWAPS = {"was": "were", "were": "was", "is": "are", "are": "is", "does": "do", "a": "an", "an": "a"}
NAMES = frozenset(names.FEMALE + names.MALE)
MANNERS = frozenset(word for pair in MANNER_PAIRS for manner in pair for word in manner.words)
COUNTING = ("two", "three", "four", "many", "several")
# verbs that take no object of these kinds at all ("she ate a hammer")
_ABSURD = """
eat taste cook bake drink pour serve peel : tool instrument vehicle device garment seat surface
wear sew knit iron : vehicle fruit seat tool fish tree surface dessert
read write publish : fruit vehicle garment seat bird fish tree
play tune practise : fruit garment fish tree seat flower
drive park : fruit bird fish flower garment publication dish dessert
feed train : tool vehicle surface garment container device
grow plant : tool vehicle device publication instrument surface
climb : fruit dish publication bird fish dessert
sharpen : fruit garment bird tree publication dish
"""
ABSURD_KINDS = {
    verb: tuple(kinds.split())
    for lemmas, kinds in (line.split(" : ") for line in _ABSURD.strip().splitlines())
    for verb in TRANSITIVE
    if verb.forms[0].base in lemmas.split()
}
TRAIN_SHARE = 0.25  # of the polar words are in the training set; the rest is known only from the corpus


# ---- acceptability -----------------------------------------------------------------------------------------------


def acceptability(rng: Random, world: World) -> tuple[str, str]:
    """(sentence, label): label "0" has one word wrong."""
    event = draw_event(rng, world, pick(rng, world.people), tense=pick(rng, ("past", "past", "present", "future")))
    event = replace(event, negated=rng.random() < 0.25)
    acceptable = rng.random() < 0.5
    draw = rng.random()
    if draw < 0.08:
        text = activity(rng, world, event.subject, event.tense)
    elif draw < 0.22:
        text = opinion(rng, world.opinions, pick(rng, TOPIC_NAMES), rng.random() < 0.5)
    elif draw < 0.45 and not acceptable:
        return absurd(rng, world), "0"
    else:
        text = sentence(tell(rng, event))
    return (text, "1") if acceptable else (corrupt(rng, text), "0")


def absurd(rng: Random, world: World) -> str:
    """A sentence whose verb cannot take its object."""
    event = draw_event(rng, world, pick(rng, world.people), tense=pick(rng, ("past", "past", "present", "future")))
    if event.verb not in ABSURD_KINDS:
        return absurd(rng, world)
    noun = pick(rng, nouns.NOUNS[pick(rng, ABSURD_KINDS[event.verb])])
    quantity = "one" if event.noun.mass else event.quantity
    return sentence(tell(rng, replace(event, noun=noun, adjective=None, quantity=quantity)))


def corrupt(rng: Random, text: str) -> str:
    """Break one rule at one place: agreement, verb form, article, number, order, or a doubled word."""
    tokens = text[:-1].split(" ")
    if tokens[0] not in NAMES:
        tokens[0] = tokens[0].lower()
    kinds: list[Callable[[list[str], int], list[str] | None]] = [
        _agreement, _agreement, _verb_form, _verb_form, _number, _number, _order, _doubled
    ]  # fmt: skip
    rng.shuffle(kinds)
    for kind in kinds:
        found = [broken for i in range(len(tokens)) if (broken := kind(tokens, i)) is not None]
        if found:
            return sentence(" ".join(pick(rng, found)), text[-1])
    raise AssertionError(f"nothing to break in {text!r}")


def _agreement(tokens: list[str], i: int) -> list[str] | None:
    word = tokens[i]
    return tokens[:i] + [SWAPS[word]] + tokens[i + 1 :] if word in SWAPS else None


def _verb_form(tokens: list[str], i: int) -> list[str] | None:
    word, before = tokens[i], tokens[i - 1] if i else ""
    if (
        word in PAST_OF
        and ("not" == before or "will" == before)
        and any(helper in tokens for helper in ("did", "does", "will"))
    ):
        return tokens[:i] + [PAST_OF[word]] + tokens[i + 1 :]
    if word in BASE_OF_PARTICIPLE and before in ("was", "were", "is", "are") and "by" in tokens:
        return tokens[:i] + [BASE_OF_PARTICIPLE[word]] + tokens[i + 1 :]
    if word in FINITE and (before in NAMES or before in MANNERS):
        return tokens[:i] + [FINITE[word]] + tokens[i + 1 :]
    return None


def _number(tokens: list[str], i: int) -> list[str] | None:
    word = tokens[i]
    before = tokens[max(0, i - 2) : i]
    if word in SINGULARS and any(count in before for count in COUNTING):
        return tokens[:i] + [SINGULARS[word]] + tokens[i + 1 :]
    if word in PLURALS and ("a" in before or "an" in before):
        return tokens[:i] + [PLURALS[word]] + tokens[i + 1 :]
    return None


def _order(tokens: list[str], i: int) -> list[str] | None:
    if tokens[i] not in ("the", "a", "an", "some", *COUNTING) or i + 1 >= len(tokens):
        return None
    return tokens[:i] + [tokens[i + 1], tokens[i]] + tokens[i + 2 :]


def _doubled(tokens: list[str], i: int) -> list[str] | None:
    return tokens[: i + 1] + tokens[i:] if tokens[i] in ("the", "a", "an", "to", "in", "by", "was", "not") else None


# ---- sentiment ---------------------------------------------------------------------------------------------------


def known_opinions(world: World) -> dict[bool, Opinions]:
    """The polar words that training sentences may use: a fixed part of each list."""
    rng = Random(f"{world.seed}/tasks/SST-2/words")

    def known(words: Sequence[T]) -> tuple[T, ...]:
        return tuple(rng.sample(words, max(2, round(TRAIN_SHARE * len(words)))))

    return {good: words.arranged(known) for good, words in ALL_OPINIONS.items()}


def sentiment(rng: Random, opinions: dict[bool, Opinions]) -> tuple[str, str]:
    """(sentence, label): "1" praises, "0" blames."""
    good = rng.random() < 0.5
    return opinion(rng, opinions, pick(rng, TOPIC_NAMES), good, pick(rng, ("I", "they", "we"))), str(int(good))
