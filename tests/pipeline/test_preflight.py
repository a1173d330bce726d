"""`electra check`: mistakes are reported before DVC removes the results of the last run."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from electra import preflight
from electra.common.errors import ConfigError, DataError
from electra.config.loading import load_settings
from electra.preflight import cells_per_gpu, check_run, warnings
from tests.project import ROOT, copy_project


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """This project's settings and stages, and nothing else."""
    return copy_project(tmp_path, "dvc.yaml", "data/labelled", "data/books")


def change(path: Path, key: str, value: Any) -> None:
    """Set a key by its dotted name; a value of None removes it."""
    document = section = yaml.safe_load(path.read_text())
    *sections, last = key.split(".")
    for name in sections:
        section = section[name]
    if value is None:
        del section[last]
    else:
        section[last] = value
    path.write_text(yaml.safe_dump(document))


def test_the_projects_own_settings_pass_with_every_profile(workspace: Path) -> None:
    (workspace / "corpus").mkdir()
    (workspace / "corpus/books.txt.xz").touch()  # of the profile tiny, which is on one's own files
    (workspace / "glue").mkdir()
    (workspace / "squad").mkdir()
    for profile in sorted(path.stem for path in (ROOT / "params").glob("*.yaml")):
        change(workspace / "params.yaml", "profile", profile)
        method = "bert" if profile == "books" else "electra"
        assert f"profile {profile}, objective {method}, 36 fine-tuning cells of 6 tasks" in check_run(workspace)


OWN = [f"data/labelled/{name}.yaml" for name in ("ewt-tags", "ewt-phrases", "ewt-relations", "ewt-genre", "answers")]
MISTAKES: list[tuple[str, str, Any, str]] = [
    ("params.yaml", "profile", "smal", "there is no profile 'smal'"),
    ("params.yaml", "profile", ["books"], "no profile is chosen"),
    ("params.yaml", "profile", False, "YAML reads it as False (bool)"),
    ("params.yaml", "profile", 1000, "YAML reads it as 1000 (int)"),
    ("params.yaml", "pretrain.objective", "elektra", "pretrain.objective: Input should be 'electra'"),
    ("params.yaml", "cells.seeds", 1, "cells.seeds: Input should be a valid list"),
    ("params.yaml", "cells.seeds", ["1"], "cells.seeds.0: Input should be a valid integer"),
    ("params.yaml", "cells.tasks", "CoLA", "cells.tasks: Input should be a valid list"),
    ("params.yaml", "cells.tasks", "", "cells.tasks: Input should be a valid list"),
    ("params/books.yaml", "tasks.source", None, "tasks.source: missing, and SQuAD1.1"),
    ("params.yaml", "cells.tasks", ["CoLa"], "cells.tasks: there is no task 'CoLa'"),
    ("params.yaml", "cells.seeds", [1, 1], "listed twice"),
    ("params.yaml", "cells.milestones", [30], "cells.milestones.0"),
    ("params.yaml", "cluster.num_threads", 0, "cluster.num_threads"),
    ("params.yaml", "cluster.num_processes", 3, "of 16 does not split into 3 processes"),
    (
        "params.yaml",
        "cluster.micro_batch_size",
        5,
        "the 16 examples of a process do not split into micro-batches of 5",
    ),
    ("params.yaml", "cells.encoders", None, "cells.encoders is missing, and DVC must find it there"),
    ("params.yaml", "fidelity", None, "fidelity is missing"),
    ("params/books.yaml", "model.max_positions", None, "model.max_positions is missing"),
    ("params/books.yaml", "finetune", None, "finetune: missing"),
    ("params/books.yaml", "tasks.own", [*OWN, "mine.yaml"], "mine.yaml does not exist"),
    ("params/books.yaml", "tasks.own", [*OWN, "broken.yaml"], "kind: must be one of"),
]


@pytest.mark.parametrize(("file", "key", "value", "said"), MISTAKES)
def test_a_mistake_in_the_settings_is_told_in_our_words(
    workspace: Path, file: str, key: str, value: Any, said: str
) -> None:
    (workspace / "broken.yaml").write_text("kind: ranking\n")
    change(workspace / file, key, value)
    with pytest.raises(ConfigError) as caught:
        check_run(workspace)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_refused_value_says_where_the_keys_are_described(workspace: Path) -> None:
    change(workspace / "params.yaml", "pretrain.objective", "elektra")
    with pytest.raises(ConfigError, match=r"next:  `electra config --help-fields` describes every key"):
        check_run(workspace)


