"""Tasks over two texts: paraphrase (MRPC, QQP), similarity (STS-B), entailment (MNLI, RTE), answerhood (QNLI).

Both texts tell events that differ in known roles, so every label is right by construction. As in image captions, the
two sentences of an entailment pair are about one and the same happening: another thing or place contradicts it.
"""

from dataclasses import replace
from random import Random

from electra.microworld import lexicon
from electra.microworld.grammar import (
    Event,
    ask,
    change,
    draw_event,
    hypernym,
    other_verbs,
    questions_of,
    roles_of,
    sentence,
    tell,
    yes_no,
)
from electra.microworld.lexicon import MODIFIERS
from electra.microworld.words import pick
from electra.microworld.world import World

Pair = tuple[str, str, str]
GRADED_MODIFIERS = ("noun", "adjective", "place")
GRADED_ROLES = ("subject", "verb", "noun", "adjective", "place")
# roles that a question names, by the role it asks for
NAMED_ROLES = {
    "who": ("verb", "noun"),
    "what": ("subject", "verb"),
    "where": ("subject", "verb", "noun"),
    "when": ("subject", "verb", "noun"),
    "whom": ("subject", "verb", "noun"),
    "colour": ("noun",),
}


def full_event(rng: Random, world: World, tense: str | None = None) -> Event:
    """An event with an adjective, a place and a rival verb, so that all roles can be compared."""
    if tense is None:
        tense = pick(rng, ("past", "past", "past", "present", "future"))
    while True:
        event = draw_event(rng, world, pick(rng, world.people), tense=tense)
        if event.adjective is not None and event.place is not None and other_verbs(event):
            return replace(event, manner=None)


def paraphrase(rng: Random, world: World) -> Pair:
    """MRPC: one event told twice, or two events that differ in one role."""
    event = full_event(rng, world)
    first = sentence(tell(rng, event))
    if rng.random() < 0.5:
        second = distant(rng, first, event, away=True)
        return (first, second, "1") if words_of(first) != words_of(second) else paraphrase(rng, world)
    return first, distant(rng, first, change(rng, world, event, pick(rng, roles_of(event))), away=False), "0"


def words_of(text: str) -> set[str]:
    """Words without capitals and punctuation."""
    return set(text.lower().replace(",", "").rstrip("?.").split())


def distant(rng: Random, first: str, event: Event, away: bool, asked: str | None = None) -> str:
    """Of two tellings (questions, if ``asked``) the one that shares fewer words with ``first``, or more of them.

    Pairs of the same meaning are told ``away`` from each other and others are not, so that the number of shared words
    says little about the label.
    """
    say = [sentence(tell(rng, event)) if asked is None else question(rng, event, asked) for _ in range(2)]
    shared = [len(words_of(first) & words_of(text)) - len(words_of(text)) for text in say]
    return say[shared.index(min(shared) if away else max(shared))]


def duplicate_question(rng: Random, world: World) -> Pair:
    """QQP: one question asked twice, or two questions that differ in one role or in what they ask for."""
    event = full_event(rng, world)
    same = rng.random() < 0.5
    asked = "whether" if rng.random() < 0.4 else pick(rng, ("who", "what", "where", "when"))
    first = question(rng, event, asked)
    if same:
        second = distant(rng, first, event, away=True, asked=asked)
        return (first, second, "1") if words_of(first) != words_of(second) else duplicate_question(rng, world)
    if asked in ("where", "when") and rng.random() < 0.25:
        return first, distant(rng, first, event, away=False, asked="when" if asked == "where" else "where"), "0"
    role = pick(rng, roles_of(event) if asked == "whether" else NAMED_ROLES[asked])
    return first, distant(rng, first, change(rng, world, event, role), away=False, asked=asked), "0"


def question(rng: Random, event: Event, asked: str) -> str:
    """A question for a role, or whether the event happened."""
    return sentence(yes_no(rng, event) if asked == "whether" else ask(rng, event, asked), "")


def similarity(rng: Random, world: World) -> Pair:
    """STS-B: five points less one for every role that differs; saying that it did not happen counts as one."""
    event = full_event(rng, world)
    differing = int(rng.random() * 6)
    other = event
    roles = rng.sample(GRADED_ROLES, differing)
    if roles and rng.random() < 0.15:
        roles.pop()
        other = replace(other, negated=True)
    for role in sorted(roles, key=GRADED_ROLES.index):
        other = change(rng, world, other, role)
    pair = [sentence(tell(rng, event)), sentence(tell(rng, other))]
    if rng.random() < 0.5:
        pair.reverse()
    return pair[0], pair[1], f"{5 - differing:.3f}"


