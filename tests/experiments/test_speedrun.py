"""The record book: settings that a record may change, tests for a record, reuse of runs, and the page."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from scipy import stats

from electra.common.artifacts import read_json
from electra.common.errors import ConfigError, DataError, InfrastructureError
from electra.common.paths import Paths
from electra.config import Settings
from experiments import equal_flops, record_book, speedrun
from experiments.record_book import AUC, p_value, p_values, verdict, verdicts
from tests.reliability import faults
from tests.workspace import COMMON, PROFILE, Workspace, forked

VOCABULARY = {"books": 8192}
NAMED = [(track, name) for track, records in speedrun.RECORDS.items() for name in records]


def row(name: str = "new", flops: float = 1.0, aucs: tuple[float, ...] = (0.93, 0.931, 0.932), **changes: Any) -> dict:
    runs = [
        {"seed": seed, AUC: auc, "CoNLL-2000": 90 + seed / 100, "mlm_loss": 4.2, "wall_seconds": 60}
        for seed, auc in enumerate(aucs, 1)
    ]
    made = {"track": "books", "record": name, "revision": "abc", "command": "c", "changes": {}, "steps": 9,
            "flops": flops, "share_of_baseline": flops / 2, "runs": runs, "p": p_values("books", runs),
            "machine": {"date": "2026-11-22", "device": "cpu", "cores": 2}}  # fmt: skip
    return {**made, **changes}


# ---- what a record is


@pytest.mark.parametrize("values", [(0.93, 0.931), (0.91, 0.92, 0.94), (0.9, 0.91, 0.915, 0.92)])
def test_p_is_that_of_scipys_one_sided_test(values):
    expected = stats.ttest_1samp(values, 0.92, alternative="greater").pvalue
    assert p_value(values, 0.92, 4) == pytest.approx(expected, rel=1e-9)


def test_one_seed_has_no_p():
    assert p_value([0.99], 0.92, 4) is None


def test_equal_figures_scatter_by_their_last_digit():
    assert p_value([86.52, 86.52], 86.5, 2) == pytest.approx(float(stats.t.sf(2 * 2**0.5, 1)))


def test_a_pretraining_seed_counts_once_however_often_it_is_fine_tuned():
    runs = [{AUC: auc, "CoNLL-2000": f1} for auc, f1 in ((0.85, [86.0, 88.0]), (0.86, [87.0, 89.0]))]
    assert p_values("books", runs)["CoNLL-2000"] == pytest.approx(p_value([87.0, 88.0], 86.5, 2))


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, "record"),
        ({"aucs": (0.95,)}, "no record: one seed"),
        ({"aucs": (0.841, 0.846, 0.856)}, "no record: AUC not significant"),
        ({"aucs": (0.836, 0.837, 0.838)}, "no record: AUC not significant"),
        ({"flops": 2.0}, "no record: no fewer FLOPs than `paper`"),
        ({"revision": "abc-dirty"}, "no record: code is not committed"),
    ],
)
def test_a_record_is_significant_cheaper_and_committed(changes, expected):
    assert verdict(row(**changes), row("paper", 2.0, aucs=(0.92,))) == expected


def test_both_targets_of_books_must_be_reached():
    runs = [{"seed": n, AUC: 0.86 + n / 1000, "CoNLL-2000": [86.0 + n, 87.0]} for n in (1, 2, 3)]
    assert verdict(row(runs=runs, p=p_values("books", runs)), row("paper", 2.0)) == (
        "no record: CoNLL-2000 not significant"
    )


def test_chosen_seeds_are_no_record():
    chosen = row()
    chosen["runs"][2]["seed"] = 7
    assert verdict(chosen, row("paper", 2.0)) == "no record: seeds are not 1 to n"


def test_the_one_before_is_the_last_record_and_no_failed_try():
    rows = [row("paper", 9.0), row("a", 5.0), row("failed", 1.0, aucs=(0.83, 0.84)), row("b", 4.0), row("late", 4.5)]
    assert [found.split(":")[0] for found in verdicts(rows)] == [
        "baseline",
        "record",
        "no record",
        "record",
        "no record",
    ]
    assert verdicts(rows)[-1].endswith("than `b`")


def test_seeds_needed_is_the_first_number_that_is_significant():
    needed = record_book.seeds_needed([0.921, 0.923], 0.92, 4)
    assert needed == 6
    t = 0.002 / (2**0.5 / 1000)
    assert stats.t.sf(t * needed**0.5, needed - 1) < 0.01 <= stats.t.sf(t * (needed - 1) ** 0.5, needed - 2)
    assert record_book.seeds_needed([0.9, 0.91], 0.92, 4) is None


# ---- settings and FLOPs


@pytest.mark.parametrize("track, name", NAMED)
def test_every_record_in_the_list_keeps_the_rules(track, name):
    assert speedrun.settings_of(track, name).cells.seeds


@pytest.mark.parametrize("track", speedrun.TRACKS)
def test_a_track_writes_out_every_value_that_its_results_depend_on(track):
    values = yaml.safe_load((speedrun.SETTINGS / f"{track}.yaml").read_text())
    for name in ("corpus", "tokenizer", "shards", "model", "pretrain", "finetune"):
        section = Settings.model_fields[name].annotation
        assert set(values[name]) == set(section.model_fields), name
    assert {"fidelity", "cells"} <= set(values)


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"pretrain": {"num_steps": 9, "mask_probability": 0.3}}, "pretrain.mask_probability"),
        ({"model": {"generator_width": 0.1}}, "model.generator_width"),
        ({"shards": {"max_length": 16}}, "shards.max_length"),
        ({"finetune": {"epochs": 9}}, "finetune.epochs"),
    ],
)
def test_data_and_the_difficulty_of_held_out_text_are_not_changed(changes, named, monkeypatch):
    monkeypatch.setitem(speedrun.RECORDS["books"], "other", changes)
    with pytest.raises(ConfigError, match=f"must not change {named}"):
        speedrun.settings_of("books", "other")


def test_an_unknown_record_is_refused_with_those_that_are_known():
    with pytest.raises(ConfigError, match="no record 'modem'(?s:.*)paper, modern"):
        speedrun.settings_of("books", "modem")


@pytest.mark.parametrize("track, record, share", [("books", "modern", 0.25), ("books", "slow-generator-9000", 0.188)])
def test_the_candidates_cost_their_share_of_the_baseline(track, record, share):
    paper, cheaper = (speedrun.settings_of(track, name) for name in ("paper", record))
    found = [equal_flops.training_flops(settings, VOCABULARY[track]) for settings in (paper, cheaper)]
    assert share * 0.99 < found[1] / found[0] <= share


def test_books_begins_with_tinys_tokens():
    paper = speedrun.settings_of("books", "paper")
    tokens = paper.pretrain.num_steps * paper.pretrain.batch_size * paper.shards.max_length
    assert (tokens, paper.model.architecture) == (49_152_000, "electra")


# ---- runs


@pytest.fixture
def track(prepared: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The track books, without its tasks, on the tests' small shards, in a folder; its book and page are copies."""
    settings = tmp_path / "tracks"
    settings.mkdir()
    small = {**PROFILE, **COMMON, "profile": "books", "cells": {"tasks": [], "seeds": [1]}}
    (settings / "books.yaml").write_text(yaml.safe_dump(small))
    data = tmp_path / "runs/books/data/made"
    shutil.copytree(prepared.root / "data", data)
    digest = speedrun.data_digest(data)
    small_track = record_book.Track({AUC: 0.4}, digest, ("corpus", "tokenizer", "shards"))
    monkeypatch.setitem(record_book.TRACKS, "books", small_track)
    monkeypatch.setitem(speedrun.RECORDS["books"], "short", {"pretrain": {"num_steps": 8, "warmup_steps": 2}})
    monkeypatch.setattr(speedrun, "SETTINGS", settings)
    monkeypatch.setattr(speedrun, "revision", lambda: "abc")
    for name, source in (("RESULTS", speedrun.RESULTS), ("PAGE", speedrun.PAGE)):
        monkeypatch.setattr(speedrun, name, Path(shutil.copy(source, tmp_path)))
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the project's commands instead of running them; pre-training writes its usual files."""
    found: list[str] = []

    def electra(folder: Path, *arguments: str) -> None:
        found.append(f"{folder.name} {' '.join(arguments)}")
        paths = Paths(folder)
        paths.results.mkdir()
        seed = yaml.safe_load((folder / "params/books.yaml").read_text())["pretrain"]["seed"]
        figures = {"step": 8, "disc_auc": 0.5 + seed / 1000, "mlm_loss": 6.0}
        (paths.results / "pretrain.json").write_text(json.dumps(figures))
        (folder / "logs/pretrain").mkdir(parents=True)
        (folder / "logs/pretrain/progress.json").write_text('{"tokens_per_second": 512}')

    for module in (equal_flops, speedrun):
        monkeypatch.setattr(module, "electra", electra)
    return found


