"""Submissions have the names, headers, rows and words that leaderboards and official scripts take."""

import json
import shutil
import zipfile

import pytest

from electra import __main__ as cli
from electra.common.artifacts import read_manifest
from electra.common.errors import DataError
from electra.finetune.run import finetune_task
from electra.kinds.span import squad_v2
from electra.model.pretrained import save_pretrained
from electra.objectives.electra import Electra
from electra.predict.submission import GLUE_FILES, _write_squad, write_submission
from electra.readers.build import prepare_tasks
from electra.readers.official import OfficialSource
from electra.results.evaluate import evaluate_runs
from electra.results.report.facts import read_scores
from electra.tasks.catalogue import TASKS
from tests.small_tasks import VOCAB, make_settings, write_squad, write_tsv

ROWS = 3  # of every test file
NAMES = "CoLA SST-2 MRPC STS-B MNLI-m MNLI-mm QNLI QQP RTE WNLI AX".split()
WORDS = {
    **dict.fromkeys(["MNLI-m", "MNLI-mm", "AX"], {"entailment", "neutral", "contradiction"}),
    **dict.fromkeys(["QNLI", "RTE"], {"entailment", "not_entailment"}),
    **dict.fromkeys(["CoLA", "SST-2", "MRPC", "QQP", "WNLI"], {"0", "1"}),
}
GLUE = [task for task in TASKS if TASKS[task].source == "glue"]


def write_glue(folder, task, *, tests=True):
    """Train and dev with each label once, test files as GLUE has them: an index, no label."""
    spec = TASKS[task]
    labels = spec.labels or ("0.5", "5.000")
    texts = [spec.text_a, *([spec.text_b] if spec.text_b else [])]
    for split, name in spec.files.items():
        path = folder / task / name
        if not split.startswith("test"):
            header = list(spec.fixed_header or [*texts, spec.label])
            rows = [[label if column == spec.label else "the cat" for column in header] for label in labels]
            write_tsv(path, rows, None if spec.fixed_header else header)
        elif tests:
            # an index that is not the row's place, to see that it is taken over
            rows = [[str(10 + i), *("cat dog".split()[: len(texts)])] for i in range(ROWS)]
            write_tsv(path, rows, ["id" if task == "QQP" else "index", *texts])


@pytest.fixture
def trained(paths):
    """Cells of seed 1 for the given tasks, barely trained."""

    def make(tasks, *, tests=True):
        folder = paths.root / "official"
        for task in set(tasks) & set(GLUE):
            write_glue(folder, task, tests=tests)
        items = [
            {"id": "a", "question": "who?", "is_impossible": False, "answers": [{"text": "cat", "answer_start": 4}]},
            {"id": "b", "question": "where?", "is_impossible": True, "answers": []},
        ]
        for split in ("train", "dev"):
            write_squad(folder / f"{split}-v2.0.json", items, "the cat sat")
            write_squad(folder / f"{split}-v1.1.json", items[:1], "the cat sat")
        settings = make_settings({"kind": "files", "glue": str(folder), "squad": str(folder)}, tasks, epochs=1)
        prepare_tasks(settings, paths)
        electra = Electra(settings.model, len(VOCAB), mask_id=4).initialize(0.02, seed=7)
        weights = {name: parameter.detach() for name, parameter in electra.named_parameters()}
        save_pretrained(paths.pretrained, weights, settings.model, len(VOCAB), paths.tokenizer)
        for task in tasks:
            finetune_task(settings, paths, task=task, seed=1)
        return settings

    return make


def unzip(paths):
    with zipfile.ZipFile(paths.submission(1) / "glue.zip") as archive:
        return {name: archive.read(name).decode().splitlines() for name in archive.namelist()}


def test_all_tasks_have_the_names_headers_rows_and_words_of_the_leaderboard(paths, trained):
    trained(GLUE)
    write_submission(paths, seed=1)
    files = unzip(paths)
    assert list(files) == [f"{name}.tsv" for name in NAMES]
    for name in NAMES:
        header, *rows = [line.split("\t") for line in files[f"{name}.tsv"]]
        assert header == ["index", "prediction"], name
        assert [index for index, _ in rows] == ["10", "11", "12"], name
        for _, word in rows:
            if name == "STS-B":
                assert 0 <= float(word) <= 5
            else:
                assert word in WORDS[name], name
    manifest = read_manifest(paths.submission(1))
    assert manifest["filled_with_majority_class"] == []
    assert manifest["not_the_official_rows"] == [f"{name}.tsv" for name in NAMES]


