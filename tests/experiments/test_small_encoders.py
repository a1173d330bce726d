"""The profile `tiny` beside published small encoders: rows, choices, the table, and a call that goes on."""

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import yaml
from scipy import stats

from electra.common.parsing import read_yaml
from experiments import equal_flops, small_encoders
from experiments.small_encoders import Cell, Encoder, Place, plan, reported, settings_of, trials
from tests.reliability import faults
from tests.workspace import PROFILE, ROOT, forked

TASKS = list(plan()["tasks"])
METHODS = list(plan()["methods"])
LAST = {"CoLA": "1", "RTE": "CoLA"}  # ends of the names of pieces: the seed, the task before
FEW_METHODS = ("electra", "bert")
TUNING = plan()["tuning"]["seed"]
LONGER = next(name for name, longer in plan()["longer"].items() if longer["like"] == "electra")
AFTER = plan()["intermediate"]["task"]
CONTINUED = plan()["intermediate"]["then"]
MOST_EPOCHS = {task: max(facts["epochs"]) for task, facts in plan()["tasks"].items()}


def piece(encoder: Encoder, cell: Cell, score: float) -> dict[str, Any]:
    seconds = 600.0 if cell.after else 60.0
    return {"encoder": vars(encoder), "cell": vars(cell), "score": score, "processor_seconds": seconds}


def scored(
    method: str, seed: int, scores: dict[str, list[float]], rate: float = 1e-3, after: str = ""
) -> list[dict[str, Any]]:
    """The pieces of one encoder on the official rows, with the recipes of :func:`tried`."""
    encoder = Encoder("64MB", method, seed)
    cells = [(task, number, score) for task, values in scores.items() for number, score in enumerate(values, 1)]
    found = [piece(encoder, Cell(task, rate, MOST_EPOCHS[task], number, after), score) for task, number, score in cells]
    return [{"encoder": vars(encoder), "processor_seconds": 1800.0}, *found]


def tried(method: str, best: float, rate: float = 1e-3, after: str = "") -> list[dict[str, Any]]:
    """All recipes on part A; the best has this rate, and the most epochs of its task."""
    cells = small_encoders.cells_to_try(after)
    is_best = [cell.rate == rate and cell.epochs == MOST_EPOCHS[cell.task] for cell in cells]
    scores = [best + cell.seed if good else 50.0 + cell.seed for cell, good in zip(cells, is_best, strict=True)]
    encoder = Encoder("64MB", method, TUNING)
    return [piece(encoder, cell, score) for cell, score in zip(cells, scores, strict=True)]


def all_tried() -> list[dict[str, Any]]:
    """All recipes of all methods on part A; `electra` is the best method."""
    return [one for method in METHODS for one in tried(method, 70.0 if method == "electra" else 60.0)]


def test_every_method_is_tiny_with_changes_to_pretrain_only() -> None:
    first, *others = [settings_of(Encoder("64MB", method, 1), Path("glue")).model_dump() for method in METHODS]
    assert others
    for settings in others:
        assert {section for section in first if first[section] != settings[section]} == {"pretrain"}
    profile = read_yaml(ROOT / "params/tiny.yaml")
    assert first["model"].items() >= profile["model"].items()
    assert TUNING not in plan()["seeds"]


def test_a_longer_run_is_its_method_with_more_examples_and_several_processes(tmp_path: Path) -> None:
    longer = plan()["longer"][LONGER]
    settings, shorter = [settings_of(Encoder("64MB", of, 1), Path("glue")) for of in (LONGER, "electra")]
    changes = {of: longer[of] for of in ("num_steps", "batch_size")}
    assert settings.pretrain.model_dump() == shorter.pretrain.model_dump() | changes
    assert settings.model_copy(update={"pretrain": shorter.pretrain}) == shorter
    equal_flops.write_workspace(tmp_path, settings, tmp_path, longer["num_steps"], [1], longer["processes"])
    written = read_yaml(tmp_path / "params.yaml")["cluster"]
    assert (written["num_processes"], written["num_threads"]) == (longer["processes"], 1)


def test_a_fine_tuning_run_has_its_rate_and_epochs() -> None:
    settings = settings_of(Encoder("64MB", "electra", 1), Path("glue"), Cell("RTE", 2e-4, 7, 1))
    assert (settings.finetune.rate_of("RTE"), settings.finetune.epochs_of("RTE")) == (2e-4, 7)


