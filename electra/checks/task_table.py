"""Statistics of the labelled tasks, collected in one pass.

Memory: one block of lines, a bounded table, and about 100 bytes per example of one file.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from electra.checks.tables import RowSample, Table, files_table
from electra.common.artifacts import TasksManifest, read_manifest
from electra.common.lines import batches, open_input, text_lines
from electra.common.parsing import is_text
from electra.kinds import KINDS
from electra.kinds.base import Rule
from electra.tasks.catalogue import TaskSpec, find_spec, has_official_counts

BLOCK = 4096  # lines processed at a time
BLOCK_CHARS = 1 << 24  # limit of a block of long lines
PLACE = ["file", "line", "id_repeats"]


def tasks_tables(folder: Path) -> tuple[dict[str, Table], dict[str, Any]]:
    """Return the tables of the tasks and the report's statistics.

    The tables are ``files`` and, if there are tasks, ``splits`` and one table per task.
    """
    manifest = read_manifest(folder, TasksManifest)
    files, readable = files_table(folder, manifest, lambda path: path.read_text("utf-8"), (UnicodeDecodeError,))
    tables, splits, statistics = {"files": files}, [], {}
    tasks_facts = {**manifest["tasks"], **manifest.get("evaluations", {})}
    for task in sorted(tasks_facts):
        spec, listed = find_spec(folder, task), tasks_facts[task]["rows"]
        as_released = bool(spec.official_rows) and has_official_counts(spec, listed)
        scan = TaskScan(spec, sum(listed.values()))
        first = ["train"] if "train" in spec.files else []  # tasks that are only evaluated have no training split
        for split in [*first, *sorted(set(listed) - {"train"} | {"dev"})]:
            path = folder / task / f"{split}.jsonl"
            facts = scan.split(path, split) if path in readable else TaskScan.absent()
            official = spec.official_rows.get(split)
            splits.append(
                {
                    "file": f"{task}/{split}.jsonl",
                    "task": task,
                    "split": split,
                    **facts,
                    # Repeats within a benchmark as released (CoNLL-2003 has many) also affect its published scores.
                    "avoidable_share": None if as_released else facts["seen_in_train_share"],
                    "dev_rows": facts["rows"] if split.startswith("dev") and not as_released else None,
                    "rows_missing": listed.get(split, 0) - facts["rows"],
                    "official_rows": official,
                    "rows_beyond_official": None if official is None else facts["rows"] - official,
                }
            )
        tables[task] = scan.table()
        own = [facts for facts in splits if facts["task"] == task]
        statistics[task] = {f"{facts['split']}_rows": facts["rows"] for facts in own}
        dev = own[len(first)]
        statistics[task] |= {"dev_seen_in_train_share": dev["seen_in_train_share"]}
        if dev["majority_share"] is not None:
            statistics[task] |= {"dev_majority_share": dev["majority_share"]}
    if not splits:
        return tables, statistics
    frame = pd.DataFrame(splits)
    for column in ("rows_beyond_official", "avoidable_share", "dev_rows", "majority_share"):
        frame[column] = frame[column].astype("Float64")
    tables["splits"] = Table(frame, named_by=["file", "rows", "official_rows"])
    return tables, statistics


class TaskScan:
    """Scan every line of a task's files; ``train`` must come first, since other splits are compared with it."""

    def __init__(self, spec: TaskSpec, expected_rows: int):
        self._spec, self._kind = spec, KINDS[spec.kind]
        self._columns = [*PLACE, *COMMON, *self._kind.checked]
        self._sample = RowSample(expected_rows, ["file", "line", "id", "begins", *self._kind.named_by])
        self._train = np.empty(0, np.uint64)

    def split(self, path: Path, split: str) -> dict[str, Any]:
        """Scan one file and return its columns of the table ``splits``."""
        ids: set[str] = set()
        classes: Counter[Any] = Counter()
        seen_in_train = num_rows = 0
        labelled = not split.startswith("test")
        train_hashes = []
        for first_line, lines in _blocks(path):
            rows, text_hashes = [], []
            for number, line in enumerate(lines, first_line):
                row, text_hash = self._row(line, labelled)
                repeats = row.get("id") in ids
                ids.add(row.get("id", f"line {number}"))
                rows.append({"file": f"{self._spec.name}/{path.name}", "line": number, "id_repeats": repeats, **row})
                text_hashes.append(text_hash)
            frame = pd.DataFrame(rows, columns=self._columns)
            keys = np.array(text_hashes, np.uint64)
            self._sample.add(frame, keys, self._breaks_rule(frame))
            if labelled and "label" in frame:
                classes.update(frame["label"].dropna())
            if split == "train":
                train_hashes.append(keys)
            else:
                seen_in_train += int(np.isin(keys, self._train).sum())
            num_rows += len(rows)
        if train_hashes:
            self._train = np.unique(np.concatenate(train_hashes))
        return {
            "rows": num_rows,
            "labels_absent": " ".join(label for label in self._wanted(split) if not classes[label]),
            "seen_in_train_share": seen_in_train / max(1, num_rows),
            "majority_share": self._majority_share(classes),
        }

    def _majority_share(self, classes: Counter[Any]) -> float | None:
        """Return the share of the most frequent class: the accuracy of a constant answer."""
        if not self._kind.has_classes or not classes:
            return None
        return max(classes.values()) / classes.total()

    def _wanted(self, split: str) -> tuple[str, ...]:
        """Return labels that must occur in a split; of users' own tasks only train must have every label."""
        if not self._kind.has_classes or split.startswith("test"):
            return ()
        return self._spec.labels if split == "train" or self._spec.source != "own" else ()

    @staticmethod
    def absent() -> dict[str, Any]:
        """Return the columns of a missing file."""
        return {"rows": 0, "labels_absent": "", "seen_in_train_share": 0.0, "majority_share": None}

    def table(self) -> Table:
        """Return the table with one row per example."""
        return self._sample.table(self._columns)

    def _row(self, line: str, labelled: bool) -> tuple[dict[str, Any], int]:
        record, complaint = parse(line, self._spec)
        if complaint != OK:
            return {"record": complaint, "begins": line.strip()[:40]}, 0
        text = text_of(record, self._spec).encode()
        text_hash = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())
        return {"record": OK, "id": record["id"], **self._kind.columns(self._spec, record, labelled)}, text_hash

    def _breaks_rule(self, rows: pd.DataFrame) -> np.ndarray:
        wrong = (rows["record"] != OK) | rows["id_repeats"] | rows["text_missing"].eq(True)
        for rule in self._kind.rules(self._spec):
            wrong |= breaks(rule, rows[rule.column])
        return wrong.to_numpy(bool)


