"""No command overwrites files of others: in a folder that a user names, or that another program has filled.

Nor over its input, and what is no plain file (a link, a device, a pipe) stays what it is.
"""

import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

from electra.__main__ import app
from electra.common.artifacts import building, read_json, write_manifest, writing_named
from electra.common.errors import ConfigError, InfrastructureError
from electra.common.output import LONGEST_NAME, beside, refuse_input
from electra.common.output import writing as writing_text
from electra.hub.importing.huggingface import import_huggingface
from electra.hub.importing.resize import resize_vocabulary
from electra.hub.importing.tensorflow import import_tensorflow
from electra.hub.importing.weights import check_target
from electra.predict.run import writing
from electra.tasks.catalogue import find_spec
from tests.workspace import ROOT

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
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


def test_what_is_read_is_not_in_the_folder_that_is_replaced(here: Path) -> None:
    artefact(here / "start", imported_from={})
    with pytest.raises(ConfigError, match="start holds start/part, which is read"):
        check_target(Path("start"), None, Path("start/part"))
    with pytest.raises(ConfigError, match="start holds .*part, which is read"):
        resize_vocabulary(Path("models/pretrained"), here / "start/part", Path("start"))
    with pytest.raises(ConfigError, match="start holds .*part, which is read"):
        import_tensorflow("model", here / "start/part", Path("start"))
    with pytest.raises(ConfigError, match="start is what is read"):
        import_huggingface(Path("start"), None, Path("start"))


def test_a_link_to_a_folder_stays_and_the_folder_is_replaced(here: Path) -> None:
    """data/ may be on another disk, or one artefact of it."""
    Path("disk").mkdir()
    artefact(here / "disk/corpus", documents=3)
    Path("data").mkdir()
    Path("data/corpus").symlink_to(here / "disk/corpus")
    with building(Path("data/corpus")) as folder:
        (folder / "new").write_text("x")
        write_manifest(folder, documents=4)
    assert Path("data/corpus").is_symlink() and sorted(os.listdir("disk/corpus")) == ["manifest.json", "new"]
    assert os.listdir("disk") == ["corpus"] and os.listdir("data") == ["corpus"]


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


# ---- single files that a user names


def write_to(path: Path, text: str = "new\n") -> None:
    with writing_text(path) as file:
        file.write(text)


@pytest.mark.parametrize("target", ["/dev/null", "link-to-null"])
def test_a_device_is_written_to_and_stays_a_device(here: Path, target: str) -> None:
    Path("link-to-null").symlink_to("/dev/null")
    before = os.stat("/dev/null").st_ino
    write_to(Path(target))
    now = os.stat("/dev/null")
    assert stat.S_ISCHR(now.st_mode) and now.st_ino == before and Path("link-to-null").is_symlink()
    assert [path.name for path in here.iterdir()] == ["link-to-null"]


def test_a_full_device_is_a_full_disk() -> None:
    with pytest.raises(InfrastructureError, match="No space left"):
        write_to(Path("/dev/full"))