@pytest.mark.parametrize(("task", "heading"), [("CoLA", ""), ("SST-2", "sentence\tlabel\n")])
def test_part_a_is_cut_from_the_training_rows(tmp_path: Path, task: str, heading: str) -> None:
    rows = [f"text {number}\t{number % 2}\n" for number in range(9)]
    (tmp_path / task).mkdir()
    (tmp_path / task / "train.tsv").write_text(heading + "".join(rows))

    small_encoders.cut_part_a(tmp_path / task, tmp_path / "cut", 4)

    parts = [(tmp_path / "cut" / name).read_text() for name in ("dev.tsv", "train.tsv")]
    assert all(part.startswith(heading) for part in parts)
    dev, train = (part.removeprefix(heading).splitlines(keepends=True) for part in parts)
    assert (len(dev), len(train)) == (4, 5) and sorted(dev + train) == rows


@pytest.mark.parametrize("size", [2, 5])
def test_sentences_of_part_a_are_part_of_no_other_row_and_no_part_of_them_is_trained_on(
    tmp_path: Path, size: int
) -> None:
    whole = {*(f"film {number} is good and long" for number in range(4)), "a short one"}
    parts = {"film 0 is good", "film 2 is", "film 1", "is good", "good and long", "and"}
    rows = sorted(parts | whole)
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2/train.tsv").write_text("sentence\tlabel\n" + "".join(f"{text} \t1\n" for text in rows))

    small_encoders.cut_part_a(tmp_path / "SST-2", tmp_path / "cut", size, phrases=True)

    files = [(tmp_path / "cut" / name).read_text().splitlines()[1:] for name in ("dev.tsv", "train.tsv")]
    dev, train = ({line.partition(" \t")[0] for line in lines} for lines in files)
    assert len(dev) == size and dev <= whole
    assert train == {text for text in rows if not any(text in sentence for sentence in dev)}


def test_the_profile_and_the_best_method_on_part_a_are_reported_beside_masked_language_modelling() -> None:
    lowest, highest = min(plan()["rates"]), max(plan()["rates"])
    pieces = tried("mlm_then_rtd", 72.0, lowest)
    pieces += [one for method in METHODS if method != "mlm_then_rtd" for one in tried(method, 70.0, highest)]
    pieces += scored("electra", 1, dict.fromkeys(TASKS, [99.0] * 3))  # of the official rows

    recipes = {rate: {task: (rate, most) for task, most in MOST_EPOCHS.items()} for rate in (lowest, highest)}
    of_methods = {"electra": recipes[highest], "mlm_then_rtd": recipes[lowest], "bert": recipes[highest]}
    of_longer = {name: of_methods[longer["like"]] for name, longer in plan()["longer"].items()}
    assert reported(trials(pieces)) == {"random": recipes[highest], **of_methods, **of_longer}
    pieces = [one for one in pieces if one["encoder"]["method"] != "bert"] + tried("bert", 69.0, highest)
    methods = ["random", "electra", "mlm_then_rtd", "bert-5e-4", *plan()["longer"]]
    assert list(reported(trials(pieces))) == methods, "masked language modelling at its best rate"


def test_a_method_is_in_the_table_of_choices_when_all_its_recipes_are_finished() -> None:
    pieces = all_tried()
    lines = small_encoders.tables(pieces)["small-encoders-choice"].splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == [f"| `{method}`" for method in METHODS]
    assert lines[0].endswith(" | 71.5 (0.001, 10) | 71.5 |"), "the mean of two seeds"
    begun = [one for one in pieces if one["encoder"]["method"] == "electra" or one["cell"]["task"] != "RTE"]
    found = small_encoders.tables(begun)
    assert [line.split(" | ")[0] for line in found["small-encoders-choice"].splitlines()[2:]] == ["| `electra`"]


