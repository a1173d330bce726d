"""Pairs of microworld's sentences that differ in one rule: agreement, order, anaphora, selection.

Here and not in electra/microworld, since no stage writes them: an edit must not run the corpus again.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from electra.microworld import lexicon
from electra.microworld.grammar import draw_event, sentence, tell
from electra.microworld.sentence_tasks import ABSURD_KINDS, NAMES, SWAPS
from electra.microworld.words import pick
from electra.microworld.world import World

Pair = tuple[str, str]
TENSES = ("past", "past", "present", "future")


def minimal_pairs(seed: int, per_kind: int) -> list[dict[str, str]]:
    """Rows in BLiMP's format: ``sentence_good``, ``sentence_bad`` and the rule as ``UID``; no pair twice."""
    world, rng, rows = World(seed), Random(f"minimal pairs {seed}"), []
    for kind, draw in KINDS.items():
        seen: set[Pair] = set()
        while len(seen) < per_kind:
            pair = draw(rng, world)
            if pair is not None and pair not in seen:
                seen.add(pair)
                rows.append({"sentence_good": pair[0], "sentence_bad": pair[1], "UID": kind})
    return rows


def _told(rng: Random, world: World) -> list[str]:
    """The words of a telling, the first as within a sentence."""
    event = draw_event(rng, world, pick(rng, world.people), tense=pick(rng, TENSES))
    words = sentence(tell(rng, replace(event, negated=rng.random() < 0.25)))[:-1].split(" ")
    return words if words[0] in NAMES else [words[0].lower(), *words[1:]]


def _agreement(rng: Random, world: World) -> Pair | None:
    """A finite verb of the other number."""
    words = _told(rng, world)
    places = [place for place, word in enumerate(words) if word in SWAPS and word not in ("a", "an")]
    if not places:
        return None
    place = pick(rng, places)
    return _pair(words, [*words[:place], SWAPS[words[place]], *words[place + 1 :]])


def _order(rng: Random, world: World) -> Pair | None:
    """A determiner behind the word it belongs before."""
    words = _told(rng, world)
    places = [place for place, word in enumerate(words[:-1]) if word in ("the", "a", "an")]
    if not places:
        return None
    place = pick(rng, places)
    return _pair(words, [*words[:place], words[place + 1], words[place], *words[place + 2 :]])


def _anaphora(rng: Random, world: World) -> Pair | None:
    """A pronoun of the other gender for the one person that was named."""
    person = pick(rng, world.people)
    event, later = (draw_event(rng, world, person) for _ in range(2))
    if event.recipient is not None or later.recipient is not None:
        return None
    first = sentence(tell(rng, event, plain=True))
    number = rng.random()
    good, bad = (
        f"{first} {sentence(tell(Random(number), later, subject=pronoun, plain=True))}"
        for pronoun in (person.subject, "he" if person.female else "she")
    )
    return good, bad


def _selection(rng: Random, world: World) -> Pair | None:
    """A thing that the verb cannot be done to."""
    event = draw_event(rng, world, pick(rng, world.people), tense=pick(rng, TENSES))
    if event.verb not in ABSURD_KINDS:
        return None
    other = pick(rng, lexicon.NOUNS[pick(rng, ABSURD_KINDS[event.verb])])
    if other.mass or event.noun.mass:
        return None
    number = rng.random()
    good, bad = (
        sentence(tell(Random(number), replace(event, noun=noun, adjective=None), plain=True))
        for noun in (event.noun, other)
    )
    return good, bad


def _pair(good: list[str], bad: list[str]) -> Pair | None:
    texts = sentence(" ".join(good)), sentence(" ".join(bad))
    return texts if texts[0] != texts[1] else None


KINDS: dict[str, Callable[[Random, World], Pair | None]] = {
    "agreement": _agreement,
    "order": _order,
    "anaphora": _anaphora,
    "selection": _selection,
}
