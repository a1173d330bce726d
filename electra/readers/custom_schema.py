"""The schema of a task of your own: a YAML file that names tables and their columns (docs/own-tasks.md).

Paths are relative to the YAML file. Unknown keys and impossible values are refused with file and key.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from electra.common.errors import ConfigError
from electra.config import Section

_MIN_LABELS = 2


class _OwnTask(Section):
    """What all kinds have."""

    train: str = Field(description="table of training examples: .csv, .tsv, .jsonl or .parquet")
    dev: str = Field(description="table of development examples, which the score is of")
    id: str | None = Field(None, description="column with the examples' ids; their numbers where none is given")


class _Labelled(_OwnTask):
    label: str = Field(description="column with the label")
    test: str | None = Field(None, description="table of examples without labels")


class _Classes(_Labelled):
    labels: list[str] | None = Field(
        None,
        min_length=_MIN_LABELS,
        description="all labels; those of the training table, sorted, where none are given",
    )
    metric: Literal["accuracy", "f1", "macro_f1", "matthews"] = Field("accuracy", description="the score")
    positive: str | None = Field(None, description="f1: the label whose F1 it is")

    @model_validator(mode="after")
    def _positive_is_named(self) -> "_Classes":
        if (self.metric == "f1") != (self.positive is not None):
            raise ValueError("`metric: f1` and `positive` belong together; macro_f1 is the mean over all labels")
        return self


class OwnClassification(_Classes):
    """A label for a text."""

    kind: Literal["classification"]
    text: str = Field(description="column with the text")


class OwnPair(_Classes):
    """A label for two texts."""

    kind: Literal["pair"]
    text_a: str = Field(description="column with the first text")
    text_b: str = Field(description="column with the second text")
    unordered: bool = Field(
        False, description="the texts may change places; finetune.double_unordered trains on both orders"
    )


class OwnRegression(_Labelled):
    """A number for a text or for two."""

    kind: Literal["regression"]
    text_a: str = Field(description="column with the (first) text")
    text_b: str | None = Field(None, description="column with the second text")
    range: tuple[float, float] = Field(description="lowest and highest score that may occur")
    metric: Literal["spearman", "pearson"] = Field("spearman", description="the score")
    unordered: bool = Field(
        False, description="the texts may change places; finetune.double_unordered trains on both orders"
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> "OwnRegression":
        if not self.range[0] < self.range[1]:
            raise ValueError("range: the first number must be the lower one")
        if self.unordered and self.text_b is None:
            raise ValueError("unordered: there is no text_b")
        return self


class OwnTagging(_OwnTask):
    """A tag for every word: entities (B-, I-, E-, S-, O) or anything else, such as parts of speech."""

    kind: Literal["tagging"]
    words: str = Field(description="column with the words: a list, or text with spaces between words")
    tags: str = Field(description="column with as many tags")
    test: str | None = Field(None, description="table of sentences without tags")
    labels: list[str] | None = Field(
        None,
        min_length=1,
        description="all entity types (or all tags); those of the training table where none are given",
    )
    metric: Literal["f1", "accuracy"] | None = Field(
        None, description="f1 of entities, or accuracy of tags; f1 where none is given and all tags mark entities"
    )


class OwnSpan(_OwnTask):
    """The answer to a question, found in a text."""

    kind: Literal["span"]
    question: str = Field(description="column with the question")
    context: str = Field(description="column with the text that holds the answer")
    answer: str = Field(description="column with the answer as it stands in the text; empty: there is none")
    start: str | None = Field(
        None, description="column with the answer's first character, from 0; its first occurrence where none is given"
    )
    unanswerable: bool = Field(False, description="some questions have no answer")
    metric: Literal["f1", "exact"] = Field("f1", description="the score")


class OwnChoice(_Labelled):
    """The best of several continuations or answers."""

    kind: Literal["multiple_choice"]
    text: str = Field(description="column with the text before the choices, such as the question")
    choices: list[str] = Field(min_length=2, description="columns with the choices")
    names: list[str] | None = Field(
        None, description="what the label column calls them, in order; their numbers from 0 where none are given"
    )

    @model_validator(mode="after")
    def _every_choice_has_a_name(self) -> "OwnChoice":
        if self.names is not None and len(set(self.names)) != len(self.choices):
            raise ValueError(f"names: expected {len(self.choices)} different names, one for each choice")
        return self


OwnTask = OwnClassification | OwnPair | OwnRegression | OwnTagging | OwnSpan | OwnChoice
_KINDS = ("classification", "pair", "regression", "tagging", "span", "multiple_choice")
_SCHEMA: TypeAdapter[OwnTask] = TypeAdapter(Annotated[OwnTask, Field(discriminator="kind")])


def read_own_task(path: Path) -> OwnTask:
    """Read and check a description.

    Raises:
        ConfigError: no such file, not YAML, an unknown or missing key, an impossible value; all are listed at once.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"{path} does not exist", where="tasks.own", next_step="write it: docs/own-tasks.md has examples"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"not valid YAML: {error}", where=str(path)) from None
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
    return f"{key}: {error['msg'].removeprefix('Value error, ')} (got {error['input']!r:.80})"