def test_the_table_has_means_over_seeds_and_what_they_reach_of_the_published_scores() -> None:
    pieces = all_tried()
    pieces += scored("electra", 1, dict.fromkeys(TASKS, [70.0, 71.0, 72.0]))
    pieces += scored("electra", 2, dict.fromkeys(TASKS, [73.0, 74.0, 75.0]))
    pieces += scored("random", 0, dict.fromkeys(TASKS, [0.0, 0.0, 0.0]))
    pieces += scored("mlm_then_rtd", 1, dict.fromkeys(TASKS, [99.0] * 3))  # not chosen
    pieces += scored("mlm_then_rtd", 2, dict.fromkeys(TASKS, [99.0] * 3))
    pieces += scored("electra", 1, dict.fromkeys(TASKS, [99.0] * 3), rate=5e-4)  # another recipe
    pieces += scored("electra", 3, dict.fromkeys(TASKS, [99.0, 99.0]))  # a run is missing

    heading, _, random, tiny, *published = small_encoders.tables(pieces)["small-encoders"].splitlines()

    assert heading.startswith(f"| encoder | text | seeds | {' | '.join(TASKS)} | mean | reaches BERT-Tiny on |")
    zeros = " 0.0 |" * (len(TASKS) + 1)
    assert random == f"| random weights | 64MB |  |{zeros} 0 of 5 | 0 of 5 |  |", "a Matthews correlation of 0 is none"
    figures = " 72.5 ± 19.1 |" * (len(TASKS) + 1)
    assert tiny == f"| `tiny`, `electra` | 64MB | 2 |{figures} 3 of 5 | 3 of 5 | 30 + 5 |"
    assert [line.split(" | ")[0] for line in published] == [f"| {name}, test sets" for name in plan()["published"]]
    for method, is_reported in (("mlm_then_rtd", False), ("bert", True)):
        begun = [one for one in pieces if one["encoder"] != vars(Encoder("64MB", method, TUNING))]
        assert ("small-encoders" in small_encoders.tables(begun)) == is_reported, "not before the choice of its group"


def test_what_is_fine_tuned_after_another_task_has_a_row_with_the_other_tasks_as_they_are() -> None:
    pieces = all_tried() + tried("electra", 80.0, after=AFTER)
    for seed, gain in enumerate((1.0, 2.0), 1):
        pieces += scored("electra", seed, dict.fromkeys(TASKS, [60.0] * 3))
        pieces += scored("electra", seed, dict.fromkeys(CONTINUED, [70.0 + gain] * 3), after=AFTER)
    pieces += scored("electra", 3, dict.fromkeys(TASKS, [60.0] * 3))  # not after the other task
    pieces += scored("random", 0, dict.fromkeys(TASKS, [50.0] * 3))
    pieces += scored("random", 0, dict.fromkeys(CONTINUED, [55.0] * 3), after=AFTER)
    found = small_encoders.tables(pieces)

    name = f"`electra`; {' and '.join(CONTINUED)} after {AFTER}"
    choices = {line.split(" | ")[0]: line for line in found["small-encoders-choice"].splitlines()}
    cells = " | ".join("81.5 (0.001, 10)" if task in CONTINUED else "" for task in TASKS)
    assert choices[f"| {name}"] == f"| {name} | {cells} |  |", "recipes of their own, no mean of all tasks"
    _, _, random, random_after, plain, after, *_ = found["small-encoders"].splitlines()
    assert random.count(" 50.0 |") == len(TASKS) + 1
    assert random_after.count(" 55.0 |") == len(CONTINUED) and random_after.count(" 50.0 |") == 3
    assert plain.startswith("| `tiny`, `electra` | 64MB | 3 | 60.0 ± 0.0 |") and plain.endswith(" | 30 + 5 |")
    shown = " | ".join("71.5 ± 6.4" if task in CONTINUED else "60.0 ± 0.0" for task in TASKS)
    assert after.startswith(f"| `tiny`, {name} | 64MB | 2 | {shown} | 64.6 ± 2.5 |") and after.endswith(" |  |")
    line = found["small-encoders-differences"].splitlines()[-1]
    cells = " | ".join("+11.5 ± 6.4" if task in CONTINUED else "" for task in TASKS)
    assert line == f"| {name}, minus `electra` | 64MB | 2 | {cells} | +4.6 ± 2.5 | 0.028 |"


