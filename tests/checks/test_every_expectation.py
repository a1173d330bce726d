"""Every expectation of every suite fires on a value made to break it, and names column, value, row and next step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from electra.checks.corpus import corpus_suite, corpus_tables
from electra.checks.expectations import Suite
from electra.checks.shards import RULES, shards_suite, shards_tables
from electra.checks.tables import Table
from electra.checks.task_table import tasks_tables
from electra.checks.tasks import tasks_suite
from electra.checks.validate import report, run_checkpoint
from electra.common.artifacts import write_manifest
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.tasks.catalogue import TASKS
from tests.checks.small import make_small_artefacts, small_settings, write_lines
from tests.checks.test_task_kinds import CHOICES, TAGGED

SETTINGS = small_settings()
AGAIN = object()  # the value of the row before
Breaks = dict[tuple[str, str], list[Any]]  # (table, column): a value for each expectation on it, in their order
CHANGED = "changed since it was written"
EXAMPLES = {"record": ["not JSON"], "id_repeats": [True], "text_missing": [True]}
LABELS = {**EXAMPLES, "label": ["9"], "label_missing": [True]}
BROKEN: dict[str, Breaks] = {
    "corpus": {
        ("files", "state"): [CHANGED],
        ("splits", "documents"): [0],
        ("documents", "doc_id"): ["no id", AGAIN],
        ("documents", "in_both_splits"): [True],
        ("documents", "id_is_text_hash"): [False],
        ("documents", "begins"): [None],
        ("documents", "chars"): [1],
        ("documents", "replacement_chars"): [3],
        ("documents", "control_chars"): [4],
        ("documents", "mean_word_chars"): [99.5],
        ("documents", "digit_ratio"): [0.75],
        ("totals", "documents_missing"): [2],
        ("totals", "near_duplicate_share"): [0.5],
        ("totals", "mojibake_share"): [0.25],
        ("totals", "held_out_share"): [0.875],
        ("totals", "small_parts"): [1234],
        ("text_files", "look_like_paragraphs"): [True],
        ("sources", "difference"): [0.5],
    },
    "shards": {
        ("tokenizer_files", "state"): [CHANGED],
        ("vocabulary", "token"): [AGAIN, "two words"],
        ("vocabulary", "id_minus_line"): [7],
        ("vocabulary", "chars"): [101],
        ("shard_files", "state"): [CHANGED],
        ("shards", "layout"): ["types are int8, int8"],
        ("shards", "examples_missing"): [3],
        ("shards", "tokens_missing"): [5],
        **{("examples", rule): [False] for rule in RULES},
        ("examples", "stray_specials"): [2],
        ("totals", "size_difference"): [1],
        ("totals", "shards_size_difference"): [-1],
        ("totals", "other_tokenizer"): [True],
        ("totals", "specials_missing"): [2],
        ("totals", "train_examples"): [0],
        ("totals", "held_out_examples"): [0],
        ("totals", "vocabulary"): [99],
        ("totals", "continuation_share"): [0.875],
        ("totals", "held_out_unknown_share"): [0.25],
        ("totals", "unused_entries_share"): [0.75],
        ("totals", "pad_share"): [0.625],
        ("totals", "duplicate_share"): [0.125],
        ("totals", "held_out_seen_share"): [0.5],
    },
    "tasks": {
        ("files", "state"): [CHANGED],
        ("splits", "rows"): [0],
        ("splits", "rows_missing"): [4],
        ("splits", "labels_absent"): ["1"],
        ("splits", "avoidable_share"): [0.75],
        ("splits", "dev_rows"): [12.0],
        ("splits", "majority_share"): [0.96875],
        ("splits", "rows_beyond_official"): [-3],
        **{("MRPC", column): values for column, values in LABELS.items()},
        **{("STS-B", column): values for column, values in {**LABELS, "label": [5.5]}.items()},
        **{("SWAG", column): values for column, values in LABELS.items()},
        **{
            ("CoNLL-2003", column): values
            for column, values in {**EXAMPLES, "unknown_tag": ["B-X"], "tags_missing": [2]}.items()
        },
        **{
            ("SQuAD1.1", column): values
            for column, values in {**EXAMPLES, "answer_at_start": [False], "answers_fit": [False]}.items()
        },
    },
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    paths = make_small_artefacts(tmp_path_factory.mktemp("sound"))
    for task, rows in {"CoNLL-2003": TAGGED, "SWAG": CHOICES}.items():
        write_lines(paths, task, "train", rows[:15])
        write_lines(paths, task, "dev", rows[15:])
    rows_of = {task: {"rows": {"train": 20, "dev": 100}} for task in ("MRPC", "STS-B", "SQuAD1.1")}
    rows_of |= {task: {"rows": {"train": 15, "dev": 100}} for task in ("CoNLL-2003", "SWAG")}
    write_manifest(paths.tasks, source={"kind": "files"}, tasks=rows_of)
    return paths


def corpus(paths: Paths) -> tuple[dict[str, Table], Suite]:
    tables, _ = corpus_tables(SETTINGS.corpus, paths.corpus, SETTINGS.cluster)
    text_files = {"source": ["a"], "files": [2], "documents": [900], "characters_per_document": [80]}
    frame = pd.DataFrame({**text_files, "look_like_paragraphs": [False]})
    return {**tables, "text_files": Table(frame, tables["text_files"].named_by)}, corpus_suite(SETTINGS.corpus)


def shards(paths: Paths) -> tuple[dict[str, Table], Suite]:
    return shards_tables(paths)[0], shards_suite(SETTINGS)


def tasks(paths: Paths) -> tuple[dict[str, Table], Suite]:
    tables, statistics = tasks_tables(paths.tasks)
    tables["splits"].frame["rows_beyond_official"] = 0
    return tables, tasks_suite(TASKS[name] for name in sorted(statistics))


SUITES: dict[str, Callable[[Paths], tuple[dict[str, Table], Suite]]] = {
    "corpus": corpus, "shards": shards, "tasks": tasks,
}  # fmt: skip


@pytest.mark.parametrize("name", SUITES)
def test_every_expectation_fires_and_names_column_value_row_and_next_step(
    name: str, paths: Paths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables, suite = SUITES[name](paths)
    asked = [(table, e.column) for table, expectations in suite.items() for e in expectations]
    breaks = BROKEN[name]
    assert sorted(asked) == sorted(key for key, values in breaks.items() for _ in values), "BROKEN names them all"
    broken, rows = {}, {}
    for table, given in tables.items():
        frame = given.frame.astype(object)
        number = 0
        for (of, column), values in breaks.items():
            for place, value in enumerate(values if of == table else ()):
                row = number % len(frame) if given.named_by else 0
                value = frame[column].iloc[row - 1] if value is AGAIN else value
                frame.iloc[row, frame.columns.get_loc(column)] = value
                rows[table, column, place] = (row, value)
                number += 1
        broken[table] = Table(frame.infer_objects(), given.named_by)
    checks = run_checkpoint(name, broken, suite, Paths(tmp_path))
    with pytest.raises(DataError) as error:
        report(name, checks, {}, Paths(tmp_path))
    said = f"{error.value}\n{capsys.readouterr().out}"
    for (table, column, place), (row, value) in rows.items():
        check = [check for check in checks if (check.table, check.column) == (table, column)][place]
        assert not check.success and f"({table}.{column})" in said and check.description in said, (table, column)
        assert check.hint in said, (table, column)
        if not tables[table].named_by:
            assert check.observed == value and f"observed {value}" in said, (table, column)
            continue
        names = broken[table].frame.iloc[row][[n for n in tables[table].named_by if n != column]]
        expected = "".join(f"{key}={shown(part)} " for key, part in names.items()) + f"-> {column}={shown(value)}"
        assert expected in check.examples and expected in said, (expected, check.examples)


def shown(value: Any) -> str:
    return "None" if value is None or value is pd.NA or value != value else str(value).replace("\n", " ")
