"""Tasks over one text: acceptability (CoLA), sentiment (SST-2), names (CoNLL-2003), questions (SQuAD 1.1 and 2.0).

Training sets speak of a part of the words only (``World.narrowed``): what the others are is known from the corpus.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeVar

from electra.microworld import lexicon
from electra.microworld.grammar import Event, ask, draw_event, questions_of, sentence, tell
from electra.microworld.lexicon import MANNER_PAIRS
from electra.microworld.stories import TOPIC_NAMES, activity, opinion
from electra.microworld.words import INTRANSITIVE, TRANSITIVE, indefinite, pick
from electra.microworld.world import ALL_OPINIONS, Opinions, Person, World

T = TypeVar("T")
FORMS = [form for verb in TRANSITIVE + INTRANSITIVE for form in verb.forms]
PAST_OF = {form.base: form.past for form in FORMS if form.past != form.base}
BASE_OF_PARTICIPLE = {form.participle: form.base for form in FORMS if form.participle != form.base}
FINITE = {form.past: form.progressive for form in FORMS} | {form.third: form.progressive for form in FORMS}
SWAPS = {"was": "were", "were": "was", "is": "are", "are": "is", "does": "do", "a": "an", "an": "a"}
NAMES = frozenset(lexicon.FEMALE + lexicon.MALE)
MANNERS = frozenset(word for pair in MANNER_PAIRS for manner in pair for word in manner.words)
COUNTING = ("two", "three", "four", "many", "several")
# verbs that take no object of these kinds at all ("she ate a hammer")
_ABSURD = """
eat taste cook bake drink pour serve peel : tool instrument vehicle device garment seat surface
wear sew knit iron : vehicle fruit seat tool fish tree surface dessert
read write publish : fruit vehicle garment seat bird fish tree
play tune practise : fruit garment fish tree seat flower
drive park : fruit bird fish flower garment publication dish dessert
feed train : tool vehicle surface garment container device
grow plant : tool vehicle device publication instrument surface
climb : fruit dish publication bird fish dessert
sharpen : fruit garment bird tree publication dish
"""
ABSURD_KINDS = {
    verb: tuple(kinds.split())
    for lemmas, kinds in (line.split(" : ") for line in _ABSURD.strip().splitlines())
    for verb in TRANSITIVE
    if verb.forms[0].base in lemmas.split()
}
TRAIN_SHARE = 0.25  # of polar words, people, towns, things and places are in the training sets


# ---- acceptability -----------------------------------------------------------------------------------------------


def acceptability(rng: Random, world: World) -> tuple[str, str]:
    """(sentence, label): label "0" has one word wrong."""
    event = draw_event(rng, world, pick(rng, world.people), tense=pick(rng, ("past", "past", "present", "future")))
    event = replace(event, negated=rng.random() < 0.25)
    acceptable = rng.random() < 0.5
    draw = rng.random()
    if draw < 0.08:
        text = activity(rng, world, event.subject, event.tense)
    elif draw < 0.22:
        text = opinion(rng, world.opinions, pick(rng, TOPIC_NAMES), rng.random() < 0.5)
    else:
        text = sentence(tell(rng, event))
    return (text, "1") if acceptable else (corrupt(rng, text), "0")


def corrupt(rng: Random, text: str) -> str:
    """Break one rule at one place: order most often, agreement, article, verb form, or a doubled word."""
    tokens = text[:-1].split(" ")
    if tokens[0] not in NAMES:
        tokens[0] = tokens[0].lower()
    kinds: list[Callable[[list[str], int], list[str] | None]] = [
        _agreement, _verb_form, _order, _order, _moved, _moved, _doubled
    ]  # fmt: skip
    rng.shuffle(kinds)
    for kind in kinds:
        found = [broken for i in range(len(tokens)) if (broken := kind(tokens, i)) is not None]
        if found:
            return sentence(" ".join(pick(rng, found)), text[-1])
    raise AssertionError(f"nothing to break in {text!r}")


def _agreement(tokens: list[str], i: int) -> list[str] | None:
    word = tokens[i]
    return tokens[:i] + [SWAPS[word]] + tokens[i + 1 :] if word in SWAPS else None


def _verb_form(tokens: list[str], i: int) -> list[str] | None:
    word, before = tokens[i], tokens[i - 1] if i else ""
    if (
        word in PAST_OF
        and ("not" == before or "will" == before)
        and any(helper in tokens for helper in ("did", "does", "will"))
    ):
        return tokens[:i] + [PAST_OF[word]] + tokens[i + 1 :]
    if word in BASE_OF_PARTICIPLE and before in ("was", "were", "is", "are") and "by" in tokens:
        return tokens[:i] + [BASE_OF_PARTICIPLE[word]] + tokens[i + 1 :]
    if word in FINITE and (before in NAMES or before in MANNERS):
        return tokens[:i] + [FINITE[word]] + tokens[i + 1 :]
    return None


def _order(tokens: list[str], i: int) -> list[str] | None:
    if tokens[i] not in ("the", "a", "an", "some", *COUNTING) or i + 1 >= len(tokens):
        return None
    return tokens[:i] + [tokens[i + 1], tokens[i]] + tokens[i + 2 :]


def _moved(tokens: list[str], i: int) -> list[str] | None:
    """A word behind the word or two words that follow it."""
    if i + 2 >= len(tokens) or tokens[i].endswith(",") or tokens[i + 1] in ("and", "not") or tokens[i + 2] == "and":
        return None
    return tokens[:i] + [tokens[i + 2], tokens[i], tokens[i + 1]] + tokens[i + 3 :]


def _doubled(tokens: list[str], i: int) -> list[str] | None:
    return tokens[: i + 1] + tokens[i:] if tokens[i] in ("the", "a", "an", "to", "in", "by", "was", "not") else None


# ---- sentiment ---------------------------------------------------------------------------------------------------


def known_opinions(world: World) -> dict[bool, Opinions]:
    """The polar words that training sentences may use: a fixed part of each list."""
    rng = Random(f"{world.seed}/tasks/SST-2/words")

    def known(words: Sequence[T]) -> tuple[T, ...]:
        return tuple(rng.sample(words, max(2, round(TRAIN_SHARE * len(words)))))

    return {good: words.arranged(known) for good, words in ALL_OPINIONS.items()}


def sentiment(rng: Random, opinions: dict[bool, Opinions]) -> tuple[str, str]:
    """(sentence, label): "1" praises, "0" blames."""
    good = rng.random() < 0.5
    return opinion(rng, opinions, pick(rng, TOPIC_NAMES), good, pick(rng, ("I", "they", "we"))), str(int(good))


# ---- names -------------------------------------------------------------------------------------------------------

Tagged = list[tuple[str, str]]  # words with their tags: B-PER, I-PER, B-LOC or O


def named(rng: Random, world: World) -> Tagged:
    """The words of a sentence with tags of the names in it, in CoNLL-2003's scheme: people and towns."""
    first = second = pick(rng, world.people)
    here = there = pick(rng, world.towns)
    while second is first:
        second = pick(rng, world.people)
    while there == here:
        there = pick(rng, world.towns)
    job = pick(rng, first.job.words)
    draw = rng.random()
    if draw < 0.4:
        event = draw_event(rng, world, first, second, pick(rng, ("past", "past", "present", "future")))
        text = tell(rng, event)
        if draw < 0.15:
            text += f" in {here}"
    elif draw < 0.5:
        text = f"{first.name} {first.surname} is {indefinite(job)} {job} in {here}"
    elif draw < 0.6:
        text = f"{here} is a town in {world.regions[here]}"
    elif draw < 0.7:
        text = f"{first.name} moved from {here} to {there}"
    elif draw < 0.8:
        text = f"{first.name}, who lives in {here}, is {indefinite(job)} {job}"
    elif draw < 0.9:
        text = f"{here} is where {first.name} and {second.name} {second.surname} live now"
    else:
        text = f"the {job} from {here} knows {first.name} {first.surname} and {second.name}"
    return tagged(sentence(text), {first, second}, {here, there, world.regions[here]})