def test_rows_that_share_a_sentence_with_a_scored_row_are_not_trained_on_before(tmp_path: Path) -> None:
    heading = "index\tsentence1\tsentence2\tlabel\n"
    rows = {AFTER: ["0\tThe cat sat.\tA dog ran off.\t1", "1\tNo match\there at all\t2", "2\tcat\tdog\t1"]}
    rows |= {task: [f"0\ta {task} row\tnothing else\t0"] for task in TASKS if task != AFTER}
    official = tmp_path / "given"
    for task in TASKS:
        (official / task).mkdir(parents=True)
        (official / task / "train.tsv").write_text(heading + "\n".join(rows[task]) + "\n")
        scored_row = "0\ta dog, ran OFF\tsomething\t0" if task == CONTINUED[0] else "0\tno match\tcat\t0"
        (official / task / "dev.tsv").write_text(f"{heading}{scored_row if task in CONTINUED else rows[task][0]}\n")

    small_encoders.leave_out_shared_sentences(official, tmp_path / "copy")

    for file in official.glob("*/*.tsv"):
        text, copy = file.read_text(), (tmp_path / "copy" / file.relative_to(official)).read_text()
        kept = [heading, f"{rows[AFTER][2]}\n"]
        assert copy == ("".join(kept) if file.parent.name == AFTER and file.stem == "train" else text)


def test_differences_to_masked_language_modelling_are_paired_by_seed() -> None:
    pieces = all_tried()
    for seed, (ours, baseline) in enumerate([(70.0, 69.0), (80.0, 78.0), (60.0, 57.0)], 1):
        pieces += scored("electra", seed, dict.fromkeys(TASKS, [ours] * 3))
        pieces += scored("bert", seed, dict.fromkeys(TASKS, [baseline] * 3))
    pieces += scored("electra", 4, dict.fromkeys(TASKS, [99.0] * 3))  # without a pair
    line = small_encoders.tables(pieces)["small-encoders-differences"].splitlines()[-1]
    assert line == f"| `electra` minus `bert` | 64MB | 3 |{' +2.0 ± 2.5 |' * (len(TASKS) + 1)} 0.074 |"


def test_a_longer_run_has_the_recipes_of_its_method_and_is_compared_with_its_shorter_run_only() -> None:
    pieces = all_tried() + tried("electra", 80.0, after=AFTER)
    for seed, gain in enumerate((1.0, 2.0), 1):
        pieces += scored("bert", seed, dict.fromkeys(TASKS, [50.0] * 3))
        for method, level in (("electra", 60.0), (LONGER, 60.0 + gain)):
            pieces += scored(method, seed, dict.fromkeys(TASKS, [level] * 3))
            pieces += scored(method, seed, dict.fromkeys(CONTINUED, [2 * level] * 3), after=AFTER)
    lines = small_encoders.tables(pieces)["small-encoders-differences"].splitlines()[2:]
    found = {line.split(" | ")[0].removeprefix("| "): line for line in lines if f"`{LONGER}`" in line.split(" | ")[0]}
    plain, after = small_encoders.name_of(LONGER), small_encoders.name_of(LONGER, True)
    others = [small_encoders.name_of("electra", is_after) for is_after in (False, True)]
    assert list(found) == [f"{plain} minus {others[0]}", f"{after}, minus {others[1]}", f"{after}, minus {plain}"]
    assert found[f"{plain} minus {others[0]}"].count("+1.5 ± 6.4") == len(TASKS) + 1
    assert found[f"{after}, minus {others[1]}"].count("+3.0 ± 12.7") == len(CONTINUED)


def test_a_text_is_compared_with_the_first_one_by_a_test_that_does_not_pair_the_seeds() -> None:
    scores = {"64MB": [60.0, 62.0, 61.0], "200MB": [65.0, 64.0]}
    pieces = all_tried()
    for text, values in scores.items():
        for seed, value in enumerate(values, 1):
            for one in scored("electra", seed, dict.fromkeys(TASKS, [value] * 3)):
                pieces.append(one | {"encoder": vars(Encoder(text, "electra", seed))})
    (line,) = small_encoders.tables(pieces)["small-encoders-differences"].splitlines()[2:]
    test = stats.ttest_ind(scores["200MB"], scores["64MB"], equal_var=False)
    half = test.confidence_interval(0.95).high - 3.5
    assert half > 0
    figures = f" +3.5 ± {half:.1f} |" * (len(TASKS) + 1)
    assert line == f"| `electra` | 200MB minus 64MB | 2, 3 |{figures} {test.pvalue:.2g} |"


