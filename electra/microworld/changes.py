"""How one event is made into another: the near misses and the consequences that tasks and documents are built from."""

from dataclasses import replace
from random import Random

from electra.microworld import adjectives, nouns
from electra.microworld.grammar import Event
from electra.microworld.verbs import VERBS_FOR
from electra.microworld.words import Adjective, Verb, pick
from electra.microworld.world import Person, World


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
        choices = [noun for noun in nouns.NOUNS[event.noun.kind] if noun is not event.noun]
        return replace(event, noun=rng.choice(choices))
    if role == "adjective":
        assert event.adjective is not None
        return replace(event, adjective=opposite(rng, event))
    if role == "place":
        assert event.place is not None
        places = [place for place in nouns.PLACE_SENSES[event.place.kind] if place is not event.place]
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
    if own in adjectives.ANTONYMS:
        return adjectives.ANTONYMS[own]
    group = [a for a in adjectives.MODIFIERS[event.noun.kind] if a.group == own.group and a is not own]
    return rng.choice(group)


def other_person(rng: Random, world: World, event: Event) -> Person:
    """Somebody who has no part in the event."""
    while True:
        person = pick(rng, world.people)
        if person is not event.subject and person is not event.recipient:
            return person
