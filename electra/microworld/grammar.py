"""Events and the sentences that tell them.

An event is what happened (who did what to which thing, where and when); ``tell`` puts it into words, with a synonym
drawn for every sense and an alternation drawn for the syntax, so that two tellings of one event are paraphrases.
"""

from dataclasses import dataclass, replace
from random import Random

from electra.microworld import lexicon
from electra.microworld.words import VERBS_FOR, Adjective, Noun, Place, Verb, VerbForms, indefinite, pick
from electra.microworld.world import Person, World

QUANTITIES = ("two", "three", "four", "some", "many", "several")


@dataclass(slots=True)
class Event:
    """One happening. ``quantity`` is "one", a word of QUANTITIES, or "some" for mass nouns."""

    tense: str
    subject: Person
    verb: Verb
    noun: Noun
    adjective: Adjective | None
    quantity: str
    recipient: Person | None
    place: Place | None
    time: str | None
    manner: Adjective | None
    negated: bool = False


def sentence(text: str, end: str = ".") -> str:
    """Capitalise and punctuate."""
    return text[0].upper() + text[1:] + end


def verb_phrase(form: VerbForms, tense: str, negated: bool) -> str:
    """The finite verb for a subject in the third person singular."""
    if tense == "future":
        return f"will {'not ' if negated else ''}{form.base}"
    if negated:
        return f"{'did' if tense == 'past' else 'does'} not {form.base}"
    return form.past if tense == "past" else form.third


def be(tense: str, is_plural: bool) -> str:
    """A form of "be" in the third person."""
    if tense == "future":
        return "will be"
    if tense == "past":
        return "were" if is_plural else "was"
    return "are" if is_plural else "is"


def noun_phrase(rng: Random, noun: Noun, adjective: Adjective | None, quantity: str, definite: bool = False) -> str:
    """Determiner, adjective and noun, each with a synonym drawn."""
    words = noun.words if quantity == "one" else noun.plurals
    head = words[int(rng.random() * len(words))]
    if adjective is not None:
        head = f"{pick(rng, adjective.words)} {head}"
    if definite:
        return f"the {head}"
    return f"{indefinite(head)} {head}" if quantity == "one" else f"{quantity} {head}"


def where(rng: Random, place: Place) -> str:
    """Prepositional phrase of a place."""
    return f"{place.preposition} the {pick(rng, place.words)}"


def tell(
    rng: Random, event: Event, subject: str | None = None, *, plain: bool = False, said: dict[str, str] | None = None
) -> str:
    """One telling of an event, without capital and full stop.

    Args:
        subject: how the subject is called (default: by name), such as a pronoun; then no passive is used.
        plain: active voice and no fronting.
        said: filled with the phrases chosen for the object ("what") and the place ("where").
    """
    form = pick(rng, event.verb.forms)
    thing = noun_phrase(rng, event.noun, event.adjective, event.quantity)
    if said is not None:
        said["what"] = thing
    draw = rng.random()
    passive = not plain and subject is None and not event.negated and draw < 0.25
    manner = f"{pick(rng, event.manner.words)} " if event.manner and not event.negated else ""
    if passive:
        to = f" to {event.recipient.name}" if event.recipient else ""
        is_plural = event.quantity != "one" and not event.noun.mass
        core = f"{thing} {be(event.tense, is_plural)} {manner}{form.participle}{to} by {event.subject.name}"
    else:
        name = subject or event.subject.name
        if event.tense == "future":
            verb = f"will {'not ' if event.negated else ''}{manner}{form.base}"
        else:
            verb = manner + verb_phrase(form, event.tense, event.negated)
        if event.recipient is None:
            core = f"{name} {verb} {thing}"
        elif draw < 0.6 and shifts(form):
            core = f"{name} {verb} {event.recipient.name} {thing}"
        else:
            core = f"{name} {verb} {thing} to {event.recipient.name}"
    if event.place is not None:
        place = where(rng, event.place)
        if said is not None:
            said["where"] = place
        if event.time is None:
            return f"{place}, {core}" if not plain and draw > 0.85 else f"{core} {place}"
        core = f"{core} {place}"
    if event.time is not None:
        return f"{event.time}, {core}" if not plain and draw > 0.65 else f"{core} {event.time}"
    return core


def shifts(form: VerbForms) -> bool:
    """Return whether a verb allows "give Ben a kite" (present and deliver do not)."""
    return form.base not in ("present", "deliver")


@dataclass(frozen=True, slots=True)
class Focus:
    """Recurring subjects of a document: things that stay as they are, and places."""

    things: tuple[tuple[Noun, Adjective], ...]
    places: tuple[Place, ...]


def draw_event(
    rng: Random,
    world: World,
    subject: Person,
    other: Person | None = None,
    tense: str = "past",
    focus: Focus | None = None,
) -> Event:
    """A new event of ``subject``: verb by frequency, everything else among what the verb and the noun admit."""
    adjective = None
    quantity = "one"
    modified = rng.random() < 0.55
    if focus is not None and rng.random() < 0.75:
        noun, constant = pick(rng, focus.things)
        verb = pick(rng, world.verbs_for[noun.kind])
        adjective = constant if modified else None
    else:
        verb = pick(rng, world.verbs)
        noun = pick(rng, world.nouns[pick(rng, verb.objects)])
        adjective = pick(rng, world.looks[noun]) if modified else None
        if rng.random() < 0.2:
            quantity = pick(rng, QUANTITIES)
    if noun.mass:
        quantity = "some"
    recipient = None
    if verb.recipient:
        recipient = other or pick(rng, world.people)
        while recipient is subject:
            recipient = pick(rng, world.people)
    draw = rng.random()
    place = draw_place(rng, world, verb, focus) if draw < 0.6 else None
    time = pick(rng, lexicon.TIMES[tense]) if 0.5 < draw < 0.75 else None
    manner = pick(rng, pick(rng, lexicon.MANNER_PAIRS)) if draw > 0.9 else None
    return Event(tense, subject, verb, noun, adjective, quantity, recipient, place, time, manner)


