"""Decontamination: find text of development and test sets in documents, and report or drop it.

The stage evaluation_texts collects these texts; the corpus stage looks for them and counts the findings by task.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from electra.common.artifacts import MANIFEST, building, listed_files, read_manifest, write_manifest
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import Corpus, Settings
from electra.config.text import Decontamination
from electra.text.corpus.cleaning.notes import Notes
from electra.text.corpus.document import CleanedDocument, document_batches, text_hash
from electra.text.corpus.leaks import EvaluationTexts, Leaks, load_texts

EXAMPLES = "examples.npy"


def collect_evaluation_texts(settings: Settings, paths: Paths) -> None:
    """Write ``data/evaluation``: the texts of all development and test examples in ``data/tasks``.

    The texts are saved by :class:`electra.text.corpus.leaks.EvaluationTexts`; ``examples.npy`` holds the number of each
    text's example. Without ``corpus.decontamination`` nothing is collected, so that neither the output of this stage
    nor the corpus depends on the tasks.
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
        for counts in sets:
            counts["compared"] = int(comparable[start : start + counts["examples"]].sum())
            start += counts["examples"]
        write_manifest(folder, words=rules.words, min_words=rules.min_words, sets=sets)
    print(f"evaluation texts: {len(texts):,} texts of {number:,} examples in {len(sets)} sets")


def _evaluation_sets(tasks: Path) -> Iterator[tuple[str, str]]:
    if not (tasks / MANIFEST).exists():
        raise DataError(
            f"{tasks} has no labelled tasks, whose development and test sets corpus.decontamination looks for",
            next_step="read them: electra tasks (or run all that is needed: dvc repro evaluation_texts)",
        )
    manifest = read_manifest(tasks)
    for task, facts in (manifest["tasks"] | manifest.get("evaluations", {})).items():
        for split in facts["rows"]:
            if not split.startswith("train"):
                yield task, split


def _rows(tasks: Path, task: str, split: str) -> Iterator[dict[str, Any]]:
    for file in listed_files(tasks, f"{task}/{split}.jsonl"):
        file.verify()
        with open(file.path, encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def _texts(row: dict[str, Any]) -> list[str]:
    """Return all texts of a row of any kind of task."""
    texts = [row[key] for key in ("text_a", "text_b", "question", "context") if row.get(key)]
    return [*texts, *row.get("choices", []), *([" ".join(row["words"])] if "words" in row else [])]


BATCH_CHARACTERS = 500_000
RULE = "decontamination"


def without_leaks(documents: Iterable[CleanedDocument], corpus: Corpus, folder: Path) -> Iterator[CleanedDocument]:
    """Apply ``corpus.decontamination.action`` to documents; keep their order and hold a small batch in memory.

    Args:
        documents: cleaned documents; documents that cleaning dropped pass through.
        corpus: rules; the action is ``report``, ``drop_documents`` or ``drop_paragraphs`` (the lines that contain a
            part of the evaluation text).
        folder: output folder of the stage evaluation_texts.
    """
    rules = corpus.decontamination
    assert rules is not None
    texts = load_texts(folder, rules.words)
    for batch in document_batches(documents, BATCH_CHARACTERS):
        for document, leaks in zip(batch, texts.find([document.text for document in batch]), strict=True):
            yield _without(document, leaks, rules, corpus.min_chars) if leaks else document


def _without(document: CleanedDocument, leaks: Leaks, rules: Decontamination, min_chars: int) -> CleanedDocument:
    lines = document.text.split("\n")
    leaked = set(leaks.lines)
    found = np.array(leaks.rows, dtype=np.int64).tobytes()
    notes = Notes()
    notes.add(document.notes)
    if rules.action == "drop_documents":
        notes.document(f"{RULE}.document", [lines[number] for number in leaks.lines])
        return CleanedDocument(
            "", bytes(32), document.lost_lines, 0, notes.dump(), RULE, leaks=found, leaked_lines=len(leaked)
        )
    rule = f"{RULE}.found" if rules.action == "report" else f"{RULE}.paragraph"
    for number in leaks.lines:
        notes.line(rule, lines[number], lines[number] if rules.action == "report" else "")
    changed = replace(document, notes=notes.dump(), leaks=found, leaked_lines=len(leaked))
    if rules.action == "report":
        return changed
    text = "\n".join(line for number, line in enumerate(lines) if number not in leaked)
    if len(text) < min_chars:
        return replace(changed, text="", digest=bytes(32), cut_characters=0, dropped=RULE)
    return replace(changed, text=text, digest=text_hash(text))


@dataclass
class _SetCounts:
    """Counts of one evaluation set; ``first`` is the number of its first example."""

    first: int
    facts: dict[str, Any]
    found: set[int] = field(default_factory=set)
    documents: int = 0
    lines: int = 0


class LeakTable:
    """Counts for the manifest: the examples found of each evaluation set, and the documents that contain them.

    Args:
        folder: output folder of the stage evaluation_texts.
        rules: the setting ``corpus.decontamination``.

    Raises:
        DataError: the stage has not run.
    """

    def __init__(self, folder: Path, rules: Decontamination):
        self._rules = rules
        try:
            self._examples = np.load(folder / EXAMPLES, allow_pickle=False)
        except FileNotFoundError:
            raise DataError(
                f"{folder / EXAMPLES} does not exist",
                next_step="run: dvc repro evaluation_texts; or set corpus.decontamination: null",
            ) from None
        self._sets: list[_SetCounts] = []
        first = 0
        for facts in read_manifest(folder)["sets"]:
            self._sets.append(_SetCounts(first, facts))
            first += facts["examples"]

    def add(self, document: CleanedDocument) -> None:
        """Count a document's leaks."""
        if not document.leaks:
            return
        examples = set(self._examples[np.frombuffer(document.leaks, dtype=np.int64)].tolist())
        for counts in self._sets:
            inside = {number for number in examples if 0 <= number - counts.first < counts.facts["examples"]}
            if inside:
                counts.found |= inside
                counts.documents += 1
                counts.lines += document.leaked_lines

    def report(self) -> dict[str, Any]:
        """Return the rules and ``sets``: for each set its task, split and examples, and the numbers of examples with
        a text long enough to be compared, of examples found, and of documents and paragraphs that contain them.
        """
        sets = [
            {**counts.facts, "found": len(counts.found), "documents": counts.documents, "paragraphs": counts.lines}
            for counts in self._sets
        ]
        return {**self._rules.model_dump(), "sets": sets}
