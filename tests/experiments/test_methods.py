"""The comparison of methods: settings, rows of tasks, choices, tests paired by seed, and the committed tables."""

import json
import math
import tarfile
from argparse import Namespace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from electra.common.errors import ConfigError
from experiments import equal_flops, methods, methods_table
from experiments.equal_flops import steps_that_cost, training_flops
from experiments.methods import Place, Run, finished_rows, protocol, settings_of
from experiments.methods_table import CHOICE, DEV, RANDOM
from tests.project import load_profile
from tests.reliability import faults
from tests.workspace import PROFILE, ROOT, forked

NAMES = list(protocol()["methods"])
TASKS = list(protocol()["tasks"])
MACHINE = {"device": "AMD EPYC", "matrix_units": []}


@pytest.mark.parametrize("method", NAMES)
def test_every_method_is_a_setting_whose_steps_cost_as_much_as_the_references(method: str) -> None:
    settings, reference = settings_of(method, rate=2e-3, seed=4), settings_of(protocol()["reference"])
    flops = training_flops(reference, 8192)
    steps = steps_that_cost(flops, settings, 8192)

    assert (settings.pretrain.learning_rate, settings.pretrain.seed) == (2e-3, 4)
    per_step = training_flops(settings, 8192) / settings.pretrain.num_steps
    assert steps * per_step == pytest.approx(flops, rel=1 / steps)
    assert reference.pretrain.num_steps * reference.pretrain.batch_size * reference.shards.max_length == 6_144_000


def test_methods_differ_from_each_other_in_what_they_name_only() -> None:
    seen = [settings_of(method).model_dump_json() for method in NAMES]
    assert len(set(seen)) == len(NAMES)
    for method in NAMES:
        changed = {section for section in protocol()["methods"][method] if section != "rate_of"}
        own, reference = settings_of(method).model_dump(), settings_of(protocol()["reference"]).model_dump()
        assert {section for section in own if own[section] != reference[section]} == changed


def test_a_learning_rate_of_another_method_is_one_that_is_chosen() -> None:
    for method, changes in protocol()["methods"].items():
        named = changes.get("rate_of")
        assert named is None or "rate_of" not in protocol()["methods"][named], method


def test_rates_are_chosen_with_a_seed_and_at_a_budget_that_are_named() -> None:
    budgets = protocol()["budgets"]
    assert set(protocol()["tuning_budget"]) == set(budgets)
    assert set(protocol()["tuning_budget"].values()) <= set(budgets)
    assert protocol()["tuning_seed"] not in range(1, 6)


def table(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_part_a_is_cut_from_the_training_rows_and_shares_none_with_them(tmp_path: Path) -> None:
    sentences = "".join(f"word{number}\tO\nend\tO\n\t\n" for number in range(7))  # WNUT-17 separates by tabs
    table(tmp_path, "data/train.conll", sentences)
    table(tmp_path, "data/dev.conll", "dev\tO\n\n")
    facts = {"description": {"kind": "tagging", "words": 0, "tags": 1, "format": "conll"}, "rows": 4, "choice": 3}
    facts |= {"train": "train.conll", "dev": "dev.conll"}

    methods.write_task(tmp_path / "labelled", "entities", facts, tmp_path / "data")

    parts = {
        part: (tmp_path / f"labelled/entities.{part}").read_text().split("\n\n")[:-1] for part in ("train", CHOICE, DEV)
    }
    assert [len(rows) for rows in parts.values()] == [4, 3, 1]
    assert sorted(parts["train"] + parts[CHOICE]) == [f"word{number}\tO\nend\tO" for number in range(7)]
    with pytest.raises(ConfigError, match="has 7 rows, not 8"):
        methods.write_task(tmp_path / "labelled", "entities", {**facts, "rows": 5}, tmp_path / "data")


def test_both_parts_of_a_table_have_its_heading(tmp_path: Path) -> None:
    for name in ("train", "dev"):
        table(tmp_path, f"data/{name}.tsv", "sentence\tlabel\n" + "".join(f"text {n}\t{n % 2}\n" for n in range(5)))
    facts = {"description": {"kind": "classification", "format": "tsv"}, "rows": 2, "choice": 2}

    methods.write_task(tmp_path, "sentiment", {**facts, "train": "train.tsv", "dev": "dev.tsv"}, tmp_path / "data")

    for part, rows in (("train", 2), (CHOICE, 2), (DEV, 5)):
        heading, *lines = (tmp_path / f"sentiment.{part}").read_text().splitlines()
        assert (heading, len(lines)) == ("sentence\tlabel", rows)


def test_a_row_of_squad_is_a_question_with_its_paragraph(tmp_path: Path) -> None:
    def paragraph(number: int) -> dict[str, Any]:
        items = [
            {"id": f"{number}{n}", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]} for n in "ab"
        ]
        return {"context": f"Ada {number}", "qas": items}

    whole = {"version": "1.1", "data": [{"title": "t", "paragraphs": [paragraph(1), paragraph(2)]}]}
    for name in ("train", "dev"):
        table(tmp_path, f"data/{name}.json", json.dumps(whole))
    facts = {"description": {"kind": "span", "format": "squad"}, "rows": 3, "choice": 1}

    methods.write_task(tmp_path, "questions", {**facts, "train": "train.json", "dev": "dev.json"}, tmp_path / "data")

    found = {}
    for part in ("train", CHOICE, DEV):
        (article,) = json.loads((tmp_path / f"questions.{part}").read_text())["data"]
        found[part] = {item["id"]: own["context"] for own in article["paragraphs"] for item in own["qas"]}
    assert [len(questions) for questions in found.values()] == [3, 1, 4]
    expected = {f"{number}{n}": f"Ada {number}" for number in (1, 2) for n in "ab"}
    assert found["train"] | found[CHOICE] == found[DEV] == expected


