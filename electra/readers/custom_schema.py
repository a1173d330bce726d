"""Schema of an own task: a YAML file that names tables and their columns (docs/own-tasks.md).

Paths are relative to the YAML file. Unknown keys and invalid values raise an error with file and key.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from electra.common.errors import ConfigError
from electra.common.parsing import read_yaml, shown
from electra.config import Section
from electra.config.text import Encoding
from electra.readers.tables import Layout
from electra.readers.templates import columns_of, taken_apart

_MIN_LABELS = 2


def _as_text(value: Any) -> Any:
    """Return an integer or boolean of YAML as its JSON text, for column numbers and labels; other values unchanged."""
    return json.dumps(value) if isinstance(value, bool | int) else value


def _checked_text(text: str) -> str:
    columns_of(text)
    return text


def _checked_lines(pattern: str) -> str:
    taken_apart(pattern, "")
    return pattern


def _different(labels: list[str]) -> list[str]:
    if repeated := [label for label, times in Counter(labels).items() if times > 1]:
        raise ValueError(f"{', '.join(repeated)}: named more than once")
    return labels


Column = Annotated[str, BeforeValidator(_as_text)]
Text = Annotated[Column, AfterValidator(_checked_text)]  # a column, or a template of several columns
Label = Annotated[str, BeforeValidator(_as_text)]


class _CustomTask(Section):
    """Keys that all kinds of tasks have."""

    train: str | None = Field(None, description="table of training examples; wildcards stand for several files")
    dev: str = Field(description="table of development examples, on which the score is computed")
    fine_tuned_on: str | None = Field(
        None, description="instead of train: the task of cells.tasks whose fine-tuned models are scored on dev"
    )
    id: Column | None = Field(None, description="column with the examples' ids; none: their row numbers")
    format: Literal["csv", "tsv", "jsonl", "json", "parquet", "conll", "conllu", "squad"] | None = Field(
        None, description="format of the tables; none: by the file names' ending"
    )
    header: bool = Field(True, description="the first line of a CSV or TSV names the columns; false: they are numbered")
    encoding: Encoding = Field("utf-8", description="encoding of text tables, such as cp1252, shift_jis or utf-16")
    lines: Annotated[str, AfterValidator(_checked_lines)] | None = Field(
        None, description="pattern that splits the lines of a text file into columns: '{label} {text}'"
    )
    each: list[Column] = Field([], description="lists in a JSON object whose items are one example each")
    max_train_examples: int | None = Field(
        None, gt=0, le=1_000_000_000, description="read only the first training examples"
    )

    @property
    def layout(self) -> Layout:
        """Layout of the tables."""
        return Layout(self.format, self.header, self.encoding, self.lines, tuple(self.each))

    @model_validator(mode="after")
    def _has_examples_to_learn_from(self) -> "_CustomTask":
        if (self.train is None) == (self.fine_tuned_on is None):
            raise ValueError("give either train, or fine_tuned_on for a task that is evaluated only")
        if self.fine_tuned_on is not None and (self.max_train_examples or getattr(self, "test", None)):
            raise ValueError("fine_tuned_on: a task that is evaluated only has neither max_train_examples nor test")
        return self

    @model_validator(mode="after")
    def _layout_fits(self) -> "_CustomTask":
        if self.lines is not None and (self.format is not None or not self.header):
            raise ValueError("lines: a pattern goes with neither format nor header")
        for format, kind in (("conll", "tagging"), ("conllu", "tagging"), ("squad", "span")):
            if self.format == format and kind != getattr(self, "kind", None):
                raise ValueError(f"format: {format} is for kind: {kind}")
        return self


class _Labelled(_CustomTask):
    label: Column = Field(description="column with the label")
    test: str | None = Field(None, description="table of examples without labels")


class _Classes(_Labelled):
    labels: Annotated[list[Label], AfterValidator(_different)] | None = Field(
        None,
        min_length=_MIN_LABELS,
        description="all labels; none: those of the training table, sorted",
    )
    metric: Literal["accuracy", "f1", "macro_f1", "matthews"] = Field("accuracy", description="the score")
    positive: Label | None = Field(None, description="f1: the label whose F1 is computed")
    label_map: dict[Label, Label] = Field(
        {}, description="fine_tuned_on: label of that task -> label of this task, if they differ"
    )

    @model_validator(mode="after")
    def _positive_is_named(self) -> "_Classes":
        if (self.metric == "f1") != (self.positive is not None):
            raise ValueError("`metric: f1` and `positive` belong together; macro_f1 is the mean over all labels")
        if self.label_map and self.fine_tuned_on is None:
            raise ValueError("label_map belongs to fine_tuned_on")
        return self


class CustomClassification(_Classes):
    """A task with one label per text."""

    kind: Literal["classification"]
    text: Text = Field(description="column with the text")


class CustomPair(_Classes):
    """A task with one label per pair of texts."""

    kind: Literal["pair"]
    text_a: Text = Field(description="column with the first text")
    text_b: Text = Field(description="column with the second text")
    unordered: bool = Field(
        False, description="the texts may change places; finetune.double_unordered trains on both orders"
    )


class CustomRegression(_Labelled):
    """A task with a score per text or pair of texts."""

    kind: Literal["regression"]
    text_a: Text = Field(description="column with the (first) text")
    text_b: Text | None = Field(None, description="column with the second text")
    range: tuple[float, float] = Field(description="lowest and highest score that may occur")
    metric: Literal["spearman", "pearson"] = Field("spearman", description="the score")
    unordered: bool = Field(
        False, description="the texts may change places; finetune.double_unordered trains on both orders"
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> "CustomRegression":
        if not self.range[0] < self.range[1]:
            raise ValueError("range: the first number must be the lower one")
        if self.unordered and self.text_b is None:
            raise ValueError("unordered: there is no text_b")
        return self


class CustomTagging(_CustomTask):
    """A task with a tag per word: entities (B-, I-, E-, S-, O) or other tags, such as parts of speech."""

    kind: Literal["tagging"]
    words: Column = Field(description="column with the words: a list, or text with spaces between words")
    tags: Column = Field(description="column with the tags, one per word")
    test: str | None = Field(None, description="table of sentences without tags")
    labels: Annotated[list[str], AfterValidator(_different)] | None = Field(
        None,
        min_length=1,
        description="all entity types (or all tags); none: those of the training table",
    )
    metric: Literal["f1", "accuracy"] | None = Field(
        None, description="f1 of entities, or accuracy of tags; none: f1 if all tags mark entities, else accuracy"
    )


class CustomSpan(_CustomTask):
    """A task of extracting the answer to a question from a text."""

    kind: Literal["span"]
    question: Text | None = Field(None, description="column with the question")
    context: Text | None = Field(None, description="column with the text that holds the answer")
    answer: Column | None = Field(None, description="column with the answer, exactly as in the text; empty: no answer")
    start: Column | None = Field(
        None, description="column with the position of the answer's first character, from 0; none: first occurrence"
    )
    unanswerable: bool = Field(False, description="some questions have no answer")
    metric: Literal["f1", "exact"] = Field("f1", description="the score")

    @model_validator(mode="after")
    def _columns_are_named(self) -> "CustomSpan":
        columns = {"question": self.question, "context": self.context, "answer": self.answer}
        if self.format == "squad":
            extra = {**columns, "start": self.start, "id": self.id, "each": self.each or None}
            if named := [name for name, column in extra.items() if column is not None]:
                raise ValueError(f"format: squad has fixed keys; leave out {', '.join(named)}")
            if self.encoding != "utf-8":
                raise ValueError("format: squad is UTF-8")
        elif missing := [name for name, column in columns.items() if column is None]:
            raise ValueError(f"{', '.join(missing)}: missing (only format: squad goes without)")
        return self


class CustomChoice(_Labelled):
    """A task of choosing among several continuations or answers."""

    kind: Literal["multiple_choice"]
    text: Text = Field(description="column with the text before the choices, such as the question")
    choices: list[Text] = Field(min_length=2, description="columns with the choices")
    names: list[Label] | None = Field(
        None, description="names of the choices in the label column, in order; none: their numbers from 0"
    )

    @model_validator(mode="after")
    def _every_choice_has_a_name(self) -> "CustomChoice":
        if self.names is not None and len(set(self.names)) != len(self.choices):
            raise ValueError(f"names: expected {len(self.choices)} different names, one for each choice")
        return self


CustomTask = CustomClassification | CustomPair | CustomRegression | CustomTagging | CustomSpan | CustomChoice
_KINDS = ("classification", "pair", "regression", "tagging", "span", "multiple_choice")
_SCHEMA: TypeAdapter[CustomTask] = TypeAdapter(Annotated[CustomTask, Field(discriminator="kind")])


def read_custom_task(path: Path) -> CustomTask:
    """Read and validate the description of an own task.

    Raises:
        ConfigError: no such file, not YAML, an unknown or missing key, an invalid value; lists all errors at once.
    """
    try:
        values = read_yaml(path)
    except FileNotFoundError:
        raise ConfigError(
            f"{path} does not exist", where="tasks.own", next_step="write it: docs/own-tasks.md has examples"
        ) from None
    try:
        return _SCHEMA.validate_python(values)
    except ValidationError as error:
        raise ConfigError(
            "\n".join(_complaint(e) for e in error.errors()),
            where=str(path),
            next_step="docs/own-tasks.md lists the keys of each kind",
        ) from None


def _complaint(error: Any) -> str:
    key = ".".join(str(part) for part in error["loc"] if part not in _KINDS) or "(top level)"
    if error["type"] == "extra_forbidden":
        return f"{key}: unknown key"
    if error["type"] == "missing":
        return f"{key}: missing"
    if error["type"] in ("union_tag_not_found", "union_tag_invalid"):
        return f"kind: must be one of {', '.join(_KINDS)}"
    return f"{key}: {error['msg'].removeprefix('Value error, ')} (got {shown(error['input'])})"