def call(track: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    command = ["speedrun", "books", "--folder", str(track / "runs"), "--parallel", "1", *arguments]
    monkeypatch.setattr(sys, "argv", command)
    speedrun.main()


def test_a_record_runs_from_the_command_line_to_the_page(track, monkeypatch, capsys):
    """With real training; the figures are checked against what the run itself wrote."""

    def electra(folder: Path, *arguments: str) -> None:
        process = forked(faults.run, list(arguments), folder, folder / "log.txt")
        process.join()
        assert process.exitcode == 0, (folder / "log.txt").read_text()

    monkeypatch.setattr(equal_flops, "electra", electra)
    call(track, monkeypatch, "--record", "short", "--seeds", "1", "--write")

    written = read_json(speedrun.RESULTS)[-1]
    seen = read_json(track / "runs/books/short-1/results/pretrain.json")
    assert written["runs"][0][AUC] == round(seen["disc_auc"], 4)
    assert written["runs"][0]["wall_seconds"] is not None
    assert written["share_of_baseline"] == pytest.approx(8 / PROFILE["pretrain"]["num_steps"], abs=1e-5)
    assert written["tokens"] == 8 * 8 * 32
    assert "no record: one seed" in capsys.readouterr().out
    assert "| `short` |" in speedrun.PAGE.read_text()


def test_more_seeds_train_what_is_not_there(track, asked, monkeypatch, capsys):
    call(track, monkeypatch, "--record", "short", "--seeds", "1", "2")
    call(track, monkeypatch, "--record", "short", "--seeds", "1", "2", "3", "--write")

    assert asked == [f"short-{seed} pretrain" for seed in (1, 2, 3)]
    (written,) = [found for found in read_json(speedrun.RESULTS) if found["record"] == "short"]
    assert [run[AUC] for run in written["runs"]] == [0.501, 0.502, 0.503]
    assert written["runs"][0]["wall_seconds"] == 8 * 8 * 32 / 512
    assert written["p"][AUC] == pytest.approx(stats.ttest_1samp([0.501, 0.502, 0.503], 0.4).pvalue / 2)
    assert written["command"].endswith("speedrun books --record short --seeds 1 2 3")


def test_without_write_the_book_stays_as_it_is(track, asked, monkeypatch, capsys):
    before = speedrun.RESULTS.read_bytes(), speedrun.PAGE.read_bytes()
    call(track, monkeypatch, "--record", "short", "--seeds", "1")
    assert before == (speedrun.RESULTS.read_bytes(), speedrun.PAGE.read_bytes())


def test_a_run_with_other_settings_is_not_taken_for_the_records_own(track, asked, monkeypatch):
    call(track, monkeypatch, "--record", "short", "--seeds", "1")
    settings = track / "runs/books/short-1/params/books.yaml"
    before = settings.read_text()
    longer = {"pretrain": {"num_steps": 16, "warmup_steps": 2}}
    monkeypatch.setitem(speedrun.RECORDS["books"], "short", longer)

    for _ in range(2):  # and the refusal leaves the run's own settings
        with pytest.raises(ConfigError, match="a run with other settings or data lies there"):
            call(track, monkeypatch, "--record", "short", "--seeds", "1")
    assert settings.read_text() == before and len(asked) == 1


def test_cells_of_another_fine_tuning_are_not_taken_for_the_records_own(track, asked, monkeypatch):
    call(track, monkeypatch, "--record", "short", "--seeds", "1")
    workspace = track / "runs/books/short-1"
    values = yaml.safe_load((workspace / "params/books.yaml").read_text())
    values["finetune"]["max_length"] = 32
    (workspace / "params/books.yaml").write_text(yaml.safe_dump(values))
    call(track, monkeypatch, "--record", "short", "--seeds", "1")  # no cell was trained: nothing is wrong with it

    (workspace / "params/books.yaml").write_text(yaml.safe_dump(values))
    (workspace / "models/finetuned/CoNLL-2000-1").mkdir(parents=True)
    with pytest.raises(ConfigError, match="other settings of fine-tuning"):
        call(track, monkeypatch, "--record", "short", "--seeds", "1")


def test_other_data_are_refused(track, asked, monkeypatch):
    manifest = track / "runs/books/data/made/shards/manifest.json"
    manifest.write_text(json.dumps({**read_json(manifest), "max_length": 64}))
    with pytest.raises(DataError, match="not those of the track"):
        call(track, monkeypatch, "--record", "short")
    assert not asked


def test_books_without_its_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="--data"):
        speedrun.prepare("books", tmp_path / "data", None)


