"""Narrative documents: what people do to things, told, told again, asked about and concluded from."""

from dataclasses import replace
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
from electra.microworld.words import indefinite, pick
from electra.microworld.world import Person, World

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