def write_pieces(place: Place, run: Run, split: str, without: int = 0) -> None:
    """Write the pieces of a finished run, but for the last ones."""
    (place.folder / "pieces").mkdir(parents=True, exist_ok=True)
    if run.method != RANDOM:
        about = {"run": vars(run), "flops": 1e12, "steps": 5, "tokens": 5120, "precision": "fp32", "machine": MACHINE}
        place.piece(run).write_text(json.dumps(about))
    cells = methods.cells_of(split, run)
    for task, part, seed in cells[: len(cells) - without]:
        piece = {"run": vars(run), "task": task, "split": part, "seed": seed, "score": 50.0 + seed}
        place.piece(run, task, part, seed).write_text(json.dumps(piece))


def test_a_run_with_a_missing_piece_is_not_reported(tmp_path: Path) -> None:
    place = Place(tmp_path)
    write_pieces(place, Run("6M", "bert", 1e-3, 1), DEV)
    write_pieces(place, Run("6M", "electra", 1e-3, 1), DEV, without=1)
    write_pieces(place, Run("6M", "bert", 1e-3, 11), CHOICE)
    write_pieces(place, Run("", RANDOM, 0, 0), DEV)
    place.piece(Run("6M", "bert", 1e-3, 2)).write_text(
        json.dumps({"run": vars(Run("6M", "bert", 1e-3, 2)), "flops": 1})
    )

    rows = finished_rows(place)

    found = [(row["run"]["method"], row["run"]["seed"], row["split"]) for row in rows]
    assert found == [("bert", 11, CHOICE), (RANDOM, 0, DEV), ("bert", 1, DEV)]
    assert rows[2]["tasks"] == {task: [51.0, 52.0, 53.0] for task in TASKS}