def test_a_command_notes_its_processor_time_and_a_failure_names_its_log(tmp_path):
    equal_flops.electra(tmp_path, "--help")
    with pytest.raises(InfrastructureError, match=r"exit code 2(?s:.*)log\.txt"):
        equal_flops.electra(tmp_path, "pretrain", "--no-such-option")

    notes = [json.loads(line) for line in (tmp_path / "commands.jsonl").read_text().splitlines()]
    fine, failed = (note for note in notes if "began" not in note)
    assert (fine["exit_code"], failed["exit_code"]) == (0, 2)
    assert 0 < fine["processor_seconds"] < 60


def test_changed_code_marks_the_revision_and_changed_results_do_not(tmp_path, monkeypatch):
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    code, results = tmp_path / "electra/model.py", tmp_path / "experiments/results/records.json"
    for file in (code, results):
        file.parent.mkdir(parents=True)
        file.write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "a")
    monkeypatch.setattr(speedrun, "ROOT", tmp_path)
    commit = speedrun.revision()

    assert len(commit) == 10
    results.write_text("2")
    assert speedrun.revision() == commit
    code.write_text("2")
    assert speedrun.revision() == f"{commit}-dirty"


# ---- wall time


def test_wall_time_is_that_of_all_steps_without_validations_and_warm_up(track, monkeypatch):
    def watched_run(workspace: Path, num_processes: int) -> list[dict[str, list[float]]]:
        of_a_step = 0.5 if workspace.name.startswith("short") else 1.0
        steps = [99.0 if n < 20 or (n + 1) % 25 == 0 else of_a_step for n in range(100)]
        return [{"steps": steps, "processor": [2 * seconds for seconds in steps]}]

    monkeypatch.setattr(speedrun, "watched_run", watched_run)
    speedrun.RESULTS.write_text(json.dumps([row("paper", 2.0), row("short")]))
    call(
        track,
        monkeypatch,
        "--record",
        "short",
        "--compare-wall",
        "--baseline-steps",
        "100",
        "--repeats",
        "2",
        "--write",
    )

    wall = read_json(speedrun.RESULTS)[1]["wall"]
    share = 0.5 * 8 / PROFILE["pretrain"]["num_steps"]
    assert wall["seconds_over_baseline"]["repeats"] == [pytest.approx(share, rel=1e-4)] * 2
    assert wall["processor_seconds_over_baseline"]["median"] == pytest.approx(share, rel=1e-4)
    assert "| 0.17 (0.17 - 0.17) |" in speedrun.PAGE.read_text()


