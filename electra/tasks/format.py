"""Specification of a task, validated rows in the project's format, and entity tags.

A tag is ``O`` or a prefix and a type, such as ``B-PER``. One rule reads all three common schemes: an entity begins at B
or S, at a change of type, and at any other tag but O outside an entity; it ends before O, before the next entity, and
after E or S. For B, I and O this is the rule of the script ``conlleval``.

    IOB1   I-PER I-PER B-PER O     B only if the previous word ends an entity of the same type
    IOB2   B-PER I-PER B-PER O     B at every beginning; also called BIO
    BIOES  B-PER E-PER S-PER O     E at the end, S for a single word
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from electra.common.errors import DataError
from electra.common.parsing import is_text

SpanHeadName = Literal["joint", "plain"]
Family = Literal["glue", "squad", "tagging", "other"]  # each has a file in results/
_FAMILIES: dict[str, Family] = {"glue": "glue", "squad": "squad", "mrqa": "squad", "conll": "tagging"}  # else other


@dataclass(frozen=True)
class GlueFile:
    """A file in the zip archive for GLUE's leaderboard.

    Attributes:
        rows: number of rows of the official test set.
        fill: prediction for a task without a model: the majority class (of the training set; WNLI: of the test set).
    """

    name: str
    rows: int
    fill: str


@dataclass(frozen=True)
class TaskSpec:
    """Specification of one task.

    Attributes:
        kind: a key of ``electra.kinds.KINDS`` and of ``electra.finetune.kinds.FINETUNING``.
        labels: label names of the official files, in the order of the hub's class numbers; for tagging the tags that
            the model predicts (BIOES for entities), for multiple choice the numbers of the choices; else empty.
        metrics: reported metrics; the first is the headline, which represents the task in means.
        text_a, text_b, label: names of the columns in the official header; text_b is None for single sentences. The
            texts of JSON lines may be templates of several columns.
        choices: columns of the choices in JSON lines.
        fixed_header: column names of a labelled split whose file has no header line; ``other_headers``: those of
            further layouts, recognised by their number of columns.
        encodings: possible encodings of the files; the first one that decodes the whole file is used.
        may_have_broken_rows: skip and count rows that are too short, instead of raising an error.
        source: the key of ``tasks.source`` with the folder of the files; ``own`` for a task of ``tasks.own``.
        files: file of each split, relative to that folder (for GLUE and SuperGLUE, to the task's subfolder);
            ``other_files``: further names under which the file is distributed.
        hub_config, hub_splits: configuration and splits on the Hugging Face hub (``config/split`` for a split of
            another configuration); hub_a, hub_b: the hub's column names if they differ.
        official_rows: rows per split of the official release.
        score_range: lowest and highest score of a regression.
        positive: the label whose F1 is the metric f1 of a classification.
        unordered: the two texts may be swapped; ``finetune.double_unordered`` trains on both orders.
        fine_tuned_on: for a task without training rows: the task whose fine-tuned model scores it.
        label_map: label of that model -> label of this task, if they differ.
        epochs: passes over the training set if the paper uses another number than three.
        in_paper_mean: whether the headline is one of the eight in the ELECTRA paper's GLUE mean.
        leaderboard: metrics whose mean counts on GLUE's leaderboard; empty for a task that is not on it.
        glue_files: test split -> file for the leaderboard.
    """

    name: str
    kind: str
    metrics: tuple[str, ...]
    official_rows: dict[str, int]
    source: Literal["glue", "squad", "conll", "swag", "mrqa", "superglue", "own"] = "glue"
    labels: tuple[str, ...] = ()
    text_a: str = "sentence"
    text_b: str | None = None
    label: str = "label"
    choices: tuple[str, ...] = ()
    fixed_header: tuple[str, ...] | None = None
    other_headers: tuple[tuple[str, ...], ...] = ()
    encodings: tuple[str, ...] = ("utf-8",)
    may_have_broken_rows: bool = False
    files: dict[str, str] = field(default_factory=lambda: {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"})
    other_files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    hub_config: str | None = None
    hub_splits: dict[str, str] = field(default_factory=lambda: {"train": "train", "dev": "validation", "test": "test"})
    hub_a: str | None = None
    hub_b: str | None = None
    score_range: tuple[float, float] = (0.0, 5.0)
    positive: str = "1"
    unordered: bool = False
    fine_tuned_on: str | None = None
    label_map: dict[str, str] = field(default_factory=dict)
    epochs: float | None = None
    in_paper_mean: bool = False
    leaderboard: tuple[str, ...] = ()
    glue_files: dict[str, GlueFile] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        return self.metrics[0]

    @property
    def family(self) -> Family:
        """File of ``results/`` with the task's scores."""
        return _FAMILIES.get(self.source, "other")

    @property
    def hub_dataset(self) -> str:
        """Key of :class:`electra.config.HubTasks` that names the dataset of this GLUE or SQuAD task."""
        if self.source != "squad":
            return "glue"
        return "squad_v2" if self.has_unanswerable else "squad"

    def path_in(self, folder: Path, split: str) -> Path:
        """Return the path of a split's file in the source's ``folder``: the first of its names that exists.

        If none exists, return the path with the first name.
        """
        if self.source in ("glue", "superglue"):
            folder = folder / self.name
        names = [self.files[split], *self.other_files.get(split, ())]
        return next((folder / name for name in names if (folder / name).is_file()), folder / names[0])

    @property
    def dev_splits(self) -> list[str]:
        """Development splits, each with its scores; the first one gives the headline."""
        return [split for split in self.files if split.startswith("dev")]

    @property
    def test_splits(self) -> list[str]:
        """Splits without labels, which are predicted for submissions if they exist."""
        return [split for split in self.files if split.startswith("test")]

    @property
    def has_unanswerable(self) -> bool:
        return "best_f1" in self.metrics

    @property
    def has_entities(self) -> bool:
        """Whether tags mark entities; otherwise each word's tag is independent."""
        return self.kind == "tagging" and "f1" in self.metrics

    @property
    def row_tags(self) -> tuple[str, ...]:
        """Tags used in rows: IOB2 for entities, although the model learns BIOES."""
        if not self.has_entities:
            return self.labels
        return tuple(label for label in self.labels if label[:2] not in ("E-", "S-"))


Row = dict[str, Any]


def sentence_row(spec: TaskSpec, id: str, text_a: str, text_b: str | None, label: str | None, where: str) -> Row:
    """Return a classification or regression row; ``label`` is None if the split has no labels.

    Raises:
        DataError: a text is empty, a label is not in the label set, or a score is outside the task's range.
    """
    _check_texts(spec, [text_a] if text_b is None else [text_a, text_b], where)
    _check_characters(spec, [id], where)
    return {"id": id, "text_a": text_a, "text_b": text_b, "label": _checked_label(spec, label, where)}


def choice_row(spec: TaskSpec, id: str, text_a: str, choices: list[str], label: str | None, where: str) -> Row:
    """Return a multiple-choice row; the label is the number of the right choice, from 0, as a string.

    Raises:
        DataError: a text or choice is empty, or the label is not the number of a choice.
    """
    _check_texts(spec, [text_a, *choices], where)
    _check_characters(spec, [id], where)
    return {"id": id, "text_a": text_a, "choices": choices, "label": _checked_label(spec, label, where)}


def tagged_row(spec: TaskSpec, id: str, words: list[str], tags: list[str] | None, where: str) -> Row:
    """Return a tagging row, with entities in IOB2; ``tags`` is None if the split has no tags.

    Raises:
        DataError: no words, an empty word, different numbers of words and tags, or an unknown tag.
    """
    if not words or not all(word.strip() for word in words):
        raise DataError(f"{spec.name}: a word is empty", where=where, next_step="remove or repair the row")
    _check_characters(spec, [id, *words], where)
    if tags is None:
        return {"id": id, "words": words, "tags": None}
    if len(words) != len(tags):
        raise DataError(
            f"{spec.name}: {len(words)} words and {len(tags)} tags", where=where, next_step="repair the row"
        )
    if unknown := [tag for tag in tags if tag not in spec.labels]:
        raise DataError(
            f"{spec.name}: tag {unknown[0]!r} is not one of {', '.join(spec.labels)}",
            where=where,
            next_step="repair the row",
        )
    return {"id": id, "words": words, "tags": iob2(entities(tags), len(tags)) if spec.has_entities else tags}


def _check_texts(spec: TaskSpec, texts: list[str], where: str) -> None:
    if not all(text.strip() for text in texts):
        raise DataError(f"{spec.name}: a text is empty", where=where, next_step="remove or repair the row")
    _check_characters(spec, texts, where)


def _check_characters(spec: TaskSpec, texts: list[str], where: str) -> None:
    if not all(map(is_text, texts)):
        raise DataError(
            f"{spec.name}: a text holds half of a surrogate pair, which is no character",
            where=where,
            next_step="write the text again with whole characters, or remove the row",
        )


def _checked_label(spec: TaskSpec, label: str | None, where: str) -> str | float | None:
    if label is None:
        return None
    if spec.kind == "regression":
        try:
            score = float(label)
        except ValueError:
            score = float("nan")
        low, high = spec.score_range
        if not low <= score <= high:
            raise DataError(f"{spec.name}: score {label!r} is not a number in {low:g}..{high:g}", where=where)
        return score
    if label not in spec.labels:
        raise DataError(
            f"{spec.name}: label {label!r} is not one of {', '.join(spec.labels)}",
            where=where,
            next_step="put the labels in quotes: YAML reads yes and no as true and false"
            if label in ("yes", "no", "on", "off") and {"true", "false"} & set(spec.labels)
            else "repair the row; a label in the wrong column often means a tab too many",
        )
    return label


def question_row(
    spec: TaskSpec,
    id: str,
    question: str,
    context: str,
    answers: list[tuple[str, int]],
    impossible: bool,
    where: str,
    counts: Counter[str],
) -> Row:
    """Return a SQuAD row; answers are (text, character offset).

    A wrong offset is moved to the nearest occurrence of the answer's text and counted in
    ``counts["offsets_repaired"]``.

    Raises:
        DataError: an answer does not occur in the context, or the answers contradict ``impossible``.
    """
    _check_characters(spec, [id, question, context], where)
    if impossible and not spec.has_unanswerable:
        raise DataError(f"{spec.name}: question {id} is marked impossible; {spec.name} has none such", where=where)
    if not impossible and not answers:
        raise DataError(f"{spec.name}: question {id} has no answer", where=where)
    found = []
    for text, offset in [] if impossible else answers:
        start = nearest_occurrence(context, text, offset) if text else None
        if start is None:
            raise DataError(
                f"{spec.name}: the answer {text!r} of question {id} does not occur in its context",
                where=where,
                next_step="repair the answer's text, or remove the question",
            )
        counts["offsets_repaired"] += start != offset
        found.append({"text": text, "start": start})
    return {"id": id, "question": question, "context": context, "answers": found, "impossible": impossible}


def nearest_occurrence(context: str, text: str, offset: int) -> int | None:
    """Return the position of ``text`` closest to ``offset`` (the earlier one in a tie); None if it does not occur."""
    if offset >= 0 and context.startswith(text, offset):
        return offset
    starts = []
    start = context.find(text)
    while start >= 0:
        starts.append(start)
        start = context.find(text, start + 1)
    return min(starts, key=lambda start: abs(start - offset), default=None)


Entity = tuple[int, int, str]  # first word, one past the last word, type
_TAG = re.compile(r"O|[BIES]-.+")


def is_entity_tag(tag: str) -> bool:
    """Return whether a tag belongs to one of the three schemes."""
    return _TAG.fullmatch(tag) is not None


def entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence in order, for any of the schemes; an I or E outside an entity begins one."""
    found: list[Entity] = []
    begin, open_type = 0, ""
    for position, tag in enumerate(tags):
        prefix, _, type_ = tag.partition("-")
        if open_type and (prefix in "BSO" or type_ != open_type):
            found.append((begin, position, open_type))
            open_type = ""
        if prefix == "O":
            continue
        if not open_type:
            begin, open_type = position, type_
        if prefix in "ES":
            found.append((begin, position + 1, open_type))
            open_type = ""
    if open_type:
        found.append((begin, len(tags), open_type))
    return found


def iob2(found: Iterable[Entity], length: int) -> list[str]:
    """Return the tags of a sentence of ``length`` words in the scheme IOB2."""
    tags = ["O"] * length
    for begin, end, type_ in found:
        tags[begin:end] = [f"B-{type_}", *[f"I-{type_}"] * (end - begin - 1)]
    return tags


def bioes(found: Iterable[Entity], length: int) -> list[str]:
    """Return the tags of a sentence of ``length`` words in the scheme BIOES, which the original ELECTRA trains on."""
    tags = ["O"] * length
    for begin, end, type_ in found:
        if end - begin == 1:
            tags[begin] = f"S-{type_}"
        else:
            tags[begin:end] = [f"B-{type_}", *[f"I-{type_}"] * (end - begin - 2), f"E-{type_}"]
    return tags


def bioes_labels(types: Iterable[str]) -> tuple[str, ...]:
    """Return all tags of the scheme BIOES for these types."""
    return ("O", *(f"{prefix}-{type_}" for type_ in types for prefix in "BIES"))