def draw_place(rng: Random, world: World, verb: Verb, focus: Focus | None = None) -> Place:
    """Where the verb's action happens: one of the document's places if one will do, or a usual one."""
    if focus is not None and rng.random() < 0.7:
        for place in focus.places:
            if place.kind in verb.places:
                return place
    return pick(rng, world.places_of[verb])


# ---- questions about an event ------------------------------------------------------------------------------------


def questions_of(event: Event) -> list[str]:
    """Roles of an event that can be asked for."""
    roles = ["who", "what"]
    if event.place is not None:
        roles.append("where")
    if event.time is not None:
        roles.append("when")
    if event.recipient is not None:
        roles.append("whom")
    if event.adjective is not None and event.adjective.group == "colour" and event.quantity == "one":
        roles.append("colour")
    return roles


def ask(rng: Random, event: Event, role: str) -> str:
    """A question for one role of an event; the other roles are named by some synonym."""
    form = pick(rng, event.verb.forms)
    auxiliary = {"past": "did", "present": "does", "future": "will"}[event.tense]
    noun = noun_phrase(rng, event.noun, None, event.quantity, definite=True)
    if role == "colour":
        return f"what colour {be(event.tense, False)} the {pick(rng, event.noun.words)}?"
    if role == "who":
        return f"who {verb_phrase(form, event.tense, False)} {noun}?"
    if role == "what":
        to = f" to {event.recipient.name}" if event.recipient else ""
        return f"what {auxiliary} {event.subject.name} {form.base}{to}?"
    if role == "whom":
        return f"who {auxiliary} {event.subject.name} {form.base} {noun} to?"
    return f"{role} {auxiliary} {event.subject.name} {form.base} {noun}?"


def short_answer(rng: Random, event: Event, role: str) -> str:
    """The asked role in a few words."""
    if role == "who":
        return event.subject.name
    if role == "what":
        return noun_phrase(rng, event.noun, event.adjective, event.quantity)
    if role == "where" and event.place is not None:
        return where(rng, event.place)
    if role == "when" and event.time is not None:
        return event.time
    if role == "whom" and event.recipient is not None:
        return event.recipient.name
    assert event.adjective is not None
    return pick(rng, event.adjective.words)


def yes_no(rng: Random, event: Event, subject: str | None = None) -> str:
    """The event as a question to be answered with yes or no."""
    auxiliary = {"past": "did", "present": "does", "future": "will"}[event.tense]
    form = pick(rng, event.verb.forms)
    parts = [auxiliary, subject or event.subject.name]
    if event.manner:
        parts.append(pick(rng, event.manner.words))
    parts += [form.base, noun_phrase(rng, event.noun, event.adjective, event.quantity)]
    if event.recipient:
        parts.append(f"to {event.recipient.name}")
    if event.place:
        parts.append(where(rng, event.place))
    if event.time:
        parts.append(event.time)
    return " ".join(parts) + "?"


def hypernym(event: Event) -> Noun:
    """The noun sense above the event's object."""
    return lexicon.HYPERNYMS[event.noun.kind]


def roles_of(event: Event) -> list[str]:
    """Roles whose filler can be exchanged for another of the same class."""
    roles = ["subject", "noun"]
    if other_verbs(event):
        roles.append("verb")
    if event.adjective is not None:
        roles.append("adjective")
    if event.recipient is not None:
        roles.append("recipient")
    if event.place is not None:
        roles.append("place")
    return roles


def change(rng: Random, world: World, event: Event, role: str) -> Event:
    """The event with another filler in one role: what was said is no longer what happened."""
    if role == "subject":
        return replace(event, subject=other_person(rng, world, event))
    if role == "recipient":
        return replace(event, recipient=other_person(rng, world, event))
    if role == "noun":
        choices = [noun for noun in lexicon.NOUNS[event.noun.kind] if noun is not event.noun]
        return replace(event, noun=rng.choice(choices))
    if role == "adjective":
        assert event.adjective is not None
        return replace(event, adjective=opposite(rng, event))
    if role == "place":
        assert event.place is not None
        places = [place for place in lexicon.PLACE_SENSES[event.place.kind] if place is not event.place]
        return replace(event, place=rng.choice(places))
    return replace(event, verb=rng.choice(other_verbs(event)))


def other_verbs(event: Event) -> list[Verb]:
    """Verb senses that fit the event's object and frame, without its own."""
    fitting = VERBS_FOR[event.noun.kind]
    return [verb for verb in fitting if verb is not event.verb and verb.recipient == event.verb.recipient]


def opposite(rng: Random, event: Event) -> Adjective:
    """An adjective that excludes the event's own: the antonym, another colour, another material."""
    own = event.adjective
    assert own is not None
    if own in lexicon.ANTONYMS:
        return lexicon.ANTONYMS[own]
    group = [a for a in lexicon.MODIFIERS[event.noun.kind] if a.group == own.group and a is not own]
    return rng.choice(group)


def other_person(rng: Random, world: World, event: Event) -> Person:
    """Somebody who has no part in the event."""
    while True:
        person = pick(rng, world.people)
        if person is not event.subject and person is not event.recipient:
            return person