def _blocks(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield blocks of lines with the number of their first line, counted from 1."""
    with open_input(path) as file:
        for block in batches(text_lines(file, str(path)), BLOCK, lambda numbered: len(numbered[1]), BLOCK_CHARS):
            yield block[0][0], [line for _, line in block]


OK = "ok"
COMMON = ["record", "id", "begins", "text_missing"]  # columns of every kind of task
MAX_DIGITS = 18  # of an integer: more may not fit into 64 bits


def parse(line: str, spec: TaskSpec) -> tuple[dict[str, Any], str]:
    """Return the record and ``ok``, or an empty record and a description of the error."""
    kind = KINDS[spec.kind]
    try:
        record = json.loads(line, parse_int=_parse_int)
    except json.JSONDecodeError as error:
        return {}, f"not JSON: {error.msg} at column {error.colno}"
    except (RecursionError, ValueError):
        return {}, f"not JSON: nested too deeply, or an integer of more than {MAX_DIGITS} digits"
    if "\\u" in line and not is_text(json.dumps(record, ensure_ascii=False)):
        return {}, "holds half of a surrogate pair, which is no character"
    if not isinstance(record, dict) or set(record) - set(kind.optional_keys) != set(kind.keys):
        return {}, f"keys must be {', '.join(kind.keys)}"
    for key, types in {**kind.keys, **kind.optional_keys}.items():
        if key in record and not _has_type(record[key], types):
            return {}, f"{key} is a {type(record[key]).__name__}"
    complaint = kind.complaint(record)
    return ({}, complaint) if complaint else (record, OK)


def _has_type(value: Any, types: type | tuple[type, ...]) -> bool:
    return isinstance(value, types) and (types is bool or not isinstance(value, bool))  # a bool is an int, too


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"{digits:.40}")
    return int(digits)


def text_of(record: dict[str, Any], spec: TaskSpec) -> str:
    """Return a key that is equal for two records of the same example."""
    parts = [record[key] or "" for key in KINDS[spec.kind].example_keys]
    return "\x1f".join(" ".join(part) if isinstance(part, list) else part for part in parts)


def breaks(rule: Rule, column: pd.Series) -> pd.Series:
    """Return which values of a column break a rule; missing ones do not."""
    if rule.range is None:
        return ~column.isin(rule.values) & column.notna()
    return ~pd.to_numeric(column, errors="coerce").between(*rule.range) & column.notna()
