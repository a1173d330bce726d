"""Minimal pairs of the microworld: two sentences that differ in one respect, of which one breaks a rule of its text.

They are drawn here and not in electra/microworld, since no stage writes them: an edit must not run the corpus again.
All rules but word order are of groups that BLiMP has too (Warstadt et al., 2020): agreement, anaphor gender, and
argument structure (the kind of the object, an animate subject, transitivity).
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from electra.microworld.grammar import draw_event, sentence, tell
from electra.microworld.sentence_tasks import ABSURD_KINDS, NAMES, SWAPS
from electra.microworld.words import pick
from electra.microworld.world import World

Pair = tuple[str, str]
TENSES = ("past", "past", "present", "future")
PER_KIND = 200  # pairs for each rule


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
    """A thing that the verb cannot be done to.

    Its own verb cannot be done to the right thing either, so every noun is as likely to be right as to be wrong: a
    model that knows only how frequent words are is right in half of the pairs.
    """
    event, other = (draw_event(rng, world, pick(rng, world.people), tense=pick(rng, TENSES)) for _ in range(2))
    absurd, absurd_there = (ABSURD_KINDS.get(each.verb, ()) for each in (event, other))
    if other.noun.kind not in absurd or event.noun.kind not in absurd_there or event.noun.mass or other.noun.mass:
        return None
    number = rng.random()
    good, bad = (
        sentence(tell(Random(number), replace(event, noun=noun, adjective=None), plain=True))
        for noun in (event.noun, other.noun)
    )
    return good, bad


def _animacy(rng: Random, world: World) -> Pair | None:
    """A thing that does something to a person: subject and object exchanged."""
    event = draw_event(rng, world, pick(rng, world.people), tense=pick(rng, TENSES))
    if event.recipient is not None or (event.quantity != "one" and not event.noun.mass):  # the verb is singular
        return None
    said: dict[str, str] = {}
    text, name = tell(rng, event, plain=True, said=said), event.subject.name
    verb, _, after = text.removeprefix(name).partition(f" {said['what']}")
    return sentence(text), sentence(f"{said['what']}{verb} {name}{after}")


def _transitivity(rng: Random, world: World) -> Pair | None:
    """An object of a verb that has none."""
    event = draw_event(rng, world, pick(rng, world.people), tense=pick(rng, TENSES))
    if event.recipient is not None:
        return None
    number, activity = rng.random(), pick(rng, world.activities)
    good, bad = (
        sentence(tell(Random(number), replace(event, verb=verb), plain=True)) for verb in (event.verb, activity)
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
    "animacy": _animacy,
    "transitivity": _transitivity,
}
