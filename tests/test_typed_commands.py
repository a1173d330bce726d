"""Every command on a page is run in a separate workspace; commands that cannot be run are listed here with the reason.

The commands are listed from the pages (``commands_of``): a new one is typed as it is written, in a copy of a small
workspace in which every stage has run. It needs a line here only if it takes other values there (``SMALLER``), ends
otherwise than with 0 (``REFUSED``), or cannot run (``NEVER``, ``LONG``).
"""

import re
import signal
import subprocess
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from electra.hub.onnx import PACKAGES as ONNX
from electra.init.table import read_labelled
from tests.test_documentation import MORE_PAGES, PAGES, commands_of
from tests.typed import REVIEW, ROOT, Typist, prepare, read_yaml, write_yaml

pytestmark = pytest.mark.timeout(900)  # the first test waits for the workspace

# Not typed. A pattern is that of a whole command.
NEVER = {
    r".*(<command>|COMMAND).*|(.* )?\.\.\.( .*)?": "a placeholder, no command",
    r"make (env|docs|hooks|test-gpu|test-tensorflow|test-transformers)( .*)?": "installs packages",
    r"make accept-gpu( .*)?": "needs a GPU",
    r"make (test|lint|fuzz|soak|test-cluster)( .*)?|python -m pytest .*|python -m tests\..*": "checks of the project",
    r"electra cluster (init|worker).*": "needs a Prefect server: tests/cluster/acceptance.py types them",
    r"electra --install-completion": "writes to the settings of the user's shell",
    r"electra import-tensorflow .*": "needs TensorFlow: make test-tensorflow",
}
if not all(find_spec(name) for name in ONNX):
    NEVER[r"electra (export|publish) .*--onnx.*"] = "needs the extra onnx"
# Typed with `-m cluster` only: hours at full size, minutes here.
LONG = {
    r"electra noise .*": "several whole runs",
    r"dvc repro -f (?!inputs).*": "a run of all stages before it",
    r"dvc exp run (?!-S \S+:pretrain\.learning_rate=).*": "a run of the pipeline, as the one with another rate",
}
# In this order; what a page names is replaced by what the workspace has, or by something smaller.
SMALLER = [
    (r"electra init TEXTS", "electra init corpus/"),
    (r"\[(--[\w-]+)\]", r"\1"),  # an option that may be left out
    (r"<stage>", "evaluate"),
    (r" --(generator-)?revision <[^>]*>", ""),  # a repository of the hub, at a commit: a folder here
    (r"(google|answerdotai)/\S*-generator", "models/export/generator"),
    (r"(google|answerdotai)/\S+", "models/export/discriminator"),
    (r"models/export/detector", "models/export/discriminator"),  # its name with modern blocks
    (r"--encoder owner/name --encoder-revision <[^>]*>", "--encoder encoders/bert-base"),
    (r"--task (RTE|MNLI|places|ewt-genre)\b", "--task CoLA"),
    (r"--source SQuAD1.1", "--source STS-B"),
    (r"--start-from MNLI", "--start-from CoLA"),
    (r"electra predict (answers-1-xlnet|places-1|quiz-1)", "electra predict CoLA-1"),
    (r"--table \S+ --text \S+ --label \S+", "--table labels.csv --text review --label verdict"),
    (r"--text-columns \S+", "--text-columns sentence"),
    (r"(electra publish (?!.*--dry-run).*)", r"\1 --dry-run"),  # what is sent: tests/predict/test_upload.py
    (r"(electra demo.*)", r"\1 --port 0"),
    (r"remote add --default storage", "remote add --force --default storage"),
    (r"dvc gc --workspace", "dvc gc --workspace --force"),
    (r"(dvc exp run .*)", r"\1 validate_tasks"),  # up to a stage that the rate does not change
    (r"cells\.seeds=\[[\d,]*\]", "cells.seeds=[1]"),
    (r"https://git\.example\.org/\S+ encoder", ". encoder"),
]
# Typed, and refused with this exit code and these words.
REFUSED = {
    r"electra score .*": (3, "electric"),  # the workspace is pre-trained by another method
    r"electra submission .*": (3, "neither of a GLUE test set nor of SQuAD"),  # the tasks here have no test sets
    r"electra compare --record-noise .*": (2, "have the same pre-trained weights"),  # one commit has all the names here
    r"python -m electra": (2, "Usage: "),
}
ALIKE = {
    r"python -m flows\.pipeline.*|make flow": "test_the_flow_runs_with_work_to_do_and_with_none",
    r"dvc exp (run|apply|branch) .*(slower|faster|--run-all).*|electra compare HEAD slower": "test_experiments_are_run_"
    "queued_compared_applied_and_made_a_branch",
    r"dvc artifacts get \.\./colleague .*": "test_a_clone_of_what_was_pushed_has_nothing_to_run",
}
SERVES = r"electra demo.*"
# What is said where a sentence names a command, or one of its options, without what it needs.
INCOMPLETE = re.compile("Missing|requires an argument|are required|needs to be set")


