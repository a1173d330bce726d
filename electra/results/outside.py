"""Score predictions made by other tools against a task's own file, with the metrics of the official evaluation scripts.

    SQuAD1.1, SQuAD2.0    evaluate-v1.1.py and evaluate-v2.0.py, with the names that they print
    MRQA's tasks          mrqa_official_eval.py: as SQuAD 1.1
    column files          conlleval.pl, version of 2004-01-26
    GLUE, SuperGLUE, SWAG the metrics of the task, as scikit-learn and scipy compute them

All scores are percent.

conlleval.pl has a separate table of tags (:func:`tag_scores`). For IOB1 and IOB2, and thus for everything this project
writes, it agrees with the entities of :mod:`electra.tasks.format`, on which the project's scores are based. For BIOES
it does not: it has no rule for S, nor for B after E, and joins neighbours of the same type.
"""

import codecs
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from electra.common.errors import ConfigError, DataError
from electra.common.parsing import parse_json
from electra.kinds import KINDS
from electra.kinds.scores import score
from electra.kinds.span import squad_v1, squad_v2
from electra.readers.conll import DOCUMENT_START, column_lines, encoding_of
from electra.readers.official import read_official
from electra.readers.official_tables import ID
from electra.readers.questions import read_mrqa, squad_items
from electra.readers.tables import as_label
from electra.tasks.catalogue import TASKS, TaskSpec
from electra.tasks.format import Row, entities, is_entity_tag

COLUMNS = "conll"  # used instead of a task's name: column files with tags of any kind
Token = tuple[str, list[str]]  # its position, and its columns


def print_outside_scores(
    task: str | None,
    predictions: Path | None,
    gold: Path | None,
    na_prob_file: Path | None = None,
    na_prob_thresh: float = 1.0,
) -> None:
    """Print :func:`outside_scores` as JSON.

    Raises:
        ConfigError: as :func:`outside_scores`, or no task or no predictions are given.
        DataError: as :func:`outside_scores`.
    """
    if predictions is None or task is None:
        raise ConfigError(
            "a file of predictions is scored with its task and the file of the right answers",
            where="electra evaluate",
            next_step="electra evaluate --task SQuAD2.0 --predictions FILE --gold dev-v2.0.json",
        )
    print(json.dumps(outside_scores(task, predictions, gold, na_prob_file, na_prob_thresh), indent=2))


def outside_scores(
    task: str,
    predictions: Path,
    gold: Path | None,
    na_prob_file: Path | None = None,
    na_prob_thresh: float = 1.0,
) -> dict[str, Any]:
    """Return the scores of a file of predictions, in percent.

    Args:
        task: a name of the catalogue, or ``conll``.
        predictions: SQuAD and MRQA: JSON, question id -> answer, "" for none. GLUE, SuperGLUE and SWAG:
            ``index<TAB>prediction`` as on GLUE's leaderboard, or ``{"idx": ..., "label": ...}`` as on SuperGLUE's.
            Column files: the predicted tag is the last column.
        gold: the task's file with the correct answers; None for a column file of predictions whose last column but one
            is the correct tag, as for conlleval.
        na_prob_file: SQuAD 2.0: JSON, question id -> score of "no answer".
        na_prob_thresh: no answer is given above this score.

    Raises:
        ConfigError: no such task, or options that contradict each other.
        DataError: a file is missing or malformed, or the predictions do not match the gold file.
    """
    if task != COLUMNS and task not in TASKS:
        raise ConfigError(
            f"there is no task {task!r}", where="--task", next_step=f"choose one of: {', '.join(TASKS)}, {COLUMNS}"
        )
    spec = TASKS.get(task)
    if na_prob_file is not None and not (spec and spec.has_unanswerable):
        raise ConfigError(f"--na-prob-file is for tasks with unanswerable questions, not for {task}")
    if math.isnan(na_prob_thresh):
        raise ConfigError("--na-prob-thresh is no number")
    for path in (predictions, gold, na_prob_file):
        if path is not None and not path.is_file():
            raise DataError(f"{path} is no file", next_step="correct its path")
    format = "columns" if spec is None else KINDS[spec.kind].outside_format
    if spec is None or format == "columns":
        return _column_scores(predictions, gold)
    if gold is None:
        raise ConfigError("no file with the right answers is given", next_step="give --gold FILE")
    try:
        if spec.has_unanswerable:
            return _squad_v2(spec, predictions, gold, na_prob_file, na_prob_thresh)
        if format == "answers":
            return _squad_v1(spec, predictions, gold)
        return _row_scores(spec, predictions, gold)
    except UnicodeDecodeError as error:
        raise DataError(f"a file is not UTF-8 text: {error}", where=f"{predictions} or {gold}") from None


