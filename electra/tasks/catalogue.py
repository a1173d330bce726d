"""Definitions of all tasks: columns in the official files, labels and metrics.

To add a task with a known layout, add one entry here. Row counts are those of the official releases (GLUE, Wang et al.
2019a; SuperGLUE, Wang et al. 2019b; SQuAD, Rajpurkar et al. 2016 and 2018); they show whether files can be the real
benchmark.
"""

import re
from pathlib import Path
from typing import Any

from electra.common.artifacts import read_facts
from electra.common.errors import ConfigError, DataError
from electra.tasks.format import GlueFile, SpanHeadName, TaskSpec, bioes_labels

__all__ = ["SPEC_FILE", "TASKS", "SpanHeadName", "TaskSpec", "evaluations", "find_spec", "has_official_counts"]

SPEC_FILE = "task.json"  # in data/tasks/<task>: the specification of an own task

_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")


def _entity_task(
    name: str, folder: str, files: tuple[str, str, str], types: str, rows: tuple[int, int], **more: Any
) -> TaskSpec:
    """Return an entity task with column files for train, dev and test, in ``folder`` or directly in the source's."""
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


def _superglue_task(
    name: str,
    rows: dict[str, int],
    kind: str = "classification",
    metrics: tuple[str, ...] = ("accuracy",),
    **more: Any,
) -> TaskSpec:
    """Return a task with JSON lines files, in a folder with the task's name."""
    files = {"train": "train.jsonl", "dev": "val.jsonl", "test": "test.jsonl"}
    return TaskSpec(name=name, kind=kind, metrics=metrics, source="superglue", files=files, official_rows=rows, **more)


_SPECS = [
    TaskSpec(
        name="CoLA",
        kind="classification",
        metrics=("matthews", "accuracy"),
        labels=_BINARY,
        fixed_header=("source", "label", "mark", "sentence"),
        hub_config="cola",
        in_paper_mean=True,
        leaderboard=("matthews",),
        glue_files={"test": GlueFile("CoLA.tsv", 1063, "1")},
        official_rows={"train": 8551, "dev": 1043},
    ),
    TaskSpec(
        name="SST-2",
        kind="classification",
        metrics=("accuracy",),
        labels=_BINARY,
        hub_config="sst2",
        in_paper_mean=True,
        leaderboard=("accuracy",),
        glue_files={"test": GlueFile("SST-2.tsv", 1821, "1")},
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
        in_paper_mean=True,
        leaderboard=("accuracy", "f1"),
        glue_files={"test": GlueFile("MRPC.tsv", 1725, "1")},
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
        epochs=10,
        in_paper_mean=True,
        leaderboard=("spearman", "pearson"),
        glue_files={"test": GlueFile("STS-B.tsv", 1379, "2.5")},  # the middle of the score range
        official_rows={"train": 5749, "dev": 1500},
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
            "test_diagnostic": "../diagnostic/diagnostic.tsv",  # AX, predicted by MNLI's model
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
        in_paper_mean=True,
        leaderboard=("accuracy", "mismatched_accuracy"),
        glue_files={
            "test": GlueFile("MNLI-m.tsv", 9796, "entailment"),  # balanced
            "test_mismatched": GlueFile("MNLI-mm.tsv", 9847, "entailment"),
            "test_diagnostic": GlueFile("AX.tsv", 1104, "entailment"),
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
        in_paper_mean=True,
        leaderboard=("accuracy",),
        glue_files={"test": GlueFile("QNLI.tsv", 5463, "entailment")},  # balanced
        official_rows={"train": 104743, "dev": 5463},
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
        in_paper_mean=True,
        leaderboard=("accuracy", "f1"),
        glue_files={"test": GlueFile("QQP.tsv", 390965, "0")},
        official_rows={"train": 363846, "dev": 40430},
    ),
    TaskSpec(
        name="RTE",
        kind="classification",
        metrics=("accuracy",),
        labels=_ENTAILMENT,
        text_a="sentence1",
        text_b="sentence2",
        hub_config="rte",
        epochs=10,
        in_paper_mean=True,
        leaderboard=("accuracy",),
        glue_files={"test": GlueFile("RTE.tsv", 3000, "entailment")},
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
        leaderboard=("accuracy",),
        glue_files={"test": GlueFile("WNLI.tsv", 146, "0")},
        official_rows={"train": 635, "dev": 71},
    ),
    TaskSpec(
        name="SQuAD1.1",
        kind="span",
        metrics=("f1", "exact"),
        source="squad",
        files={"train": "train-v1.1.json", "dev": "dev-v1.1.json"},
        hub_splits={"train": "train", "dev": "validation"},
        epochs=2,
        official_rows={"train": 87599, "dev": 10570},
    ),
    TaskSpec(
        name="SQuAD2.0",
        kind="span",
        metrics=("f1", "exact", "best_f1", "best_exact"),
        source="squad",
        files={"train": "train-v2.0.json", "dev": "dev-v2.0.json"},
        hub_splits={"train": "train", "dev": "validation"},
        epochs=2,
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
        files={"train": "conll2000/train.txt", "dev": "conll2000/test.txt"},  # no other split was released
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
    _superglue_task(
        "BoolQ",
        {"train": 9427, "dev": 3270},
        labels=("false", "true"),
        text_a="question",
        text_b="passage",
    ),
    _superglue_task(
        "CB",
        {"train": 250, "dev": 56},
        metrics=("accuracy", "macro_f1"),
        labels=("entailment", "contradiction", "neutral"),
        text_a="premise",
        text_b="hypothesis",
    ),
    _superglue_task(
        "COPA",
        {"train": 400, "dev": 100},
        kind="multiple_choice",
        labels=_BINARY,
        text_a="{premise} What was the {question} of this?",
        choices=("choice1", "choice2"),
    ),
    _superglue_task(
        "WiC",
        {"train": 5428, "dev": 638},
        labels=("false", "true"),
        text_a="{word}: {sentence1}",  # the word's places in both sentences (start1 .. end2) are not used
        text_b="sentence2",
    ),
    *(
        TaskSpec(
            name=name,
            kind="span",
            metrics=("f1", "exact"),
            source="mrqa",
            epochs=2,
            files={"train": f"train/{file}.jsonl", "dev": f"dev/{file}.jsonl"},
            other_files={"train": (f"train/{file}.jsonl.gz",), "dev": (f"dev/{file}.jsonl.gz",)},
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


_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)  # excludes paths to other folders


def find_spec(tasks_folder: Path, name: str) -> TaskSpec:
    """Return a task of ``TASKS``, or the own task that ``electra tasks`` wrote to ``<tasks_folder>/<name>/task.json``.

    Args:
        name: name of a task; ``MNLI/HANS`` is the task HANS, scored with the models of MNLI.

    Raises:
        ConfigError: there is no such task.
        DataError: ``task.json`` is damaged.
    """
    if name in TASKS:
        return TASKS[name]
    path = tasks_folder / name / SPEC_FILE
    if not _NAME.fullmatch(name) or not path.is_file():
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
    """Return whether the labelled splits have as many rows as the official release."""
    return all(abs(rows.get(split, 0) - n) <= _TOLERANCE * n for split, n in spec.official_rows.items())


def evaluations(tasks_folder: Path, name: str) -> list[TaskSpec]:
    """Return the evaluation-only tasks that are scored with the models of task ``name``, sorted by name."""
    found = sorted(path.parent.name for path in (tasks_folder / name).glob(f"*/{SPEC_FILE}"))
    return [find_spec(tasks_folder, f"{name}/{evaluation}") for evaluation in found]
