"""Exact match and F1 of SQuAD 1.1 and 2.0, by the rules of the official evaluation scripts.

Both compare texts after lowercasing, dropping ASCII punctuation and the articles a, an, the, and joining white space;
a question with several reference answers counts the best. All results are fractions.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """An answer as it is compared. Punctuation goes first: "the-end" becomes one word, its article stays."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(gold: str, predicted: str) -> float:
    return float(normalize(gold) == normalize(predicted))


def token_f1(gold: str, predicted: str, *, empty_matches: bool) -> float:
    """F1 of the two bags of words.

    ``empty_matches``: two texts without words agree. SQuAD 2.0's script says so (no answer is an answer there),
    SQuAD 1.1's does not.
    """
    gold_words, words = normalize(gold).split(), normalize(predicted).split()
    if empty_matches and not (gold_words and words):
        return float(gold_words == words)
    same = sum((Counter(gold_words) & Counter(words)).values())
    return 2 * same / (len(gold_words) + len(words)) if same else 0.0


def squad_v1(golds: Sequence[Sequence[str]], predictions: Sequence[str]) -> dict[str, float]:
    """Mean over questions of the best match among the reference answers."""
    pairs = list(zip(golds, predictions, strict=True))
    return {
        "f1": _mean([max(token_f1(g, p, empty_matches=False) for g in gold) for gold, p in pairs]),
        "exact": _mean([max(exact_match(g, p) for g in gold) for gold, p in pairs]),
    }


def squad_v2(
    golds: Sequence[Sequence[str]], predictions: Sequence[str], null_scores: Sequence[float], threshold: float = 0.0
) -> dict[str, float]:
    """SQuAD 2.0: an empty list of references means that no answer is right.

    Args:
        predictions: the best span of each question, whether or not the question is held to be answerable.
        null_scores: how much a question is held to have no answer; above ``threshold`` none is given.

    Returns:
        f1 and exact at the threshold given; the same over the questions with an answer (HasAns_f1, HasAns_exact) and
        over those without (NoAns_f1, NoAns_exact), where there are any; best_f1 and best_exact at the threshold that is
        best on these very questions, with best_f1_threshold and best_exact_threshold: tuned on what they are measured
        on.
    """
    scores = [_question_scores(gold, p) for gold, p in zip(golds, predictions, strict=True)]
    f1s, exacts = [s.f1 for s in scores], [s.exact for s in scores]
    answerable = [s.answerable for s in scores]
    given = [score <= threshold for score in null_scores]
    best_f1, best_f1_threshold = best_threshold(f1s, answerable, null_scores, predictions)
    best_exact, best_exact_threshold = best_threshold(exacts, answerable, null_scores, predictions)
    kept = {
        "f1": [s if g else float(not a) for s, g, a in zip(f1s, given, answerable, strict=True)],
        "exact": [s if g else float(not a) for s, g, a in zip(exacts, given, answerable, strict=True)],
    }
    parts = {
        f"{part}_{name}": _mean([value for value, a in zip(values, answerable, strict=True) if a == has_answer])
        for part, has_answer in (("HasAns", True), ("NoAns", False))
        if has_answer in answerable
        for name, values in kept.items()
    }
    return {
        **{name: _mean(values) for name, values in kept.items()},
        **parts,
        "best_f1": best_f1,
        "best_exact": best_exact,
        "best_f1_threshold": best_f1_threshold,
        "best_exact_threshold": best_exact_threshold,
    }


@dataclass
class _Scores:
    f1: float
    exact: float
    answerable: bool


def _question_scores(gold: Sequence[str], predicted: str) -> _Scores:
    # References without a word after normalising do not count; a question without any is one without answer.
    references = [text for text in gold if normalize(text)] or [""]
    return _Scores(
        f1=max(token_f1(text, predicted, empty_matches=True) for text in references),
        exact=max(exact_match(text, predicted) for text in references),
        answerable=bool(gold),
    )


def best_threshold(
    scores: Sequence[float], answerable: Sequence[bool], null_scores: Sequence[float], predictions: Sequence[str]
) -> tuple[float, float]:
    """The highest mean over all thresholds, and the threshold: answers are given where null_score <= threshold.

    Starts with no answer given at all, then gives one after the other by rising null score, as the official script
    does (it too takes questions of one null score one by one).
    """
    current = best = float(sum(not a for a in answerable))
    threshold = 0.0
    for i in sorted(range(len(scores)), key=lambda i: null_scores[i]):
        if answerable[i]:
            current += scores[i]
        elif predictions[i]:
            current -= 1
        if current > best:
            best, threshold = current, null_scores[i]
    return best / len(scores), threshold


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
