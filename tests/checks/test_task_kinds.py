"""The suite of the labelled tasks over kinds of their own layouts: tagging, multiple choice, spans of MRQA."""

import pytest

from electra.checks.tasks import validate_tasks
from electra.common.artifacts import read_json, write_manifest
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import Settings
from electra.config.tasks import FilesTasks
from electra.tasks.catalogue import TASKS
from tests.checks.small import OTHER_ROWS, make_small_artefacts, renew_manifest, small_settings, write_lines

TAGGED = [
    {"id": str(n), "words": ["Mary", f"Smith{n}", "sat"], "tags": ["B-PER", "I-PER", "O"] if n % 2 else ["O"] * 3}
    for n in range(115)
]
CHOICES = [{"id": str(n), "text_a": f"text {n}", "choices": [*"abcd"], "label": str(n % 4)} for n in range(115)]
QUESTION = {"question": "who?", "answers": [{"text": "cat", "start": 0}], "impossible": False, "references": ["Cat"]}
QUESTIONS = [{"id": str(n), "context": f"cat {n}", **QUESTION} for n in range(115)]
SOUND = {"CoNLL-2003": TAGGED, "SWAG": CHOICES, "NewsQA": QUESTIONS}


@pytest.fixture
def paths(tmp_path) -> Paths:
    paths = make_small_artefacts(tmp_path)
    for task, rows in SOUND.items():
        write_lines(paths, task, "train", rows[:15])
        write_lines(paths, task, "dev", rows[15:])
    facts = {task: {"rows": {"train": 15, "dev": 100}} for task in SOUND}
    write_manifest(paths.tasks, source={"kind": "files"}, tasks=facts)
    return paths


@pytest.fixture
def settings() -> Settings:
    return small_settings()


def test_sound_rows_of_every_kind_pass(paths, settings):
    validate_tasks(settings, paths)
    report = read_json(paths.results / "validation/tasks.json")
    assert report["success"]
    assert {check["check"] for check in report["checks"] if not check["success"]} == {OTHER_ROWS}
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


@pytest.mark.parametrize("official", [True, False])
def test_repeats_are_warned_of_in_own_splits_and_not_in_a_benchmark_as_released(
    paths, settings, official, monkeypatch, capsys
):
    """CoNLL-2003's official development sentences are in part those of training: nobody can split them anew."""
    monkeypatch.setitem(TASKS["CoNLL-2003"].official_rows, "train", 15)
    monkeypatch.setitem(TASKS["CoNLL-2003"].official_rows, "dev", 5 if official else 6)
    again = [{**row, "id": f"again{row['id']}"} for row in TAGGED[:2]]
    write_lines(paths, "CoNLL-2003", "dev", [*TAGGED[15:18], *again])
    write_lines(paths, "CoNLL-2003", "test", [{**row, "tags": None} for row in again])
    facts = {task: {"rows": {"train": 15, "dev": 100}} for task in SOUND}
    facts["CoNLL-2003"]["rows"] |= {"dev": 5, "test": 2}
    write_manifest(paths.tasks, source={"kind": "files"}, tasks=facts)
    files = settings.tasks.model_copy(update={"source": FilesTasks(kind="files")})
    validate_tasks(settings.model_copy(update={"tasks": files}), paths)
    warned = "few texts of dev and test are in train" in capsys.readouterr().out
    assert warned is not official
    report = read_json(paths.results / "validation/tasks.json")
    assert report["statistics"]["CoNLL-2003"]["dev_seen_in_train_share"] == 0.4, "told in any case"


def test_the_test_split_may_be_without_tags(paths, settings):
    write_lines(paths, "CoNLL-2003", "test", [{**row, "id": f"t{row['id']}", "tags": None} for row in TAGGED[:3]])
    facts = {task: {"rows": {"train": 15, "dev": 100}} for task in SOUND}
    facts["CoNLL-2003"]["rows"]["test"] = 3
    write_manifest(paths.tasks, source={"kind": "files"}, tasks=facts)
    validate_tasks(settings, paths)


def test_tags_of_a_test_row_are_as_many_as_its_words_where_it_has_any(paths, settings):
    rows = [{**row, "id": f"t{row['id']}", "tags": None} for row in TAGGED[:3]]
    write_lines(paths, "CoNLL-2003", "test", [*rows, {**TAGGED[3], "id": "t", "tags": ["O", "O"]}])
    facts = {task: {"rows": {"train": 15, "dev": 100}} for task in SOUND}
    facts["CoNLL-2003"]["rows"]["test"] = 4
    write_manifest(paths.tasks, source={"kind": "files"}, tasks=facts)
    with pytest.raises(DataError) as caught:
        validate_tasks(settings, paths)
    assert "file=CoNLL-2003/test.jsonl line=4" in str(caught.value) and "tags_missing=1" in str(caught.value)