def test_predictions_of_test_rows_leave_the_scores_alone_and_scratch_cells_make_none(paths, trained):
    settings = trained(["RTE"])
    finetune_task(settings, paths, task="RTE", seed=1, scratch=True)

    def splits(cell):
        lines = (paths.finetuned(cell) / "predictions.jsonl").read_text().splitlines()
        return [json.loads(line)["split"] for line in lines]

    assert splits("RTE-1") == ["dev"] * 2 + ["test"] * ROWS
    assert splits("RTE-1-scratch") == ["dev"] * 2
    evaluate_runs(settings, paths)
    assert read_scores(paths)["tasks"]["RTE"]["dev_rows"] == 2


def test_missing_tasks_are_named_and_filled_only_when_asked(paths, trained, capsys):
    trained(["RTE", "STS-B"])
    with pytest.raises(DataError, match="CoLA.tsv, SST-2.tsv, MRPC.tsv, MNLI-m.tsv") as caught:
        write_submission(paths, seed=1)
    assert "--fill-missing" in str(caught.value) and not paths.submission(1).exists()
    write_submission(paths, seed=1, fill_missing=True)
    files = unzip(paths)
    assert list(files) == [f"{name}.tsv" for name in NAMES]
    official = {file.name: file for file in GLUE_FILES}
    for name in sorted(set(NAMES) - {"RTE", "STS-B"}):
        rows = files[f"{name}.tsv"][1:]
        assert len(rows) == official[f"{name}.tsv"].rows
        assert {row.split("\t")[1] for row in rows} == {official[f"{name}.tsv"].fill} <= WORDS[name]
        assert [row.split("\t")[0] for row in rows[:2]] == ["0", "1"]
    assert len(files["RTE.tsv"]) == 1 + ROWS
    filled = read_manifest(paths.submission(1))["filled_with_majority_class"]
    assert filled == [f"{name}.tsv" for name in NAMES if name not in ("RTE", "STS-B")]
    assert "filled with the majority class, not predicted: CoLA.tsv" in capsys.readouterr().out


def test_scores_stay_within_the_scale(paths, trained):
    trained(["STS-B"])
    path = paths.finetuned("STS-B-1") / "predictions.jsonl"
    path.write_text(
        "".join(
            json.dumps({"split": "test", "id": str(10 + i), "score": score}) + "\n"
            for i, score in enumerate([-0.2, 5.7, 2.12345])
        )
    )
    write_submission(paths, seed=1, fill_missing=True)
    assert [row.split("\t")[1] for row in unzip(paths)["STS-B.tsv"][1:]] == ["0.000", "5.000", "2.123"]