def test_a_new_folder_begins_with_the_pieces_of_the_committed_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, begun = Place(tmp_path / "measured"), Place(tmp_path / "begun")
    runs = [(Run("6M", "bert", 1e-3, 1), DEV), (Run("6M", "bert", 2e-3, 11), CHOICE), (Run("", RANDOM, 0, 0), DEV)]
    for run, split in runs:
        write_pieces(measured, run, split)
    pairs = {"masked language model, masked": [50.0, 51.5]}
    measured.piece(runs[0][0], "pairs").write_text(json.dumps({"run": vars(runs[0][0]), "pairs": pairs}))
    rows = finished_rows(measured)
    committed = tmp_path / "methods.json"
    committed.write_text(json.dumps({"settings": protocol(), "rows": rows}))
    monkeypatch.setattr(methods, "RESULTS", committed)
    kept = begun.piece(*runs[0][:1], "tags", DEV, 1)
    kept.parent.mkdir(parents=True)
    own = {"run": vars(runs[0][0]), "task": "tags", "split": DEV, "seed": 1, "score": 99.0}
    kept.write_text(json.dumps(own))

    methods.restore(begun)

    assert json.loads(kept.read_text()) == own, "what the folder has is not replaced"
    kept.unlink()
    methods.restore(begun)
    assert finished_rows(begun) == rows and pairs in [row.get("pairs") for row in rows]

    committed.write_text(json.dumps({"settings": {**protocol(), "texts": {}}, "rows": rows}))
    other = Place(tmp_path / "other")
    other.folder.mkdir()
    methods.restore(other)
    assert not (other.folder / "pieces").exists(), "rows of other settings are not taken"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A protocol of seconds, and a folder with its texts and its task; commands are forked instead of started."""
    values = json.loads(json.dumps(protocol()))
    values |= {"budgets": {"6M": 4}, "tuning_budget": {"6M": "6M"}, "rates": [1e-3], "finetuning_seeds": [1]}
    values["tasks"] = {"sentiment": {**values["tasks"]["sentiment"], "rows": 8, "choice": 4, "epochs": 1}}
    values["texts"]["12MB"]["documents"] = ["first", "second"]
    values["settings"] |= {key: {**values["settings"][key], **PROFILE[key]} for key in ("tokenizer", "shards", "model")}
    values["settings"]["pretrain"] |= PROFILE["pretrain"]
    data = tmp_path / "given"
    for name in ("train", "dev"):
        table(data, f"glue/SST-2/{name}.tsv", "sentence\tlabel\n" + "".join(f"text {n}\t{n % 2}\n" for n in range(12)))
    (data / "prose").mkdir()
    with tarfile.open(data / "prose/novels.tar.xz", "w:xz") as archive:
        for name in ("first", "second"):
            archive.add(ROOT / f"tests/fixtures/text/{name}.txt", f"novels/{name}.txt")
    monkeypatch.setattr(methods, "protocol", lambda: values)
    monkeypatch.setattr(methods, "MOST_RATES", 1)
    return data


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that were run, each with its folder."""
    found: list[str] = []

    def electra(folder: Path, *arguments: str) -> None:
        found.append(f"{folder.name} {arguments[0]}")
        ended(forked(faults.run, list(arguments), folder, folder / "log.txt"), folder)
        note = {"command": list(arguments), "processor_seconds": 1.0}
        (folder / "commands.jsonl").write_text(json.dumps(note) + "\n")

    def fine_tune(place: Place, run: Run, cells: list[str]) -> None:
        found.append(f"{run.name} {' '.join(cells)}")
        arguments = ["methods_cells", str(place.folder), json.dumps(vars(run)), *cells]
        program = f"import sys; sys.argv = {arguments!r}; from experiments.methods_cells import main; main()"
        folder = place.workspace(run)
        ended(forked(faults.run, [], folder, folder / "log.txt", program), folder)

    for module in (equal_flops, methods):
        monkeypatch.setattr(module, "electra", electra)
    monkeypatch.setattr(methods, "fine_tune_in_process", fine_tune)
    return found


def ended(process: BaseProcess, folder: Path) -> None:
    process.join()
    assert process.exitcode == 0, (folder / "log.txt").read_text()