def test_a_method_with_one_seed_is_not_reported() -> None:
    pieces = all_tried() + scored("electra", 1, dict.fromkeys(TASKS, [70.0] * 3))
    assert "small-encoders" not in small_encoders.tables(pieces)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan of seconds, and a folder with its text and its tasks."""
    values = json.loads(json.dumps(plan()))
    values |= {"seeds": [1, 2], "finetuning_seeds": [1], "reference_steps": 4, "rates": [1e-3]}
    values["tuning"]["finetuning_seeds"] = [1]
    values["tasks"] = {task: {"choice": 4, "epochs": [1]} for task in ("CoLA", "RTE")}
    values["intermediate"] = {"task": "CoLA", "rate": 1e-3, "epochs": 1, "then": ["RTE"], "methods": ["electra"]}
    values["methods"] = {method: values["methods"][method] for method in FEW_METHODS}
    values["longer"] = {"electra-longer": {"like": "electra", "num_steps": 6, "batch_size": 8, "processes": 1}}
    profile = yaml.safe_load((ROOT / "params/tiny.yaml").read_text())
    for section in ("tokenizer", "shards", "model", "pretrain"):
        profile[section] |= PROFILE[section]
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(profile))
    data = tmp_path / "given"
    labels = ("entailment", "not_entailment")
    for task in ("CoLA", "RTE"):
        (data / "glue" / task).mkdir(parents=True)
    for name in ("train", "dev"):
        (data / f"glue/CoLA/{name}.tsv").write_text("".join(f"x\t{n % 2}\t\ttext {n}\n" for n in range(12)))
        rows = "".join(f"{n}\t{name} {n}\ttext {n if name == 'dev' else -n}\t{labels[n % 2]}\n" for n in range(10, 16))
        (data / f"glue/RTE/{name}.tsv").write_text("index\tsentence1\tsentence2\tlabel\n" + rows)
    (data / "prose").mkdir()
    texts = [(ROOT / f"tests/fixtures/text/{name}.txt").read_bytes() for name in ("first", "second")]
    (data / "prose/books.txt.xz").write_bytes(lzma.compress(b"\n\n".join(texts)))
    monkeypatch.setattr(small_encoders, "plan", lambda: values)
    monkeypatch.setattr(small_encoders, "PROFILE", tmp_path / "tiny.yaml")
    monkeypatch.setattr(small_encoders, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(small_encoders, "PAGE", tmp_path / "page.md")
    return data


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that were run, each with its folder; forked instead of started."""
    found: list[str] = []

    def electra(folder: Path, *arguments: str) -> dict[str, Any]:
        found.append(f"{folder.name} {' '.join(arguments)}")
        process = forked(faults.run, list(arguments), folder, folder / "log.txt")
        process.join()
        assert process.exitcode == 0, (folder / "log.txt").read_text()
        note = {"command": list(arguments), "processor_seconds": 60.0}
        with open(folder / "commands.jsonl", "a") as notes:
            notes.write(json.dumps(note) + "\n")
        return note

    for module in (equal_flops, small_encoders):
        monkeypatch.setattr(module, "electra", electra)
    return found