def test_two_cells_with_one_name_are_refused(workspace: Path) -> None:
    """Task x with seed 1 and the encoder 2-b, and task x-1 with seed 2 and the encoder b: x-1-2-b."""
    for name in ("x", "x-1"):
        (workspace / f"{name}.yaml").write_text("{kind: classification, train: t.csv, dev: t.csv, text: t, label: y}")
    (workspace / "t.csv").write_text("t,y\na,b\n")
    change(workspace / "params/books.yaml", "tasks.own", [*OWN, "x.yaml", "x-1.yaml"])
    change(workspace / "params.yaml", "cells.tasks", ["x", "x-1"])
    change(workspace / "params.yaml", "cells.seeds", [1, 2])
    check_run(workspace)
    change(workspace / "params.yaml", "cells.encoders", ["2-b", "b"])
    with pytest.raises(ConfigError, match="two fine-tuning runs would be named x-1-2-b"):
        check_run(workspace)


@pytest.mark.parametrize("folder", ["data/corpus", "models/pretrained"])
def test_what_somebody_else_put_where_a_stage_writes_is_refused(workspace: Path, folder: str) -> None:
    (workspace / folder).mkdir(parents=True)
    check_run(workspace)
    (workspace / folder / "book.txt").write_text("It was.")
    with pytest.raises(ConfigError, match=r"no command of this project wrote what it holds \(book.txt\)"):
        check_run(workspace)


def test_outside_of_a_project_the_root_is_asked_for(workspace: Path) -> None:
    (workspace / "dvc.yaml").unlink()
    with pytest.raises(ConfigError, match="run from the project's root"):
        check_run(workspace)


def test_make_run_checks_before_dvc_runs_anything() -> None:
    planned = subprocess.run(["make", "--dry-run", "run"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = planned.splitlines()
    (check,) = [number for number, line in enumerate(lines) if line.endswith("electra check")]
    (repro,) = [number for number, line in enumerate(lines) if line.endswith("-m flows.repro")]
    assert check < repro


def test_the_check_imports_nothing_that_takes_long(workspace: Path) -> None:
    code = (
        "import sys; from electra.preflight import check_run, warnings; check_run(); list(warnings())\n"
        "heavy = {'torch', 'deepspeed', 'dvc', 'pandas', 'numpy', 'transformers', 'great_expectations', 'pyarrow'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=workspace, capture_output=True, text=True)
    assert done.stdout == "HEAVY []\n", done.stderr


def test_every_file_and_column_that_is_not_there_is_told_at_once(workspace: Path) -> None:
    """DVC would tell the first of them, after it removed results."""
    (workspace / "mine.yaml").write_text("{kind: classification, train: t.csv, dev: d.csv, text: body, label: y}")
    (workspace / "t.csv").write_text("t,y\na,b\n")
    profile = workspace / "params/books.yaml"
    change(profile, "corpus.sources", [{"kind": "files", "name": "x", "paths": ["texts/*.txt"], "weight": 1.0}])
    change(profile, "tasks.source", {"kind": "files", "glue": "glue"})
    change(profile, "tasks.own", [*OWN, "mine.yaml"])
    change(profile, "tokenizer.vocab_file", "vocab.txt")
    change(workspace / "params.yaml", "cells.tasks", ["CoLA", "mine"])
    change(workspace / "params.yaml", "cells.encoders", ["bert"])
    with pytest.raises(DataError) as caught:
        check_run(workspace)
    for said in ("no file matches texts/*.txt", "tasks.source.glue: there is no folder glue", "no column 'body'",
                 "tokenizer.vocab_file: there is no vocab.txt", "there is no folder encoders/bert",
                 "where: params/books.yaml", "electra init TEXTS"):  # fmt: skip
        assert said in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_test_table_and_minimal_pairs_that_are_not_there_are_told(workspace: Path) -> None:
    description = workspace / "mine.yaml"
    description.write_text("{kind: classification, train: t.csv, dev: t.csv, test: no.csv, text: body, label: y}")
    (workspace / "t.csv").write_text("body,y\na,b\n")
    profile = workspace / "params/books.yaml"
    change(profile, "tasks.own", [*OWN, "mine.yaml"])
    change(profile, "tasks.pairs", ["no.jsonl"])
    with pytest.raises(DataError) as caught:
        check_run(workspace)
    assert "no.csv does not exist" in str(caught.value) and "tasks.pairs: there is no file no.jsonl" in str(
        caught.value
    )
    change(profile, "tasks.pairs", [])
    (workspace / "no.csv").write_text("text\na\n")
    with pytest.raises(DataError, match="no column 'body'; the columns are text"):
        check_run(workspace)
    (workspace / "no.csv").write_text("body\na\n")  # without labels
    check_run(workspace)


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["texts/*.txt"], "texts/b.txt: a link to nothing"),
        (["texts/b.txt"], "texts/b.txt: a link to nothing"),
        (["file://texts/*.txt"], "texts/b.txt: a link to nothing"),
        (["texts/a.txt", "texts"], "texts: a folder, not a file"),
        (["texts/a.txt", "github://a.txt"], "github://a.txt: cannot be opened: missing a required argument: 'org'"),
        (["reference://a.txt"], "reference://a.txt: cannot be opened: missing"),
        (["nope://user:secret@host/a.txt"], "nope://host/a.txt: cannot be opened: Protocol not known: nope"),
    ],
)
def test_paths_of_the_corpus_that_its_stage_would_refuse_are_refused(
    workspace: Path, paths: list[str], said: str
) -> None:
    (workspace / "texts").mkdir()
    (workspace / "texts/a.txt").write_text("text")
    (workspace / "texts/b.txt").symlink_to("nothing")
    profile = workspace / "params/books.yaml"
    change(profile, "corpus.sources", [{"kind": "files", "name": "x", "paths": paths, "weight": 1.0}])
    with pytest.raises(DataError) as caught:
        check_run(workspace)
    assert f"corpus.sources, x: {said}" in str(caught.value)