def test_the_same_call_goes_on_where_it_stopped(
    small: Path, commands: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "runs"
    call = ["methods", str(folder), "--data", str(small), "--seeds", "1", "--jobs", "1"]
    monkeypatch.setattr("sys.argv", call)
    methods.main()

    assert commands[:5] == [f"data {stage}" for stage in methods.STAGES]
    assert commands[5:] == [
        *("random sentiment:choice:1 sentiment:choice:2",),
        *("6M-bert-0.001-11 pretrain", "6M-bert-0.001-11 sentiment:choice:1 sentiment:choice:2"),
        *("6M-electra-0.001-11 pretrain", "6M-electra-0.001-11 sentiment:choice:1 sentiment:choice:2"),
        "random sentiment:dev:1",  # before the runs: no table can be written without it
        *("6M-bert-0.001-1 pretrain", "6M-bert-0.001-1 sentiment:dev:1"),
        *("6M-electra-0.001-1 pretrain", "6M-electra-0.001-1 sentiment:dev:1"),
    ]
    rows = finished_rows(Place(folder))
    pieces = {file.name: file.read_text() for file in (folder / "pieces").iterdir()}
    assert [row["split"] for row in rows] == [CHOICE] * 3 + [DEV] * 3

    commands.clear()
    lost = ["6M-electra-0.001-1.json", "6M-electra-0.001-1-sentiment-dev-1.json"]  # as after a kill
    for name in lost:
        (folder / "pieces" / name).unlink()
    (folder / "runs/6M-electra-0.001-1/commands.jsonl").unlink()  # killed before the end was noted
    assert len(finished_rows(Place(folder))) == 5
    methods.main()
    assert commands == ["6M-electra-0.001-1 sentiment:dev:1"], "the finished pre-training is read again"
    again = {file.name: file.read_text() for file in (folder / "pieces").iterdir()}
    assert again.keys() == pieces.keys()
    assert all(again[name] == pieces[name] for name in pieces.keys() - set(lost))
    assert json.loads(again[lost[0]])["processor_seconds"] is None


def test_a_folder_of_other_settings_is_refused(small: Path, commands: list[str], tmp_path: Path) -> None:
    (tmp_path / "protocol.json").write_text(json.dumps({"tasks": {}}))
    with pytest.raises(ConfigError, match="was begun with other settings"):
        methods.prepare(Place(tmp_path), small)
    assert commands == []


def row(method: str, scores: dict[str, list[float]], *, split: str = DEV, seed: int = 1, rate: float = 1e-3) -> Any:
    run = {"budget": "" if method == RANDOM else "6M", "method": method, "rate": rate, "seed": seed}
    return {"run": run, "split": split, "tasks": scores, "flops": 2e13, "steps": 6000, "tokens": 6.1e6}


def test_a_task_counts_where_pre_training_gains_more_than_twice_the_spread() -> None:
    rows = [
        row(RANDOM, {"clear": [50, 51], "noisy": [50, 60], "lost": [50, 51]}, split=CHOICE),
        row("bert", {"clear": [60, 61], "noisy": [60, 70], "lost": [40, 41]}, split=CHOICE),
        row("electra", {"clear": [58, 59], "noisy": [60, 70], "lost": [40, 41]}, split=CHOICE),
        row("other", {"clear": [0, 0], "noisy": [99, 99], "lost": [99, 99]}, split=CHOICE),
    ]
    assert methods_table.counted_tasks(rows) == ["clear"]


def test_a_rate_beyond_the_best_is_tried_until_the_best_is_inside_or_five_were() -> None:
    assert methods_table.rates_beyond({1.0: 5, 2.0: 7, 4.0: 6}, 5) == []
    assert methods_table.rates_beyond({1.0: 5, 2.0: 6, 4.0: 7}, 5) == [8.0]
    assert methods_table.rates_beyond({1.0: 7, 2.0: 6, 4.0: 5}, 5) == [0.5]
    assert methods_table.rates_beyond({1.0: 1, 2.0: 2, 4.0: 3, 8.0: 4, 16.0: 5}, 5) == []


def test_interval_and_paired_test_are_students() -> None:
    ours, theirs = {1: 80.1, 2: 81.0, 3: 79.7, 4: 80.4}, {1: 80.9, 2: 81.3, 3: 81.0, 9: 50.0}
    differences, p = methods_table.paired(ours, theirs)

    assert differences == pytest.approx([-0.8, -0.3, -1.3])
    reference = stats.ttest_rel([80.1, 81.0, 79.7], [80.9, 81.3, 81.0])
    assert p == pytest.approx(reference.pvalue)
    low, high = reference.confidence_interval(0.95)
    assert methods_table.half_interval(differences) == pytest.approx((high - low) / 2)
    assert methods_table.half_interval([1.0]) == math.inf
    assert methods_table.paired({1: 1.0}, {1: 0.0}) == ([1.0], 1.0)


def test_tables_pair_runs_by_seed_and_leave_out_what_has_one_seed() -> None:
    scores = {"clear": [50.0, 51.0]}
    rows = [row(RANDOM, scores, split=CHOICE), row(RANDOM, scores)]
    rows += [row(method, {"clear": [60, 61]}, split=CHOICE, seed=11) for method in ("bert", "electra")]
    rows += [row("electra", {"clear": [60 + seed, 60 + seed]}, seed=seed) for seed in (1, 2, 3)]
    rows += [row("bert", {"clear": [61.5 + seed, 61.5 + seed]}, seed=seed) for seed in (1, 2)]
    rows += [row("electric", {"clear": [70, 70]})]

    lines = methods_table.differences_table(rows).splitlines()
    assert len(lines) == 3, "electra only"
    assert lines[2].startswith("| 6M | `electra` | 2 | -1.5 ± 0.0 | -1.5 ± 0.0 |")
    names = [line.split(" | ")[1] for line in methods_table.scores_table(rows).splitlines()[2:]]
    assert names == ["random weights", "`bert`", "`electra`"], "nothing is reported from one seed"


def runs(budget: str, flops: float, method: str, means: list[float], shape: str = "2x128") -> list[Any]:
    found = [row(method, {"clear": [mean]}, seed=seed) for seed, mean in enumerate(means, 1)]
    return [one | {"run": one["run"] | {"budget": budget, "shape": shape}, "flops": flops} for one in found]


def test_the_summary_has_methods_of_several_shapes_on_tasks_that_count_in_every_shape() -> None:
    start = {"clear": [50.0, 51.0], "lost": [50.0, 51.0]}
    other = row(RANDOM, {"clear": [40.0, 41.0]})
    rows = [row(RANDOM, start, split=CHOICE), row(RANDOM, start)]
    rows += [other | {"run": other["run"] | {"shape": "4x192"}}]
    rows += [row("bert", {"clear": [60, 61], "lost": [40, 41]}, split=CHOICE, seed=11)]
    rows += runs("6M", 2e13, "bert", [60, 61]) + runs("6M", 2e13, "once", [59, 60])
    rows += runs("6M", 9e13, "bert", [70, 72], "4x192")
    rows[4]["pairs"] = rows[5]["pairs"] = {"sum": [49.0, 60.0]}

    heading, _, *lines = methods_table.summary_table(rows).splitlines()
    assert heading == "| encoder | FLOPs of | method | seeds | clear | mean of 1 | minimal pairs |"
    assert lines == [
        "| 2x128 |  | random weights |  | 50.5 | 50.5 |  |",
        "| 2x128 | 6M | `bert` | 2 | 60.5 ± 6.4 | 60.5 ± 6.4 | 60.0 ± 0.0 |",
        "| 4x192 |  | random weights |  | 40.5 | 40.5 |  |",
        "| 4x192 | 6M | `bert` | 2 | 71.0 ± 12.7 | 71.0 ± 12.7 |  |",
    ]


def test_the_answer_is_each_method_minus_masked_language_modelling_by_shape_and_budget() -> None:
    rows = [row(RANDOM, {"clear": [50, 51]}, split=CHOICE), row(RANDOM, {"clear": [50, 51]})]
    rows += [row("bert", {"clear": [60, 61]}, split=CHOICE, seed=11)]
    rows += runs("24M", 8e13, "bert", [62, 62]) + runs("24M", 8e13, "slow", [62.5, 63.5])
    rows += runs("6M", 2e13, "bert", [60, 61]) + runs("6M", 2e13, "slow", [58, 59.2])
    rows += runs("6M", 2e13, "quick", [60.6, 61]) + runs("6M", 2e13, "once", [70])
    for budget, flops in (("6M", 2e13), ("24M", 8e13)):
        rows += runs(budget, flops, "small", [65, 65])
    rows += runs("24M", 9e13, "bert", [70, 71], "4x192") + runs("24M", 9e13, "slow", [72, 72.5], "4x192")
    rows += runs("24M", 9e13, "quick", [73, 73.5], "4x192")

    heading, _, *lines = methods_table.answer_table(rows).splitlines()
    assert heading == "| encoder and FLOPs | `quick` | `slow` |", "the best first; without what was run in one shape"
    assert [line.split(" | ")[0] for line in lines] == ["| 2x128, 6M", "| 2x128, 24M", "| 4x192, 24M"]
    p = stats.ttest_rel([58, 59.2], [60, 61]).pvalue
    assert lines[0].split(" | ")[2] == f"-1.9 ± 1.3 (p = {p:.2g}) |"
    assert lines[1].split(" | ")[1] == "", "not run with these FLOPs"
    assert lines[2].split(" | ")[2] == "+1.8 ± 3.2 (p = 0.09) |"


def test_small_p_are_corrected_for_all_comparisons_that_were_made() -> None:
    rows = [row(RANDOM, {"clear": [50, 51]}, split=CHOICE), row(RANDOM, {"clear": [50, 51]})]
    rows += [row("bert", {"clear": [60, 61]}, split=CHOICE, seed=11)]
    rows += runs("6M", 2e13, "bert", [60, 61, 60]) + runs("6M", 2e13, "clear", [62, 63.1, 62])
    rows += runs("6M", 2e13, "level", [60.4, 60.5, 60.3]) + runs("6M", 2e13, "worse", [57, 57.5, 56.8])

    heading, _, *lines = methods_table.corrected_table(rows).splitlines()

    p = stats.ttest_rel([62, 63.1, 62], [60, 61, 60]).pvalue
    assert heading.endswith("| p | corrected for 4 comparisons |"), "three, and that of the record book"
    assert [line.split(" | ")[1] for line in lines] == ["`clear`", "`worse`"], "the smallest p first"
    assert lines[0].endswith(f" | {p:.2g} | {4 * p:.1g} |")


def test_costs_are_by_kind_of_machine_with_the_seeds_that_ran_on_it() -> None:
    new = {"device": "Intel(R) Xeon(R) Processor", "matrix_units": ["avx512f", "avx512_bf16"]}
    rows = [row(RANDOM, {"clear": [50, 51]}, split=CHOICE), row(RANDOM, {"clear": [50, 51]})]
    rows += [row("bert", {"clear": [60, 61]}, split=CHOICE, seed=11)]
    for one in runs("6M", 2.3e13, "bert", [60, 61, 62, 63]):
        is_old = one["run"]["seed"] == 3
        machine, precision, seconds = (MACHINE, "fp32", 600) if is_old else (new, "bf16", 60 * one["run"]["seed"])
        rows.append(one | {"machine": machine, "precision": precision, "processor_seconds": seconds})

    _, _, *lines = methods_table.costs_table(rows).splitlines()

    assert lines == [
        "| 2x128, 6M | 23 | Intel Xeon, AVX-512, bf16 | `bert` 1-2, 4 | 1 - 4 |",
        "| 2x128, 6M | 23 | AMD EPYC, no AVX-512, fp32 | `bert` 3 | 10 |",
    ]
    assert methods_table.ranges([5, 1, 2, 3]) == "1-3, 5"


def test_every_shape_has_its_runs_and_its_tables(tmp_path: Path) -> None:
    models = [settings_of("bert", shape=shape).model for shape in protocol()["shapes"]]
    assert [(model.num_layers, model.hidden_size) for model in models] == [(2, 128), (4, 192)]
    assert models[1] == load_profile(tmp_path, "tiny").model, "the shape of `electra init`"
    place = Place(tmp_path)
    (tmp_path / "pieces").mkdir()
    for shape in protocol()["shapes"]:
        for seed in (1, 2):
            write_pieces(place, Run("6M", "bert", 1e-3, seed, shape), DEV)
        write_pieces(place, Run("6M", "bert", 1e-3, 11, shape), CHOICE)
        write_pieces(place, Run("", RANDOM, 0, 0, shape), CHOICE)
        write_pieces(place, Run("", RANDOM, 0, 0, shape), DEV)
    rows = finished_rows(place)
    assert [len(methods_table.of_group(rows, shape)) for shape in protocol()["shapes"]] == [5, 5]
    found = methods.tables(rows)
    assert found["rates"] == found["rates-4x192"]
    heading = found["scores-4x192"].splitlines()[0]
    assert heading == "| tokens | method | seeds | steps | rate | tags | chunks | questions | mean of 3 |"
    only_one = methods.tables(methods_table.of_group(rows, methods.SHAPE))
    assert list(only_one) == [*methods.OF_ALL, *methods.OF_A_GROUP], "no tables of a shape without runs"
    tried = [row for row in rows if row["split"] == CHOICE]
    begun = methods.tables([row for row in rows if row["run"]["shape"] == methods.SHAPE] + tried)
    assert sorted(begun.keys() - only_one.keys()) == ["rates-4x192"], "before its seeds are run"


def test_another_text_has_its_own_data_and_tables_and_the_rates_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, (first, other) = Place(tmp_path), protocol()["texts"]
    (tmp_path / "pieces").mkdir()
    for split in (CHOICE, DEV):
        write_pieces(place, Run("", RANDOM, 0, 0), split)
    write_pieces(place, Run("6M", "bert", 3e-3, 11), CHOICE)
    finished: list[tuple[Run, str]] = []
    monkeypatch.setattr(methods, "finish", lambda place, run, split: finished.append((run, split)))
    call = Namespace(budget="24M", methods=["bert"], seeds=[1, 2], jobs=1, check_rates=None, shape="2x128", text=other)

    methods.measure_methods(place, call)

    expected = [Run("24M", "bert", 3e-3, seed, text=other) for seed in (1, 2)]
    assert finished == [(run, DEV) for run in [Run("", RANDOM, 0, 0, text=other), *expected]]
    assert len({place.data(text) for text in (first, other)} | {place.workspace(run) for run in expected}) == 4
    for run, split in finished:
        write_pieces(place, run, split)
    found = methods.tables(finished_rows(place))
    assert "scores" not in found and found["scores-2x128-200MB"].count("`bert`") == 1
    assert "rates-2x128-200MB" not in found, "none was tried with it"
    assert "| 2x128 (200 MB of text) |  | random weights |" in found["summary"]

    with pytest.raises(ConfigError, match=r"electra: no learning rate.*\n.*--text 12MB and electra among --methods"):
        methods.measure_methods(place, Namespace(**vars(call) | {"methods": ["electra"]}))


def test_runs_of_a_budget_or_method_may_be_fine_tuned_on_the_tasks_that_count_only(tmp_path: Path) -> None:
    place = Place(tmp_path)
    write_pieces(place, Run("", RANDOM, 0, 0), DEV)
    write_pieces(place, Run("", RANDOM, 0, 0), CHOICE)
    write_pieces(place, Run("6M", "bert", 1e-3, 11), CHOICE)
    for budget, method in (("6M", "bert"), ("12M", "bert"), ("12M", "electra")):
        for seed in (1, 2):
            write_pieces(place, Run(budget, method, 1e-3, seed), DEV)
    rows = finished_rows(place)
    few = protocol()["few_tasks"]["tasks"]
    assert methods.tasks_of(Run("6M", "two_stage", 1e-3, 1)) == methods.tasks_of(Run("12M", "bert", 1e-3, 1)) == few
    assert methods.tasks_of(Run("6M", "bert", 1e-3, 1, "4x192")) == few != methods.tasks_of(Run("6M", "bert", 1e-3, 1))
    start = next(row for row in rows if row["run"]["method"] == RANDOM and row["split"] == CHOICE)
    start["tasks"] |= dict.fromkeys(few, [10.0, 10.0])  # pre-training is above it on these
    assert {row["run"]["budget"]: list(row["tasks"]) for row in rows if row["split"] == DEV} == {
        "": list(protocol()["tasks"]),
        "6M": list(protocol()["tasks"]),
        "12M": few,
    }
    heading, _, *lines = (line.strip("| ").split(" |") for line in methods_table.scores_table(rows).splitlines())
    tasks = [name.strip() for name in heading[5:-1]]
    filled = [[task for task, cell in zip(tasks, line[5:], strict=False) if cell.strip()] for line in lines]
    assert sorted(filled, key=len) == [few, few, tasks, tasks]
    (difference,) = methods_table.differences_table(rows).splitlines()[2:]
    assert difference.count("+0.0 ± 0.0") == len(few) + 1, "of the tasks and of the mean"


def test_a_record_is_above_masked_language_modelling_of_more_flops_and_cheaper_than_the_record_before() -> None:
    rows = [row(RANDOM, {"clear": [50, 51]}, split=CHOICE), row(RANDOM, {"clear": [50, 51]})]
    rows += [row("bert", {"clear": [60, 61]}, split=CHOICE, seed=11)]
    rows += runs("24M", 8e13, "bert", [60.0, 60.4, 60.2]) + runs("24M", 8e13, "two", [61.1, 61.4, 61.2])
    rows += runs("12M", 4e13, "one", [60.9, 61.4, 61.2]) + runs("6M", 2e13, "one", [60.1, 60.3, 60.3])
    rows += runs("12M", 4e13, "two", [61.9, 62.4, 62.2])  # no cheaper than the record before
    lines = [line.strip("| ").split(" | ") for line in methods_table.records_table(rows).splitlines()[2:]]
    assert [(line[0], line[2], line[-1]) for line in lines] == [
        ("`bert`", "100%", "baseline"),
        ("`two`", "100%", "above it at equal FLOPs"),
        ("`one`", "50%", "record"),
        ("`two`", "50%", "above it, no cheaper than the record"),
        ("`one`", "25%", "not above the baseline"),
    ]
    p = stats.ttest_rel([60.9, 61.4, 61.2], [60.0, 60.4, 60.2], alternative="greater").pvalue
    assert float(lines[2][6]) == pytest.approx(p, rel=0.05)
    below = stats.ttest_rel([60.1, 60.3, 60.3], [60.0, 60.4, 60.2], alternative="greater").pvalue
    assert float(lines[4][6]) == pytest.approx(below, rel=0.05)


def test_the_way_of_scoring_pairs_is_chosen_on_one_half_of_the_paradigms() -> None:
    assert methods.halves({"b": 0.5, "a": 0.4, "all": 0.9, "d": 0.7, "c": 0.6}) == [50.0, 60.0]  # a and c; b and d
    ways = [{"sum": [49.0, 60.0], "changed": [52.0, 50.0]}, {"sum": [50.0, 61.0], "changed": [54.0, 51.0]}]
    rows = [row("electra", {}, seed=seed) | {"pairs": pairs} for seed, pairs in enumerate(ways, 1)]
    rows += [row("electra", {}, seed=3), row("bert", {}), row("bert", {}, split=CHOICE) | {"pairs": ways[0]}]

    assert methods_table.ways_table(rows).splitlines()[2:] == [
        "| 6M | `electra` | 2 | sum | 49.5 ± 6.4 | 60.5 ± 6.4 |",
        "| 6M | `electra` | 2 | **changed** | **53.0 ± 12.7** | **50.5 ± 6.4** |",
    ]
    assert methods_table.pairs_table(rows).splitlines()[2:] == [
        "| 6M | `electra` | 2 | changed | 53.0 ± 12.7 | 50.5 ± 6.4 |"
    ]


@pytest.mark.parametrize("way", ["generator, changed tokens", "generator, masked"])
def test_minimal_pairs_are_compared_with_the_baseline_by_seed_where_both_score_the_tokens_that_differ(way: str) -> None:
    scores = {"bert": (way, [50.0, 51.0, 49.0]), "one": ("discriminator, changed tokens", [54.0, 53.0, 52.0])}
    rows = [
        row(method, {}, seed=seed) | {"pairs": {name: [50.0, value]}}
        for method, (name, values) in scores.items()
        for seed, value in enumerate(values, 1)
    ]
    rows.append(row("one", {}, seed=4) | {"pairs": {"discriminator, changed tokens": [50.0, 99.0]}})  # without a pair
    baseline, other = methods_table.pairs_table(rows).splitlines()[2:]
    is_compared = "changed" in way
    assert baseline.endswith(" |  |  |") == is_compared
    p = stats.ttest_rel(scores["one"][1], scores["bert"][1]).pvalue
    assert other.endswith(f" | +3.0 ± 2.5 | {p:.2g} |") == is_compared
    assert is_compared or other.endswith(" | 64.5 ± 36.6 |"), "without empty columns"


def test_a_page_without_a_place_for_the_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="no place for the table scores"):
        methods_table.page_with("scores", "table", "a page")


