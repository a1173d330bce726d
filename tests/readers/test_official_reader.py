"""The official GLUE and SQuAD layouts: the rows read, and messages about malformed input."""

import json
import sys

import pytest

from electra import __main__ as cli
from electra.common.artifacts import read_manifest
from electra.common.errors import ConfigError, DataError
from electra.readers.build import prepare_tasks
from electra.readers.official import OfficialSource
from electra.tasks.catalogue import TASKS
from tests.fixtures import LABELLED, LABELLED_TASKS
from tests.small_tasks import SHARED, make_settings, refused, write_lines, write_squad, write_tsv

RTE = ["index", "sentence1", "sentence2", "label"]
STS = ["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score"]


def rows(folder, task, split="dev"):
    return list(OfficialSource(glue=folder, squad=folder).read(TASKS[task], split))


def test_quotes_line_separators_and_carriage_returns_stay_inside_a_sentence(tmp_path):
    odd = 'He said "no\u2028way\x85 now\x0c!'
    write_tsv(tmp_path / "CoLA/dev.tsv", [["x", "1", "", odd], ["x", "0", "*", '"unbalanced']])
    assert [row["text_a"] for row in rows(tmp_path, "CoLA")] == [odd, '"unbalanced']
    path = tmp_path / "RTE/dev.tsv"
    path.parent.mkdir()
    path.write_bytes("\ufeffindex\tsentence1\tsentence2\tlabel\r\n0\ta\tb\tentailment\r\n".encode())
    assert rows(tmp_path, "RTE") == [{"id": "0", "text_a": "a", "text_b": "b", "label": "entailment"}]


def test_test_splits_have_no_labels_and_are_optional(tmp_path):
    source = OfficialSource(glue=tmp_path)
    assert source.splits(TASKS["CoLA"]) == ["train", "dev"]
    write_tsv(tmp_path / "CoLA/test.tsv", [["0", "the cat"]], ["index", "sentence"])
    assert source.splits(TASKS["CoLA"]) == ["train", "dev", "test"]
    assert rows(tmp_path, "CoLA", "test") == [{"id": "0", "text_a": "the cat", "text_b": None, "label": None}]
    write_tsv(tmp_path / "CoLA/test.tsv", [["7", "the cat"], ["3", "a dog"]], ["index", "sentence"])
    assert [row["id"] for row in rows(tmp_path, "CoLA", "test")] == ["7", "3"], "the leaderboard's own names"


def test_mnli_takes_the_gold_label_among_annotators(tmp_path):
    header = ["index", "sentence1", "sentence2", "label1", "label2", "gold_label"]
    write_tsv(tmp_path / "MNLI/dev_mismatched.tsv", [["0", "a", "b", "neutral", "neutral", "contradiction"]], header)
    assert rows(tmp_path, "MNLI", "dev_mismatched")[0]["label"] == "contradiction"


@pytest.mark.parametrize(
    ("task", "header", "row", "said"),
    [
        ("RTE", RTE, ["1", "a", "entailment"], "expected 4 tab-separated columns, found 3"),
        ("RTE", RTE, ["1", "a", "b", "c", "entailment"], "expected 4 tab-separated columns, found 5"),
        ("RTE", RTE, ["1", "a", "b", "maybe"], "'maybe' is not one of entailment, not_entailment"),
        ("RTE", RTE, ["1", " ", "b", "entailment"], "a text is empty"),
        ("STS-B", STS, [*"abcdefghi", "5.1"], "score '5.1' is not a number in 0..5"),
        ("STS-B", STS, [*"abcdefghi", "nan"], "score 'nan' is not a number in 0..5"),
        ("CoLA", None, ["x", "2", "", "text"], "'2' is not one of 0, 1"),
    ],
)
def test_a_malformed_row_is_named_with_file_and_line(tmp_path, task, header, row, said):
    good = {"RTE": ["0", "a", "b", "entailment"], "STS-B": [*"abcdefghi", "2.5"], "CoLA": ["x", "1", "", "text"]}
    write_tsv(tmp_path / task / "dev.tsv", [good[task], row], header)
    with refused(said, f"{task}/dev.tsv:{3 if header else 2}"):
        rows(tmp_path, task)