def _squad_v1(spec: TaskSpec, predictions: Path, gold: Path) -> dict[str, Any]:
    answers = _answers(predictions)
    if spec.source == "mrqa":
        found = [(row["id"], row["references"]) for row in read_mrqa(spec, gold, Counter())]
    else:
        found = _references(spec, gold)
    for id, references in found:
        if not references:
            raise DataError(f"question {id} has no answer", where=str(gold), next_step="SQuAD 2.0: --task SQuAD2.0")
    if not found:
        raise DataError("there are no questions", where=str(gold))
    if missing := [id for id, _ in found if id not in answers]:
        print(f"{len(missing)} questions have no prediction and count as 0; the first is {missing[0]}", file=sys.stderr)
    answered = [(references, answers[id]) for id, references in found if id in answers]
    scores = squad_v1(*zip(*answered, strict=True)) if answered else {"exact": 0.0, "f1": 0.0}
    share = len(answered) / len(found)
    return {"exact_match": 100 * share * scores["exact"], "f1": 100 * share * scores["f1"]}


def _squad_v2(
    spec: TaskSpec, predictions: Path, gold: Path, na_prob_file: Path | None, threshold: float
) -> dict[str, Any]:
    answers, references = _answers(predictions), dict(_references(spec, gold))
    odds = dict.fromkeys(references, 0.0) if na_prob_file is None else _odds(na_prob_file)
    given: list[tuple[str, Collection[str], Path | None]] = [
        ("prediction", answers, predictions),
        ("no-answer score", odds, na_prob_file),
    ]
    for what, ids, path in given:
        if missing := [id for id in references if id not in ids]:
            raise DataError(
                f"{len(missing)} of {len(references)} questions have no {what}, the first is {missing[0]}",
                where=str(path),
                next_step='give one for every question of the gold file; an answer that is not given is ""',
            )
    if not references:
        raise DataError("there are no questions", where=str(gold))

    def scores(ids: list[str]) -> dict[str, float]:
        return squad_v2(
            [references[id] for id in ids], [answers[id] for id in ids], [odds[id] for id in ids], threshold
        )

    found = scores(list(references))
    result: dict[str, Any] = {}
    num_answerable = sum(bool(texts) for texts in references.values())
    parts = [("", len(references)), ("HasAns_", num_answerable), ("NoAns_", len(references) - num_answerable)]
    for prefix, total in parts:
        if total:
            result |= {f"{prefix}{name}": 100 * found[f"{prefix}{name}"] for name in ("exact", "f1")}
            result[f"{prefix}total"] = total
    if na_prob_file is not None:
        tuned = scores([id for id in odds if id in references])  # equal scores in that file's order
        for name in ("best_exact", "best_f1"):
            result |= {name: 100 * tuned[name], f"{name}_thresh": tuned[f"{name}_threshold"]}
    return result


def _references(spec: TaskSpec, gold: Path) -> list[tuple[str, list[str]]]:
    """Return ids and reference answers unchanged: unlike in training, an answer need not occur in its context."""
    found = []
    for _, item, where in squad_items(spec, gold):
        try:
            found.append((str(item["id"]), [str(answer["text"]) for answer in item["answers"]]))
        except (KeyError, TypeError) as error:
            raise DataError(f"a question needs id and answers with text: {error!r}", where=where) from None
    return found


def _answers(path: Path) -> dict[str, str]:
    values = _json_object(path, "question id -> answer")
    if wrong := [id for id, text in values.items() if not isinstance(text, str)]:
        raise DataError(f"the answer to question {wrong[0]} is no text", where=str(path))
    return values


def _odds(path: Path) -> dict[str, float]:
    values = _json_object(path, "question id -> number")
    for id, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise DataError(f"the no-answer score of question {id} is no finite number", where=str(path))
    return values


def _json_object(path: Path, layout: str) -> dict[str, Any]:
    values = parse_json(path.read_bytes().removeprefix(codecs.BOM_UTF8), where=str(path))
    if not isinstance(values, dict):
        raise DataError(f"expected one JSON object, {layout}", where=str(path))
    return values


def _row_scores(spec: TaskSpec, predictions: Path, gold: Path) -> dict[str, Any]:
    rows = list(read_official(spec, "dev", gold, Counter()))
    if not rows:
        raise DataError("there are no rows", where=str(gold))
    return {name: 100 * value for name, value in score(spec, rows, _row_predictions(spec, predictions, rows)).items()}


