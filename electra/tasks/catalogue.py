"""What each task is: its columns in the official files, its labels, its metrics.

Adding a GLUE-like task means adding one entry here. Row counts are those of the official releases (GLUE, Wang et al.
2019; SQuAD, Rajpurkar et al. 2016 and 2018); they tell whether given files can be the real benchmark.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from electra.common.artifacts import read_facts
from electra.common.errors import ConfigError, DataError
from electra.tasks.tag_schemes import bioes_labels

Kind = Literal["classification", "regression", "span", "tagging", "multiple_choice"]
SpanHeadName = Literal["joint", "plain"]
SPEC_FILE = "task.json"  # in data/tasks/<task>: what an own task is


@dataclass(frozen=True)
class TaskSpec:
    """One task.

    Attributes:
        labels: the words of the official files, in the order of the hub's class numbers; for tagging the tags that the
            model predicts (BIOES for entities), for multiple choice the numbers of the choices; else empty.
        metrics: what is reported; the first is the headline, the number that stands for the task in means.
        text_a, text_b, label: names of the columns in the official header; text_b None for single sentences.
        fixed_header: column names of a labelled split whose file has no header line; ``other_headers`` are those of
            further layouts, told apart by their number of columns.
        encodings: of the files; the first in which the whole file can be read is taken.
        may_have_broken_rows: rows that are too short are left out and counted instead of refused.
        source: the key of ``tasks.source`` with the folder of its files; ``own`` for a task of ``tasks.own``.
        files: file of each split, relative to that folder (for GLUE to the task's folder in it); ``other_files`` are
            further names that it is distributed under.
        hub_config, hub_splits: the same on the Hugging Face hub (``config/split`` where a split is of another
            configuration); hub_a, hub_b: its column names where they differ.
        official_rows: rows per split of the official release.
        score_range: lowest and highest score of a regression.
        positive: the label whose F1 is the metric f1 of a classification.
        unordered: the two texts may change places; ``finetune.double_unordered`` trains on both orders.
        fine_tuned_on: of a task without training rows: the task whose fine-tuned model it is scored with.
        label_map: label of that model -> label of this task, where they differ.
    """

    name: str
    kind: Kind
    metrics: tuple[str, ...]
    official_rows: dict[str, int]
    source: Literal["glue", "squad", "conll", "swag", "mrqa", "own"] = "glue"
    labels: tuple[str, ...] = ()
    text_a: str = "sentence"
    text_b: str | None = None
    label: str = "label"
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

    @property
    def has_entities(self) -> bool:
        """Whether tags mark entities; otherwise every word has a tag of its own."""
        return self.kind == "tagging" and "f1" in self.metrics

    @property
    def row_tags(self) -> tuple[str, ...]:
        """The tags that stand in rows: entities are in IOB2 there, although the model learns BIOES."""
        if not self.has_entities:
            return self.labels
        return tuple(label for label in self.labels if label[:2] not in ("E-", "S-"))


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")


def _entity_task(
    name: str, folder: str, files: tuple[str, str, str], types: str, rows: tuple[int, int], **more: Any
) -> TaskSpec:
    """A task of entities in column files: those of train, dev and test, in ``folder`` or beside the other tasks."""
    splits = ("train", "dev", "test")
    return TaskSpec(
        name=name,
        kind="tagging",
        metrics=("f1", "precision", "recall"),
        source="conll",
        labels=bioes_labels(types.split()),
        text_a="word",
        label="ner",
        files={split: f"{folder}/{file}" for split, file in zip(splits, files, strict=True)},
        other_files={split: (file,) for split, file in zip(splits, files, strict=True)},
        official_rows=dict(zip(splits, rows, strict=False)),
        **more,
    )


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
        unordered=True,
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
        unordered=True,
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
        source="squad",
        files={"train": "train-v1.1.json", "dev": "dev-v1.1.json"},
        hub_splits={"train": "train", "dev": "validation"},
        official_rows={"train": 87599, "dev": 10570},
    ),
    TaskSpec(
        name="SQuAD2.0",
        kind="span",
        metrics=("f1", "exact", "best_f1", "best_exact"),
        source="squad",
        files={"train": "train-v2.0.json", "dev": "dev-v2.0.json"},
        hub_splits={"train": "train", "dev": "validation"},
        official_rows={"train": 130319, "dev": 11873},
    ),
    TaskSpec(
        name="CoNLL-2003",
        kind="tagging",
        metrics=("f1", "precision", "recall"),
        source="conll",
        labels=bioes_labels(["LOC", "MISC", "ORG", "PER"]),
        text_a="word",
        label="ner",
        fixed_header=("word", "POS", "chunk", "ner"),
        files={"train": "conll2003/train.txt", "dev": "conll2003/testa.txt", "test": "conll2003/testb.txt"},
        other_files={
            "train": ("conll2003/eng.train", "eng.train"),
            "dev": ("conll2003/eng.testa", "eng.testa"),
            "test": ("conll2003/eng.testb", "eng.testb"),
        },
        official_rows={"train": 14041, "dev": 3250},
    ),
    TaskSpec(
        name="CoNLL-2000",
        kind="tagging",
        metrics=("f1", "precision", "recall"),
        source="conll",
        labels=bioes_labels("ADJP ADVP CONJP INTJ LST NP PP PRT SBAR UCP VP".split()),
        text_a="word",
        label="chunk",
        fixed_header=("word", "POS", "chunk"),
        files={"train": "conll2000/train.txt", "dev": "conll2000/test.txt"},  # it was released without another split
        official_rows={"train": 8936, "dev": 2012},
    ),
    *(
        _entity_task(
            f"CoNLL-2002-{language}",
            "conll2002",
            (f"{language}.train", f"{language}.testa", f"{language}.testb"),
            "LOC MISC ORG PER",
            rows,
            fixed_header=("word", "POS", "ner"),
            other_headers=(("word", "ner"),),
            encodings=("utf-8", "latin-1"),  # released in Latin-1; copies in UTF-8 are in use too
        )
        for language, rows in [("esp", (8323, 1915)), ("ned", (15806, 2895))]
    ),
    _entity_task(
        "WNUT-17",
        "wnut17",
        ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
        "corporation creative-work group location person product",
        (3394, 1009),
        fixed_header=("word", "ner"),
    ),
    TaskSpec(
        name="SWAG",
        kind="multiple_choice",
        metrics=("accuracy",),
        source="swag",
        labels=("0", "1", "2", "3"),
        files={"train": "train.csv", "dev": "val.csv", "test": "test.csv"},
        official_rows={"train": 73546, "dev": 20006},
    ),
    *(
        TaskSpec(
            name=name,
            kind="span",
            metrics=("f1", "exact"),
            source="mrqa",
            files={"train": f"train/{file}.jsonl", "dev": f"dev/{file}.jsonl"},
            official_rows={"train": train, "dev": dev},
        )
        for name, file, train, dev in [  # rows: Fisch et al. 2019, table 1
            ("NewsQA", "NewsQA", 74160, 4212),
            ("NaturalQuestions", "NaturalQuestionsShort", 104071, 12836),
            ("TriviaQA", "TriviaQA-web", 61688, 7785),
            ("SearchQA", "SearchQA", 117384, 16980),
        ]
    ),
]

TASKS: dict[str, TaskSpec] = {spec.name: spec for spec in _SPECS}


def find_spec(tasks_folder: Path, name: str) -> TaskSpec:
    """One of ``TASKS``, or the own task that ``electra tasks`` described in ``<tasks_folder>/<name>/task.json``.

    Raises:
        ConfigError: there is no such task.
        DataError: its description is damaged.
    """
    if name in TASKS:
        return TASKS[name]
    path = tasks_folder / name / SPEC_FILE
    if Path(name).name != name or not path.is_file():
        raise ConfigError(
            f"there is no task {name!r}",
            next_step=f"choose one of: {', '.join(TASKS)}; or one of tasks.own, after: dvc repro tasks",
        )
    values = read_facts(path, next_step="run: dvc repro -f tasks")
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    try:
        return TaskSpec(**fields)
    except TypeError as error:
        raise DataError(f"this describes no task: {error}", where=str(path), next_step="dvc repro -f tasks") from None


_TOLERANCE = 1e-4  # releases of QQP differ in a handful of broken training rows


def has_official_counts(spec: TaskSpec, rows: dict[str, int]) -> bool:
    """Whether the labelled splits have as many rows as the official release."""
    return all(abs(rows.get(split, 0) - n) <= _TOLERANCE * n for split, n in spec.official_rows.items())


def evaluations(tasks_folder: Path, name: str) -> list[TaskSpec]:
    """The tasks without training rows that are scored with the models of task ``name``, in the order of their names."""
    found = sorted(path.parent.name for path in (tasks_folder / name).glob(f"*/{SPEC_FILE}"))
    return [find_spec(tasks_folder, f"{name}/{evaluation}") for evaluation in found]