def test_a_named_pipe_is_written_to(here: Path) -> None:
    os.mkfifo("pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_text()), daemon=True)
    reader.start()
    write_to(Path("pipe"))
    reader.join(30)
    assert read == ["new\n"] and stat.S_ISFIFO(os.stat("pipe").st_mode)


@pytest.mark.parametrize("there", [True, False])
def test_links_stay_and_their_target_is_replaced_whole_or_not_at_all(here: Path, there: bool) -> None:
    Path("elsewhere").mkdir()
    real = Path("elsewhere/real.txt")
    if there:
        real.write_text("old\n")
        real.chmod(0o640)
    Path("second").symlink_to("elsewhere/real.txt")
    Path("first").symlink_to(here / "second")
    with pytest.raises(ZeroDivisionError), writing_text(Path("first")) as file:
        file.write("half")
        raise ZeroDivisionError
    assert real.read_text() == "old\n" if there else not real.exists()
    write_to(Path("first"))
    assert real.read_text() == "new\n" and Path("first").is_symlink() and Path("second").is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640 or not there
    assert sorted(path.name for path in here.rglob("*")) == ["elsewhere", "first", "real.txt", "second"]


@pytest.mark.parametrize(
    "target", ["folder", "link-to-folder", "loop", "file/inside", "protected", "x" * 256, "server"]
)
def test_what_cannot_be_written_is_said_without_a_traceback(here: Path, target: str) -> None:
    Path("folder").mkdir()
    Path("link-to-folder").symlink_to("folder")
    Path("loop").symlink_to("loop")
    Path("file").write_text("mine")
    Path("protected").write_text("mine")
    Path("protected").chmod(0o444)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("server")
        before = sorted(here.rglob("*"))
        with pytest.raises(ConfigError) as error:
            write_to(Path(target))
    assert target in str(error.value) and "next:" in str(error.value)
    assert sorted(here.rglob("*")) == before and Path("protected").read_text() == "mine"


def test_an_output_that_is_an_input_is_refused_under_every_name(here: Path) -> None:
    source = Path("in.txt")
    source.write_text("mine\n")
    Path("folder").mkdir()
    Path("link").symlink_to("in.txt")
    Path("second").symlink_to("link")
    os.link("in.txt", "hard")
    Path("other").write_text("mine\n")
    for name in ("in.txt", "folder/../in.txt", "link", "second", "hard", str(here / "in.txt")):
        for inputs in ([source], [Path("missing"), Path("link")], [os.open("in.txt", os.O_RDONLY)]):
            with pytest.raises(ConfigError, match="would be lost"), writing_text(Path(name), inputs):
                pytest.fail("the file was opened")
    refuse_input(Path("other"), [source])
    refuse_input(Path("/dev/null"), [Path("/dev/null")])  # nothing is lost there
    assert source.read_text() == "mine\n" and Path("link").is_symlink()


def test_a_link_into_an_artefact_does_not_open_a_way_around_its_manifest(here: Path) -> None:
    artefact(here / "corpus", documents=3)
    Path("innocent.jsonl").symlink_to("corpus/part")
    with pytest.raises(ConfigError, match="into an artefact"), writing(Path("innocent.jsonl"), "jsonl"):
        pytest.fail("the file was opened")
    assert Path("corpus/part").read_text() == "x"


@pytest.mark.parametrize("length", [200, 215, 246, 254, 255])
def test_a_name_as_long_as_the_system_allows_can_be_written(here: Path, length: int) -> None:
    """What is written beside it has a name of its own, which must not be too long."""
    for name in ("é" * (length // 2) + "x" * (length % 2), "x" * length):
        assert len(os.fsencode(name)) == length
        write_to(Path(name))
        assert Path(name).read_text() == "new\n"
        os.unlink(name)
        with building(Path(name)) as folder:
            write_manifest(folder)
        assert [path.name for path in here.iterdir()] == [name]
        (here / name / "manifest.json").unlink()
        (here / name).rmdir()
    alike = {beside(Path("x" * 254 + end), ".lock").name for end in "ab"}
    assert len(alike) == 2 and all(len(name) < LONGEST_NAME for name in alike)


@pytest.mark.parametrize("target", ["x" * 256, "x" * 256 + "/inside", "file/inside", "loop"])
def test_a_folder_that_cannot_be_is_refused_before_the_work(here: Path, target: str) -> None:
    Path("file").write_text("mine")
    Path("loop").symlink_to("loop")
    before = sorted(here.rglob("*"))
    for command in COMMANDS.values():
        with pytest.raises(ConfigError) as error:
            command(Path(target))
        assert target in str(error.value)
    with pytest.raises(ConfigError), building(Path(target)):
        pytest.fail("the stage began")
    with pytest.raises(ConfigError), writing_named(Path(target)):
        pytest.fail("the file was opened")
    assert sorted(here.rglob("*")) == before


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


@pytest.mark.parametrize(
    "write",
    [
        "output.write_text(Path('out'), 'x' * 10_000)",
        "with output.building(Path('made')) as folder: (folder / 'part').write_text('x' * 10_000)",
        "from safetensors.torch import save_file; import torch\n"
        "with output.building(Path('made')) as folder: save_file({'x': torch.zeros(4000)}, folder / 'part')",
        "from electra.text.corpus.near_duplicates import SeenIds\n"
        "with output.building(Path('made')) as folder, SeenIds(folder / 'seen') as seen:\n"
        "    for number in range(500_000): seen.add(number.to_bytes(8, 'big'))",
    ],
)
def test_a_limit_on_the_size_of_files_is_said_and_leaves_what_was_there(here: Path, write: str) -> None:
    Path("out").write_text("old")
    write_manifest(artefact(here / "made"))
    script = (
        "from pathlib import Path\nfrom electra.common import artifacts as output\n"
        "from electra.common.errors import ElectraError\n"
        "try:\n" + "".join(f"    {line}\n" for line in write.splitlines()) + "except ElectraError as error:\n"
        "    raise SystemExit(f'{error.exit_code} {error}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        preexec_fn=limited,
        cwd=here,
        env={**ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.stderr.startswith("5 cannot write: File too large") and "ulimit -f" in done.stderr, done.stderr
    assert Path("out").read_text() == "old" and sorted(path.name for path in here.iterdir()) == ["made", "out"]


PRINTS = (
    "import sys; from pathlib import Path; from electra.common.artifacts import writing_named\n"
    "print('before')\n"
    "with writing_named(Path(sys.argv[1])) as file: file.write('page\\n')\n"
    "print('after')\n"
)


@pytest.mark.parametrize("target", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
def test_standard_output_by_its_path_is_written_where_it_stands(here: Path, target: str) -> None:
    """In a pipe, in a file that the shell has made, and at the end of one that it appends to."""
    Path("link").symlink_to("/dev/stdout")
    command = [sys.executable, "-c", PRINTS, target]
    piped = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert piped.stdout == "before\npage\nafter\n", piped.stderr
    Path("out").write_text("mine\n")
    with open("out", "a") as appended:
        assert subprocess.run(command, env=ENVIRONMENT, stdout=appended).returncode == 0
    assert Path("out").read_text() == "mine\nbefore\npage\nafter\n"
    with open("out", "r+") as opened:
        facts = os.fstat(opened.fileno())
        assert subprocess.run(command, env=ENVIRONMENT, stdout=opened).returncode == 0
    assert os.path.samestat(facts, os.stat("out")) and Path("out").read_text().startswith("before\npage\nafter\n")


# ---- the commands, as typed


@pytest.fixture
def project(here: Path) -> Path:
    """The repository's settings and committed results, for the commands of review."""
    for name in ("params", "results"):
        shutil.copytree(ROOT / name, name)
    shutil.copy(ROOT / "params.yaml", "params.yaml")
    return here


def test_the_page_of_compare_is_written_through_links_and_never_over_what_it_shows(project: Path) -> None:
    def electra(target: str) -> Exception | None:
        return CliRunner().invoke(app, ["compare", ".", ".", "--html", target]).exception

    read = Path("results/scores.json")
    content = read.read_text()
    Path("link.html").symlink_to(read)
    for name in (str(read), "link.html"):
        error = electra(name)
        assert isinstance(error, ConfigError) and "which this command reads" in str(error)
    assert read.read_text() == content and Path("link.html").is_symlink()
    Path("page.html").symlink_to("pages/new.html")
    Path("pages").mkdir()
    assert electra("page.html") is None
    assert "<html" in Path("pages/new.html").read_text() and Path("page.html").is_symlink()
    assert electra("new-folder/page.html") is None and Path("new-folder/page.html").is_file()
    artefact(project / "data/corpus", documents=3)
    error = electra("data/corpus/part")
    assert isinstance(error, ConfigError) and "into an artefact" in str(error)


def test_a_page_goes_through_a_pipe_whose_reader_may_leave(project: Path) -> None:
    command = f'"{sys.executable}" -m electra compare . . --html /dev/stdout'
    whole = subprocess.run(["bash", "-c", command], env=ENVIRONMENT, capture_output=True, text=True)
    assert whole.returncode == 0 and "</html>" in whole.stdout, whole.stderr
    cut = subprocess.run(["bash", "-c", f"{command} | head -c 10"], env=ENVIRONMENT, capture_output=True, text=True)
    assert len(cut.stdout) == 10 and "Traceback" not in cut.stderr and "Exception" not in cut.stderr, cut.stderr
