"""No command writes over what is not its own: a folder that a user names, or that somebody else has filled."""

from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

from electra.__main__ import app
from electra.common.artifacts import building, read_json, write_manifest
from electra.common.errors import ConfigError
from electra.importing.huggingface import import_huggingface
from electra.importing.resize import resize_vocabulary
from electra.importing.tensorflow import import_tensorflow
from electra.importing.weights import check_target
from electra.predict.run import writing
from electra.tasks.catalogue import find_spec

COMMANDS: dict[str, Callable[[Path], None]] = {
    "resize": lambda target: resize_vocabulary(Path("models/pretrained"), Path("vocab.txt"), target),
    "import-huggingface": lambda target: import_huggingface(Path("model"), None, target),
    "import-tensorflow": lambda target: import_tensorflow("model", Path("vocab.txt"), target),
}


def artefact(folder: Path, **facts: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "part").write_text("x")
    write_manifest(folder, **facts)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("data/corpus", "where the pipeline writes"),
        ("data/shards", "where the pipeline writes"),  # also where nothing is yet
        ("models/finetuned/CoLA-1", "where the pipeline writes"),
        ("models/set-aside/CoLA-1", "where the pipeline writes"),
        ("data/../data/corpus", "where the pipeline writes"),
        ("link", "where the pipeline writes"),
        ("elsewhere/corpus", "another kind of artefact"),
        ("elsewhere/corpus/inside", "into an artefact"),
        ("books", "no command of this project wrote"),
        ("books/novel.txt", "no command of this project wrote"),
        ("start", "put there later: notes.txt"),
    ],
)
def test_a_folder_of_another_kind_is_refused_and_stays(here: Path, command: str, target: str, said: str) -> None:
    artefact(here / "data/corpus", documents=3)
    artefact(here / "elsewhere/corpus", documents=3)
    artefact(here / "start", imported_from={})
    (here / "start/notes.txt").write_text("mine")
    (here / "books").mkdir()
    (here / "books/novel.txt").write_text("It was.")
    (here / "link").symlink_to(here / "data/corpus")
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=said):
        COMMANDS[command](Path(target))
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("facts", [{"imported_from": {}}, {"resized_from": {}}])
def test_a_folder_that_was_imported_before_may_be_replaced(here: Path, facts: dict[str, object]) -> None:
    check_target(artefact(here / "start", **facts))
    check_target(here / "new")
    (here / "empty").mkdir()
    check_target(here / "empty")


def test_a_new_vocabulary_is_not_written_over_the_weights_it_is_for(here: Path) -> None:
    save_file({}, artefact(here / "start", imported_from={}) / "model.safetensors")
    write_manifest(here / "start", imported_from={})
    with pytest.raises(ConfigError, match="is what is read"):
        resize_vocabulary(Path("start"), Path("vocab.txt"), here / "x/../start")


def test_a_stage_replaces_its_own_folder_and_no_other(tmp_path: Path) -> None:
    """Raw text that somebody put into data/corpus is not an older corpus."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/book.txt").write_text("It was.")
    with pytest.raises(ConfigError, match="book.txt"), building(tmp_path / "corpus"):
        pytest.fail("the stage began")
    assert (tmp_path / "corpus/book.txt").read_text() == "It was."
    for number in (1, 2):
        with building(tmp_path / "made") as folder:
            write_manifest(folder, number=number)
    assert read_json(tmp_path / "made/manifest.json")["number"] == 2


@pytest.mark.parametrize(("output", "said"), [("corpus/part", "into an artefact"), ("folder", "is a folder")])
def test_predictions_are_not_written_into_an_artefact_or_over_a_folder(tmp_path: Path, output: str, said: str) -> None:
    artefact(tmp_path / "corpus", documents=3)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=said), writing(tmp_path / output, "jsonl"):
        pytest.fail("the file was opened")
    assert (tmp_path / "corpus/part").read_text() == "x"


def test_a_task_is_named_by_its_name_and_never_by_a_path(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/task.json").write_text('{"name": "mine", "kind": "span", "metrics": ["f1"], "official_rows": {}}')
    (tmp_path / "tasks").mkdir()
    assert find_spec(tmp_path, "mine").name == "mine"
    for name in ("../mine", "..", "mine/../mine", "tasks/../mine", "./mine", str(tmp_path / "mine"), "mine/"):
        (tmp_path / "tasks/mine").mkdir(parents=True, exist_ok=True)
        with pytest.raises(ConfigError, match="there is no task"):
            find_spec(tmp_path / "tasks", name)


@pytest.mark.parametrize("option", [["--seed", "-1"], ["--seed", "1", "--milestone", "../../start"]])
def test_a_wrong_cell_is_a_wrong_command_line(option: list[str]) -> None:
    assert CliRunner().invoke(app, ["finetune", "--task", "CoLA", *option]).exit_code == 2
