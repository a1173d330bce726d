"""Custom tasks: the examples of docs/own-tasks.md through all stages, the tables, and refused descriptions."""

import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from electra.checks.tasks import validate_tasks
from electra.common.artifacts import read_manifest
from electra.common.errors import ConfigError, DataError
from electra.config.loading import parse_settings
from electra.finetune.run import finetune_task
from electra.readers import custom_schema as custom_schema
from electra.readers.build import prepare_tasks
from electra.readers.custom import CustomSource, check_evaluation
from electra.results.evaluate import evaluate_runs
from electra.results.report.facts import read_scores
from electra.tasks.catalogue import TASKS, TaskSpec, find_spec
from electra.tasks.format import bioes_labels
from tests.fixtures import LABELLED
from tests.small_tasks import make_settings, refused

DOCS = Path(__file__).resolve().parents[2] / "docs"


def settings_with_own(tasks, files, **finetune):
    """Settings as they are parsed from YAML: names are checked."""
    settings = make_settings(LABELLED, ["CoLA"], **finetune)
    values = settings.model_dump(mode="json")
    values["tasks"]["own"] = [str(file) for file in files]
    values["cells"]["tasks"] = tasks
    return type(settings).model_validate(values)


@pytest.mark.parametrize(
    ("name", "metric", "labels"),
    [
        ("polarity", "f1", ["blame", "praise"]),
        ("places", "f1", "O B-LOC I-LOC E-LOC S-LOC B-PER I-PER E-PER S-PER".split()),
        ("facts", "exact", []),
    ],
)
def test_the_examples_of_the_documentation_run_through_all_stages(paths, name, metric, labels):
    settings = settings_with_own([name], [DOCS / f"examples/{name}.yaml"], epochs=2, span_max_length=48)
    prepare_tasks(settings, paths)
    validate_tasks(settings, paths)
    finetune_task(settings, paths, task=name, seed=1, scratch=True)
    cell = paths.finetuned(f"{name}-1-scratch")
    cell.with_name(f"{name}-1").symlink_to(cell.name)
    evaluate_runs(settings, paths)
    facts = read_manifest(paths.tasks)["tasks"][name]
    assert facts["rows"] == {"train": 24, "dev": 12} and facts["labels"] == labels
    card = read_scores(paths)
    assert card["tasks"][name]["metric"] == metric
    assert card["data"] == f"{name}: data of your own, not a public benchmark"
    assert len((cell / "predictions.jsonl").read_text().splitlines()) == 12


def test_the_documentation_shows_the_examples_and_names_every_key():
    text = (DOCS / "own-tasks.md").read_text()
    for path in (DOCS / "examples").glob("*.yaml"):
        shown = re.search(rf"# examples/{path.name}.*?\n(.*?)```", text, re.DOTALL)
        assert shown, path.name
        assert [line.split("#")[0].rstrip() for line in shown[1].splitlines()] == [
            line.split("#")[0].rstrip() for line in path.read_text().splitlines()
        ]
    common = set(custom_schema._CustomTask.model_fields)
    for key in common - {"train", "dev"}:
        assert f"\n| `{key}` |" in text, key
    for model in custom_schema.CustomTask.__args__:
        row = next(
            line for line in text.splitlines() if line.startswith(f"| `{model.__annotations__['kind'].__args__[0]}`")
        )
        for key in set(model.model_fields) - common - {"kind", "metric"}:
            assert f"`{key}" in row, (row, key)
        missing = [key for key, field in model.model_fields.items() if key != "kind" and not field.description]
        assert not missing


def test_own_tasks_stand_beside_public_ones(paths):
    settings = settings_with_own(["CoLA", "polarity"], [DOCS / "examples/polarity.yaml"])
    prepare_tasks(settings, paths)
    assert set(read_manifest(paths.tasks)["tasks"]) == {"CoLA", "polarity"}
    spec = find_spec(paths.tasks, "polarity")
    assert spec == CustomSource(DOCS / "examples/polarity.yaml").spec
    assert find_spec(paths.tasks, "CoLA") is TASKS["CoLA"]


