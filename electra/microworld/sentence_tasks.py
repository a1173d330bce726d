"""Tasks over one text: acceptability (CoLA), sentiment (SST-2), questions about a document (SQuAD 1.1 and 2.0)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeVar

from electra.microworld import lexicon
from electra.microworld.grammar import Event, ask, draw_event, questions_of, sentence, tell
from electra.microworld.lexicon import MANNER_PAIRS
from electra.microworld.stories import TOPIC_NAMES, activity, introduce, opinion
from electra.microworld.words import INTRANSITIVE, TRANSITIVE, pick
from electra.microworld.world import ALL_OPINIONS, Opinions, Person, World

T = TypeVar("T")
FORMS = [form for verb in TRANSITIVE + INTRANSITIVE for form in verb.forms]
PAST_OF = {form.base: form.past for form in FORMS if form.past != form.base}
BASE_OF_PARTICIPLE = {form.participle: form.base for form in FORMS if form.participle != form.base}
FINITE = {form.past: form.progressive for form in FORMS} | {form.third: form.progressive for form in FORMS}
NOUN_SENSES = [noun for members in lexicon.NOUNS.values() for noun in members if not noun.mass]
SINGULARS = {p: w for noun in NOUN_SENSES for w, p in zip(noun.words, noun.plurals, strict=True) if w != p}
PLURALS = {singular: many for many, singular in SINGULARS.items()}
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
TRAIN_SHARE = 0.25  # of the polar words are in the training set; the rest is known only from the corpus


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
    elif draw < 0.45 and not acceptable:
        return absurd(rng, world), "0"
    else:
        text = sentence(tell(rng, event))
    return (text, "1") if acceptable else (corrupt(rng, text), "0")


def absurd(rng: Random, world: World) -> str:
    """A sentence whose verb cannot take its object."""
    event = draw_event(rng, world, pick(rng, world.people), tense=pick(rng, ("past", "past", "present", "future")))
    if event.verb not in ABSURD_KINDS:
        return absurd(rng, world)
    noun = pick(rng, lexicon.NOUNS[pick(rng, ABSURD_KINDS[event.verb])])
    quantity = "one" if event.noun.mass else event.quantity
    return sentence(tell(rng, replace(event, noun=noun, adjective=None, quantity=quantity)))


def corrupt(rng: Random, text: str) -> str:
    """Break one rule at one place: agreement, verb form, article, number, order, or a doubled word."""
    tokens = text[:-1].split(" ")
    if tokens[0] not in NAMES:
        tokens[0] = tokens[0].lower()
    kinds: list[Callable[[list[str], int], list[str] | None]] = [
        _agreement, _agreement, _verb_form, _verb_form, _number, _number, _order, _doubled
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


def _number(tokens: list[str], i: int) -> list[str] | None:
    word = tokens[i]
    before = tokens[max(0, i - 2) : i]
    if word in SINGULARS and any(count in before for count in COUNTING):
        return tokens[:i] + [SINGULARS[word]] + tokens[i + 1 :]
    if word in PLURALS and ("a" in before or "an" in before):
        return tokens[:i] + [PLURALS[word]] + tokens[i + 1 :]
    return None


def _order(tokens: list[str], i: int) -> list[str] | None:
    if tokens[i] not in ("the", "a", "an", "some", *COUNTING) or i + 1 >= len(tokens):
        return None
    return tokens[:i] + [tokens[i + 1], tokens[i]] + tokens[i + 2 :]


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
