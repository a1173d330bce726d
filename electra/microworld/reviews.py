"""Opinions: documents in which everything is praised or everything is blamed."""

from random import Random

from electra.microworld import adjectives, sentiment
from electra.microworld.grammar import sentence
from electra.microworld.words import indefinite, pick
from electra.microworld.world import Opinions, World

TOPIC_NAMES = tuple(sentiment.TOPICS)
PARTS = {topic: tuple(parts.split()) for topic, parts in sentiment.TOPICS.items()}
PRODUCTS = ("film", "novel", "show", "game")


def review(rng: Random, world: World) -> list[str]:
    """A person's view of one topic, of one polarity throughout."""
    person = pick(rng, world.people)
    topic = pick(rng, TOPIC_NAMES)
    good = rng.random() < 0.5
    lines = [sentence(f"{person.name} {pick(rng, ('talked', 'wrote'))} about {indefinite(topic)} {topic}")]
    for _ in range(7 + int(rng.random() * 6)):
        lines.append(opinion(rng, world.topic_opinions[topic], topic, good, person.subject))
    return lines


def opinion(rng: Random, opinions: dict[bool, Opinions], topic: str, good: bool, speaker: str = "I") -> str:
    """One sentence of praise or blame; each holds one to three words of its polarity."""
    words, opposite = opinions[good], opinions[not good]
    part = pick(rng, PARTS[topic])
    is_plural = part.endswith("+")
    part = part.rstrip("+")
    was = "were" if is_plural else "was"
    draw = rng.random()
    if draw < 0.22:
        return sentence(f"the {part} {was} {quality(rng, words)} and {quality(rng, words)}")
    if draw < 0.34:
        other = pick(rng, PARTS[topic])
        verb = "were" if other.endswith("+") else "was"
        return sentence(
            f"the {part} {was} {quality(rng, words)}, and the {other.rstrip('+')} {verb} {quality(rng, words)}"
        )
    if draw < 0.46:
        first = pick(rng, words.adjectives)
        return sentence(f"it was {indefinite(first)} {first} and {pick(rng, words.adjectives)} {topic}")
    if draw < 0.56:
        adjective = pick(rng, words.adjectives)
        return sentence(f"{speaker} {pick(rng, words.verbs).past} the {adjective} {part}")
    if draw < 0.64:
        noun = pick(rng, words.nouns)
        return sentence(f"the {topic} was {indefinite(noun)} {noun}, and the {part} {was} {quality(rng, words)}")
    if draw < 0.72:
        return sentence(f"the {part} {was} {pick(rng, words.adverbs)} made and {quality(rng, words)}")
    if draw < 0.80:
        return sentence(f"everybody was {pick(rng, words.feelings)} and {pick(rng, words.feelings)}")
    if draw < 0.90:
        denial = pick(rng, ("not", "never", "not at all", "hardly", "far from"))
        return sentence(f"the {part} {was} {denial} {pick(rng, opposite.adjectives)}")
    first = pick(rng, words.adjectives)
    return sentence(f"what {indefinite(first)} {first} {topic}", "!")


def quality(rng: Random, words: Opinions) -> str:
    """An adjective of one polarity, sometimes intensified."""
    adjective = pick(rng, words.adjectives)
    return f"{pick(rng, adjectives.INTENSIFIERS)} {adjective}" if rng.random() < 0.25 else adjective