def listed() -> dict[str, str]:
    """Every command of the pages, each with the first page that names it."""
    found: dict[str, str] = {}
    for page in [*PAGES, *MORE_PAGES]:
        for command in commands_of(page):
            found.setdefault(command, page)
    return found


def is_one_of(command: str, patterns: dict[str, object]) -> bool:
    return any(re.fullmatch(pattern, command) for pattern in patterns)


def smaller(command: str) -> str:
    for pattern, replacement in SMALLER:
        command = re.sub(pattern, replacement, command)
    return command


def revisions() -> set[str]:
    """Names of commits that the pages compare."""
    known = {"HEAD", "main", "origin/main"}
    commands = [command for command in listed() if not is_one_of(command, ALIKE)]
    words = [re.sub(r" --\S+(=\S+)?( gate\.yaml)?", "", command).split() for command in commands]
    compared = [line[3:] for line in words if line[0] == "dvc" and line[2:3] == ["diff"]]
    compared += [line[2:] for line in words if line[:2] == ["electra", "compare"]]
    return {name for names in compared for name in names} - known


TYPED = sorted({smaller(c) for c in listed() if not is_one_of(c, NEVER) and not is_one_of(c, LONG)})
MEASURES = ("python -m benchmarks.", "python -m experiments.")  # minutes to hours each
BENCHMARKS = [command for command in TYPED if command.startswith(MEASURES)]
MODULES = sorted({command.split()[2] for command in BENCHMARKS})
OTHERS = [command for command in TYPED if command not in BENCHMARKS and not is_one_of(command, ALIKE)]


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Typist:
    return prepare(tmp_path_factory.mktemp("typed") / "complete", revisions())


@pytest.fixture
def typist(complete: Typist, tmp_path: Path) -> Typist:
    return complete.copy(tmp_path / "workspace")


def must_end_well(typist: Typist, command: str, fresh: bool) -> None:
    ended = typist.type(command, fresh=fresh, stdin=f"{REVIEW}\n")
    code, words = next((end for pattern, end in REFUSED.items() if re.fullmatch(pattern, command)), (0, ""))
    if ended.code in (2, 254, 255) and is_only_named(command) and INCOMPLETE.search(ended.output):
        return
    assert (ended.code, words in ended.output) == (code, True), f"{command}\nexit code {ended.code}\n{ended.output}"
    assert "Traceback" not in ended.output, f"{command}\n{ended.output}"


def is_only_named(command: str) -> bool:
    """Whether a sentence names a command, or one of its options, without arguments."""
    return len(command.split()) <= 3


@pytest.mark.parametrize("command", OTHERS)
def test_a_command_of_the_pages_ends_well(command: str, typist: Typist) -> None:
    if re.fullmatch(SERVES, command):
        must_serve(typist, command)
    else:
        must_end_well(typist, command, fresh=command.startswith("make"))


def must_serve(typist: Typist, command: str) -> None:
    """The page is answered at the address that is printed; Ctrl-C ends the server."""
    log = typist.root.parent / "served.log"
    with open(log, "wb") as file:
        server = subprocess.Popen(
            command.split(), cwd=typist.root, env=typist.environment(), stdout=file, stderr=subprocess.STDOUT
        )
    try:
        while not (answered := answers(log.read_text())) and server.poll() is None:
            time.sleep(0.1)
        assert answered, log.read_text()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)
    assert "Traceback" not in log.read_text()


def answers(printed: str) -> bool:
    """Whether a page is served at the address in what was printed; it is printed before the first answer is ready."""
    address = re.search(r"http://127\.0\.0\.1:\d+", printed)
    try:
        return address is not None and urllib.request.urlopen(address[0], timeout=60).status == 200
    except OSError:
        return False


@pytest.mark.parametrize("module", MODULES)
def test_a_benchmark_of_the_pages_has_the_options_that_it_is_given(module: str, complete: Typist) -> None:
    ended = complete.type(f"python -m {module} --help", fresh=False)
    named = {option for command in BENCHMARKS if command.split()[2] == module for option in options_of(command)}
    assert ended.code == 0 and not named - options_of(ended.output), f"{named}\n{ended.output}"


def options_of(text: str) -> set[str]:
    return set(re.findall(r"--[a-z][\w-]*", text))


def lose_the_report(typist: Typist) -> None:
    """The last stage but one must run again; what it wrote is in no cache."""
    (typist.root / "results/report.md").unlink()


