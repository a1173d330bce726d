"""The suite of the labelled tasks over the kinds that the microworld does not write: tagging and multiple choice."""

import pytest

from electra.checks.gate import validate_tasks
from electra.common.artifacts import read_json, write_manifest
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import Settings
from tests.checks.small import make_small_artefacts, renew_manifest, small_settings, write_lines

TAGGED = [
    {"id": str(n), "words": ["Mary", f"Smith{n}", "sat"], "tags": ["B-PER", "I-PER", "O"] if n % 2 else ["O"] * 3}
    for n in range(20)
]
CHOICES = [{"id": str(n), "text_a": f"text {n}", "choices": [*"abcd"], "label": str(n % 4)} for n in range(20)]
QUESTION = {"question": "who?", "answers": [{"text": "cat", "start": 0}], "impossible": False, "references": ["Cat"]}
QUESTIONS = [{"id": str(n), "context": f"cat {n}", **QUESTION} for n in range(20)]
SOUND = {"CoNLL-2003": TAGGED, "SWAG": CHOICES, "NewsQA": QUESTIONS}


@pytest.fixture
def paths(tmp_path) -> Paths:
    paths = make_small_artefacts(tmp_path)
    for task, rows in SOUND.items():
        write_lines(paths, task, "train", rows[:15])
        write_lines(paths, task, "dev", rows[15:])
    facts = {task: {"rows": {"train": 15, "dev": 5}} for task in SOUND}
    write_manifest(paths.tasks, source={"kind": "embedded", "seed": 1}, tasks=facts)
    return paths


@pytest.fixture
def settings() -> Settings:
    return small_settings()


def test_sound_rows_of_every_kind_pass(paths, settings):
    validate_tasks(settings, paths)
    report = read_json(paths.results / "validation/tasks.json")
    assert report["success"] and not report["failed_warning"]
    assert {check["table"] for check in report["checks"]} == {"files", "splits", *SOUND}


@pytest.mark.parametrize(
    ("task", "change", "said"),
    [
        ("CoNLL-2003", {"tags": ["B-PER", "E-PER", "O"]}, "unknown_tag=E-PER"),
        ("CoNLL-2003", {"tags": ["B-NP", "O", "O"]}, "unknown_tag=B-NP"),
        ("CoNLL-2003", {"tags": ["O", "O"]}, "tags_missing=1"),
        ("CoNLL-2003", {"tags": None}, "tags_missing=3"),
        ("CoNLL-2003", {"words": ["a", " ", "b"]}, "text_missing=True"),
        ("CoNLL-2003", {"words": ["a", 1, "b"]}, "record=words and tags must be lists of strings"),
        ("SWAG", {"label": "4"}, "label=4"),
        ("SWAG", {"choices": ["a", "b", "c"]}, "text_missing=True"),
        ("SWAG", {"choices": "abcd"}, "record=choices is a str"),
        ("NewsQA", {"references": "cat"}, "record=references is a str"),
    ],
)
def test_a_broken_row_is_named(paths, settings, task, change, said):
    write_lines(paths, task, "dev", [*SOUND[task][15:18], {**SOUND[task][18], **change}, SOUND[task][19]])
    renew_manifest(paths.tasks)
    with pytest.raises(DataError) as caught:
        validate_tasks(settings, paths)
    assert f"file={task}/dev.jsonl line=4" in str(caught.value) and said in str(caught.value)


def test_the_test_split_may_be_without_tags(paths, settings):
    write_lines(paths, "CoNLL-2003", "test", [{**row, "id": f"t{row['id']}", "tags": None} for row in TAGGED[:3]])
    facts = {task: {"rows": {"train": 15, "dev": 5}} for task in SOUND}
    facts["CoNLL-2003"]["rows"]["test"] = 3
    write_manifest(paths.tasks, source={"kind": "embedded", "seed": 1}, tasks=facts)
    validate_tasks(settings, paths)