def _row_predictions(spec: TaskSpec, path: Path, rows: list[Row]) -> list[dict[str, Any]]:
    """Return the predictions in the order of the rows."""
    found: dict[str, Any] = {}
    for index, value, where in _indexed(path):
        if index in found:
            raise DataError(f"index {index} stands twice", where=where, next_step="give one prediction for every row")
        found[index] = {"id": index, **KINDS[spec.kind].read_prediction(spec, value, where)}
    ids = [row["id"] for row in rows]
    if found.keys() != set(ids):
        missing, unknown = [id for id in ids if id not in found], [id for id in found if id not in set(ids)]
        raise DataError(
            f"the predictions are not those of the gold file: {len(ids):,} rows, {len(missing):,} without a prediction "
            f"({', '.join(missing[:3]) or 'none'}), {len(unknown):,} unknown ({', '.join(unknown[:3]) or 'none'})",
            where=str(path),
            next_step="give one for every row of the gold file; the first row has index 0",
        )
    return [found[id] for id in ids]


def _indexed(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield index, prediction and position of each line: GLUE's ``index<TAB>prediction`` or SuperGLUE's JSON lines."""
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        is_json: bool | None = None
        for number, line in enumerate(file, start=1):
            where, line = f"{path}:{number}", line.rstrip("\r\n")
            if not line.strip():
                continue
            if is_json is None:
                is_json = line.lstrip().startswith("{")
                if not is_json and not any(map(str.isdecimal, line.split("\t")[0])):
                    continue  # the header
            if is_json:
                record = parse_json(line, where=where)
                if not isinstance(record, dict) or (index := as_label(record.get(ID))) is None:
                    raise DataError(f'expected {{"{ID}": ..., "label": ...}}, found {line!r:.80}', where=where)
                if (label := as_label(record.get("label"))) is None:
                    raise DataError(
                        f"row {index} has no label", where=where, next_step='give {"idx": ..., "label": ...}'
                    )
                yield index, label, where
                continue
            values = line.split("\t")
            if len(values) != 2:
                raise DataError(
                    f"expected index and prediction with a tab between, found {line!r:.80}",
                    where=where,
                    next_step='give index<TAB>prediction as for GLUE, or JSON lines {"idx": ..., "label": ...}',
                )
            yield values[0], values[1], where


def _column_scores(predictions: Path, gold: Path | None) -> dict[str, Any]:
    sentences = _sentences(gold or predictions)
    tokens = [token for sentence in sentences for token in sentence]
    if not tokens:
        raise DataError("there are no words", where=str(gold or predictions))
    if gold is None:
        if short := next((where for where, values in tokens if len(values) < 2), None):
            raise DataError("expected the right and the predicted tag", where=short, next_step="or give --gold FILE")
        golds = [[values[-2] for _, values in sentence] for sentence in sentences]
        predicted = tokens
    else:
        predicted = [token for sentence in _sentences(predictions) for token in sentence]
        if len(predicted) != len(tokens):  # some tools omit the lines that begin a document
            sentences = [[token for token in sentence if not _begins_document(token)] for sentence in sentences]
            tokens = [token for sentence in sentences for token in sentence]
            predicted = [token for token in predicted if not _begins_document(token)]
        _check_same_words(tokens, predicted, predictions, gold)
        golds = [[values[-1] for _, values in sentence] for sentence in sentences]
    tags = iter(values[-1] for _, values in predicted)
    return tag_scores(golds, [[next(tags) for _ in sentence] for sentence in sentences])


def _sentences(path: Path) -> list[list[Token]]:
    found: list[list[Token]] = [[]]
    for where, values in column_lines(path, encoding_of(path, ("utf-8", "latin-1"))):
        if values is None or values[0] == BOUNDARY:
            found.append([])
        else:
            found[-1].append((where, values))
    return [sentence for sentence in found if sentence]


def _begins_document(token: Token) -> bool:
    return token[1][0] == DOCUMENT_START


def _check_same_words(golds: list[Token], predicted: list[Token], predictions: Path, gold: Path) -> None:
    for (gold_where, gold_values), (where, values) in zip(golds, predicted, strict=False):
        if len(values) > 1 and values[0] != gold_values[0]:
            raise DataError(
                f"the word {values[0]!r:.80} stands where the gold file has {gold_values[0]!r:.80}",
                where=f"{where} and {gold_where}",
                next_step="give a line for every word of the gold file, in its order",
            )
    if len(golds) != len(predicted):
        raise DataError(
            f"{len(predicted):,} words are predicted, the gold file has {len(golds):,}",
            where=f"{predictions} and {gold}",
            next_step="give a line for every word of the gold file, in its order",
        )


BOUNDARY = "-X-"  # a line with it separates sentences for conlleval.pl
_CHUNK_TAG = re.compile(r"O|[BIE\[\]](-.*)?|S-.+")
# Pairs of neighbouring tags between which conlleval.pl ends, or begins, a chunk whatever their types
ENDS = {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O"), ("E", "E"), ("E", "I"), ("E", "O")}
BEGINS = {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I"), ("E", "E"), ("E", "I"), ("O", "E")}
_OUTSIDE = ("O", "")


def tag_scores(golds: list[list[str]], predictions: list[list[str]]) -> dict[str, Any]:
    """Return the figures of conlleval.pl, in percent; for tags that mark no entities only the accuracy.

    A chunk ends between two tags of ``ENDS``, after a tag whose type differs from the next one's, and after ``[`` and
    ``]``. It begins between two tags of ``BEGINS``, at a tag whose type differs from the previous one's, and at ``[``
    and ``]``.

    Args:
        golds: the correct tags per sentence.
        predictions: the predicted tags per sentence.
    """
    num_tokens = sum(map(len, golds))
    num_right = sum(
        _parts(tag) == _parts(guess)
        for sentence, guesses in zip(golds, predictions, strict=True)
        for tag, guess in zip(sentence, guesses, strict=True)
    )
    result: dict[str, Any] = {"tokens": num_tokens, "accuracy": 100 * num_right / num_tokens}
    tags = dict.fromkeys(tag for sentence in (*golds, *predictions) for tag in sentence)
    others = [tag for tag in tags if not _CHUNK_TAG.fullmatch(tag)]
    if others:
        if any(is_entity_tag(tag) and tag != "O" for tag in tags):
            print(
                f"entities are not counted, since {', '.join(map(repr, others[:3]))} is neither O nor begins with B-, "
                "I-, E- or S-: is the last column the tag in every line?",
                file=sys.stderr,
            )
        return result
    phrases, found, correct = Counter[str](), Counter[str](), Counter[str]()
    is_open = False  # a chunk that is correct so far
    before = guessed_before = _OUTSIDE
    for tag, guess in _tag_pairs(golds, predictions):
        ends, guess_ends = _ends(before, tag), _ends(guessed_before, guess)
        begins, guess_begins = _begins(before, tag), _begins(guessed_before, guess)
        if is_open:
            if ends and guess_ends and before[1] == guessed_before[1]:
                correct[before[1]] += 1
                is_open = False
            elif ends != guess_ends or tag[1] != guess[1]:
                is_open = False
        if begins and guess_begins and tag[1] == guess[1]:
            is_open = True
        phrases[tag[1]] += begins
        found[guess[1]] += guess_begins
        before, guessed_before = tag, guess
    for what, sentences, count in (("the right tags", golds, phrases), ("the predictions", predictions, found)):
        if all(is_entity_tag(tag) for sentence in sentences for tag in sentence):
            by_scheme = sum(len(entities(sentence)) for sentence in sentences)
            if by_scheme != count.total():
                print(
                    f"{what} have {by_scheme:,} entities in the scheme BIOES, of which conlleval.pl counts "
                    f"{count.total():,}: it has no rule for S-, nor for B- after E-; convert them to B- and I-",
                    file=sys.stderr,
                )
    result |= _phrase_scores(phrases.total(), found.total(), correct.total())
    result["types"] = {
        type_: _phrase_scores(phrases[type_], found[type_], correct[type_])
        for type_ in sorted(+phrases | +found)
        if type_
    }
    return result


_Parts = tuple[str, str]  # prefix and type of a tag


def _parts(tag: str) -> _Parts:
    prefix, _, type_ = tag.partition("-")
    return prefix, type_


def _tag_pairs(golds: list[list[str]], predictions: list[list[str]]) -> Iterator[tuple[_Parts, _Parts]]:
    """Yield correct and predicted tags of all sentences, with an ``O`` after each sentence."""
    for sentence, guesses in zip(golds, predictions, strict=True):
        yield from zip(map(_parts, sentence), map(_parts, guesses), strict=True)
        yield _OUTSIDE, _OUTSIDE


def _ends(before: _Parts, tag: _Parts) -> bool:
    return (before[0], tag[0]) in ENDS or (before[0] != "O" and before[1] != tag[1]) or before[0] in ("[", "]")


def _begins(before: _Parts, tag: _Parts) -> bool:
    return (before[0], tag[0]) in BEGINS or (tag[0] != "O" and before[1] != tag[1]) or tag[0] in ("[", "]")


def _phrase_scores(phrases: int, found: int, correct: int) -> dict[str, float]:
    precision = 100 * correct / found if found else 0.0
    recall = 100 * correct / phrases if phrases else 0.0
    f1 = 2 * precision * recall / (precision + recall) if correct else 0.0
    return {
        "phrases": phrases,
        "found": found,
        "correct": correct,
        "precision": precision,
        "recall": recall,
        "f1": f1,
    }