# ---- entailment --------------------------------------------------------------------------------------------------


def inference(rng: Random, world: World, tense: str | None = None, label: str | None = None) -> Pair:
    """MNLI: premise, hypothesis and one of entailment, neutral, contradiction."""
    label = label or pick(rng, ("entailment", "neutral", "contradiction"))
    full = full_event(rng, world, tense)
    if rng.random() < 0.15:
        premise, hypothesis = _denied(rng, full, label)
    else:
        premise, hypothesis = _affirmed(rng, world, full, label)
    first = sentence(tell(rng, premise))
    return first, distant(rng, first, hypothesis, away=label == "entailment"), label


def _affirmed(rng: Random, world: World, full: Event, label: str) -> tuple[Event, Event]:
    """Two positive statements. Every role may say less in the hypothesis or in both, whatever the label, so that
    neither length nor general words give it away; one role decides."""
    premise = hypothesis = full
    deciding = None if label == "entailment" else pick(rng, GRADED_MODIFIERS)
    for role in GRADED_MODIFIERS:
        if role == deciding:
            if label == "neutral":
                premise = weaken(premise, role)
            else:
                hypothesis = conflict(rng, world, hypothesis, role)
            continue
        draw = rng.random()
        if draw < 0.5:
            hypothesis = weaken(hypothesis, role)
        if draw < 0.2:
            premise = weaken(premise, role)
    return premise, hypothesis


def _denied(rng: Random, full: Event, label: str) -> tuple[Event, Event]:
    """Pairs with a negation: it turns round which of two statements follows from the other."""
    weak = weaken(full, pick(rng, GRADED_MODIFIERS))
    if label == "entailment":  # who bought no toy bought no kite
        return replace(weak, negated=True), replace(full, negated=True)
    if label == "neutral":  # who bought no kite may have bought another toy
        return replace(full, negated=True), replace(weak, negated=True)
    if rng.random() < 0.5:
        return full, replace(weak, negated=True)
    return replace(weak, negated=True), full


def weaken(event: Event, role: str) -> Event:
    """Say less in one role: the object is named by its kind, a modifier is dropped."""
    if role == "noun":
        return replace(event, noun=hypernym(event))
    return replace(event, adjective=None) if role == "adjective" else replace(event, place=None)


def conflict(rng: Random, world: World, event: Event, role: str) -> Event:
    """Say something incompatible in one role: for the object a relative of it, or another kind altogether."""
    if role == "noun" and rng.random() < 0.5:
        other_kinds = [kind for kind in event.verb.objects if excludes(event.noun.kind, kind) and fits(event, kind)]
        if other_kinds:
            return replace(event, noun=lexicon.HYPERNYMS[pick(rng, other_kinds)])
    return change(rng, world, event, role)


def excludes(kind: str, other: str) -> bool:
    """Return whether nothing is of both kinds; a dog is a mammal, and a dessert may pass for a dish."""
    return kind != other and {kind, other} not in ({"dog", "mammal"}, {"dessert", "dish"})


def fits(event: Event, kind: str) -> bool:
    """Return whether the event's adjective goes with nouns of a kind, and its quantity with counting them."""
    return kind not in lexicon.MASS_MEMBERS and not event.noun.mass and event.adjective in MODIFIERS[kind]


def recognised(rng: Random, world: World) -> Pair:
    """RTE: neutral and contradiction are one class."""
    if rng.random() < 0.5:
        return inference(rng, world, label="entailment")
    first, second, _ = inference(rng, world, label=pick(rng, ("neutral", "contradiction")))
    return first, second, "not_entailment"


# ---- answerhood --------------------------------------------------------------------------------------------------


def answers(rng: Random, world: World) -> Pair:
    """QNLI: question, sentence, and whether the sentence answers the question.

    Most sentences that do not answer leave out what is asked for; the others tell of something else.
    """
    event = full_event(rng, world)
    if event.time is None:
        event = replace(event, time=pick(rng, lexicon.TIMES[event.tense]))
    asked = pick(rng, [role for role in questions_of(event) if role in ("where", "when", "colour")])
    first = question(rng, event, asked)
    draw = rng.random()
    if draw < 0.5:
        return first, distant(rng, first, event, away=True), "entailment"
    if draw < 0.9:
        other = left_out(event, asked)
    else:
        other = change(rng, world, event, pick(rng, NAMED_ROLES[asked]))
    return first, sentence(tell(rng, other)), "not_entailment"


def left_out(event: Event, asked: str) -> Event:
    """The event without the place, the time or the colour that is asked for."""
    if asked == "where":
        return replace(event, place=None)
    return replace(event, time=None) if asked == "when" else replace(event, adjective=None)