@pytest.mark.parametrize(
    ("tasks", "files", "said"),
    [
        (["polarity"], [], "cells.tasks: there is no task 'polarity'; choose among CoLA,"),
        (["CoLA"], ["a/CoLA.yaml"], "CoLA is the name of a built-in task"),
        (["CoLA"], ["a/cola.yaml"], "cola is the name of a built-in task"),
        (["CoLA"], ["a/x.yaml", "b/x.yaml"], "two files give the same name"),
        (["CoLA"], ["a/x.yaml", "b/X.yaml"], "two files give the same name"),
        (["CoLA"], ["manifest.json.yaml"], "manifest.json is the name of something else in data/tasks"),
        (["CoLA"], ["Official.yaml"], "Official is the name of something else"),
        (["CoLA"], ["x" * 101 + ".yaml"], "cannot name a task"),
        (["CoLA"], ["my task.yaml"], "'my task' cannot name a task"),
    ],
)
def test_names_are_checked_with_the_settings(tasks, files, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        settings_with_own(tasks, files)


def write_task(folder, description, table=None, name="task"):
    path = folder / f"{name}.yaml"
    path.write_text(description)
    for split, text in (table or {}).items():
        (folder / split).write_text(text, encoding="utf-8", newline="")
    return path


CLASSES = "kind: classification\ntrain: train.csv\ndev: train.csv\ntext: t\nlabel: y\n"
WORDS = "kind: tagging\ntrain: train.csv\ndev: train.csv\nwords: w\ntags: t\n"
SPANS = "kind: span\ntrain: train.csv\ndev: train.csv\nquestion: q\ncontext: c\nanswer: a\n"
CHOICE = "kind: multiple_choice\ntrain: train.csv\ndev: train.csv\ntext: t\nchoices: [a, b]\nlabel: y\n"


def rows_of(folder, description, csv, split="train"):
    source = CustomSource(write_task(folder, description, {"train.csv": csv}))
    return list(source.read(source.spec, split)), source


@pytest.mark.parametrize(
    ("description", "said"),
    [
        (CLASSES + "texts: x\n", "texts: unknown key"),
        (CLASSES.replace("label: y\n", ""), "label: missing"),
        (CLASSES.replace("classification", "ranking"), "kind: must be one of classification, pair"),
        ("train: x\n", "kind: must be one of"),
        (CLASSES + "metric: f1\n", "`metric: f1` and `positive` belong together"),
        (CLASSES + "metric: bleu\n", "metric: Input should be 'accuracy', 'f1'"),
        (CLASSES + "labels: [a]\n", "labels: "),
        (CLASSES + "labels: [a, b, a]\n", "labels: a: named more than once"),
        (WORDS + "labels: [X, X]\n", "labels: X: named more than once"),
        ("kind: regression\ntrain: x\ndev: x\ntext_a: t\nlabel: y\nrange: [5, 0]\n", "the lower one"),
        ("kind: regression\ntrain: x\ndev: x\ntext_a: t\nlabel: y\nrange: [0, 5]\nunordered: true\n", "no text_b"),
        (CHOICE + "names: [A]\n", "expected 2 different names"),
        ("[", "not valid YAML"),
    ],
)
def test_a_wrong_description_is_refused_with_file_and_key(tmp_path, description, said):
    path = write_task(tmp_path, description)
    with refused(said, str(path), kind=ConfigError):
        CustomSource(path)


def test_a_description_runs_no_code(tmp_path):
    made = tmp_path / "made"
    path = write_task(tmp_path, CLASSES + f"positive: !!python/object/apply:os.mkdir [{made}]\n")
    with pytest.raises(ConfigError, match="not valid YAML"):
        CustomSource(path)
    assert not made.exists()


def test_a_missing_description_and_a_missing_table_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml does not exist"):
        CustomSource(tmp_path / "none.yaml")
    with pytest.raises(DataError, match=r"train\.csv does not exist"):
        CustomSource(write_task(tmp_path, CLASSES))
    with pytest.raises(ConfigError, match="positive: 'c' is not one of a, b"):
        rows_of(tmp_path, CLASSES + "metric: f1\npositive: c\n", "t,y\nx,a\nx,b\n")


ODD = 'a "quoted", text\twith\na line end\r\nand another\u2028and é'


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_quotes_tabs_and_line_ends_survive(tmp_path, ending):
    path = write_task(tmp_path, CLASSES.replace("csv", ending))
    if ending == "csv":
        text = 'extra,t,y\r\n1,"' + ODD.replace('"', '""') + '",a\r\n\r\n2,plain,b\r\n'
        (tmp_path / "train.csv").write_text("\ufeff" + text, encoding="utf-8", newline="")
    elif ending == "jsonl":
        lines = [{"t": ODD, "y": "a", "extra": 1}, {"t": "plain", "y": "b"}]
        (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        pq.write_table(pa.table({"t": [ODD, "plain"], "y": ["a", "b"], "extra": [1, 2]}), tmp_path / "train.parquet")
    source = CustomSource(path)
    assert source.spec.labels == ("a", "b")
    assert list(source.read(source.spec, "dev")) == [
        {"id": "0", "text_a": ODD, "text_b": None, "label": "a"},
        {"id": "1", "text_a": "plain", "text_b": None, "label": "b"},
    ]


def test_a_rare_label_may_be_missing_from_dev(paths, tmp_path):
    description = CLASSES.replace("dev: train.csv", "dev: dev.csv")
    tables = {"train.csv": "t,y\nthe cat,a\na dog,b\n", "dev.csv": "t,y\nthe park,a\n"}
    settings = settings_with_own(["task"], [write_task(tmp_path, description, tables)])
    prepare_tasks(settings, paths)
    validate_tasks(settings, paths)
    (tmp_path / "dev.csv").write_text("t,y\nthe park,c\n")
    with pytest.raises(DataError, match="label 'c' is not one of a, b"):
        prepare_tasks(settings, paths)


def test_in_tsv_a_quote_is_a_character(tmp_path):
    path = write_task(tmp_path, CLASSES.replace("csv", "tsv"), {"train.tsv": 't\ty\n"open\ta\nb\tb\n'})
    source = CustomSource(path)
    assert [row["text_a"] for row in source.read(source.spec, "train")] == ['"open', "b"]


def test_labels_of_json_are_taken_as_they_stand_there(tmp_path):
    lines = "".join(json.dumps({"t": "x", "y": y}) + "\n" for y in [10, 9, True])
    source = CustomSource(write_task(tmp_path, CLASSES.replace("csv", "jsonl"), {"train.jsonl": lines}))
    assert source.spec.labels == ("10", "9", "true")


def test_labels_of_parquet_may_be_decimals_and_nan_is_a_missing_label(tmp_path):
    description = CLASSES.replace("csv", "parquet")
    pq.write_table(pa.table({"t": ["a", "b"], "y": [Decimal("1.5"), Decimal("2.0")]}), tmp_path / "train.parquet")
    assert CustomSource(write_task(tmp_path, description)).spec.labels == ("1.5", "2.0")
    pq.write_table(pa.table({"t": ["a", "b", "c"], "y": [0.0, 1.0, float("nan")]}), tmp_path / "train.parquet")
    with refused("a label is missing", "train.parquet"):
        CustomSource(write_task(tmp_path, description))


@pytest.mark.parametrize(
    ("description", "csv", "said", "where"),
    [
        (CLASSES, "t,label\nx,a\n", "no column 'y'; the columns are t, label", "train.csv"),
        (CLASSES, "t,y\nx,a\nx\n", "expected 2 comma-separated columns, found 1", "train.csv:3"),
        (CLASSES, 't,y\nx,a\n"x"y,b\n', "not valid CSV", "train.csv:3"),
        (CLASSES, "t,y\nx,a\nx,\n", "a label is missing", "train.csv:3"),
        (CLASSES, "t,y\nx,a\nx,a\n", "expected two labels or more, found ['a']", "train.csv:3"),
        (CLASSES + "labels: [a, b]\n", "t,y\nx,a\nx,c\n", "label 'c' is not one of a, b", "train.csv:3"),
        (CLASSES, "t,y\n ,a\nx,b\n", "a text is empty", "train.csv:2"),
        (WORDS, "w,t\na b,O B-X\na b,O\n", "2 words and 1 tags", "train.csv:3"),
        (WORDS + "metric: f1\n", "w,t\na b,O NN\n", "tag 'NN' marks no entity", "train.csv:2"),
        (WORDS + "labels: [X]\n", "w,t\na,B-Y\n", "tag 'B-Y' is not one of O, B-X", "train.csv:2"),
        (SPANS, "q,c,a\nwho?,the cat,dog\n", "the answer 'dog' of question 0 does not occur", "train.csv:2"),
        (SPANS, "q,c,a\nwho?,the cat,\n", "question 0 has no answer", "train.csv:2"),
        (SPANS + "start: s\n", "q,c,a,s\nwho?,the cat,cat,x\n", "s 'x' is not a whole number", "train.csv:2"),
        (CHOICE, "t,a,b,y\nx,1,2,2\n", "label '2' is not one of 0, 1", "train.csv:2"),
        (CHOICE + "names: [1, 2]\n", "t,a,b,y\nx,1,2,0\n", "label '0' is not one of 1, 2", "train.csv:2"),
    ],
)
def test_a_malformed_table_is_named_with_file_and_line(tmp_path, description, csv, said, where):
    with refused(said, f"/{where}\n"):
        rows_of(tmp_path, description, csv)


def test_tags_that_mark_no_entities_are_scored_by_word(tmp_path):
    rows, source = rows_of(tmp_path, WORDS, "w,t\nthe cat,D N\n")
    assert source.spec.metrics == ("accuracy",) and source.spec.labels == ("D", "N")
    assert rows == [{"id": "0", "words": ["the", "cat"], "tags": ["D", "N"]}]


def test_entities_may_be_in_any_scheme_and_end_as_iob2(tmp_path):
    rows, source = rows_of(tmp_path, WORDS, "w,t\na b c,I-X I-X B-X\na b c,B-X E-X S-X\n")
    assert [row["tags"] for row in rows] == [["B-X", "I-X", "B-X"]] * 2
    assert source.spec.metrics[0] == "f1"


def test_a_limit_on_training_rows_leaves_the_development_rows_whole(tmp_path):
    description, csv = CLASSES + "max_train_examples: 2\n", "t,y\n" + "a,1\nb,0\nc,1\n"
    assert [row["text_a"] for row in rows_of(tmp_path, description, csv)[0]] == ["a", "b"]
    assert [row["text_a"] for row in rows_of(tmp_path, description, csv, "dev")[0]] == ["a", "b", "c"]


def test_pairs_regressions_and_choices_are_read(tmp_path):
    pair = "kind: pair\ntrain: train.csv\ndev: train.csv\ntest: train.csv\ntext_a: t\ntext_b: u\nlabel: y\nid: n\n"
    rows, source = rows_of(tmp_path, pair + "unordered: true\n", "n,t,u,y\nk7,a,b,1\nk8,c,d,0\n")
    assert rows[0] == {"id": "k7", "text_a": "a", "text_b": "b", "label": "1"} and source.spec.unordered
    assert [row["label"] for row in source.read(source.spec, "test")] == [None, None]
    regression = "kind: regression\ntrain: train.csv\ndev: train.csv\ntext_a: t\nlabel: y\nrange: [-1, 1]\n"
    rows, source = rows_of(tmp_path, regression, "t,y\nx,-0.5\n")
    assert rows == [{"id": "0", "text_a": "x", "text_b": None, "label": -0.5}]
    assert source.spec.metrics == ("spearman", "pearson")
    rows, _ = rows_of(tmp_path, CHOICE + "names: [A, B]\n", "t,a,b,y\nx,c,d,B\n")
    assert rows == [{"id": "0", "text_a": "x", "choices": ["c", "d"], "label": "1"}]


def test_answers_stand_where_they_are_said_to_or_first_occur(tmp_path):
    rows, _ = rows_of(tmp_path, SPANS, "q,c,a\nwho?,red cat red,red\n")
    assert rows[0]["answers"] == [{"text": "red", "start": 0}]
    description = SPANS + "start: s\nunanswerable: true\n"
    rows, source = rows_of(tmp_path, description, "q,c,a,s\nwho?,red cat red,red,8\nwho?,x,,\n")
    assert rows[0]["answers"] == [{"text": "red", "start": 8}]
    assert rows[1]["answers"] == [] and rows[1]["impossible"] and source.spec.has_unanswerable


def test_a_missing_cell_is_no_text_and_no_answer(tmp_path):
    """pandas writes NaN for it."""
    description = SPANS.replace(".csv", ".jsonl") + "unanswerable: true\n"
    lines = ['{"q": "who?", "c": "Ferdinand left", "a": NaN}', '{"q": "who?", "c": "Ferdinand left", "a": " "}']
    source = CustomSource(write_task(tmp_path, description, {"train.jsonl": "\n".join(lines)}))
    assert [row["answers"] for row in source.read(source.spec, "train")] == [[], []]
    description = CLASSES.replace(".csv", ".jsonl") + "labels: [a, b]\n"
    source = CustomSource(write_task(tmp_path, description, {"train.jsonl": '{"t": NaN, "y": "a"}'}))
    with refused("column 't' is empty (NaN)", "train.jsonl:1"):
        list(source.read(source.spec, "train"))


def test_an_evaluation_whose_tags_the_model_does_not_know_is_refused():
    model = TaskSpec("ner", "tagging", ("f1",), {}, labels=tuple(bioes_labels(["LOC", "PER"])))
    other = TaskSpec("ner/new", "tagging", ("f1",), {}, labels=tuple(bioes_labels(["PERSON", "PLACE"])))
    with pytest.raises(ConfigError, match=r"(?s)no tag in common.*write the tags of ner into the table"):
        check_evaluation(other, model)
    check_evaluation(replace(other, labels=tuple(bioes_labels(["PER", "PLACE"]))), model)


def test_labels_that_yaml_reads_as_booleans_are_explained(tmp_path):
    with refused("put the labels in quotes: YAML reads yes and no as true and false"):
        rows_of(tmp_path, CLASSES + "labels: [yes, no]\n", "t,y\na,yes\nb,no\n")


def test_scores_of_another_range_are_learned_as_shares_and_predicted_in_it(paths, tmp_path):
    table = "t,y\n" + "the cat is good,30\nthe cat is bad,-10\n" * 16
    description = "kind: regression\ntrain: train.csv\ndev: train.csv\ntext_a: t\nlabel: y\nrange: [-10, 30]\n"
    file = write_task(tmp_path, description, {"train.csv": table}, name="warmth")
    settings = settings_with_own(["warmth"], [file], epochs=20, learning_rate=5e-3, layerwise_decay=1.0)
    prepare_tasks(settings, paths)
    finetune_task(settings, paths, task="warmth", seed=1, scratch=True)
    lines = (paths.finetuned("warmth-1-scratch") / "predictions.jsonl").read_text().splitlines()
    good, bad = (json.loads(line)["score"] for line in lines[:2])
    assert good == pytest.approx(30, abs=8) and bad == pytest.approx(-10, abs=8)


def test_the_complaint_about_a_name_is_the_message_alone():
    values = make_settings(LABELLED, ["CoLA"]).model_dump(mode="json")
    values["cells"]["tasks"] = ["NLI"]
    with pytest.raises(ConfigError) as caught:
        parse_settings(values, where="params.yaml")
    assert str(caught.value).startswith("cells.tasks: there is no task 'NLI'; choose among CoLA, ")
    assert "got" not in str(caught.value)


TREEBANK = (
    "# sent_id = 1\n# text = au vieux 1 000\n"
    "1-2\tau\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tà\tà\tADP\tIN\t_\t3\tcase\t_\t_\n"
    "2\tle\tle\tDET\t_\tGender=Masc\t3\tdet\t_\t_\n"
    "2.1\tdu\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "3\t1 000\t1 000\tNUM\t_\t_\t0\troot\t_\t_\n"
    "\n# text = #\n1\t#\t#\tSYM\t_\t_\t0\troot\t_\t_"
)


def test_a_treebank_is_read_as_published_by_its_syntactic_words(tmp_path, paths):
    for split in ("train", "dev"):
        (tmp_path / f"fr-ud-{split}.conllu").write_text(TREEBANK, encoding="utf-8")
    file = tmp_path / "pos.yaml"
    file.write_text("{kind: tagging, train: fr-ud-train.conllu, dev: fr-ud-dev.conllu, words: form, tags: upos}")
    prepare_tasks(settings_with_own(["pos"], [file]), paths)
    rows = [json.loads(line) for line in (paths.tasks / "pos/dev.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["words"] for row in rows] == [["à", "le", "1 000"], ["#"]]
    assert [row["tags"] for row in rows] == [["ADP", "DET", "NUM"], ["SYM"]]


@pytest.mark.parametrize(
    ("spoiled", "words", "message"),
    [
        (TREEBANK.replace("\tGender=Masc", ""), "form", "expected the 10 columns of CoNLL-U.*found 9"),
        (TREEBANK, "word", "no column 'word'; the columns are id, form"),
    ],
)
def test_what_is_no_treebank_is_named_by_file_and_line(tmp_path, paths, spoiled, words, message):
    (tmp_path / "a.conllu").write_text(spoiled, encoding="utf-8")
    file = tmp_path / "pos.yaml"
    file.write_text(f"{{kind: tagging, train: a.conllu, dev: a.conllu, words: {words}, tags: upos}}")
    with pytest.raises(DataError, match=message) as error:
        prepare_tasks(settings_with_own(["pos"], [file]), paths)
    assert "a.conllu" in str(error.value) and ("9" not in message or "a.conllu:5" in str(error.value))
