"""Documents of the microworld: stories, reviews and reference pages, a pure function of seed and number."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from electra.microworld import lexicon
from electra.microworld.grammar import ask, draw_event, sentence, short_answer, tell, where
from electra.microworld.lexicon import ANTONYMS
from electra.microworld.stories import introduce, story
from electra.microworld.words import Noun, indefinite, pick
from electra.microworld.world import Opinions, World

PAGE_KINDS = tuple(lexicon.NOUNS)


def kind_page(rng: Random, world: World) -> list[str]:
    """One kind of thing and a relative of it."""
    kind = pick(rng, PAGE_KINDS)
    first = pick(rng, world.nouns[kind])
    lines = describe(rng, world, first)
    second = pick(rng, world.nouns[kind])
    if second is not first:
        lines += describe(rng, world, second)
    return lines


def describe(rng: Random, world: World, noun: Noun) -> list[str]:
    """Hypernym, looks and home of a kind, in the present tense."""
    nature = world.natures[noun]
    index = int(rng.random() * len(noun.words))
    word, many = noun.words[index], noun.plurals[index]
    above = lexicon.HYPERNYMS[noun.kind]
    one_above = pick(rng, above.words)
    verb = "is" if noun.mass else "are"
    looks = [pick(rng, modifier.words) for modifier in nature.modifiers]
    if noun.mass:
        lines = [sentence(f"{word} is {indefinite(one_above)} {one_above}")]
    else:
        lines = [sentence(f"{indefinite(word)} {word} is {indefinite(one_above)} {one_above}")]
    lines.append(sentence(f"{many} {verb} {' and '.join(looks[:2])}"))
    if len(noun.words) > 1:
        lines.append(sentence(f"{word} and {pick(rng, [w for w in noun.words if w != word])} mean the same"))
    first, second = where(rng, nature.place), where(rng, nature.second_place)
    lives = "live" if noun.kind in lexicon.ANIMALS else "grow" if noun.kind in lexicon.PLANTS else f"{verb} found"
    lines.append(sentence(f"most {many} {lives} {first} or {second}"))
    modifier = nature.modifiers[0]
    if modifier in ANTONYMS:
        lines.append(sentence(f"{'it is' if noun.mass else 'they are'} not {pick(rng, ANTONYMS[modifier].words)}"))
    return lines


def person_page(rng: Random, world: World) -> list[str]:
    """A person's life, in which the home changes."""
    person = pick(rng, world.people)
    lines = introduce(rng, world, person)
    name, she = person.name, person.subject
    lines.append(f"{person.town} is a town in {world.regions[person.town]}.")
    lines.append(f"{name} works {where(rng, person.workplace)}.")
    food = pick(rng, person.favourite.plurals)
    lines.append(sentence(f"{person.possessive} favourite food is {food}"))
    town = pick(rng, world.towns)
    if town != person.town:
        lines.append(f"Last year, {name} moved from {person.town} to {town}.")
        lines.append(f"Now {she} lives in {town}.")
        lines.append(f"{town} is a town in {world.regions[town]}.")
        if rng.random() < 0.5:
            lines.append(f"Where does {name} live now?")
            lines.append(f"{name} lives in {town}.")
    event = draw_event(rng, world, person)
    lines += [sentence(tell(rng, event)), sentence(ask(rng, event, "what"), "")]
    lines.append(sentence(short_answer(rng, event, "what")))
    return lines


TOPIC_NAMES = tuple(lexicon.TOPICS)
PARTS = {topic: tuple(parts.split()) for topic, parts in lexicon.TOPICS.items()}
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
    return f"{pick(rng, lexicon.INTENSIFIERS)} {adjective}" if rng.random() < 0.25 else adjective


# what a document is about, by tenths
KINDS = (story,) * 11 + (review,) * 5 + (kind_page,) * 2 + (person_page,) * 2


def document(world: World, index: int) -> str:
    """Document ``index`` of a world: one sentence a line."""
    rng = Random(f"{world.seed}/document/{index}")
    return "\n".join(KINDS[int(rng.random() * len(KINDS))](rng, world))


def documents(num_documents: int, seed: int) -> Iterator[str]:
    """The first ``num_documents`` documents of the world of ``seed``."""
    world = World(seed)
    for index in range(num_documents):
        yield document(world, index)


def write_documents(path: Path, num_documents: int, seed: int) -> None:
    """Write the first documents of a world as a text file, a blank line between two of them."""
    with open(path, "w", encoding="utf-8") as file:
        for text in documents(num_documents, seed):
            file.write(f"{text}\n\n")
