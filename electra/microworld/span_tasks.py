"""Extractive questions over a short document (SQuAD 1.1), some without an answer in it (SQuAD 2.0)."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from electra.microworld.grammar import Event, ask, draw_event, questions_of, sentence, tell
from electra.microworld.stories import introduce
from electra.microworld.words import pick
from electra.microworld.world import Person, World

QUESTIONS_PER_PARAGRAPH = 4
IMPOSSIBLE_SHARE = 1 / 3


@dataclass(slots=True)
class Passage:
    """A context with its events, and what each event's sentence said where."""

    context: str = ""
    events: list[Event] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    phrases: list[dict[str, str]] = field(default_factory=list)


def passage(rng: Random, world: World) -> Passage:
    """Four to six events of three people; no verb and no noun comes twice, so that a question fits one event only."""
    people: list[Person] = []
    while len(people) < 3:
        person = pick(rng, world.people)
        if person not in people:
            people.append(person)
    result = Passage(" ".join(introduce(rng, world, people[0])))
    for _ in range(4 + int(rng.random() * 3)):
        event = draw_event(rng, world, pick(rng, people), tense="past")
        if any(event.verb is e.verb or event.noun.kind == e.noun.kind for e in result.events):
            continue
        said: dict[str, str] = {}
        text = sentence(tell(rng, event, said=said))
        result.starts.append(len(result.context) + 1)
        result.context += " " + text
        result.events.append(event)
        result.phrases.append(said)
    return result


def locate(passage: Passage, number: int, role: str) -> tuple[str, int]:
    """Text and character offset of the answer to a question for ``role`` of event ``number``."""
    event, said = passage.events[number], passage.phrases[number]
    if role == "who":
        phrase = answer = event.subject.name
    elif role == "whom":
        assert event.recipient is not None
        phrase = answer = event.recipient.name
    elif role == "when":
        assert event.time is not None
        phrase = event.time
        answer = phrase.removeprefix("on ").removeprefix("in ").removeprefix("at ")
    else:
        phrase = said["where" if role == "where" else "what"]
        answer = phrase.split(" the ")[1] if role == "where" else phrase.removeprefix("a ").removeprefix("an ")
        if role == "colour":
            answer = answer.split(" ")[0]
    where = passage.context.lower().index(phrase.lower(), passage.starts[number])
    start = where + phrase.index(answer)
    return passage.context[start : start + len(answer)], start


def paragraph(rng: Random, world: World, prefix: str, count: int, version: str) -> dict[str, Any]:
    """A paragraph with up to ``count`` questions in SQuAD's form."""
    text = passage(rng, world)
    askable = [(number, role) for number, event in enumerate(text.events) for role in questions_of(event)]
    chosen = rng.sample(askable, min(count, len(askable)))
    qas: list[dict[str, Any]] = []
    for number, role in chosen:
        entry: dict[str, Any] = {"id": f"{prefix}-{len(qas)}"}
        answer, start = locate(text, number, role)
        found = [{"text": answer, "answer_start": start}]
        impossible = version == "v2.0" and rng.random() < IMPOSSIBLE_SHARE
        event = unanswerable(rng, world, text, number, role) if impossible else text.events[number]
        entry["question"] = sentence(ask(rng, event, role), "")
        entry["answers"] = [] if impossible else found
        if version == "v2.0":
            entry["is_impossible"] = impossible
            if impossible:
                entry["plausible_answers"] = found
        qas.append(entry)
    return {"context": text.context, "qas": qas}


def unanswerable(rng: Random, world: World, text: Passage, number: int, role: str) -> Event:
    """An event near the asked one that the passage does not tell: another person did it, or to another thing."""
    event = text.events[number]
    others = [e.subject for e in text.events if e.subject is not event.subject and e.subject is not event.recipient]
    if role not in ("who", "colour") and others and rng.random() < 0.6:
        return replace(event, subject=pick(rng, others))
    kinds = [kind for kind in event.verb.objects if all(kind != e.noun.kind for e in text.events)] or [event.noun.kind]
    absent = [noun for kind in kinds for noun in dict.fromkeys(world.nouns[kind]) if noun is not event.noun]
    if role == "what":
        told = [e.verb for e in text.events]
        same_frame = [v for v in dict.fromkeys(world.verbs) if v not in told and v.recipient == event.verb.recipient]
        return replace(event, verb=pick(rng, same_frame))
    noun = pick(rng, absent)
    return replace(event, noun=noun, quantity="some" if noun.mass else "one")


def squad(rng: Random, world: World, split: str, examples: int, version: str, seen: set[str]) -> list[dict[str, Any]]:
    """Paragraphs with ``examples`` questions altogether; contexts in ``seen`` are avoided and added to it."""
    paragraphs: list[dict[str, Any]] = []
    missing = examples
    while missing:
        made = paragraph(
            rng, world, f"mw-{version}-{split}-{len(paragraphs)}", min(QUESTIONS_PER_PARAGRAPH, missing), version
        )
        if made["context"] in seen or not made["qas"]:
            continue
        seen.add(made["context"])
        paragraphs.append(made)
        missing -= len(made["qas"])
    return paragraphs