def test_make_run_runs_what_is_out_of_date(typist: Typist) -> None:
    lose_the_report(typist)
    output = typist.run("make run")
    assert "] report" in output and "score card: results/report.md" in output
    assert "up to date" in typist.run("dvc status")


def test_the_flow_runs_with_work_to_do_and_with_none(typist: Typist) -> None:
    lose_the_report(typist)
    done = typist.run("make flow")
    assert "report: to run" in done and "corpus: skipped" in done and "score card" in done
    assert (typist.root / "results/report.md").is_file()
    again = typist.run("python -m flows.pipeline --parallel 2")
    assert "stages are up to date: nothing to run" in again


def test_experiments_are_run_queued_compared_applied_and_made_a_branch(typist: Typist) -> None:
    """The commands of docs/reviewing.md, in their order; the runs up to a stage that the rate does not change."""
    pattern = next(pattern for pattern in ALIKE if pattern.startswith("dvc exp"))
    commands = [command for command in commands_of("docs/reviewing.md") if re.fullmatch(pattern, command)]
    assert [command.split()[2] for command in commands] == ["run", "run", "run", "HEAD", "apply", "branch"]
    for command in commands:
        typist.run(f"{command} validate_tasks" if " -n " in command else command)
    rates = [
        yaml.safe_load(typist.run(f"git show {revision}:params/books.yaml"))["pretrain"]["learning_rate"]
        for revision in ("fifth-rate", "HEAD")
    ]
    here = yaml.safe_load((typist.root / "params/books.yaml").read_text())["pretrain"]["learning_rate"]
    assert rates[0] == here == 5e-4 != rates[1], "of the branch and the folder"
    shown = typist.run("dvc exp show --only-changed --no-pager --csv")
    assert "slower" in shown and "faster" in shown and "0.005" in shown


def add_own_table(typist: Typist) -> None:
    """Add the task that `electra init` makes of labels.csv: its rows are read by a stage, and git leaves them out."""
    root = typist.root
    table = read_labelled(root, Path("labels.csv"), None, ["review"], "verdict", "utf-8")
    (root / "own/labels").mkdir(parents=True)
    write_yaml(root / "own/labels.yaml", table.description)
    for split, rows in table.splits.items():
        (root / f"own/labels/{split}.jsonl").write_text(rows)
    with open(root / ".gitignore", "a") as file:
        file.write("/own/labels/\n")
    profile = read_yaml(root / "params/books.yaml")
    profile["tasks"]["own"] = ["own/labels.yaml"]  # not in cells.tasks: watched, and nothing is fine-tuned
    write_yaml(root / "params/books.yaml", profile)
    typist.run("electra inputs --watch", fresh=False)
    typist.run("dvc commit --quiet --force", fresh=False)


def test_a_clone_of_what_was_pushed_has_nothing_to_run(typist: Typist) -> None:
    """The last blocks of the tutorial."""
    add_own_table(typist)
    text = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8").partition("## 7.")[2]
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    typist.run("git tag -d encoder@v1.0.0")  # of the workspace
    script = typist.root.parent / "share.sh"
    commands = "".join(blocks)
    assert commands.count("\ndvc status\n") == 1
    script.write_text("set -e\n" + commands.replace("\ndvc status\n", "\ndvc status > ../status.txt\n"))
    typist.run(f"bash {script}")
    beside = typist.root.parent
    assert (beside / "status.txt").read_text() == "Data and pipelines are up to date.\n"
    assert (beside / "colleague/corpus/0.txt").is_file() and (beside / "colleague/own/labels/dev.jsonl").is_file()
    encoder = (typist.root / "models/export/discriminator/model.safetensors").read_bytes()
    assert (beside / "my-encoder/discriminator/model.safetensors").read_bytes() == encoder


def test_every_command_is_typed_or_has_its_reason() -> None:
    """The tests above would pass on none."""
    commands = listed()
    assert len(commands) > 150 and len(OTHERS) > 80 and len(BENCHMARKS) > 10
    for wanted in ("make run", "electra check", "electra compare", "dvc status", "dvc params diff"):
        assert wanted in OTHERS
    assert not is_one_of("electra new-command", NEVER) and not is_one_of("make new", NEVER)


@pytest.mark.cluster  # half an hour
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("command", sorted({c for c in listed() if not is_one_of(c, NEVER)} - set(BENCHMARKS)))
def test_a_command_of_the_pages_ends_well_in_a_fresh_process(command: str, typist: Typist) -> None:
    command = smaller(command)
    if command.startswith("dvc exp run"):
        command = command.removesuffix(" validate_tasks")
    if re.fullmatch(SERVES, command):
        must_serve(typist, command)
    elif not command.startswith(MEASURES):
        must_end_well(typist, command, fresh=True)