def test_rates_are_checked_at_a_budget_without_running_its_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished: list[tuple[Run, str]] = []
    monkeypatch.setattr(methods, "finish", lambda place, run, split: finished.append((run, split)))
    arguments = Namespace(
        budget="24M", methods=["bert"], seeds=[1, 2], jobs=1, check_rates=[1.5e-3, 3e-3], shape="2x128", text="12MB"
    )

    methods.measure_methods(Place(tmp_path), arguments)

    seed = protocol()["tuning_seed"]
    assert finished == [(Run("24M", "bert", rate, seed), CHOICE) for rate in (1.5e-3, 3e-3)]


def test_the_committed_pages_have_the_tables_of_the_committed_rows() -> None:
    for page, text in methods.pages_of(json.loads(methods.RESULTS.read_text())["rows"]).items():
        assert page.read_text(encoding="utf-8") == text, page


def test_committed_rows_were_measured_with_the_committed_settings() -> None:
    """Methods and budgets may be added; what rows share may not change."""
    stored, rows = (json.loads(methods.RESULTS.read_text())[key] for key in ("settings", "rows"))
    for key in ("reference", "rates", "tasks", "few_tasks", "texts", "settings", "tuning_seed", "finetuning_seeds"):
        assert stored[key] == protocol()[key], key
    for found in rows:
        run, steps = Run(**found["run"]), found.get("steps")
        if run.method != RANDOM:
            assert stored["methods"][run.method] == protocol()["methods"][run.method]
            reference = settings_of(protocol()["reference"], shape=run.shape)
            flops = training_flops(reference, 8192) * protocol()["budgets"][run.budget] / reference.pretrain.num_steps
            assert steps == steps_that_cost(flops, settings_of(run.method, shape=run.shape), 8192), run.name
            assert found["machine"]["device"]


def test_every_reported_run_has_the_rate_that_was_best_on_part_a() -> None:
    rows = json.loads(methods.RESULTS.read_text())["rows"]
    for found in rows:
        run = Run(**found["run"])
        if found["split"] == DEV and run.method != RANDOM:
            named = protocol()["methods"][run.method].get("rate_of", run.method)
            own = methods_table.of_group(rows, run.shape)
            scores = methods_table.tuning_scores(own, protocol()["tuning_budget"][run.budget], named)
            assert run.rate == max(scores, key=lambda rate: scores[rate]), run.name
            assert run.seed != protocol()["tuning_seed"]
