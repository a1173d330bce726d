"""Commands of the documentation's pages as a user types them, and a workspace in which they run.

Commands that import PyTorch take seconds to start. They are run in processes forked from one that has imported it, with
their own ``sys.argv``, folder, environment and standard input; ``fresh`` starts each of them as a user's shell does.
"""

import glob
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.fixtures import HERE, PAIRS
from tests.reliability.faults import run_typed
from tests.workspace import COMMON, PROFILE, forked

PATIENCE = 800  # seconds for one command, on a machine that does much else
ROOT = Path(__file__).resolve().parents[1]
BINARIES = Path(sys.executable).parent
# What a workspace does not need of this repository: it has texts of its own.
LEFT_OUT = ("docs", "tests", "results", "data", "experiments", "benchmarks/results")
TASKS = ["CoLA", "STS-B"]
BEFORE = [
    "inputs", "tasks", "validate-tasks", "evaluation-texts", "corpus", "validate-corpus", "tokenizer", "shards",
    "validate-shards",
]  # fmt: skip
CELLS = [f"finetune --task {task} --seed 1{start}" for task in TASKS for start in ("", " --scratch")]
AFTER = [*CELLS, "evaluate", "probe", "report", "export", "finetune --task CoLA --seed 1 --keep"]
REVIEW = "It rained all day, and nobody came to the harbour. We waited."


@dataclass
class Ended:
    """How a command ended; ``output`` has both of its streams."""

    code: int
    output: str


@dataclass
class Typist:
    """Types commands in a folder."""

    root: Path

    def environment(self) -> dict[str, str]:
        """Return a user's environment, offline, with a separate home folder for programs that write there."""
        home = self.root.parent / "home"
        home.mkdir(exist_ok=True)
        who = {f"GIT_{who}_{what}": "t@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = os.environ | who | {
            "PATH": f"{BINARIES}:{os.environ['PATH']}",
            "PREFECT_HOME": str(home / "prefect"),
            "HF_HOME": str(home / "hub"),
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(self.root),
            "TORCH_EXTENSIONS_DIR": str(self.root / ".venv/torch_extensions"),
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "passive",
            "DVC_NO_ANALYTICS": "1",
            "DO_NOT_TRACK": "1",
        }  # fmt: skip
        return {name: value for name, value in environment.items() if not name.startswith(("PYTEST_", "ELECTRA_FLOW"))}

    def type(self, command: str, fresh: bool = True, stdin: str = "") -> Ended:
        """Run a command line to its end. No shell reads it; words are quoted, and files meant by a ``*``, as in one."""
        words = [
            name
            for word in shlex.split(command)
            for name in (sorted(glob.glob(word, root_dir=self.root)) if "*" in word else []) or [word]
        ]
        if not fresh:
            return self._fork([words], stdin)
        if words[0] == "python":
            words[0] = sys.executable
        done = subprocess.run(
            words, cwd=self.root, env=self.environment(), input=stdin, text=True, capture_output=True, timeout=PATIENCE
        )
        return Ended(done.returncode, done.stdout + done.stderr)

    def _fork(self, commands: list[list[str]], stdin: str) -> Ended:
        log, given = self.root.parent / f"{self.root.name}.log", self.root.parent / f"{self.root.name}.stdin"
        given.write_text(stdin)
        log.write_text("")
        process = forked(run_typed, commands, self.root, self.environment(), given, log)
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
        return Ended(-signal.SIGKILL if process.exitcode is None else process.exitcode, log.read_text())

    def electra(self, *commands: str) -> None:
        """Run commands of this project, one after the other in one process."""
        ended = self._fork([["electra", *command.split()] for command in commands], "")
        assert ended.code == 0, (commands, ended.output)

    def run(self, command: str, fresh: bool = True) -> str:
        ended = self.type(command, fresh=fresh)
        assert ended.code == 0, (command, ended.output)
        return ended.output

    def copy(self, folder: Path) -> "Typist":
        """A typist in a copy of this workspace, made by `cp`: in half the processor time that Python takes."""
        subprocess.run(["cp", "--archive", self.root, folder], check=True)
        return Typist(folder)


def merged(base: Any, changes: Any) -> Any:
    """Settings with changes, section by section; ``sources`` and ``source`` are replaced as a whole."""
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return changes
    return base | {key: value if key == "source" else merged(base.get(key), value) for key, value in changes.items()}


def copy_project(folder: Path) -> Path:
    """Code and settings of this repository as they are now; every profile made as small as tests have it."""
    left_out = [f":!{name}" for name in LEFT_OUT]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", ".", *left_out]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in filter(lambda name: (ROOT / name).is_file(), listed):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for path in (folder / "params").glob("*.yaml"):
        profile = merged(read_yaml(path), PROFILE)
        profile["pretrain"]["objective"] = "electra"  # the pages name its export's discriminator and generator
        profile["pretrain"]["milestones"] = ["every 12 steps"]  # the pages publish them
        profile["tasks"] |= {"own": [], "pairs": [str(PAIRS)]}
        profile["finetune"] |= {
            "task_epochs": {},
            "task_learning_rate": {},
            "task_max_train_examples": {},
            "tagging_max_length": None,
            "epochs": 1,
        }
        write_yaml(path, profile)
    common = read_yaml(folder / "params.yaml")
    changes = {"cells": {"tasks": TASKS, "seeds": [1], "milestones": [], "intermediate": [], "from_intermediate": [],
                         "encoders": [], "embeddings": []}, "cluster": COMMON["cluster"]}  # fmt: skip
    write_yaml(folder / "params.yaml", merged(common, changes))
    link_environment(folder)
    return folder