def test_wall_time_has_no_place_without_the_records_row(track, monkeypatch):
    with pytest.raises(ConfigError, match="no row short"):
        call(track, monkeypatch, "--record", "short", "--compare-wall", "--write")


# ---- the book


def test_the_page_has_the_tables_of_the_figures():
    page = speedrun.PAGE.read_text()
    assert page == record_book.page_with(read_json(speedrun.RESULTS), page)


def test_the_book_begins_with_the_baselines_and_its_p_are_those_of_its_figures():
    rows = read_json(speedrun.RESULTS)
    for track in speedrun.TRACKS:
        own = [found for found in rows if found["track"] == track]
        assert own[0]["record"] == "paper" and verdicts(own)[0] == "baseline"
        settings = speedrun.settings_of(track, "paper")
        assert own[0]["flops"] == equal_flops.training_flops(settings, VOCABULARY[track])
    for found in rows:
        assert found["p"] == pytest.approx(p_values(found["track"], found["runs"]))


def test_a_row_takes_the_place_of_its_name_and_keeps_what_was_timed_of_the_same_settings():
    rows = [row("paper"), {**row("a"), "wall": {"steps": 300}}, row("b")]
    again = record_book.with_row(rows, row("a", flops=0.5))
    longer = record_book.with_row(rows, row("a", steps=10))

    assert [found["record"] for found in again] == ["paper", "a", "b"]
    assert (again[1]["flops"], again[1]["wall"]) == (0.5, {"steps": 300})
    assert "wall" not in longer[1]
    assert record_book.with_row(rows, row("c"))[-1]["record"] == "c"


def test_a_line_has_figures_with_their_spread_and_the_command_that_repeats_it():
    text = record_book.section([row("paper", 2.0, aucs=(0.92,)), row()])

    assert (
        "| `new` | 1.000e+00 | 50.0% |  | 9 | 1.0 ± 0.0 | 3 | 0.9310 ± 0.0010 | 2.3e-05 | 90.02 ± 0.01 | 1.3e-06 |"
        in text
    )
    assert "| 1 | 0.9200 |  |" in text
    assert "- `new`: `c` at abc; 2026-11-22, cpu, 2 cores" in text
