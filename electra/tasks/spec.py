"""The description of a task: its columns in the official files, its labels, its metrics, its part in averages."""

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["classification", "regression", "span", "tagging", "multiple_choice"]
SpanHeadName = Literal["joint", "plain"]
Family = Literal["glue", "squad", "tagging", "other"]  # a file of results/ each
_FAMILIES: dict[str, Family] = {"glue": "glue", "squad": "squad", "mrqa": "squad", "conll": "tagging"}  # else other


@dataclass(frozen=True)
class GlueFile:
    """A file of the zip that GLUE's leaderboard takes.

    Attributes:
        rows: of the official test set.
        fill: stands for a task that was not done: the majority class (of the training set; WNLI: of the test set).
    """

    name: str
    rows: int
    fill: str


@dataclass(frozen=True)
class TaskSpec:
    """One task.

    Attributes:
        labels: the words of the official files, in the order of the hub's class numbers; for tagging the tags that the
            model predicts (BIOES for entities), for multiple choice the numbers of the choices; else empty.
        metrics: what is reported; the first is the headline, the number that stands for the task in means.
        text_a, text_b, label: names of the columns in the official header; text_b None for single sentences. The texts
            of JSON lines may be templates of several columns.
        choices: columns of the choices in JSON lines.
        fixed_header: column names of a labelled split whose file has no header line; ``other_headers`` are those of
            further layouts, told apart by their number of columns.
        encodings: of the files; the first in which the whole file can be read is taken.
        may_have_broken_rows: rows that are too short are left out and counted instead of refused.
        source: the key of ``tasks.source`` with the folder of its files; ``own`` for a task of ``tasks.own``.
        files: file of each split, relative to that folder (for GLUE and SuperGLUE to the task's in it);
            ``other_files`` are further names that it is distributed under.
        hub_config, hub_splits: the same on the Hugging Face hub (``config/split`` where a split is of another
            configuration); hub_a, hub_b: its column names where they differ.
        official_rows: rows per split of the official release.
        score_range: lowest and highest score of a regression.
        positive: the label whose F1 is the metric f1 of a classification.
        unordered: the two texts may change places; ``finetune.double_unordered`` trains on both orders.
        fine_tuned_on: of a task without training rows: the task whose fine-tuned model it is scored with.
        label_map: label of that model -> label of this task, where they differ.
        epochs: passes over the training set where the paper takes another number than three.
        in_paper_mean: the headline is one of the eight in the ELECTRA paper's mean of GLUE.
        leaderboard: metrics whose mean counts on GLUE's leaderboard; empty for a task that is not on it.
        glue_files: test split -> the file that the leaderboard takes.
    """

    name: str
    kind: Kind
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
        """The file of ``results/`` that has the task's scores."""
        return _FAMILIES.get(self.source, "other")

    @property
    def dev_splits(self) -> list[str]:
        """Development splits with their own scores, the one the headline is taken from first."""
        return [split for split in self.files if split.startswith("dev")]

    @property
    def test_splits(self) -> list[str]:
        """Splits without labels, predicted for submissions where they are there."""
        return [split for split in self.files if split.startswith("test")]

    @property
    def has_unanswerable(self) -> bool:
        return "best_f1" in self.metrics

    @property
    def has_entities(self) -> bool:
        """Return whether tags mark entities; otherwise every word has a tag of its own."""
        return self.kind == "tagging" and "f1" in self.metrics

    @property
    def row_tags(self) -> tuple[str, ...]:
        """The tags that stand in rows: entities are in IOB2 there, although the model learns BIOES."""
        if not self.has_entities:
            return self.labels
        return tuple(label for label in self.labels if label[:2] not in ("E-", "S-"))
