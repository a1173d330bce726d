"""The stage evaluation_texts: texts of development and test sets that the corpus must not have."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from electra.common.artifacts import building, listed_files, read_manifest, write_manifest
from electra.common.paths import Paths
from electra.config import Settings
from electra.corpus.leaks import EvaluationTexts

EXAMPLES = "examples.npy"


def collect_evaluation_texts(settings: Settings, paths: Paths) -> None:
    """Write ``data/evaluation``: the texts of all examples of ``data/tasks`` that are not for training, as
    :class:`electra.corpus.leaks.EvaluationTexts` has them, and ``examples.npy``, the number of each text's example.

    Where ``corpus.decontamination`` is not set nothing is collected: the stage's bytes, and so the corpus, then do not
    depend on the tasks.

    Raises:
        DataError: ``data/tasks`` is missing or damaged.
    """
    rules = settings.corpus.decontamination
    with building(paths.evaluation_texts) as folder:
        if rules is None:
            write_manifest(folder, sets=[])
            return
        texts: list[str] = []
        examples: list[int] = []
        sets: list[dict[str, Any]] = []
        number = 0
        for task, split in _evaluation_sets(paths.tasks):
            first = number
            for row in _rows(paths.tasks, task, split):
                found = [text for text in _texts(row) if text.strip()]
                texts += found
                examples += [number] * len(found)
                number += 1
            sets.append({"task": task, "split": split, "examples": number - first})
        table = EvaluationTexts.of(texts, rules.words, rules.min_words)
        table.save(folder)
        np.save(folder / EXAMPLES, np.array(examples, dtype=np.int64), allow_pickle=False)
        comparable = np.zeros(number, dtype=bool)
        comparable[np.array(examples, dtype=np.int64)[table.comparable()]] = True
        start = 0
        for one in sets:
            one["compared"] = int(comparable[start : start + one["examples"]].sum())
            start += one["examples"]
        write_manifest(folder, words=rules.words, min_words=rules.min_words, sets=sets)
    print(f"evaluation texts: {len(texts):,} texts of {number:,} examples in {len(sets)} sets")


def _evaluation_sets(tasks: Path) -> Iterator[tuple[str, str]]:
    for task, facts in read_manifest(tasks)["tasks"].items():
        for split in facts["rows"]:
            if not split.startswith("train"):
                yield task, split


def _rows(tasks: Path, task: str, split: str) -> Iterator[dict[str, Any]]:
    for file in listed_files(tasks, f"{task}/{split}.jsonl"):
        file.verify()
        with open(file.path, encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def _texts(row: dict[str, Any]) -> list[str]:
    """All texts of a row of any kind of task."""
    texts = [row[key] for key in ("text_a", "text_b", "question", "context") if row.get(key)]
    return [*texts, *row.get("choices", []), *([" ".join(row["words"])] if "words" in row else [])]