def test_a_missing_column_missing_file_and_binary_file_are_named(tmp_path):
    write_tsv(tmp_path / "RTE/dev.tsv", [["0", "a", "b"]], ["index", "sentence1", "label"])
    with pytest.raises(DataError, match="no column 'sentence2'"):
        rows(tmp_path, "RTE")
    with pytest.raises(DataError, match=r"train\.tsv does not exist"):
        rows(tmp_path, "RTE", "train")
    (tmp_path / "RTE/dev.tsv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(DataError, match="not UTF-8"):
        rows(tmp_path, "RTE")


def test_rows_of_qqp_cut_short_are_left_out_and_counted(tmp_path):
    header = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
    write_tsv(
        tmp_path / "QQP/dev.tsv", [[*"123", "a", "b", "1"], ["cut", "short", "0"], [*"456", "c", "d", "0"]], header
    )
    source = OfficialSource(glue=tmp_path)
    assert [row["id"] for row in source.read(TASKS["QQP"], "dev")] == ["0", "1"]
    assert source.counts["QQP"]["broken_rows_left_out"] == 1


def question(answers, **more):
    return {"id": "q", "question": "who?", "answers": [{"text": t, "answer_start": s} for t, s in answers], **more}


# An object of the official file, and the row that is made of it
SUPERGLUE = {
    "BoolQ": (
        {"question": "is the cat red", "passage": "Cat -- It is red.", "idx": 7, "label": True},
        {"text_a": "is the cat red", "text_b": "Cat -- It is red.", "label": "true"},
    ),
    "CB": (
        {"premise": "A: He said so.", "hypothesis": "he said so", "idx": 7, "label": "contradiction"},
        {"text_a": "A: He said so.", "text_b": "he said so", "label": "contradiction"},
    ),
    "COPA": (
        {"premise": "He sat.", "choice1": "It ran.", "choice2": "He ran.", "question": "cause", "idx": 7, "label": 1},
        {"text_a": "He sat. What was the cause of this?", "choices": ["It ran.", "He ran."], "label": "1"},
    ),
    "WiC": (
        {"word": "park", "sentence1": "A park.", "sentence2": "They park.", "idx": 7, "label": False}
        | {"start1": 2, "end1": 6, "start2": 5, "end2": 9, "version": 1.1},
        {"text_a": "park: A park.", "text_b": "They park.", "label": "false"},
    ),
}


@pytest.mark.parametrize("task", [name for name, spec in TASKS.items() if spec.source == "superglue"])
def test_a_task_of_superglue_is_read_and_a_malformed_row_is_named(tmp_path, task):
    record, row = SUPERGLUE[task]
    source = OfficialSource(superglue=tmp_path)
    write_lines(tmp_path / task / "val.jsonl", record)
    assert list(source.read(TASKS[task], "dev")) == [{"id": "7", **row}]
    unlabelled = {key: value for key, value in record.items() if key != "label"}
    write_lines(tmp_path / task / "test.jsonl", unlabelled, {**record, "idx": 8, "label": -1})
    assert list(source.read(TASKS[task], "test")) == [{"id": id, **row, "label": None} for id in ("7", "8")]
    first = next(key for key, value in record.items() if isinstance(value, str))
    for bad, said in [
        (unlabelled, "label is missing"),
        ({**record, "label": "maybe"}, "label 'maybe' is not one of"),
        ({**record, first: None}, f"'{first}' holds no text"),
        ([1], "expected an object with idx"),
    ]:
        write_lines(tmp_path / task / "val.jsonl", record, bad)
        with refused(said, f"{task}/val.jsonl:2"):
            list(source.read(TASKS[task], "dev"))


def test_a_misplaced_answer_is_moved_to_the_nearest_occurrence_and_counted(tmp_path):
    context = "red cat, red dog, red house"
    write_squad(tmp_path / "dev-v1.1.json", [question([("red", 10), ("dog", 13), ("red", -1)])], context)
    source = OfficialSource(squad=tmp_path)
    (row,) = source.read(TASKS["SQuAD1.1"], "dev")
    assert [answer["start"] for answer in row["answers"]] == [9, 13, 0]
    assert source.counts["SQuAD1.1"]["offsets_repaired"] == 2


def test_unanswerable_questions_are_read_from_version_two_only(tmp_path):
    item = question([], is_impossible=True, plausible_answers=[{"text": "cat", "answer_start": 0}])
    for name in ("dev-v1.1.json", "dev-v2.0.json"):
        write_squad(tmp_path / name, [item], "cat")
    assert rows(tmp_path, "SQuAD2.0")[0] == {
        "id": "q",
        "question": "who?",
        "context": "cat",
        "answers": [],
        "impossible": True,
    }
    with pytest.raises(DataError, match="marked impossible"):
        rows(tmp_path, "SQuAD1.1")


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (question([("cow", 0)]), "the answer 'cow' of question q does not occur in its context"),
        (question([("", 0)]), "the answer '' of question q does not occur"),
        (question([]), "question q has no answer"),
        ({"id": "q", "question": "who?"}, "needs id, question and answers"),
    ],
)
def test_a_malformed_question_is_named_with_its_place(tmp_path, item, said):
    write_squad(tmp_path / "dev-v1.1.json", [item], "the cat")
    with refused(said, "dev-v1.1.json: data[0].paragraphs[0].qas[0]"):
        rows(tmp_path, "SQuAD1.1")


