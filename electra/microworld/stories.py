"""Documents of the microworld: stories, reviews and reference pages, a pure function of seed and number."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from electra.microworld import lexicon
from electra.microworld.grammar import (
    Event,
    Focus,
    ask,
    be,
    change,
    draw_event,
    draw_place,
    hypernym,
    noun_phrase,
    opposite,
    other_verbs,
    questions_of,
    roles_of,
    sentence,
    short_answer,
    tell,
    verb_phrase,
    where,
    yes_no,
)
from electra.microworld.lexicon import ANTONYMS
from electra.microworld.words import Noun, indefinite, pick
from electra.microworld.world import Opinions, Person, World

TENSES = ("past",) * 7 + ("present",) * 2 + ("future",)
RESTATERS = ("", "", "", "in other words, ", "that is, ", "so ", "indeed, ", "yes, ")


def story(rng: Random, world: World) -> list[str]:
    """A day in the life of one or two people."""
    hero = pick(rng, world.people)
    friend = pick(rng, world.people)
    while friend is hero:
        friend = pick(rng, world.people)
    length = 8 + int(rng.random() * 7)
    tense = pick(rng, TENSES)
    focus = draw_focus(rng, world)
    glad = rng.random() < 0.5
    lines = introduce(rng, world, hero) if rng.random() < 0.5 else []
    while len(lines) < length:
        actor, other = (hero, friend) if rng.random() < 0.7 else (friend, hero)
        draw = rng.random()
        if draw < 0.80:
            event = draw_event(rng, world, actor, other, tense, focus)
            lines += beat(rng, world, event)
        elif draw < 0.87:
            lines += keep_track(rng, world, actor, other, focus)
        elif draw < 0.94:
            lines.append(activity(rng, world, actor, tense, focus))
        else:
            lines.append(reaction(rng, world, actor, glad))
    return lines


def draw_focus(rng: Random, world: World) -> Focus:
    """Two or three things, each with a quality that does not change, and a place of every kind."""
    nouns_ = [pick(rng, world.nouns[pick(rng, verb.objects)]) for verb in (pick(rng, world.verbs) for _ in range(3))]
    things = tuple((noun, pick(rng, world.looks[noun])) for noun in nouns_[: 2 + int(rng.random() * 2)])
    return Focus(things, tuple(pick(rng, world.places[kind]) for kind in ("room", "nature", "town", "shop")))


def introduce(rng: Random, world: World, person: Person) -> list[str]:
    """Sentences about a person: constant facts of the world."""
    job = pick(rng, person.job.words)
    article = indefinite(job)
    draw = rng.random()
    full = f"{person.name} {person.surname}"
    if draw < 0.2:
        return [f"{full} is {article} {job} in {person.town}."]
    if draw < 0.4:
        first, second = (pick(rng, trait.words) for trait in person.traits)
        opposite_word = pick(rng, ANTONYMS[person.traits[0]].words)
        return [f"{full} is {first} and {second}.", f"{person.subject.capitalize()} is not {opposite_word}."]
    if draw < 0.6:
        return [f"{full} lives in {person.town}.", f"{person.subject.capitalize()} is {article} {job}."]
    if draw < 0.8:
        return [f"{full} is {article} {job} and works {where(rng, person.workplace)}."]
    return [f"{person.name}, who lives in {person.town}, is {article} {job}."]


def beat(rng: Random, world: World, event: Event) -> list[str]:
    """An event and, mostly, something that follows from it."""
    lines = [sentence(tell(rng, event))]
    draw = rng.random()
    if draw < 0.30:
        subject = None if rng.random() < 0.6 else event.subject.subject
        lines.append(sentence(pick(rng, RESTATERS) + tell(rng, event, subject)))
    elif draw < 0.52:
        lines += dialogue(rng, event)
    elif draw < 0.66:
        lines += quiz(rng, world, event)
    elif draw < 0.76:
        lines += generalise(rng, event)
    elif draw < 0.86:
        lines += correct(rng, world, event)
    elif draw < 0.94:
        lines += look(rng, world, event)
    return lines


def dialogue(rng: Random, event: Event) -> list[str]:
    """A question about the event and its answer."""
    role = pick(rng, questions_of(event))
    question = sentence(ask(rng, event, role), "")
    if role == "colour" or rng.random() < 0.5:
        return [question, sentence(short_answer(rng, event, role))]
    return [question, sentence(tell(rng, event, plain=True))]


def quiz(rng: Random, world: World, event: Event) -> list[str]:
    """Is it so? Yes for the same and the more general, no for what excludes it."""
    if rng.random() < 0.5:
        asked = event if rng.random() < 0.5 else general(event)
        return [sentence(yes_no(rng, asked), ""), f"Yes, {event.subject.subject} {_did(event)}."]
    asked = change(rng, world, event, pick(rng, [role for role in roles_of(event) if role != "verb"]))
    return [sentence(yes_no(rng, asked), ""), f"No, {asked.subject.subject} {_did(event)} not."]


def _did(event: Event) -> str:
    return {"past": "did", "present": "does", "future": "will"}[event.tense]


def general(event: Event) -> Event:
    """An event without modifiers, its object named by its kind."""
    return replace(event, noun=hypernym(event), adjective=None, manner=None, time=None)


def generalise(rng: Random, event: Event) -> list[str]:
    """The hypernym, as a statement or as a consequence."""
    own, above = pick(rng, event.noun.words), pick(rng, hypernym(event).words)
    if rng.random() < 0.5:
        if event.noun.mass:
            return [f"{own.capitalize()} is a {above}."]
        return [sentence(f"{indefinite(own)} {own} is {indefinite(above)} {above}")]
    return [sentence(pick(rng, ("", "so ", "that means that ")) + tell(rng, general(event), event.subject.subject))]


def correct(rng: Random, world: World, event: Event) -> list[str]:
    """Sentences on what did not happen, beside what did."""
    wrong = change(rng, world, event, "verb" if other_verbs(event) and rng.random() < 0.5 else "noun")
    subject = event.subject.subject
    if wrong.verb is event.verb:
        negated = replace(wrong, negated=True, place=None, time=None)
        return [sentence(tell(rng, negated, subject))]
    form, other = pick(rng, wrong.verb.forms), pick(rng, event.verb.forms)
    pronoun = "it" if event.quantity == "one" or event.noun.mass else "them"
    return [
        sentence(
            f"{subject} {verb_phrase(form, event.tense, True)} {pronoun}, "
            f"{subject} {verb_phrase(other, event.tense, False)} {pronoun}"
        )
    ]


def look(rng: Random, world: World, event: Event) -> list[str]:
    """Properties of the thing; opposites exclude each other."""
    is_plural = event.quantity != "one" and not event.noun.mass
    verb = be("present" if event.tense == "present" else event.tense, is_plural)
    thing = noun_phrase(rng, event.noun, None, event.quantity, definite=True)
    adjective = event.adjective
    if adjective is None:
        adjective = pick(rng, world.looks[event.noun])
    word = pick(rng, adjective.words)
    if rng.random() < 0.5:
        against = pick(rng, opposite(rng, replace(event, adjective=adjective)).words)
        if event.tense == "future":
            return [sentence(f"{thing} will be {word}, not {against}")]
        return [sentence(f"{thing} {verb} not {against} but {word}")]
    return [sentence(f"{thing} {verb} {word}")]


def keep_track(rng: Random, world: World, owner: Person, other: Person, focus: Focus) -> list[str]:
    """A thing changes hands, is lost and found: facts that hold only for a while."""
    noun, adjective = pick(rng, focus.things)
    if noun.kind not in lexicon.GOODS:
        noun = pick(rng, world.nouns[pick(rng, lexicon.GOODS)])
        adjective = pick(rng, world.looks[noun])
    word = pick(rng, noun.words)
    thing = noun_phrase(rng, noun, adjective, "one")
    lines = [sentence(f"{owner.name} {pick(rng, ('had', 'owned'))} {thing}")]
    draw = rng.random()
    if draw < 0.5:
        verb = pick(rng, ("gave", "sold", "handed"))
        lines.append(sentence(f"{owner.subject} {verb} the {word} to {other.name}"))
        lines.append(f"Now {other.name} has the {word}.")
        if rng.random() < 0.5:
            lines.append(f"{owner.name} does not have the {word} any more.")
    else:
        place = where(rng, pick(rng, focus.places))
        lines.append(sentence(f"{owner.subject} {pick(rng, ('lost', 'misplaced'))} the {word} {place}"))
        if draw < 0.8:
            finder = pick(rng, (owner, other))
            lines.append(f"Later, {finder.name} {pick(rng, ('found', 'discovered'))} the {word} {place}.")
            lines.append(f"Now {finder.name} has the {word}.")
        else:
            lines.append(f"Now {owner.name} does not have the {word}.")
    return lines


def activity(rng: Random, world: World, person: Person, tense: str, focus: Focus | None = None) -> str:
    """Something people do without a thing."""
    verb = pick(rng, world.activities)
    place = where(rng, draw_place(rng, world, verb, focus))
    core = verb_phrase(pick(rng, verb.forms), tense, rng.random() < 0.1)
    return sentence(f"{person.name} {core} {place}")


def reaction(rng: Random, world: World, person: Person, glad: bool) -> str:
    """How somebody felt."""
    feelings = world.opinions[glad].feelings
    return sentence(f"{person.subject} was {pick(rng, feelings)} and {pick(rng, feelings)}")


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
