"""Layouts of own tasks: templates, nested keys, no header, SQuAD's JSON, column files, lines, many files."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from electra.common.artifacts import read_json
from electra.common.errors import ConfigError, DataError
from electra.finetune.run import finetune_task
from electra.readers.build import prepare_tasks
from electra.readers.custom import CustomSource
from electra.readers.templates import columns_of, filled, taken_apart
from electra.tasks.matrix import read_rows
from tests.fixtures import LABELLED
from tests.small_tasks import make_settings, write_squad

CLASSES = "kind: classification\ntrain: train.{0}\ndev: train.{0}\ntext: {1}\nlabel: {2}\n"
TAGS = "kind: tagging\ntrain: train.txt\ndev: train.txt\nformat: conll\nwords: {}\ntags: {}\n"
SQUAD = "kind: span\nformat: squad\ntrain: train.json\ndev: train.json\n"


def source_of(folder, description, **files):
    """The task, with its files written; ``train_csv`` is the name of train.csv."""
    path = folder / "task.yaml"
    path.write_text(description, encoding="utf-8")
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name.replace("_", ".")).write_bytes(data)
    return CustomSource(path)


def texts_and_labels(source, split="train"):
    return [(row["text_a"], row["label"]) for row in source.read(source.spec, split)]


def test_a_template_is_filled_from_its_columns():
    values = {"a": "x", "b.c": "{y}", "1": "z"}
    assert filled("{a}: {b.c}/{1}", values.get) == "x: {y}/z"
    assert filled("{{{a}}}", values.get) == "{x}"
    assert filled("a", values.get) == "x"
    assert columns_of("{a} and {b.c}") == ["a", "b.c"] and columns_of("a b") == ["a b"]


@pytest.mark.parametrize(
    ("template", "line", "expected"),
    [
        ("{a}:{b} {c}", "DESC:manner how : is it ?", {"a": "DESC", "b": "manner", "c": "how : is it ?"}),
        ("{a}:{b} {c}", "DESC manner", None),
        ("[{a}] {b}.", "[x] y.z.", {"a": "x", "b": "y.z"}),
        ("[{a}] {b}.", "x] y.", None),
        ("[{a}] {b}.", "[x] y", None),
        ("ab{a}ba", "aba", None),  # the texts before and after must not be the same characters
        ("ab{a}ba", "abba", {"a": ""}),
        ("{{{a}}}", "{x}", {"a": "x"}),
    ],
)
def test_a_line_is_taken_apart_at_the_texts_between_its_columns(template, line, expected):
    assert taken_apart(template, line) == expected


@pytest.mark.parametrize("template", ["{a", "{}", "{a!r}", "{a:>5}", "a}", "{{}}"])
def test_a_broken_template_is_refused(template):
    with pytest.raises(ValueError, match="(?i)brace|column|[{}]"):
        columns_of(template)


def test_several_columns_make_a_text(tmp_path):
    description = CLASSES.format("csv", '"{title}: {body} ({year})"', "y")
    source = source_of(tmp_path, description, train_csv='title,body,y,year\nA,"b, c",1,2020\nD,e,0,2021\n')
    assert texts_and_labels(source) == [("A: b, c (2020)", "1"), ("D: e (2021)", "0")]


def test_every_text_of_a_question_may_be_a_template(tmp_path):
    description = "kind: span\ntrain: train.csv\ndev: train.csv\nanswer: a\n"
    description += 'question: "{w} in {p}?"\ncontext: "{t}. {b}"\n'
    source = source_of(tmp_path, description, train_csv="w,p,t,b,a\nWho,Rome,Title,The cat,cat\n")
    (row,) = source.read(source.spec, "dev")
    assert (row["question"], row["context"]) == ("Who in Rome?", "Title. The cat")
    assert row["answers"] == [{"text": "cat", "start": 11}]


NESTED = {"text": {"body": "x", "parts": ["p", "q"]}, "label": {"gold": "a"}, "a.b": "dotted"}


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet"])
def test_nested_keys_are_found_by_their_path(tmp_path, ending):
    rows = [NESTED, {**NESTED, "label": {"gold": "b"}}]
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    else:
        text = json.dumps(rows) if ending == "json" else "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"train.{ending}").write_text(text)
    description = CLASSES.format(ending, '"{text.body} {text.parts.1} {a.b}"', "label.gold")
    assert texts_and_labels(source_of(tmp_path, description)) == [("x q dotted", "a"), ("x q dotted", "b")]


@pytest.mark.parametrize("path", ["text.title", "text.parts.2", "text.parts.x", "text.body.x", "body"])
def test_a_path_that_leads_nowhere_is_named(tmp_path, path):
    description = CLASSES.format("jsonl", path, "label.gold")
    with pytest.raises(DataError, match=rf"no column '{path}'; the columns are text, label, a\.b") as caught:
        texts_and_labels(source_of(tmp_path, description + "labels: [a, b]\n", train_jsonl=json.dumps(NESTED)))
    assert "train.jsonl:1" in str(caught.value)


def test_a_single_object_is_a_row(tmp_path):
    description = CLASSES.format("json", "t", "y") + "labels: [1, 2]\n"
    assert texts_and_labels(source_of(tmp_path, description, train_json='{"t": "x", "y": 1}')) == [("x", "1")]
    for content, said in [("[1]", "expected an object"), ("{", "not valid JSON")]:
        with pytest.raises(DataError, match=said):
            texts_and_labels(source_of(tmp_path, description, train_json=content))


@pytest.mark.parametrize(
    ("ending", "table"),
    [
        ("tsv", "t\ty\na b\t0\nc\t1\n\n\r\n"),
        ("jsonl", '{"t": "a b", "y": 0}\n\n{"t": "c", "y": 1}\n \n'),
        ("csv", "t,y\na b,0\nc,1\n\n"),
    ],
)
def test_blank_lines_at_the_end_of_a_table_are_no_rows(tmp_path, ending, table):
    source = source_of(tmp_path, CLASSES.format(ending, "t", "y"), **{f"train_{ending}": table})
    assert texts_and_labels(source) == [("a b", "0"), ("c", "1")]


def test_a_blank_line_inside_a_tsv_table_is_a_row_of_one_cell(tmp_path):
    description = CLASSES.format("tsv", "t", "y") + "labels: [0, 1]\n"
    with pytest.raises(DataError, match="expected 2 tab-separated columns, found 1") as caught:
        texts_and_labels(source_of(tmp_path, description, train_tsv="t\ty\n\na\t0\n"))
    assert "train.tsv:2" in str(caught.value)


@pytest.mark.parametrize(("ending", "table"), [("CSV", "t,y\na,0\nb,1\n"), ("Tsv", "t\ty\na\t0\nb\t1\n")])
def test_the_ending_of_a_table_may_be_in_upper_case(tmp_path, ending, table):
    source = source_of(tmp_path, CLASSES.format(ending, "t", "y"), **{f"train_{ending}": table})
    assert texts_and_labels(source) == [("a", "0"), ("b", "1")]


@pytest.mark.parametrize(("ending", "separator"), [("csv", ","), ("tsv", "\t")])
def test_a_table_without_header_has_numbered_columns(tmp_path, ending, separator):
    table = "\n".join(separator.join(row) for row in [["3", "A", "b"], ["1", "C", "d"]]) + "\n"
    description = CLASSES.format(ending, '"{1} {2}"', "0") + "header: false\n"
    source = source_of(tmp_path, description, **{f"train_{ending}": table})
    assert texts_and_labels(source) == [("A b", "3"), ("C d", "1")]
    with pytest.raises(DataError, match="no column '3'; the columns are 0, 1, 2"):
        source_of(tmp_path, description.replace("label: 0", "label: 3"))
    with pytest.raises(DataError, match="expected 3 .*-separated columns, found 2") as caught:
        source_of(tmp_path, description, **{f"train_{ending}": table + separator.join("xy") + "\n"})
    assert f"train.{ending}:3" in str(caught.value)


def test_an_empty_table_is_refused(tmp_path):
    for header in ("true", "false"):
        with pytest.raises(DataError, match="no column"):
            source_of(tmp_path, CLASSES.format("csv", "0", "1") + f"header: {header}\n", train_csv="")


def test_squad_files_keep_their_ids_all_their_answers_and_what_is_impossible(tmp_path):
    answers = [{"text": "cat", "answer_start": 9}, {"text": "the cat", "answer_start": 0}]
    items = [{"id": "k7", "question": "who?", "answers": answers}]
    items.append({"id": "k8", "question": "where?", "answers": [], "is_impossible": True})
    write_squad(tmp_path / "train.json", items, "the cat")
    source = source_of(tmp_path, SQUAD + "unanswerable: true\nmetric: exact\n")
    rows = list(source.read(source.spec, "train"))
    assert [row["id"] for row in rows] == ["k7", "k8"] and [row["impossible"] for row in rows] == [False, True]
    assert rows[0]["answers"] == [{"text": "cat", "start": 4}, {"text": "the cat", "start": 0}]
    assert source.counts["task"]["offsets_repaired"] == 1 and source.spec.headline == "exact"
    with pytest.raises(DataError, match="question k8 is marked impossible"):
        source = source_of(tmp_path, SQUAD)
        list(source.read(source.spec, "train"))


COLUMNS = "-DOCSTART- -X- O\n\nMary NNP B-PER\nsat VBD O\n\nRome\tNNP\tB-LOC\n"


@pytest.mark.parametrize("tags", ["2", "-1"])
def test_column_files_are_read_by_the_columns_numbers(tmp_path, tags):
    source = source_of(tmp_path, TAGS.format(0, tags), train_txt=COLUMNS)
    rows = list(source.read(source.spec, "train"))
    assert [(row["words"], row["tags"]) for row in rows] == [(["Mary", "sat"], ["B-PER", "O"]), (["Rome"], ["B-LOC"])]
    assert source.spec.has_entities and "S-LOC" in source.spec.labels
    source = source_of(tmp_path, TAGS.format(0, 1), train_txt=COLUMNS)
    assert source.spec.labels == ("NNP", "VBD") and source.spec.metrics == ("accuracy",)


def test_the_ending_conll_says_what_a_table_is_and_test_files_may_lack_the_tags(tmp_path):
    description = "kind: tagging\ntrain: train.conll\ndev: train.conll\ntest: test.conll\nwords: 0\ntags: 1\n"
    source = source_of(tmp_path, description, train_conll="Mary B-PER\n", test_conll="John\nsat\n")
    (row,) = source.read(source.spec, "test")
    assert (row["words"], row["tags"]) == (["John", "sat"], None)


@pytest.mark.parametrize(
    ("tags", "table", "said", "where"),
    [
        (3, COLUMNS, "no column '3'; the columns are 0, 1, 2, -3, -2, -1", "train.txt:3"),
        (-1, COLUMNS + "sat O\n", "expected 3 columns as in the first line, found 2", "train.txt:7"),
        (-1, "a O\n\nb B-X\nc\u00e9 I-\n", "tag 'I-' is not one of", "train.txt:3"),
    ],
)
def test_a_malformed_column_file_is_named_with_file_and_line(tmp_path, tags, table, said, where):
    description = TAGS.format(0, tags) + ("labels: [X]\nmetric: f1\n" if "I-" in said else "")
    with pytest.raises(DataError) as caught:
        source = source_of(tmp_path, description, train_txt=table)
        list(source.read(source.spec, "train"))
    assert said in str(caught.value) and f"/{where}\n" in f"{caught.value}\n"


def test_other_encodings_are_named_in_the_description(tmp_path):
    description = CLASSES.format("csv", "t", "y")
    table = "t,y\nCafé,a\nb,c\n".encode("latin-1")
    with pytest.raises(DataError, match="not UTF-8 text") as caught:
        source_of(tmp_path, description, train_csv=table)
    assert "encoding: latin-1" in str(caught.value)
    source = source_of(tmp_path, description + "encoding: latin-1\n", train_csv=table)
    assert texts_and_labels(source)[0] == ("Café", "a")
    source = source_of(tmp_path, description + "encoding: UTF-16\n", train_csv="t,y\nCafé,a\nb,c\n".encode("utf-16"))
    assert texts_and_labels(source)[0] == ("Café", "a")


def test_lines_of_any_form_are_taken_apart(tmp_path):
    description = CLASSES.format("label", "t", "y") + 'lines: "{y}: {t}"\n'
    source = source_of(tmp_path, description, train_label="a: x: y\r\n\nb: z\n")
    assert texts_and_labels(source) == [("x: y", "a"), ("z", "b")]
    with pytest.raises(DataError, match=r"the line is not of the form \{y\}: \{t\}") as caught:
        source_of(tmp_path, description, train_label="a: x\nb\n")
    assert "train.label:2" in str(caught.value)
    with pytest.raises(DataError, match="no column 'u'; the columns are y, t"):
        source_of(tmp_path, description.replace("label: y", "label: u"))


EACH = "each: [q, y]\nlabels: [a, b, c]\n"


def test_lists_that_are_walked_together_give_a_row_an_item(tmp_path):
    description = CLASSES.format("jsonl", '"{t} {q}"', "y") + EACH
    lines = [{"t": "x", "q": ["1", "2"], "y": ["a", "b"]}, {"t": "z", "q": [], "y": []}]
    lines = "".join(json.dumps(line) + "\n" for line in lines)
    source = source_of(tmp_path, description, train_jsonl=lines)
    assert texts_and_labels(source) == [("x 1", "a"), ("x 2", "b")]
    for line, said in [
        ({"t": "x", "q": ["1"], "y": ["a", "b"]}, "lists of different lengths: q 1, y 2"),
        ({"t": "x", "q": "12", "y": ["a", "b"]}, "'q' is no list"),
        ({"t": "x", "y": ["a", "b"]}, "no column 'q'"),
        ({"t": "x", "q": ["1", "2"], "y": ["a", "d"]}, "label 'd' is not one of"),
    ]:
        with pytest.raises(DataError, match=said) as caught:
            texts_and_labels(source_of(tmp_path, description, train_jsonl=lines + json.dumps(line)))
        assert "train.jsonl:3" in str(caught.value)


def test_wildcards_stand_for_files_in_the_order_of_their_names(tmp_path):
    for name, label in [("b/2.csv", "b"), ("a/1.csv", "a"), ("a/10.csv", "c")]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"t,y\n{name},{label}\n")
    description = CLASSES.replace("train.{0}", "'*/*.{0}'", 1).replace("train.{0}", "a/1.{0}")
    source = source_of(tmp_path, description.format("csv", "t", "y"))
    assert texts_and_labels(source) == [("a/1.csv", "a"), ("a/10.csv", "c"), ("b/2.csv", "b")]
    assert [row["id"] for row in source.read(source.spec, "train")] == ["0", "1", "2"]
    with pytest.raises(DataError, match=r"x/\*\.csv does not exist"):
        source_of(tmp_path, description.replace("*/*", "x/*").format("csv", "t", "y"))


def test_a_file_that_has_wildcards_in_its_own_name_is_itself(tmp_path):
    (tmp_path / "train[1].csv").write_text("t,y\nx,a\nz,b\n")
    description = CLASSES.replace("train.{0}", "train[1].csv").format("csv", "t", "y")
    assert len(texts_and_labels(source_of(tmp_path, description))) == 2


def test_only_the_first_training_examples_are_read(tmp_path):
    description = CLASSES.format("csv", "t", "y") + "max_train_examples: 2\n"
    source = source_of(tmp_path, description, train_csv="t,y\n1,a\n2,b\n3,a\n")
    assert len(texts_and_labels(source)) == 2 and len(texts_and_labels(source, "dev")) == 3


def test_a_single_task_may_have_a_limit_of_its_own(paths):
    limits = {"max_train_examples": 8, "task_max_train_examples": {"CoLA": 12}}
    settings = make_settings(LABELLED, ["CoLA", "RTE"], epochs=1, **limits)
    prepare_tasks(settings, paths)
    for task, rows in (("CoLA", 12), ("RTE", 8)):
        finetune_task(settings, paths, task=task, seed=1, scratch=True)
        assert read_json(paths.finetuned(f"{task}-1-scratch") / "run.json")["train_rows"] == rows
    assert len(read_rows(paths, "CoLA", "train")) == 20
    with pytest.raises(ConfigError, match=r"finetune\.task_max_train_examples: there is no task 'NLI'"):
        make_settings(LABELLED, ["CoLA"], task_max_train_examples={"NLI": 1})
    with pytest.raises(ConfigError, match=r"task_max_train_examples\.CoLA: Input should be greater than 0"):
        make_settings(LABELLED, ["CoLA"], task_max_train_examples={"CoLA": 0})


def test_labels_of_yaml_are_taken_as_they_stand_there(tmp_path):
    description = CLASSES.format("jsonl", "t", "y") + "labels: [true, false]\nmetric: f1\npositive: true\n"
    source = source_of(tmp_path, description, train_jsonl='{"t": "x", "y": true}\n')
    assert source.spec.labels == ("true", "false") and source.spec.positive == "true"
    assert texts_and_labels(source) == [("x", "true")]


PLAIN = CLASSES.format("csv", "t", "y")


@pytest.mark.parametrize(
    ("description", "said"),
    [
        (PLAIN.replace("train: train.csv\n", ""), "give either train, or fine_tuned_on"),
        (PLAIN + "fine_tuned_on: MNLI\n", "give either train, or fine_tuned_on"),
        (PLAIN.replace("train: train.csv", "fine_tuned_on: MNLI\ntest: x.csv"), "has neither max_train_examples nor"),
        (PLAIN.replace("train: train.csv", "fine_tuned_on: MNLI\nmax_train_examples: 1"), "has neither max_train"),
        (PLAIN + "label_map: {a: b}\n", "label_map belongs to fine_tuned_on"),
        (PLAIN.replace("text: t", "text: '{t'"), "text: expected '}' before end of string"),
        (PLAIN.replace("text: t", "text: '{}'"), "text: braces hold the name of a column and nothing else"),
        (PLAIN + "lines: '{a}{b}'\n", "lines: there must be text between two columns"),
        (PLAIN + "lines: 'x'\n", "lines: the template names no column"),
        (PLAIN + "lines: '{y} {t}'\nformat: csv\n", "goes with neither format nor header"),
        (PLAIN + "encoding: klingon\n", "encoding: no text encoding that Python knows"),
        (PLAIN + "encoding: base64\n", "encoding: no text encoding that Python knows"),
        (PLAIN + "format: conll\n", "format: conll is for kind: tagging"),
        (PLAIN + "format: squad\n", "format: squad is for kind: span"),
        (PLAIN + "format: xml\n", "format: Input should be 'csv'"),
        (PLAIN + "max_train_examples: 0\n", "max_train_examples: Input should be greater than 0"),
        (SQUAD + "question: q\nid: i\n", "format: squad has fixed keys; leave out question, id"),
        (SQUAD + "encoding: latin-1\n", "format: squad is UTF-8"),
        (SQUAD.replace("format: squad\n", "question: q\n"), "context, answer: missing"),
    ],
)
def test_a_wrong_layout_is_refused_with_file_and_key(tmp_path, description, said):
    with pytest.raises(ConfigError) as caught:
        source_of(tmp_path, description)
    assert said in str(caught.value) and str(tmp_path / "task.yaml") in str(caught.value)


def test_a_table_of_no_known_kind_is_refused_with_what_can_be_said(tmp_path):
    with pytest.raises(DataError, match="train.xls is no table that can be read") as caught:
        source_of(tmp_path, CLASSES.format("xls", "t", "y"), train_xls="x")
    assert "format:" in str(caught.value) and ".conll" in str(caught.value)