def tagged(text: str, people: set[Person], towns: set[str]) -> Tagged:
    """The words of a sentence, punctuation apart, with their tags."""
    first_names, surnames = {person.name for person in people}, {person.surname for person in people}
    found: Tagged = []
    for word in text.replace(",", " ,").replace(".", " .").split():
        before = found[-1][1] if found else "O"
        if word in towns:
            tag = "B-LOC"
        elif word in first_names:
            tag = "B-PER"
        else:
            tag = "I-PER" if word in surnames and before == "B-PER" else "O"
        found.append((word, tag))
    return found


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
    """Two events of three people, with different verbs and kinds of things: a question fits one of them only."""
    people: list[Person] = []
    while len(people) < 3:
        person = pick(rng, world.people)
        if person not in people:
            people.append(person)
    result = Passage()
    while len(result.events) < 2:
        event = draw_event(rng, world, pick(rng, people), tense="past")
        if any(event.verb is e.verb or event.noun.kind == e.noun.kind for e in result.events):
            continue
        said: dict[str, str] = {}
        text = sentence(tell(rng, event, said=said))
        result.context += " " if result.context else ""
        result.starts.append(len(result.context))
        result.context += text
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
        event, asked = unanswerable(rng, world, text, number, role) if impossible else (text.events[number], role)
        entry["question"] = sentence(ask(rng, event, asked), "")
        entry["answers"] = [] if impossible else found
        if version == "v2.0":
            entry["is_impossible"] = impossible
            if impossible:
                entry["plausible_answers"] = found
        qas.append(entry)
    return {"context": text.context, "qas": qas}


def unanswerable(rng: Random, world: World, text: Passage, number: int, role: str) -> tuple[Event, str]:
    """An event near the asked one that the passage does not tell, and the role to ask for.

    Place or time of it are untold, another person did it, or it was done to another thing.
    """
    event = text.events[number]
    untold = [role for role, told in (("where", event.place), ("when", event.time)) if told is None]
    if untold and rng.random() < 0.5:
        return event, pick(rng, untold)
    others = [e.subject for e in text.events if e.subject is not event.subject and e.subject is not event.recipient]
    if role not in ("who", "colour") and others and rng.random() < 0.6:
        return replace(event, subject=pick(rng, others)), role
    kinds = [kind for kind in event.verb.objects if all(kind != e.noun.kind for e in text.events)] or [event.noun.kind]
    absent = [noun for kind in kinds for noun in dict.fromkeys(world.nouns[kind]) if noun is not event.noun]
    if role == "what":
        told = [e.verb for e in text.events]
        same_frame = [v for v in dict.fromkeys(world.verbs) if v not in told and v.recipient == event.verb.recipient]
        return replace(event, verb=pick(rng, same_frame)), role
    noun = pick(rng, absent)
    return replace(event, noun=noun, quantity="some" if noun.mass else "one"), role


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
