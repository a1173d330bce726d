"""What each task is: its columns in the official files, its labels, its metrics.

Adding a GLUE-like task means adding one entry here. Row counts are those of the official releases (GLUE, Wang et al.
2019; SQuAD, Rajpurkar et al. 2016 and 2018); they tell whether given files can be the real benchmark.
"""

from dataclasses import dataclass, field
from typing import Literal

from electra.config import TaskName

Kind = Literal["classification", "regression", "span"]


@dataclass(frozen=True)
class TaskSpec:
    """One task.

    Attributes:
        labels: the words of the official files, in the order of the hub's class numbers; empty unless classification.
        metrics: what is reported; the first is the headline, the number that stands for the task in means.
        text_a, text_b, label: names of the columns in the official header; text_b None for single sentences.
        fixed_header: column names of a labelled split whose file has no header line.
        may_have_broken_rows: rows that are too short are left out and counted instead of refused.
        files: file of each split, relative to the task's GLUE folder (or to the SQuAD folder).
        hub_config, hub_splits: the same on the Hugging Face hub (``config/split`` where a split is of another
            configuration); hub_a, hub_b: its column names where they differ.
        official_rows: rows per split of the official release.
    """

    name: TaskName
    kind: Kind
    metrics: tuple[str, ...]
    official_rows: dict[str, int]
    labels: tuple[str, ...] = ()
    text_a: str = "sentence"
    text_b: str | None = None
    label: str = "label"
    fixed_header: tuple[str, ...] | None = None
    may_have_broken_rows: bool = False
    files: dict[str, str] = field(default_factory=lambda: {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"})
    hub_config: str | None = None
    hub_splits: dict[str, str] = field(default_factory=lambda: {"train": "train", "dev": "validation", "test": "test"})
    hub_a: str | None = None
    hub_b: str | None = None

    @property
    def headline(self) -> str:
        return self.metrics[0]

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


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")

_SPECS = [
    TaskSpec(
        name="CoLA",
        kind="classification",
        metrics=("matthews", "accuracy"),
        labels=_BINARY,
        fixed_header=("source", "label", "mark", "sentence"),
        hub_config="cola",
        official_rows={"train": 8551, "dev": 1043},
    ),
    TaskSpec(
        name="SST-2",
        kind="classification",
        metrics=("accuracy",),
        labels=_BINARY,
        hub_config="sst2",
        official_rows={"train": 67349, "dev": 872},
    ),
    TaskSpec(
        name="MRPC",
        kind="classification",
        metrics=("accuracy", "f1"),
        labels=_BINARY,
        text_a="#1 String",
        text_b="#2 String",
        label="Quality",
        hub_config="mrpc",
        hub_a="sentence1",
        hub_b="sentence2",
        official_rows={"train": 3668, "dev": 408},
    ),
    TaskSpec(
        name="STS-B",
        kind="regression",
        metrics=("spearman", "pearson"),
        text_a="sentence1",
        text_b="sentence2",
        label="score",
        hub_config="stsb",
        official_rows={"train": 5749, "dev": 1500},
    ),
    TaskSpec(
        name="QQP",
        kind="classification",
        metrics=("accuracy", "f1"),
        labels=_BINARY,
        text_a="question1",
        text_b="question2",
        label="is_duplicate",
        may_have_broken_rows=True,  # a few rows of the official train.tsv are cut by line ends inside a question
        hub_config="qqp",
        official_rows={"train": 363846, "dev": 40430},
    ),
    TaskSpec(
        name="MNLI",
        kind="classification",
        metrics=("accuracy",),
        labels=("entailment", "neutral", "contradiction"),
        text_a="sentence1",
        text_b="sentence2",
        label="gold_label",
        files={
            "train": "train.tsv",
            "dev": "dev_matched.tsv",
            "dev_mismatched": "dev_mismatched.tsv",
            "test": "test_matched.tsv",
            "test_mismatched": "test_mismatched.tsv",
            "test_diagnostic": "../diagnostic/diagnostic.tsv",  # AX, answered by MNLI's model
        },
        hub_config="mnli",
        hub_a="premise",
        hub_b="hypothesis",
        hub_splits={
            "train": "train",
            "dev": "validation_matched",
            "dev_mismatched": "validation_mismatched",
            "test": "test_matched",
            "test_mismatched": "test_mismatched",
            "test_diagnostic": "ax/test",
        },
        official_rows={"train": 392702, "dev": 9815, "dev_mismatched": 9832},
    ),
    TaskSpec(
        name="QNLI",
        kind="classification",
        metrics=("accuracy",),
        labels=_ENTAILMENT,
        text_a="question",
        text_b="sentence",
        hub_config="qnli",
        official_rows={"train": 104743, "dev": 5463},
    ),
    TaskSpec(
        name="RTE",
        kind="classification",
        metrics=("accuracy",),
        labels=_ENTAILMENT,
        text_a="sentence1",
        text_b="sentence2",
        hub_config="rte",
        official_rows={"train": 2490, "dev": 277},
    ),
    TaskSpec(
        name="WNLI",
        kind="classification",
        metrics=("accuracy",),
        labels=_BINARY,
        text_a="sentence1",
        text_b="sentence2",
        hub_config="wnli",
        official_rows={"train": 635, "dev": 71},
    ),
    TaskSpec(
        name="SQuAD1.1",
        kind="span",
        metrics=("f1", "exact"),
        files={"train": "train-v1.1.json", "dev": "dev-v1.1.json"},
        hub_splits={"train": "train", "dev": "validation"},
        official_rows={"train": 87599, "dev": 10570},
    ),
    TaskSpec(
        name="SQuAD2.0",
        kind="span",
        metrics=("f1", "exact", "best_f1", "best_exact"),
        files={"train": "train-v2.0.json", "dev": "dev-v2.0.json"},
        hub_splits={"train": "train", "dev": "validation"},
        official_rows={"train": 130319, "dev": 11873},
    ),
]

TASKS: dict[str, TaskSpec] = {spec.name: spec for spec in _SPECS}