def link_environment(folder: Path) -> None:
    """Make this environment the workspace's own, so that `make` finds it and installs nothing.

    An environment that ``make`` were to install for the workspace would be this one, with the workspace's code.
    """
    (folder / ".venv").mkdir()
    for path in BINARIES.parent.iterdir():
        if path.name not in ("installed", "torch_extensions"):
            (folder / ".venv" / path.name).symlink_to(path)
    compiled = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or BINARIES.parent / "torch_extensions")
    compiled.mkdir(parents=True, exist_ok=True)
    (folder / ".venv/torch_extensions").symlink_to(compiled)  # DeepSpeed's op: compiling it takes a minute
    (folder / ".venv/installed").touch()  # newer than what it depends on


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def write_yaml(path: Path, value: Any) -> None:
    path.write_text(yaml.safe_dump(value, sort_keys=False), encoding="utf-8")


def prepare(folder: Path, revisions: Iterable[str]) -> Typist:
    """A workspace that has everything: all stages run, git with a commit, DVC up to date, and what pages name.

    Args:
        revisions: names that its one commit has.
    """
    typist = Typist(copy_project(folder))
    write_files(folder)
    for commands in (BEFORE, ["pretrain"], AFTER):
        typist.electra(*commands)
    (folder / "mbert").mkdir()
    for name in ("mbert/vocab.txt", "new-vocab.txt"):
        shutil.copy(folder / "data/tokenizer/vocab.txt", folder / name)
    typist.electra("import-huggingface models/export/discriminator start --generator models/export/generator")
    for command in (
        "git init --quiet --initial-branch main", "dvc remote add --default near ../near",
        "dvc remote add storage s3://bucket/electra", "electra inputs --watch", "dvc commit --quiet --force",
        "git config --add core.excludesFile .texts", "git add .", "git commit --quiet -m Everything",
        "git tag -a encoder@v1.0.0 -m Encoder", "dvc push --quiet --run-cache",
        *(f"git tag {name}" for name in revisions), "git update-ref refs/remotes/origin/main HEAD",
    ):  # fmt: skip
        typist.run(command, fresh=command.startswith("git"))
    return typist


def write_files(folder: Path) -> None:
    """Files that pages name and a user would have: texts, tables, encoders, official data and predictions for them."""
    sentences = [f"{REVIEW} Day {day}." for day in range(50)]
    rows = [f'"{sentence}",{"good" if number % 2 else "bad"}' for number, sentence in enumerate(sentences)]
    table = "\n".join(["sentence", *(f'"{sentence}"' for sentence in sentences[:5])])
    predicted = "\n".join(json.dumps({"text_a": sentence}) for sentence in sentences[:5])
    tags = "\n".join(
        f"{word} {tag}" for word, tag in (("Mary", "B-PER"), ("wrote", "O"), ("from", "O"), ("London", "B-LOC"))
    )
    shutil.copytree(HERE / "tasks/glue/MRPC", folder / "MRPC")
    shutil.copy(HERE / "tasks/squad/dev-v2.0.json", folder)
    (folder / "blimp").mkdir()
    shutil.copy(PAIRS, folder / "blimp/agreement.jsonl")
    articles = json.loads((folder / "dev-v2.0.json").read_text())["data"]
    ids = [row["id"] for article in articles for part in article["paragraphs"] for row in part["qas"]]
    rows_of_mrpc = len((folder / "MRPC/dev.tsv").read_text().splitlines()) - 1
    for name, text in {
        **{f"corpus/{number}.txt": "\n\n".join(f"{text} Part {number}." for text in sentences) for number in range(4)},
        **{f"evaluation_data/{of}_eval/{of}/agreement.jsonl": PAIRS.read_text().strip() for of in ("fast", "full")},
        **{f"train_{size}M/childes.train": "\n".join(sentences) for size in (10, 100)},
        "labels.csv": "\n".join(["review,verdict", *rows]),
        "sentences.csv": table, "table.csv": table, "quiz.csv": table, "pairs.jsonl": predicted,
        "texts.txt": "\n".join(sentences),
        "BoolQ/val.jsonl": "\n".join(
            json.dumps({"question": "is it raining", "passage": REVIEW, "idx": number, "label": number % 2 == 0})
            for number in range(4)
        ),
        "BoolQ.jsonl": "\n".join(json.dumps({"idx": number, "label": "true"}) for number in range(4)),
        "MRPC.tsv": "\n".join(["index\tprediction", *(f"{number}\t1" for number in range(rows_of_mrpc))]),
        "p.json": json.dumps(dict.fromkeys(ids, "")), "odds.json": json.dumps(dict.fromkeys(ids, 0.5)),
        "eng.testb": tags, "tagged.txt": tags,
        "both.txt": "\n".join(f"{line} {line.split()[1]}" for line in tags.splitlines()),
        "gate.yaml": "worse: 0", ".texts": "/corpus/",  # what git leaves to `dvc add`
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(f"{text}\n", encoding="utf-8")
    from tests.foreign_encoders import write_encoder  # imports transformers for seconds

    for make in ("bert", "roberta"):
        write_encoder(folder / f"encoders/{make}-base", make, max_position_embeddings=130)