def test_broken_squad_files_are_named(tmp_path):
    path = tmp_path / "dev-v1.1.json"
    for text, said in [("{\n oops", r"not valid JSON"), ("[]", "no list `data`"), ('{"data": [{}]}', "`paragraphs`")]:
        path.write_text(text)
        with pytest.raises(DataError, match=said):
            rows(tmp_path, "SQuAD1.1")


def test_the_command_ends_with_exit_code_3_and_leaves_nothing_half_written(tmp_path, paths, monkeypatch, capsys):
    write_tsv(tmp_path / "glue/RTE/train.tsv", [["0", "a", "b", "entailment"]], RTE)
    write_tsv(tmp_path / "glue/RTE/dev.tsv", [["0", "a", "b", "maybe"]], RTE)
    settings = make_settings({"kind": "files", "glue": str(tmp_path / "glue")}, ["RTE"])
    monkeypatch.setattr(cli.stages, "load", lambda: (settings, paths))
    monkeypatch.setattr(sys, "argv", ["electra", "tasks"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 3
    assert "RTE/dev.tsv:2" in capsys.readouterr().err
    assert not paths.tasks.exists()


def test_a_task_without_a_folder_is_a_configuration_error(tmp_path, paths):
    settings = make_settings({"kind": "files", "glue": str(tmp_path)}, ["SQuAD1.1"])
    with pytest.raises(ConfigError, match=r"tasks\.source\.squad"):
        prepare_tasks(settings, paths)


def test_every_layout_of_glue_squad_and_conll_becomes_one_format(paths):
    prepare_tasks(make_settings(LABELLED, list(LABELLED_TASKS)), paths)
    manifest = read_manifest(paths.tasks)
    assert manifest["source"] == {"kind": "files"}
    for name in LABELLED_TASKS:
        assert manifest["tasks"][name]["rows"]["train"] == 20
        first = json.loads((paths.tasks / name / "dev.jsonl").read_text(encoding="utf-8").splitlines()[0])
        columns = {
            "span": {"id", "question", "context", "answers", "impossible"},
            "tagging": {"id", "words", "tags"},
        }
        assert set(first) == columns.get(TASKS[name].kind, {"id", "text_a", "text_b", "label"})
    assert (paths.tasks / "MNLI/dev_mismatched.jsonl").is_file()


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is not there")
def test_real_files_have_the_row_counts_of_their_readme(paths):
    source = {
        "kind": "files",
        "glue": str(SHARED / "glue"),
        "squad": str(SHARED / "squad"),
        "conll": str(SHARED),
    }
    prepare_tasks(make_settings(source, ["CoLA", "MRPC", "RTE", "STS-B", "SQuAD1.1", "CoNLL-2000"]), paths)
    counts = {name: facts["rows"] for name, facts in read_manifest(paths.tasks)["tasks"].items()}
    assert counts == {
        "CoLA": {"train": 8551, "dev": 1043},
        "MRPC": {"train": 3668, "dev": 408},
        "RTE": {"train": 2490, "dev": 277},
        "STS-B": {"train": 5749, "dev": 1500},
        "SQuAD1.1": {"train": 8992, "dev": 1578},
        "CoNLL-2000": {"train": 8936, "dev": 2012},
    }


# number of columns in the file, those of the texts, and whether there is a header
REAL = {"CoLA": (4, [3], False), "MRPC": (5, [3, 4], True), "RTE": (4, [1, 2], True), "STS-B": (10, [7, 8], True)}


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is not there")
@pytest.mark.parametrize("task", REAL)
def test_every_character_of_real_sentences_survives_preparation(paths, task):
    prepare_tasks(make_settings({"kind": "files", "glue": str(SHARED / "glue")}, [task]), paths)
    num_columns, columns, has_header = REAL[task]
    for split in ("train", "dev"):
        lines = (SHARED / f"glue/{task}/{split}.tsv").read_bytes().decode("utf-8-sig").split("\n")
        table = [line.rstrip("\r").split("\t") for line in lines if line][has_header:]
        assert all(len(values) == num_columns for values in table)
        prepared = (paths.tasks / task / f"{split}.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
        texts = [[row["text_a"], row["text_b"]][: len(columns)] for row in map(json.loads, prepared)]
        assert texts == [[values[column] for column in columns] for values in table]
        assert any({*text} & {'"', "'"} for pair in texts for text in pair)  # there is something to lose
