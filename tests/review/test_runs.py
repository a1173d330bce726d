"""`electra runs`: one line per run, from git only."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from electra.cluster.run_facts import run_name
from electra.common.errors import ConfigError
from electra.results.review.runs import find_runs, render_runs, runs_as_json
from electra.results.review.sides import open_side
from tests.review.runs import Run


def git(folder: Path, *arguments: str, day: int | None = None) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@y", *arguments]
    dated = {"GIT_COMMITTER_DATE": f"2026-11-{day:02}T12:00:00Z"} if day else {}
    done = subprocess.run(command, cwd=folder, env={**os.environ, **dated}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(run: Run, message: str, day: int | None = None) -> str:
    keep = run.folder.parent / "git"
    if (run.folder / ".git").exists():
        (run.folder / ".git").rename(keep)
    (run.folder.parent / "x").mkdir(exist_ok=True)
    run.write()
    if keep.exists():
        keep.rename(run.folder / ".git")
    else:
        git(run.folder, "init", "-q")
    git(run.folder, "add", "-A")
    git(run.folder, "commit", "-qm", message, day=day)
    return git(run.folder, "rev-parse", "HEAD")


def test_a_line_for_every_run_with_what_was_changed(tmp_path: Path) -> None:
    run = Run(tmp_path / "clone", seeds=3, random=1)
    commit(run, "First figures")
    run.set_parameter("pretrain.learning_rate", 5e-3)
    run.results["scores.json"]["mean"]["pretrained"] = 51.25
    run.results["pretrain.json"]["disc_auc"] = 0.8765
    second = commit(run, "Faster")
    (run.folder / "README.md").write_text("no run")
    git(run.folder, "add", "-A")
    git(run.folder, "commit", "-qm", "A page")
    git(run.folder, "update-ref", "refs/exps/ab/cd/vocal-fern", second)
    experiment, newest, first = found = find_runs(run.folder)
    assert (newest.commit, newest.changed, newest.mean, newest.auc, newest.minutes) == (
        second[:7],
        ["learning_rate 0.005"],
        51.25,
        0.8765,
        3.0,
    )
    assert newest.spread and newest.name == "smoke-electra" and first.subject == "First figures"
    assert experiment.name == "vocal-fern"
    lines = render_runs(found).splitlines()
    assert len(lines) == 4 and max(map(len, lines)) <= 100
    assert "learning_rate 0.005" in lines[2] and "51.2 ± " in lines[2] and "0.876" in lines[2]
    assert json.loads(runs_as_json(found))[1]["changed"] == ["learning_rate 0.005"]
    assert len(find_runs(run.folder, most=1)) == 1


def test_a_run_that_is_not_committed_is_the_first_line(tmp_path: Path) -> None:
    run = Run(tmp_path / "clone", seeds=3, random=1)
    commit(run, "First figures")
    (run.folder / "README.md").write_text("no run")
    assert [one.commit for one in find_runs(run.folder)] == [git(run.folder, "rev-parse", "HEAD")[:7]]
    settings, scores = run.folder / "params/smoke.yaml", run.folder / "results/scores.json"
    changed = yaml.safe_load(settings.read_text())
    changed["pretrain"]["learning_rate"] = 5e-3
    settings.write_text(yaml.safe_dump(changed))
    scores.write_text(json.dumps({**json.loads(scores.read_text()), "mean": {"pretrained": 51.25}}))
    now, first = found = find_runs(run.folder)
    assert (now.commit, now.mean, now.changed) == ("work tree", 51.25, ["learning_rate 0.005"])
    assert first.subject == "First figures" and first.mean != 51.25
    assert "work tree" in render_runs(found).splitlines()[1]
    scores.unlink()
    assert find_runs(run.folder) == [first], "a run that has just begun has no scores"


def test_old_experiments_do_not_hide_new_commits(tmp_path: Path) -> None:
    run = Run(tmp_path / "clone")
    start = commit(run, "Start", day=1)
    experiment(run, "old-noise", "pretrain.seed", 9, day=2)
    for message, key, value, day in (("Faster", "learning_rate", 5e-3, 3), ("Decay", "weight_decay", 0.5, 5)):
        run.set_parameter(f"pretrain.{key}", value)
        run.results["scores.json"]["mean"]["pretrained"] += 1
        commit(run, message, day)
    git(run.folder, "checkout", "-q", "--detach", start)
    experiment(run, "new-on-old", "model.num_layers", 3, day=6)
    git(run.folder, "checkout", "-q", "-")
    found = find_runs(run.folder, most=4)
    assert [one.subject for one in found] == ["experiment new-on-old", "Decay", "Faster", "experiment old-noise"]
    assert [one.changed for one in found] == [["model.num_layers 3"], ["weight_decay 0.5"], ["learning_rate 0.005"],
                                              ["seed 9"]], "an experiment's are those since its baseline"  # fmt: skip
    assert [one.subject for one in find_runs(run.folder, most=2)] == ["experiment new-on-old", "Decay"]


def test_of_two_experiments_of_one_name_the_one_of_head_is_taken_or_none(tmp_path: Path) -> None:
    run = Run(tmp_path / "clone")
    made = []
    for day in (1, 3, 5):
        run.results["scores.json"]["mean"]["pretrained"] += 1
        commit(run, "Other scores", day)
        if day < 5:
            made.append(experiment(run, "noise-smoke-1", "pretrain.seed", 9, day + 1))
    with pytest.raises(ConfigError, match="2 experiments are called noise-smoke-1") as caught:
        open_side("noise-smoke-1", run.folder)
    assert all(digest[:7] in str(caught.value) for digest in made)
    for digest in reversed(made):
        git(run.folder, "checkout", "-q", "--detach", "HEAD~1")
        assert open_side("noise-smoke-1", run.folder).revision == digest


def experiment(run: Run, name: str, key: str, value: object, day: int) -> str:
    """Make an experiment as DVC does: a commit on HEAD that only a reference holds."""
    file = run.folder / "params/smoke.yaml"
    text = file.read_text()
    settings = yaml.safe_load(text)
    section, _, last = key.partition(".")
    settings[section][last] = value
    file.write_text(yaml.safe_dump(settings))
    tree = git(run.folder, "stash", "create", day=day)  # a commit of the work tree
    file.write_text(text)
    head = git(run.folder, "rev-parse", "HEAD")
    made = git(run.folder, "commit-tree", "-p", head, "-m", name, f"{tree}^{{tree}}", day=day)
    git(run.folder, "update-ref", f"refs/exps/{head[:2]}/{head[2:]}/{name}", made)
    return made


def test_a_folder_without_history_is_told(tmp_path: Path) -> None:
    for look in (find_runs, lambda folder: open_side("HEAD", folder)):
        with pytest.raises(ConfigError, match="no git history here"):
            look(tmp_path)
    git(tmp_path, "init", "-q")
    for look in (find_runs, lambda folder: open_side("HEAD", folder)):
        with pytest.raises(ConfigError, match="nothing is committed here yet"):
            look(tmp_path)


def test_curves_are_in_a_folder_named_for_profile_method_and_what_differs_from_the_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DVC_EXP_NAME", raising=False)
    (tmp_path / "params").mkdir()
    (tmp_path / "params.yaml").write_text("profile: mine\npretrain: {objective: bert}\ncluster: {num_threads: 1}\n")
    profile = tmp_path / "params/mine.yaml"
    profile.write_text("pretrain: {learning_rate: 1.0e-3, batch_size: 8}\ntasks: {source: none}\n")
    assert run_name("mine", "bert", tmp_path) == "mine-bert", "no git yet"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@localhost"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "start"]):
        subprocess.run([*git, *command], check=True)
    profile.write_text("pretrain: {learning_rate: 2.0e-3, batch_size: 8}\ntasks: {source: other}\n")
    (tmp_path / "params.yaml").write_text("profile: mine\npretrain: {objective: bert}\ncluster: {num_threads: 2}\n")
    assert run_name("mine", "bert", tmp_path) == "mine-bert-learning_rate-0.002"
    monkeypatch.setenv("DVC_EXP_NAME", "crazy-cat")
    assert run_name("mine", "bert", tmp_path) == "crazy-cat"