def test_squad_files_give_the_official_scripts_what_our_scores_come_from(paths, trained):
    trained(["SQuAD1.1", "SQuAD2.0"])
    lines = [
        json.loads(line) for line in (paths.finetuned("SQuAD2.0-1") / "predictions.jsonl").read_text().splitlines()
    ]
    # make the two questions differ: one below the threshold, one above
    lines[0] |= {"null_score": -1.5, "text": "cat"}
    lines[1] |= {"null_score": -0.5, "text": "sat"}
    (paths.finetuned("SQuAD2.0-1") / "predictions.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    write_submission(paths, seed=1, null_threshold=-1.0)
    folder = paths.submission(1)
    read = {path.name: json.loads(path.read_text()) for path in folder.glob("SQuAD*.json")}
    assert read["SQuAD2.0.predictions.json"] == {"a": "cat", "b": ""}
    assert read["SQuAD2.0.best_answers.json"] == {"a": "cat", "b": "sat"}
    assert read["SQuAD2.0.null_odds.json"] == {"a": -1.5, "b": -0.5}
    assert set(read["SQuAD1.1.predictions.json"]) == {"a"}
    assert not (folder / "glue.zip").exists()
    scores = squad_v2([["cat"], []], list(read["SQuAD2.0.best_answers.json"].values()), [-1.5, -0.5], threshold=-1.0)
    assert scores["exact"] == 1.0


def test_an_answer_is_handed_in_at_the_threshold_itself(tmp_path):
    lines = [{"id": str(score), "text": "cat", "null_score": score} for score in (-1.5, -1.0, -0.5)]
    _write_squad(tmp_path, "SQuAD2.0", lines, null_threshold=-1.0)
    found = json.loads((tmp_path / "SQuAD2.0.predictions.json").read_text())
    assert found == {"-1.5": "cat", "-1.0": "cat", "-0.5": ""}


def test_nothing_to_hand_in_and_stale_predictions_are_refused(paths, trained):
    with pytest.raises(DataError, match="seed 1 has predictions neither"):
        write_submission(paths, seed=1)
    trained(["RTE"])
    path = paths.tasks / "RTE/test.jsonl"
    path.write_text(path.read_text().replace('"id": "11"', '"id": "99"'))
    with pytest.raises(DataError, match="not those of the rows"):
        write_submission(paths, seed=1, fill_missing=True)
    assert not paths.submission(1).exists()


def test_the_same_predictions_give_the_same_zip(paths, trained):
    trained(["RTE"])
    write_submission(paths, seed=1, fill_missing=True)
    first = (paths.submission(1) / "glue.zip").read_bytes()
    write_submission(paths, seed=1, fill_missing=True)
    assert (paths.submission(1) / "glue.zip").read_bytes() == first


def test_a_cell_that_was_set_aside_since_is_handed_in_too(paths, trained):
    """The leaderboard may be asked about a seed or a task that the card is not of."""
    trained(["CoLA"])
    write_submission(paths, seed=1, fill_missing=True)
    first = (paths.submission(1) / "glue.zip").read_bytes()
    paths.set_aside("x").parent.mkdir(parents=True)
    paths.finetuned("CoLA-1").rename(paths.set_aside("CoLA-1"))
    write_submission(paths, seed=1, fill_missing=True)
    assert (paths.submission(1) / "glue.zip").read_bytes() == first


def test_runs_that_started_from_another_task_are_handed_in_where_they_are_asked_for(paths, trained):
    trained(["SQuAD1.1"])
    later = paths.finetuned("SQuAD1.1-1-from-MNLI")
    shutil.copytree(paths.finetuned("SQuAD1.1-1"), later)
    lines = [json.loads(line) for line in (later / "predictions.jsonl").read_text().splitlines()]
    changed = [json.dumps({**line, "text": "from MNLI"}) for line in lines]
    (later / "predictions.jsonl").write_text("\n".join(changed) + "\n")
    write_submission(paths, seed=1, start_from="MNLI")
    (file,) = paths.submission(1).glob("*1.1*.json")
    assert set(json.loads(file.read_text()).values()) == {"from MNLI"}
    assert read_manifest(paths.submission(1))["started_from"] == {"MNLI": ["SQuAD1.1"]}
    with pytest.raises(DataError, match="no task was fine-tuned from MNL's encoder with seed 1"):
        write_submission(paths, seed=1, start_from="MNL")


def test_the_command_passes_its_options_on(paths, trained, monkeypatch):
    settings = trained(["RTE"])
    monkeypatch.setattr(cli.tools, "load", lambda: (settings, paths))
    monkeypatch.setattr("sys.argv", ["electra", "submission", "--seed", "1", "--fill-missing"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 0 and (paths.submission(1) / "glue.zip").is_file()


def test_labelled_rows_keep_their_place_as_name(tmp_path):
    write_tsv(tmp_path / "RTE/dev.tsv", [["7", "a", "b", "entailment"]], ["index", "sentence1", "sentence2", "label"])
    write_tsv(tmp_path / "RTE/test.tsv", [["7", "a", "b"]], ["index", "sentence1", "sentence2"])
    source = OfficialSource(glue=tmp_path)
    assert [next(source.read(TASKS["RTE"], split))["id"] for split in ("dev", "test")] == ["0", "7"]
