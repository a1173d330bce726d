"""Reference documents: what a kind of thing is like, who a person is, where a town lies."""

from random import Random

from electra.microworld import nouns
from electra.microworld.adjectives import ANTONYMS
from electra.microworld.grammar import ask, draw_event, sentence, short_answer, tell, where
from electra.microworld.stories import introduce
from electra.microworld.words import Noun, indefinite, pick
from electra.microworld.world import World

KINDS = tuple(nouns.NOUNS)


def kind_page(rng: Random, world: World) -> list[str]:
    """One kind of thing and a relative of it."""
    kind = pick(rng, KINDS)
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
    above = nouns.HYPERNYMS[noun.kind]
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
    lives = "live" if noun.kind in nouns.ANIMALS else "grow" if noun.kind in nouns.PLANTS else f"{verb} found"
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