def test_urls_are_checked_without_a_connection(workspace: Path) -> None:
    paths = ["http://nowhere.invalid/a.txt", "github://me:texts@main/a.txt", "zip://*.txt::memory://a.zip"]
    profile = workspace / "params/books.yaml"
    change(profile, "corpus.sources", [{"kind": "files", "name": "x", "paths": paths, "weight": 1.0}])
    check_run(workspace)


def told(workspace: Path) -> str:
    return "\n".join(warnings(workspace))


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate an idle machine with free disk space and no servers."""
    monkeypatch.setattr("psutil.cpu_percent", lambda **_: [0.0] * 1024)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**12))
    for name in ("PREFECT_API_URL", "HF_HUB_OFFLINE", "HF_ENDPOINT", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY",
                 "http_proxy", "ALL_PROXY"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)


def test_a_machine_that_is_fit_gives_no_warning(workspace: Path, quiet: None) -> None:
    assert told(workspace) == ""


def test_a_busy_machine_a_full_disk_and_too_many_threads_are_warnings_with_a_remedy(
    workspace: Path, quiet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.cpu_percent", lambda **_: [90.0] * 1024)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5 * 10**8))
    change(workspace / "params.yaml", "cluster.num_threads", 1000)
    said = told(workspace)
    assert "0.5 GB of disk are free, and a run takes about 1." in said and "other processes use" in said
    assert "cluster asks for 1000 threads" in said
    assert said.count("  next:  ") == 3


def test_bf16_on_a_processor_that_emulates_it_is_a_warning(
    workspace: Path, quiet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("electra.preflight.is_bf16_faster", lambda: False)
    change(workspace / "params.yaml", "cluster.precision", "bf16")
    change(workspace / "params.yaml", "cluster.device", "cpu")
    assert "set cluster.precision to auto" in told(workspace)
    monkeypatch.setattr("electra.preflight.is_bf16_faster", lambda: True)
    assert told(workspace) == ""


@pytest.mark.parametrize(
    ("launcher", "programs"), [("slurm", ["sbatch", "scontrol", "scancel"]), ("kubernetes", ["kubectl"]), ("local", [])]
)
def test_what_a_launcher_calls_and_is_not_there_is_told(
    workspace: Path, quiet: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, launcher: str, programs: list[str]
) -> None:
    change(workspace / "params.yaml", "cluster.launcher", launcher)
    change(workspace / "params.yaml", "cluster.num_processes", 1)
    change(workspace / "params.yaml", "cluster.kubernetes", {"image": "encoder:1", "volume_claim": "data"})
    monkeypatch.setenv("PATH", str(empty := tmp_path / "programs"))
    empty.mkdir()
    if programs:
        expected = f"cluster.launcher is {launcher}, and there is no {' or '.join(programs)} here"
        assert told(workspace).startswith(expected) and told(workspace).count("next:") == 1
    for program in programs:
        (empty / program).write_text("#!/bin/sh\n")
        (empty / program).chmod(0o755)
    assert told(workspace) == ""

    monkeypatch.setattr(preflight, "find_spec", lambda name: None)
    assert ("submitit is missing" in told(workspace)) == (launcher == "slurm")


def test_versions_that_the_project_excludes_are_named(
    workspace: Path, quiet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.requires", lambda _: ["numpy<0.1", "nosuchpackage", "x; extra == 'dev'"])
    said = told(workspace)
    assert "numpy" in said and "is not <0.1, nosuchpackage is missing" in said and "make env" in said


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("[core]\n    remote = store\n", "DVC's default remote store is not defined"),
        (
            "[core]\n    remote = s\n['remote \"s\"']\n    url = /no/such/place\n",
            "/no/such/place, which does not exist",
        ),
        ("[core]\n    remote = s\n['remote \"s\"']\n    url = ..\n", ""),
        ("['remote \"s\"']\n    url = /no/such/place\n", ""),
        ("core]", "cannot be read"),
    ],
)
def test_a_remote_that_cannot_work_is_told(workspace: Path, quiet: None, config: str, said: str) -> None:
    (workspace / ".dvc").mkdir()
    (workspace / ".dvc/config").write_text(config)
    assert said in told(workspace) and bool(said) == bool(told(workspace))


def test_a_hub_that_cannot_be_reached_is_told_before_hours_of_work(
    workspace: Path, quiet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(workspace / "params.yaml", "profile", "small")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "wikimedia/wikipedia, nyu-mll/glue come from the hub, and http://127.0.0.1:9 does not answer" in told(
        workspace
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE is set: only what is cached can be read" in told(workspace)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert "make flow will not start" in told(workspace)


@pytest.mark.parametrize(
    ("asked", "free", "each", "cells"),
    [("auto", 80e9, 5e9, 4), ("auto", 24e9, 6.5e9, 2), ("auto", 24e9, 30e9, 1), (6, 24e9, 30e9, 6)],
)
def test_as_many_cells_share_a_gpu_as_are_predicted_to_fit_four_at_most(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, asked: Any, free: float, each: float, cells: int
) -> None:
    change(workspace / "params.yaml", "cluster", {"cells_per_gpu": asked})
    monkeypatch.setattr("electra.cluster.hardware.cuda_state", lambda: (True, ""))
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (int(free), int(free)))
    monkeypatch.setattr(preflight, "predict_finetuning_memory", lambda _: int(each))
    assert cells_per_gpu(load_settings(workspace)) == cells


def test_cells_do_not_share_a_gpu_that_is_not_there(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("electra.cluster.hardware.cuda_state", lambda: (False, ""))
    assert cells_per_gpu(load_settings(workspace)) == 1


def test_a_remote_of_this_clone_alone_stands_above_the_projects(workspace: Path, quiet: None) -> None:
    """As DVC reads them: .dvc/config.local, which git does not have, replaces what .dvc/config says."""
    (workspace / ".dvc").mkdir()
    (workspace / ".dvc/config").write_text("[core]\n    remote = s\n['remote \"s\"']\n    url = /no/such/place\n")
    assert "/no/such/place" in told(workspace)
    (workspace / ".dvc/config.local").write_text("['remote \"s\"']\n    url = ..\n")
    assert told(workspace) == ""