def test_the_same_call_goes_on_where_it_stopped_and_writes_what_is_finished(
    small: Path,
    commands: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "work"
    names = [f"small-encoders{table}" for table in ("-choice", "", "-differences")]
    page = "".join(f"<!-- {n}: written by experiments.small_encoders -->\n<!-- end of {n} -->\n" for n in names)
    (tmp_path / "page.md").write_text(page)
    call = ["small_encoders", str(folder), "--data", str(small), "--jobs", "1"]
    monkeypatch.setattr("sys.argv", call)
    small_encoders.main()

    prepared = [*(f"data-64MB {stage}" for stage in small_encoders.STAGES), "choice tasks"]
    assert commands[:8] == [*prepared, "dev-after tasks", "choice-after tasks"]
    encoders = ["electra-11", "random-0", "electra-1", "electra-2", "bert-11", "bert-1", "bert-2"]
    encoders += ["electra-longer-1", "electra-longer-2"]
    assert list(dict.fromkeys(command.partition(" ")[0] for command in commands[8:])) == [
        f"64MB-{name}" for name in encoders
    ], "the choice and the report of the candidates, then of the baseline, then longer runs"
    first, then = (f"finetune --task {task} --seed 1" for task in ("CoLA", "RTE"))
    after = [f"{first} --intermediate", f"{then} --start-from CoLA"]
    runs = {
        name: [call.partition(" ")[2] for call in commands if call.startswith(f"64MB-{name} ")] for name in encoders
    }
    assert runs["random-0"] == [f"{first} --scratch", f"{then} --scratch", f"{after[0]} --scratch", after[1]]
    for name in set(encoders) - {"random-0"}:
        assert runs[name] == ["pretrain", first, then, *(after if "electra" in name else [])]
    rows = [(folder / name / "data/tasks/CoLA/dev.jsonl").read_text() for name in ("choice", "data-64MB")]
    assert [text.count("\n") for text in rows] == [4, 12]
    rows = [(folder / name / "data/tasks/CoLA/train.jsonl").read_text() for name in ("dev-after", "data-64MB")]
    assert [text.count("\n") for text in rows] == [10, 12], "the rows `text 10` and `text 11` are scored in RTE"
    seen = {name: (folder / "runs" / name / "data/tasks").resolve() for name in ("64MB-electra-11", "64MB-random-0")}
    assert [path.parents[1].name for path in seen.values()] == ["choice-after", "dev-after"], "of the last run"
    printed = capsys.readouterr().out

    commands.clear()
    place = Place(folder)
    lost = {task: next((folder / "pieces").glob(f"*-electra-2-{task}-*-{last}.json")) for task, last in LAST.items()}
    for file in lost.values():
        file.unlink()  # as after a kill
    monkeypatch.setattr("sys.argv", [*call, "--write"])
    small_encoders.main()
    assert commands == [f"64MB-electra-2 {first}", f"64MB-electra-2 {after[1]}"], "with the encoder that is there"
    assert printed.splitlines()[-4:] == capsys.readouterr().out.splitlines()[-4:]
    assert "| random weights | 64MB |" in (tmp_path / "page.md").read_text()

    commands.clear()
    monkeypatch.setattr("sys.argv", ["small_encoders", str(tmp_path / "other")])
    small_encoders.main()
    assert Place(tmp_path / "other").pieces() == place.pieces(), "a new folder begins with what is committed"


@pytest.mark.parametrize("changed", [["methods", "electra", "learning_rate"], ["longer", LONGER, "num_steps"]])
def test_pieces_of_other_settings_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: list[str]
) -> None:
    pieces = [one for method in (*METHODS, LONGER) for one in scored(method, 1, {"RTE": [50.0]})]
    was = json.loads(json.dumps(plan()))
    section, method, setting = changed
    was[section][method][setting] = 1
    was["rates"] = [1.0]
    (tmp_path / "results.json").write_text(json.dumps({"plan": was, "pieces": pieces}))
    monkeypatch.setattr(small_encoders, "RESULTS", tmp_path / "results.json")
    place = Place(tmp_path)

    small_encoders.restore(place)

    kept = {*METHODS, LONGER} - {method, LONGER}  # the longer run is one of `electra`
    assert {piece["encoder"]["method"] for piece in place.pieces()} == kept
    assert len(place.pieces()) == 2 * len(kept)


def test_another_cut_of_part_a_or_another_recipe_before_leaves_the_pieces_that_do_not_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = tried("electra", 70.0) + scored("electra", 1, {"SST-2": [50.0]})
    after = tried("electra", 70.0, after=AFTER)
    was = json.loads(json.dumps(plan()))
    was["tasks"]["SST-2"].pop("phrases")
    was["tasks"]["RTE"]["epochs"] = [1]  # which runs are needed, not what they give
    was["intermediate"]["rate"] = 1.0
    (tmp_path / "results.json").write_text(json.dumps({"plan": was, "pieces": pieces + after}))
    monkeypatch.setattr(small_encoders, "RESULTS", tmp_path / "results.json")
    place = Place(tmp_path)

    small_encoders.restore(place)

    kept = [one for one in pieces if one["encoder"]["seed"] != TUNING or one["cell"]["task"] != "SST-2"]
    assert len(kept) < len(pieces)
    assert sorted(map(str, place.pieces())) == sorted(map(str, kept))


def test_the_page_has_the_tables_of_the_committed_pieces() -> None:
    pieces = json.loads(small_encoders.RESULTS.read_text())["pieces"]
    assert small_encoders.page_of(small_encoders.tables(pieces)) == small_encoders.PAGE.read_text()
