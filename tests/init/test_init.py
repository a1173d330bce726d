"""`electra init`: from texts and a table to settings that can run, and nothing written over."""

import csv
import gzip
import itertools
import json
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from tokenizers import Tokenizer

from electra.cluster.estimate import cost
from electra.cluster.estimate.cost import measure_speed, run_minutes
from electra.cluster.hardware import num_cores, resolve_machine
from electra.common.errors import ConfigError, DataError
from electra.config.loading import load_settings
from electra.config.training import LengthCurriculum
from electra.init.project import describe_project, plan_project, write_project
from electra.preflight import check_run
from electra.readers.build import prepare_tasks
from electra.readers.custom_schema import read_custom_task
from electra.text.corpus.build import build_corpus
from electra.text.tokenizer.build import build_tokenizer
from tests.project import ROOT, copy_project
from tests.workspace import Workspace

PARAGRAPHS = "It was a fine day, and nobody was about.\n\nThen it began to rain.\n\n" * 400


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone's settings, two texts and a table with a label for a text."""
    copy_project(tmp_path, "dvc.yaml", ".gitignore", "Makefile")
    (tmp_path / "letters/old").mkdir(parents=True)
    (tmp_path / "letters/a.txt").write_text(PARAGRAPHS)
    (tmp_path / "letters/old/b.txt").write_text(PARAGRAPHS)
    with open(tmp_path / "verdicts.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "verdict", "stars", "other"])
        for number in range(60):
            text = f"text {number % 50}, said he"  # ten texts stand twice
            writer.writerow([text, ["praise", "blame"][number % 50 % 2], number / 7, "of no use"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_texts_alone_give_a_profile_that_passes_the_check(project: Path) -> None:
    plan = plan_project(["letters/"])
    write_project(plan)
    settings = load_settings(project)
    assert settings.profile == "letters" and settings.cells.tasks == [] and settings.tasks.source is None
    assert settings.corpus.sources[0].model_dump()["paths"] == ["letters/**/*.txt"]
    assert "profile letters, objective bert, 0 fine-tuning cells of 0 tasks" in check_run(project)
    assert "/letters/" in (project / ".gitignore").read_text().splitlines()
    assert "2 files, 52,800 bytes, about 14 min on this machine\n" in describe_project(plan, 14.2)
    assert "make run" in describe_project(plan, None)


def test_a_table_becomes_a_task_whose_parts_share_no_text(project: Path) -> None:
    plan = plan_project(["letters/*.txt"], table=Path("verdicts.csv"), text_columns=["review"], label="verdict")
    write_project(plan)
    assert yaml.safe_load(Path("own/verdicts.yaml").read_text()) == {
        "kind": "classification", "train": "verdicts/train.jsonl", "dev": "verdicts/dev.jsonl", "text": "review",
        "label": "verdict",
    }  # fmt: skip
    parts = {
        split: [json.loads(line) for line in Path(f"own/verdicts/{split}.jsonl").read_text().splitlines()]
        for split in ("train", "dev")
    }
    texts = {split: {row["review"] for row in rows} for split, rows in parts.items()}
    assert not texts["train"] & texts["dev"] and len(texts["dev"]) == 10
    assert {row["verdict"] for row in parts["dev"]} == {"praise", "blame"}
    workspace = Workspace(project)
    prepare_tasks(load_settings(project), workspace.paths)  # the reader takes what was written
    assert (workspace.paths.tasks / "verdicts/train.jsonl").is_file()
    assert check_run(project).endswith("6 fine-tuning cells of 1 task")
    assert not load_settings(project).cluster.share_cores, "a run of hours"
    assert "labels praise 30, blame 30" in describe_project(plan, 1)


def test_every_label_of_a_split_table_is_in_the_training_rows(project: Path) -> None:
    rows = [("praise", f"text {number}") for number in range(40)]
    rows += [(f"rare{number % 20}", f"word {number % 20}") for number in range(30)]  # one text each, some twice
    Path("rare.csv").write_text("review,verdict\n" + "".join(f"{text},{label}\n" for label, text in rows))
    plan = plan_project(["letters/"], table=Path("rare.csv"), text_columns=["review"], label="verdict")
    parts = {
        split: [json.loads(line) for line in plan.files[Path(f"own/rare/{split}.jsonl")].splitlines()]
        for split in ("train", "dev")
    }
    assert {row["verdict"] for row in parts["train"]} == {label for label, _ in rows}
    assert len(parts["dev"]) == 8 and {row["verdict"] for row in parts["dev"]} == {"praise"}


def test_numbers_are_scores_and_two_texts_a_pair(project: Path) -> None:
    kinds = {}
    for number, (columns, label) in enumerate([(["review"], "stars"), (["review", "other"], "verdict")]):
        plan = plan_project(["letters/"], name=f"p{number}", table=Path("verdicts.csv"), text_columns=columns,
                            label=label)  # fmt: skip
        description = yaml.safe_load(plan.files[Path("own/verdicts.yaml")])
        kinds[description["kind"]] = sorted(description)
    assert kinds["regression"] == ["dev", "kind", "label", "range", "text_a", "train"]
    assert kinds["pair"] == ["dev", "kind", "label", "text_a", "text_b", "train"]


def test_a_development_table_of_ones_own_is_read_where_it_lies(project: Path) -> None:
    shutil.copy("verdicts.csv", "held.csv")
    plan = plan_project(["letters/"], table=Path("verdicts.csv"), dev=Path("held.csv"), text_columns=["review"],
                        label="verdict")  # fmt: skip
    description = yaml.safe_load(plan.files[Path("own/verdicts.yaml")])
    assert (description["train"], description["dev"]) == ("../verdicts.csv", "../held.csv")
    assert not [path for path in plan.files if path.suffix == ".jsonl"]
    write_project(plan)
    check_run(project)


def test_nothing_is_written_over_and_nothing_at_all_where_something_is_wrong(project: Path) -> None:
    write_project(plan_project(["letters/"]))
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=r"already there, and not written over: params/letters.yaml"):
        plan_project(["letters/"])
    for texts, options, said in [
        (["nowhere"], {}, "no file matches"),
        (["letters"], {"name": "../x"}, "cannot be a name"),
        (["letters"], {"name": "n", "like": "tinny"}, "does not exist"),
        (["letters"], {"name": "n", "table": Path("verdicts.csv")}, "columns are review, verdict, stars, other"),
        (["letters"], {"name": "n", "table": Path("verdicts.csv"), "text_columns": ["revue"], "label": "verdict"},
         "no column 'revue'"),
        (["params"], {"name": "n"}, "no text in it"),
    ]:  # fmt: skip
        with pytest.raises((ConfigError, DataError), match=said):
            plan_project(texts, **options)
    assert before == {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}


def test_files_of_a_table_that_stay_the_same_serve_another_profile(project: Path) -> None:
    options = {"table": Path("verdicts.csv"), "text_columns": ["review"], "label": "verdict"}
    write_project(plan_project(["letters/"], **options))
    before = {path: path.stat().st_mtime_ns for path in Path("own").rglob("*")}
    plan = plan_project(["letters/"], cased=True, name="letters-2", **options)
    write_project(plan)
    assert before == {path: path.stat().st_mtime_ns for path in Path("own").rglob("*")}
    assert "kept     own/verdicts.yaml, own/verdicts/train.jsonl, own/verdicts/dev.jsonl: as they are\n" in (
        describe_project(plan, None)
    )
    assert load_settings(project).profile == "letters-2" and check_run(project).endswith("cells of 1 task")


def test_another_table_of_the_same_name_is_told_how_its_task_gets_another(project: Path) -> None:
    options = {"text_columns": ["review"], "label": "verdict"}
    write_project(plan_project(["letters/"], table=Path("verdicts.csv"), **options))
    with open("verdicts.csv", "a") as file:
        file.write("another text,praise,1,no\n" * 9)
    advice = r"copy the table to a file of another name, .* --table verdicts-2.csv"
    with pytest.raises(ConfigError, match=advice) as told:
        plan_project(["letters/"], name="other", table=Path("verdicts.csv"), **options)
    assert "--name" not in str(told.value)
    with pytest.raises(ConfigError, match=f"--name letters-2; {advice}"):
        plan_project(["letters/"], table=Path("verdicts.csv"), **options)
    shutil.copy("verdicts.csv", "verdicts-2.csv")
    plan_project(["letters/"], name="letters-2", table=Path("verdicts-2.csv"), **options)
    Path("verdicts").mkdir()
    shutil.copy("verdicts.csv", "verdicts/train.csv")  # its folder names the task
    with pytest.raises(ConfigError, match="--table verdicts/verdicts-2.csv"):
        plan_project(["letters/"], name="other", table=Path("verdicts/train.csv"), **options)


def test_a_text_in_another_encoding_is_told_with_the_option(project: Path) -> None:
    Path("letters/a.txt").write_bytes("Käse\n".encode("cp1252"))
    with pytest.raises(DataError, match="--encoding cp1252"):
        plan_project(["letters/"])
    plan = plan_project(["letters/"], encoding="cp1252", cased=True)
    assert plan.settings.corpus.sources[0].model_dump()["encoding"] == "cp1252"
    assert not plan.settings.tokenizer.lowercase


@pytest.mark.parametrize("held", ["utf-8", "cp1252", None])
def test_a_table_in_utf_8_is_read_so_whatever_the_encoding_of_the_texts(project: Path, held: str | None) -> None:
    Path("letters/a.txt").write_bytes("Käse\n".encode("cp1252"))
    rows = "".join(f"Käse {number},{['süß', 'salzig'][number % 2]}\n" for number in range(40))
    Path("table.csv").write_text(f"review,verdict\n{rows}", encoding=held or "utf-8")
    dev = Path("held.csv") if held else None
    if dev:
        dev.write_text(f"review,verdict\n{rows}", encoding=held)
    plan = plan_project(
        ["letters/"], encoding="cp1252", table=Path("table.csv"), dev=dev, text_columns=["review"], label="verdict"
    )
    assert plan.settings.corpus.sources[0].model_dump()["encoding"] == "cp1252"
    each = 40 if held else 20  # of both tables
    assert plan.table and plan.table.labels == f"labels süß {each}, salzig {each}"
    said = "read as UTF-8, not as cp1252, which is that of the texts\n" in describe_project(plan, None)
    assert said == (held != "cp1252")
    write_project(plan)
    workspace = Workspace(project)
    prepare_tasks(load_settings(project), workspace.paths)
    assert "Käse" in (workspace.paths.tasks / "table/train.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize("encoding", ["foo", "rot13", "base64", ""])
@pytest.mark.parametrize("texts", ["letters/", "posts.jsonl"])
def test_an_unknown_encoding_is_a_mistake_in_the_option(project: Path, texts: str, encoding: str) -> None:
    Path("posts.jsonl").write_text('{"text": "Some words of a post, and more."}\n' * 2)
    with pytest.raises(ConfigError, match=r"(?s)no text encoding that Python knows.*--encoding"):
        plan_project([texts], encoding=encoding)


@pytest.mark.parametrize("encoding", ["utf-16-be", "utf-16-le", "utf-16", "gb18030", "utf-8"])
def test_a_large_text_of_any_encoding_may_be_cut_within_a_character(project: Path, encoding: str) -> None:
    for shift in range(4):
        Path("cut.txt").write_bytes(("a" * shift + "Ein Käse, lang und breit.\n\n" * 40_000).encode(encoding))
        found = plan_project(["cut.txt"], encoding=encoding).settings.corpus.sources[0]
        assert found.model_dump()["documents"] == "blank_line"


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("a few words\n\n" * 9, "blank_line"),
        ("word " * 40 + "\n" + "word " * 40, "line"),
        ("short\nlines\n" * 9, "file"),
    ],
)
def test_what_separates_documents_is_seen_in_the_text(project: Path, text: str, documents: str) -> None:
    Path("one.txt").write_text(text)
    assert plan_project(["one.txt"]).settings.corpus.sources[0].model_dump()["documents"] == documents


def test_files_of_many_short_blocks_are_a_document_each_and_the_output_says_why(project: Path) -> None:
    plan = plan_project(["letters/"])
    assert plan.settings.corpus.sources[0].model_dump()["documents"] == "file"
    said = "corpus.sources documents: file: files have about 800 blocks of 31 characters between blank lines"
    assert said in describe_project(plan, None) and f"# {said}" in plan.files[Path("params/letters.yaml")]
    for number in range(3):  # long blocks are documents: articles, not paragraphs
        Path(f"letters/{number}.txt").write_text("\n\n".join(["A word or two. " * 100] * 150))
    longer = plan_project(["letters/?.txt"], name="longer")
    assert longer.settings.corpus.sources[0].model_dump()["documents"] == "blank_line"
    assert "about 150 blocks of 1,500 characters between blank lines in a file" in describe_project(longer, None)
    one = plan_project(["letters/a.txt"], name="one")
    assert one.settings.corpus.sources[0].model_dump()["documents"] == "blank_line"
    assert "if they are the paragraphs of one text, set file" in describe_project(one, None)


@pytest.mark.parametrize("text", ["word " * 80_000, "Some words,\n\nand a few others.\n"], ids=["one line", "short"])
def test_a_text_that_cannot_be_two_documents_is_refused(project: Path, text: str) -> None:
    """The stage corpus would fail: one is to train on, and one held out."""
    Path("one.txt").write_text(text)
    with pytest.raises(DataError, match="a single document"):
        plan_project(["one.txt"])
    Path("one.txt").write_text(text + "\n" + "Another text of more words. " * 10)
    plan_project(["one.txt"])


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".parquet", ".txt.gz"])
@pytest.mark.parametrize("text", ["Some words, and more. " * 4, "word " * 80_000], ids=["short", "long"])
def test_a_single_document_of_any_format_is_refused(project: Path, suffix: str, text: str) -> None:
    path = Path(f"one{suffix}")

    def write(texts: list[str]) -> None:
        if suffix == ".parquet":
            pq.write_table(pa.table({"text": texts}), path)
            return
        lines = (json.dumps({"text": text}) if ".jsonl" in suffix else text for text in texts)
        content = "\n".join(lines).encode()
        path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)

    write([text, "", " "])
    with pytest.raises(DataError, match="a single document"):
        plan_project([path.name])
    write([text, "Another text of more words. " * 10])
    plan_project([path.name])
    if ".txt" not in suffix:
        write(["\n".join(["A paragraph of some words. " * 20] * 30)])  # the last paragraphs can be held out
        plan_project([path.name])


@pytest.mark.parametrize(("steps", "times"), [(2, r"0\.2"), (25, "2"), (4000, r"3\d\d")])
def test_it_is_said_how_often_the_text_is_read(project: Path, steps: int, times: str) -> None:
    said = describe_project(plan_project(["letters/"], steps=steps), None)
    assert re.search(rf"run +{steps:,} steps of pre-training, which read the text about {times} times\n", said)


def test_nothing_is_expected_of_a_text_far_below_the_measured_ones(project: Path) -> None:
    assert "\nexpect " not in describe_project(plan_project(["letters/"]), None)
    with open("letters/a.txt", "a") as file:
        file.write(PARAGRAPHS * 2)
    assert "\nexpect " in describe_project(plan_project(["letters/"]), None)


def test_files_of_many_short_lines_are_a_document_each_and_the_output_says_why(project: Path) -> None:
    """Books with a paragraph a line, as the bundled ones: with a document a line most of a batch is padding."""
    for number in range(3):
        Path(f"book{number}.txt").write_text(("It was a fine day. " * 20 + "\n") * 150)
        Path(f"essays{number}.txt").write_text(("It was a fine day. " * 100 + "\n") * 150)
    books = plan_project(["book?.txt"], name="novels")
    assert books.texts.documents == "file"
    said = "files have about 150 lines of 380 characters without blank lines, which look like paragraphs"
    assert said in describe_project(books, None)
    assert plan_project(["essays?.txt"], name="essays").texts.documents == "line"
    one = plan_project(["book0.txt"], name="one")
    assert one.texts.documents == "line"
    assert "if they are the paragraphs of one text, set file" in describe_project(one, None)


@pytest.mark.parametrize(
    "name", ["no", "on", "Off", "yes", "null", "true", "1e3", "0x10", "1_000", "2001-12-14", "017"]
)
def test_names_that_yaml_takes_for_other_values_stay_names(project: Path, name: str) -> None:
    Path(name).mkdir()
    (Path(name) / "a.txt").write_text(PARAGRAPHS)
    shutil.copy("verdicts.csv", Path(name) / "train.csv")
    write_project(plan_project([name], table=Path(name) / "train.csv", text_columns=["review"], label="verdict"))
    settings = load_settings(project)
    assert settings.profile == name and settings.corpus.sources[0].name == name and settings.cells.tasks == [name]
    assert f"profile {name}," in check_run(project)


def test_columns_that_yaml_takes_for_other_values_stay_columns(project: Path) -> None:
    rows = "".join(f"text {number},{'ab'[number % 2]}\n" for number in range(20))
    Path("t.csv").write_text("on,y\n" + rows)
    write_project(plan_project(["letters/"], table=Path("t.csv"), text_columns=["on"], label="y"))
    assert read_custom_task(Path("own/t.yaml")).text == "on"
    check_run(project)


@pytest.mark.parametrize(
    ("table", "task"),
    [("reviews/train.csv", "reviews"), ("reviews/data/train-01.csv", "reviews"), ("train.csv", "train"),
     ("reviews/Dev.csv", "reviews"), ("reviews/trained.csv", "trained"), ("data/mood.csv", "mood")],
)  # fmt: skip
def test_a_table_called_train_gives_its_task_the_name_of_its_folder(project: Path, table: str, task: str) -> None:
    Path(table).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy("verdicts.csv", table)
    plan = plan_project(["letters/"], table=Path(table), text_columns=["review"], label="verdict")
    assert plan.settings.cells.tasks == [task] and Path(f"own/{task}.yaml") in plan.files


WORDS = {
    "Japanese": ("バスに乗って、ガラスの橋を渡り、パンを買いました。", "バ"),
    "Hindi": ("हिन्दी में किताबें पढ़ना अच्छा है और यह नदी सुंदर है", "हिन्दी"),
    "Thai": ("ไม่ มี น้ำ ใน แม่น้ำ ที่ นี่ เพราะ ฝน ไม่ ตก", "ไม่"),
    "Korean": ("우리는 한국어를 배우고 있습니다", "한국어를"),
    "Russian": ("мой чай стоит на той же самой полке, ёлка", "мой"),
    "Vietnamese": ("tôi không hiểu tiếng Việt, má mà mả", "hiểu"),
    "German": ("schöne Bäume stehen über dem Fluß, schon grün", "schöne"),
}


@pytest.mark.parametrize("language", WORDS)
def test_the_vocabulary_keeps_the_marks_of_the_texts_script(project: Path, language: str) -> None:
    sentence, word = WORDS[language]
    Path("words.txt").write_text(
        "\n\n".join(f"{sentence} {n} {n + 7} {n + 14} {n + 21} {n + 28} {n + 35}" for n in range(1000, 1300))
    )
    plan = plan_project(["words.txt"])
    assert plan.settings.tokenizer.strip_accents is False
    assert "tokenizer.strip_accents: false: the text is" in describe_project(plan, None)
    assert "# tokenizer.strip_accents: false" in plan.files[Path("params/words.yaml")]
    write_project(plan)
    settings, paths = load_settings(project), Workspace(project).paths
    build_corpus(settings, paths)
    build_tokenizer(settings, paths)
    tokenizer = Tokenizer.from_file(str(paths.tokenizer / "tokenizer.json"))
    tokens = tokenizer.encode(word, add_special_tokens=False).tokens
    assert "".join(token.removeprefix("##") for token in tokens) == word


def test_english_with_a_loan_word_strips_accents_as_the_paper_does(project: Path) -> None:
    Path("plain.txt").write_text("We had coffee in the old café by the river. " + PARAGRAPHS)
    plan = plan_project(["plain.txt"])
    assert plan.settings.tokenizer.lowercase and plan.settings.tokenizer.strip_accents is None
    assert "lowercase: true, which strips accents: the text is Latin 100%" in describe_project(plan, None)
    assert "accents" not in describe_project(plan_project(["plain.txt"], cased=True), None)


def test_one_profile_after_another_can_be_made_with_a_table_and_without(project: Path) -> None:
    write_project(plan_project(["letters/"], name="first", table=Path("verdicts.csv"), text_columns=["review"],
                               label="verdict"))  # fmt: skip
    comment = "# paper: [CoLA, SST-2"
    assert comment in Path("params.yaml").read_text()
    for name in ("second", "third"):
        write_project(plan_project(["letters/"], name=name))
        assert load_settings(project).cells.tasks == [] and comment in Path("params.yaml").read_text()
    Path("params.yaml").write_text(Path("params.yaml").read_text().replace("tasks: []", "tasks:\n  - CoLA\n  - RTE"))
    write_project(plan_project(["letters/"], name="fourth"))
    assert load_settings(project).profile == "fourth" and load_settings(project).cells.tasks == []


def test_the_field_of_json_lines_is_asked_for_and_written(project: Path) -> None:
    post = json.dumps({"title": "a", "body": "Some words of a post. " * 20})
    Path("posts.jsonl").write_text(f"{post}\n{post}\n")
    with pytest.raises(DataError, match=r"(?s)the fields are: title, body.*posts.jsonl:1.*--field NAME"):
        plan_project(["posts.jsonl"])
    assert plan_project(["posts.jsonl"], field="body").settings.corpus.sources[0].model_dump()["text_field"] == "body"


def test_the_method_is_the_one_that_is_ahead_for_so_much_text(project: Path) -> None:
    reason = "pretrain.objective: bert, masked language modelling"
    little, trial = plan_project(["letters/"]), plan_project(["letters/"], steps=50)
    assert little.settings.pretrain.objective == trial.settings.pretrain.objective == "bert"
    assert reason in describe_project(little, None) and f"# {reason}" in little.files[Path("params/letters.yaml")]
    rate = "pretrain.learning_rate: 0.0015: "
    assert little.settings.pretrain.learning_rate == 1.5e-3 and rate in describe_project(little, None)
    with open("letters/a.txt", "a") as file:
        file.write(PARAGRAPHS * 140)  # 3.5 MB, with which a run has 15 million tokens
    much, trial = plan_project(["letters/"]), plan_project(["letters/"], steps=50)
    assert much.settings.pretrain.objective == trial.settings.pretrain.objective == "mlm_then_rtd"
    assert much.settings.pretrain.generator == "unigram" and much.settings.pretrain.learning_rate == 1.5e-3
    assert rate in describe_project(much, None)
    reason = "pretrain.objective: mlm_then_rtd, masked language modelling, then replaced token detection"
    assert reason in describe_project(much, None) and f"# {reason}" in much.files[Path("params/letters.yaml")]
    assert plan_project(["letters/a.txt"], name="b", like="books").settings.pretrain.objective == "bert", "as in books"
    assert plan_project(["letters/a.txt"], name="s", like="small").settings.pretrain.objective == "electra"


@pytest.mark.parametrize("name", ["meta.jsonl", "vectors.parquet"])
def test_other_fields_of_records_are_no_text(project: Path, name: str) -> None:
    """Method, steps and vocabulary are those of the text alone, so that the stage tokenizer can fill the vocabulary."""
    generator = random.Random(1)
    words = ["".join(letters) for letters in itertools.product("bdfgklmnprst", "aeiou", "bdfgklmnp", "aeiou")]
    texts = [" ".join(generator.choices(words, k=60)) for _ in range(900)]
    Path("plain.txt").write_text("\n\n".join(texts))
    if name == "meta.jsonl":
        rows = [{"html": "<p>x</p>" * 2000, "text": text} for text in texts]
        Path(name).write_text("\n".join(map(json.dumps, rows)))
    else:
        vectors = [[generator.random() for _ in range(768)] for _ in texts]
        pq.write_table(pa.table({"text": texts, "vector": vectors}), name)
    plain, plan = plan_project(["plain.txt"]), plan_project([name])
    assert Path(name).stat().st_size > 5e6 and plan.texts.num_bytes == pytest.approx(plain.texts.num_bytes, rel=0.02)
    assert plan.texts.size == "1 file, about 0.3 MB" and plan.settings.pretrain.objective == "bert"
    assert plan.settings.pretrain.num_steps == plain.settings.pretrain.num_steps == 4000
    write_project(plan)
    settings, paths = load_settings(project), Workspace(project).paths
    build_corpus(settings, paths)
    build_tokenizer(settings, paths)


@pytest.mark.parametrize(("rows", "epochs"), [(20, 16), (2_000, 8), (6_000, None)])
def test_a_small_table_is_fine_tuned_for_more_epochs(project: Path, rows: int, epochs: int | None) -> None:
    for name, number in (("many", rows), ("dev", 10)):
        lines = (f"text {n},{['praise', 'blame'][n % 2]}\n" for n in range(number))
        Path(f"{name}.csv").write_text("review,verdict\n" + "".join(lines))
    plan = plan_project(
        ["letters/"], table=Path("many.csv"), dev=Path("dev.csv"), text_columns=["review"], label="verdict"
    )
    finetune = plan.settings.finetune
    assert finetune.epochs_of("many") == (epochs or finetune.epochs)
    reason = f"finetune.task_epochs: {{many: {epochs}}}: few rows ({rows:,}) need more passes"
    assert (reason in describe_project(plan, None)) == (epochs is not None)


def test_the_profile_is_complete_in_block_style_and_steps_follow_the_text(project: Path) -> None:
    text = plan_project(["letters/"]).files[Path("params/letters.yaml")]
    assert "  paths:\n    - letters/**/*.txt\n" in text or "    paths:\n    - letters/**/*.txt\n" in text
    assert "{" not in text.replace("task_max_train_examples: {}", "").replace("task_learning_rate: {}", "")
    small, asked = plan_project(["letters/"]).settings, plan_project(["letters/"], steps=50).settings
    assert small.pretrain.num_steps == 4000 and asked.pretrain.num_steps == 50 and asked.pretrain.eval_every == 5
    published = plan_project(["letters/"], like="small").settings.pretrain
    assert published.num_steps == 1_000_000, "a published recipe keeps its steps"


@pytest.mark.parametrize("like", sorted(path.stem for path in (ROOT / "params").glob("*.yaml")))
def test_every_profile_can_be_taken_as_a_template(project: Path, like: str) -> None:
    plan = plan_project(
        ["letters/"], like=like, table=Path("verdicts.csv"), text_columns=["review"], label="verdict", steps=100
    )
    write_project(plan)
    assert load_settings(project).cells.tasks == ["verdicts"]


def test_a_method_that_is_chosen_for_all_profiles_is_kept(project: Path) -> None:
    params = Path("params.yaml").read_text()
    assert "objective:\n" in params
    Path("params.yaml").write_text(params.replace("objective:\n", "objective: electra\n"))
    plan = plan_project(["letters/"])
    write_project(plan)
    settings = load_settings(project)
    assert settings.pretrain.objective == "electra" and not any("objective" in line for line in plan.reasons)
    tiny = yaml.safe_load(Path("params/tiny.yaml").read_text())
    assert settings.pretrain.learning_rate == tiny["pretrain"]["learning_rate"], "that of the method's own profile"


def test_keys_that_the_profile_leaves_to_their_defaults_may_be_missing(project: Path) -> None:
    tiny = yaml.safe_load(Path("params/tiny.yaml").read_text())
    for section, key in (("finetune", "task_learning_rate"), ("finetune", "task_epochs"), ("pretrain", "objective")):
        tiny[section].pop(key, None)
    Path("params/tiny.yaml").write_text(yaml.safe_dump(tiny))
    write_project(plan_project(["letters/"]))
    assert load_settings(project).pretrain.objective == "bert"


def test_files_without_settings_are_named(project: Path) -> None:
    for name, section in (("params/tiny.yaml", "pretrain"), ("params.yaml", "cells")):
        before = Path(name).read_text()
        Path(name).write_text("")
        with pytest.raises(ConfigError, match=f"no section {section}[\\s\\S]*{name}"):
            plan_project(["letters/"])
        Path(name).write_text(before)


def test_embeddings_of_tasks_go_with_the_tasks(project: Path) -> None:
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["cells"]["embeddings"] = ["SQuAD1.1", "sentences"]
    Path("params.yaml").write_text(yaml.safe_dump(params))
    write_project(plan_project(["letters/"]))
    assert load_settings(project).cells.embeddings == ["sentences"]


def test_links_are_followed_and_files_of_other_endings_are_named(project: Path) -> None:
    Path("c").mkdir()
    shutil.copytree("letters", "elsewhere")
    Path("c/big").symlink_to("../elsewhere")
    for name in ("A.TXT", "b.md", "README", ".hidden.txt"):
        Path("c", name).write_text("text")
    shutil.copy(next(Path("letters").rglob("*.txt")), "c/own.txt")
    plan = plan_project(["c"])
    assert plan.texts.patterns == ["c/**/*.txt"] and len(plan.texts.files) == 3
    assert "left out, not .txt, .train, .jsonl, .parquet: .TXT 1, .md 1, no ending 1\n" in describe_project(plan, None)


def test_texts_in_a_folder_that_stages_write_into_are_refused(project: Path) -> None:
    Path("data").mkdir(exist_ok=True)
    Path("data/own.txt").write_text("text\n" * 100)
    for folder in ("data/", ".", str(project)):
        with pytest.raises(ConfigError, match="the pipeline writes into this folder"):
            plan_project([folder])


def test_options_of_a_table_without_a_table_are_refused(project: Path) -> None:
    with pytest.raises(ConfigError, match="--text, --label"):
        plan_project(["letters/"], text_columns=["review"], label="verdict")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["1", "2", ""], "a label is missing[\\s\\S]*own.csv:4"),
        (["", "", ""], "no labels"),
    ],
)
def test_a_missing_label_is_named_with_its_row(project: Path, labels: list[str], said: str) -> None:
    rows = "".join(f"text {number},{labels[number % 3]}\n" for number in range(30))
    Path("own.csv").write_text(f"t,y\n{rows}")
    with pytest.raises(DataError, match=said):
        plan_project(["letters/"], table=Path("own.csv"), text_columns=["t"], label="y")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("{text},0.5", "every label is '0.5'"),
        ("{text},praise", "every label is 'praise'"),
        ("{text},3", "every label is '3'"),
        (",praise", r"column 't' is empty[\s\S]*own.csv:2"),
        ("  ,praise", r"column 't' is empty[\s\S]*own.csv:2"),
    ],
)
def test_a_table_that_the_stage_tasks_would_refuse_is_refused(project: Path, rows: str, said: str) -> None:
    Path("own.csv").write_text("t,y\n" + "".join(f"{rows}\n".format(text=f"text {number}") for number in range(30)))
    with pytest.raises(DataError, match=said):
        plan_project(["letters/"], table=Path("own.csv"), text_columns=["t"], label="y")


def test_endings_of_texts_and_tables_may_be_in_upper_case(project: Path) -> None:
    shutil.copy("letters/a.txt", "BOOK.TXT")
    shutil.copy("verdicts.csv", "UP.CSV")
    shutil.copy("verdicts.csv", "HELD.CSV")
    plan = plan_project(["BOOK.TXT"], table=Path("UP.CSV"), dev=Path("HELD.CSV"), text_columns=["review"],
                        label="verdict")  # fmt: skip
    write_project(plan)
    check_run(project)
    prepare_tasks(load_settings(project), Workspace(project).paths)
    text = Path("UP.CSV").read_text()
    Path("UP.CSV").write_text(text.replace("verdict", "grade", 1))
    with pytest.raises(DataError, match="no column 'verdict'"):
        check_run(project)


def test_an_empty_text_of_json_lines_is_refused_with_its_line(project: Path) -> None:
    lines = [json.dumps({"t": None if number == 4 else f"text {number}", "y": number % 2}) for number in range(30)]
    Path("own.jsonl").write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"column 't' is empty[\s\S]*own.jsonl:5"):
        plan_project(["letters/"], table=Path("own.jsonl"), text_columns=["t"], label="y")


def test_a_text_column_whose_name_is_a_template_is_refused(project: Path) -> None:
    Path("own.csv").write_text("{text},y\n" + "".join(f"text {number},{number % 2}\n" for number in range(30)))
    with pytest.raises(ConfigError, match=r"column '\{text\}' cannot be used[\s\S]*another name"):
        plan_project(["letters/"], table=Path("own.csv"), text_columns=["{text}"], label="y")


def test_the_range_of_scores_holds_those_of_the_development_table_too(project: Path) -> None:
    for name, labels in (("stars", ["0.5", "2.5"]), ("held", ["0", "4.5"])):
        Path(f"{name}.csv").write_text("t,y\n" + "".join(f"text {n},{labels[n % 2]}\n" for n in range(30)))
    plan = plan_project(["letters/"], table=Path("stars.csv"), dev=Path("held.csv"), text_columns=["t"], label="y")
    assert plan.table and plan.table.description["range"] == [0.0, 4.5]
    write_project(plan)
    prepare_tasks(load_settings(project), Workspace(project).paths)


@pytest.mark.parametrize(
    ("rows", "said"), [("a,scorn", r"no row of verdicts.csv has the label 'scorn'[\s\S]*held.csv"), ("", "no rows")]
)
def test_a_development_table_that_cannot_be_scored_is_refused(project: Path, rows: str, said: str) -> None:
    Path("held.csv").write_text(f"review,verdict\n{rows}\n")
    with pytest.raises(DataError, match=said):
        plan_project(["letters/"], table=Path("verdicts.csv"), dev=Path("held.csv"), text_columns=["review"],
                     label="verdict")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "label", "step"),
    [("own.csv", "genre", "correct --text or --label"), ("old.csv", "y", "--encoding cp1252"),
     ("own.xlsx", "y", "convert it to .csv")],
)  # fmt: skip
def test_a_table_that_cannot_be_read_is_told_with_the_commands_options(
    project: Path, name: str, label: str, step: str
) -> None:
    """No YAML file of the task has been written yet."""
    Path(name).write_bytes("t,y\nschön,1\n".encode("cp1252" if name == "old.csv" else "utf-8"))
    with pytest.raises(DataError) as caught:
        plan_project(["letters/"], table=Path(name), text_columns=["t"], label=label)
    assert step in (caught.value.next_step or "") and "YAML" not in str(caught.value)


@pytest.mark.parametrize(("separator", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_a_csv_file_with_another_separator_is_told_so(project: Path, separator: str, name: str) -> None:
    """Spreadsheets write semicolons in many countries."""
    Path("own.csv").write_text(Path("verdicts.csv").read_text().replace(",", separator))
    columns = {"text_columns": ["review"], "label": "verdict"}
    for given in (columns, {}):
        with pytest.raises((DataError, ConfigError)) as caught:
            plan_project(["letters/"], table=Path("own.csv"), **given)
        assert f"{name} separate the columns" in (caught.value.next_step or "")
    with pytest.raises(DataError) as caught:
        plan_project(["letters/"], table=Path("verdicts.csv"), text_columns=["review"], label=f"verdict{separator}")
    assert caught.value.next_step == "correct --text or --label", "this file has commas"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("same", "a"), ("same", "b")] * 20, "40 rows with no label that has three different texts"),
        ([(f"text {number}", str(number // 2)) for number in range(80)], "80 rows with no label that has three"),
        ([("one", "0.5"), ("two", "1.5")], "2 rows with fewer than three different texts"),
    ],
)
def test_a_table_without_rows_to_hold_out_is_told_why(project: Path, rows: list[tuple[str, str]], said: str) -> None:
    Path("own.csv").write_text("t,y\n" + "".join(f"{text},{label}\n" for text, label in rows))
    with pytest.raises(DataError, match=f"{said}.*: none can be held out"):
        plan_project(["letters/"], table=Path("own.csv"), text_columns=["t"], label="y")


def test_a_list_is_no_label(project: Path) -> None:
    lines = [json.dumps({"t": f"text {number}", "y": ["a", "b"] if number == 7 else "a"}) for number in range(30)]
    Path("own.jsonl").write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"column 'y' holds a list[\s\S]*own.jsonl:8"):
        plan_project(["letters/"], table=Path("own.jsonl"), text_columns=["t"], label="y")


@pytest.mark.parametrize(("rows", "points"), [(25, 10), (49, 7), (50, None)])
def test_a_development_set_that_is_too_small_to_score_by_is_warned_of(
    project: Path, rows: int, points: int | None
) -> None:
    Path("held.csv").write_text(
        "review,verdict\n" + "".join(f"t {n},{['praise', 'blame'][n % 2]}\n" for n in range(rows))
    )
    plan = plan_project(["letters/"], table=Path("verdicts.csv"), dev=Path("held.csv"), text_columns=["review"],
                        label="verdict")  # fmt: skip
    warned = f"warning  {rows} development rows: by chance alone a score is off by about {points} points"
    assert (warned in describe_project(plan, None)) == bool(points)


def test_nan_is_a_label_among_others_and_makes_no_scores(project: Path) -> None:
    rows = "".join(f"text {number},{['1', '2', 'nan'][number % 3]}\n" for number in range(30))
    Path("own.csv").write_text(f"t,y\n{rows}")
    plan = plan_project(["letters/"], table=Path("own.csv"), text_columns=["t"], label="y")
    assert plan.table and plan.table.description["kind"] == "classification"


def test_a_chinese_texts_vocabulary_is_one_of_its_characters(project: Path) -> None:
    """WordPiece joins none of them, so size says nothing of the entries that a text can fill."""
    generator = random.Random(1)
    characters = [chr(0x4E00 + number) for number in range(500)]
    lines = [json.dumps({"text": "".join(generator.choices(characters, k=100))}) for _ in range(1000)]
    Path("han.jsonl").write_text("\n".join(lines))
    assert plan_project(["han.jsonl"]).texts.vocabulary < 1_000


def test_the_vocabulary_of_a_text_in_english_and_chinese_is_one_that_the_text_can_fill(project: Path) -> None:
    """Clauses without spaces are no entries, and the rarest of the characters get none."""
    generator = random.Random(1)
    characters = [chr(0x4E00 + number) for number in range(3000)]
    weights = [1 / rank for rank in range(1, 3001)]
    lines = ["".join(generator.choices(characters, weights, k=20)) + "\u3002" for _ in range(1500)]
    Path("han.txt").write_text("\n\n".join(lines * 2))
    words = ["".join(pair) for pair in itertools.product("bdfklmnprst", "aeiou", "bdfgklmnp")]
    Path("latin.txt").write_text("\n\n".join(" ".join(generator.choices(words, k=40)) for _ in range(600)))
    plan = plan_project(["han.txt", "latin.txt"])
    assert plan.texts.scripts[0].name == "Latin" and plan.texts.scripts[1].name == "Han"
    write_project(plan)
    settings, paths = load_settings(project), Workspace(project).paths
    build_corpus(settings, paths)
    build_tokenizer(settings, paths)
    assert len((paths.tokenizer / "vocab.txt").read_text().splitlines()) == settings.tokenizer.vocab_size > 2000


def test_the_command_ends_with_2_for_a_users_mistake(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "electra", "init", "letters/", "--like", "tinny", "--no-time"],
        cwd=project,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "choose one of: base, books, large, large-1.75M, modern-base, modern-small, small, tiny" in done.stderr


def test_the_measured_rate_is_that_of_real_steps(workspace: Workspace) -> None:
    settings = workspace.settings()
    speed = measure_speed(settings, 600, seconds=0.2)
    assert 1e-4 < speed.seconds_per_step < 5 and 0 <= speed.used_by_others <= num_cores()
    assert speed.tokens_per_second == pytest.approx(8 * 32 / speed.seconds_per_step)
    longer = settings.model_copy(update={"pretrain": settings.pretrain.model_copy(update={"num_steps": 6024})})
    rows = {"own": 10}
    more = run_minutes(longer, speed, 600, 1000, rows) - run_minutes(settings, speed, 600, 1000, rows)
    assert more == pytest.approx(6000 * speed.seconds_per_step / 60)


def test_the_duration_counts_the_epochs_that_a_task_is_fine_tuned_for(project: Path) -> None:
    plan = plan_project(["letters/"], table=Path("verdicts.csv"), text_columns=["review"], label="verdict")
    settings, speed = plan.settings, cost.Speed(0.1, 1e4, 1e9)
    assert settings.finetune.epochs_of("verdicts") == 16 and settings.finetune.epochs == 3

    def minutes(task: str, rows: int) -> float:
        return run_minutes(settings, speed, 600, 1000, {task: rows}) - run_minutes(settings, speed, 600, 1000, {})

    assert minutes("verdicts", 3) == pytest.approx(minutes("another", 16)) != 0


@pytest.mark.parametrize("change", ["curriculum", "phases"])
def test_shorter_examples_and_the_other_phase_count_in_the_measured_rate(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Steps of full length and of the last phase are measured, whatever the run's are; here each takes one tick."""
    ticks = itertools.count()
    monkeypatch.setattr(cost.time, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(cost, "watch_cores", lambda num_threads: None)
    of_run, of_steps = ({"length_curriculum": LengthCurriculum(length=8, share=0.5)}, {"length_curriculum": None})
    if change == "phases":
        of_run, of_steps = ({"objective": "two_stage", "two_stage_switch": share} for share in (0.9, 0.0))
    settings, as_measured = (
        settings.model_copy(update={"pretrain": settings.pretrain.model_copy(update=changes)})
        for settings in [workspace.settings()]
        for changes in (of_run, of_steps)
    )
    speed = measure_speed(settings, 600, seconds=8)
    share = cost.flops_per_token(settings, 600) / cost.flops_per_token(as_measured, 600)
    assert abs(share - 1) > 0.05 and speed.seconds_per_step == pytest.approx(share)


def test_on_a_gpu_the_micro_batch_that_fits_is_measured(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pre-training does it; the whole batch of one device may need more memory than there is."""
    machine = resolve_machine(workspace.settings().cluster, 8)
    monkeypatch.setattr(cost, "resolve_machine", lambda *_: replace(machine, device="cuda"))
    monkeypatch.setattr(cost, "free_memory", lambda machine: 10**9)
    monkeypatch.setattr(
        cost, "fitted", lambda settings, machine, vocab_size, free: replace(machine, micro_batch_size=2)
    )
    sizes: list[int] = []

    def measured(recipe: object, size: int, length: int) -> None:
        sizes.append(size)
        raise RuntimeError("far enough")

    monkeypatch.setattr(cost, "placeholder_batch", measured)
    monkeypatch.setattr(torch.nn.Module, "to", lambda module, device: module)
    with pytest.raises(RuntimeError, match="far enough"):
        measure_speed(workspace.settings(), 600, seconds=0.1)
    assert sizes == [2]


def test_the_measurement_ends_where_the_system_does_not_report_its_cores(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = SimpleNamespace(shares=[], used_by_others=0.0)
    monkeypatch.setattr(cost, "watch_cores", lambda num_threads: silent)
    monkeypatch.setattr(cost, "MONITOR_SECONDS", 0.1)
    assert measure_speed(workspace.settings(), 600, seconds=0.2).seconds_per_step > 0


def test_the_vocabulary_is_one_that_the_text_can_fill(project: Path) -> None:
    """The stage refuses a larger one: the run would end there."""
    words = ["".join(pair) for pair in itertools.product("bdfklmnprst", "aeiou", "bdfgklmnp")]  # 495, each a few times
    Path("verses.txt").write_text("\n\n".join(" ".join(words[k : k + 40]) for k in range(0, 480, 4)))
    small = plan_project(["verses.txt"])
    asked = small.settings.tokenizer.vocab_size
    assert 400 < asked < 495 + 26
    once = " ".join("".join(letters) for letters in itertools.product("bdfgklmnp", "aeiou", "bdfgklmnp", "aei"))
    Path("rare.txt").write_text(f"{Path('verses.txt').read_text()}\n\n{once}")
    assert plan_project(["rare.txt"]).settings.tokenizer.vocab_size < asked + 26, "a word that stands once is no entry"
    write_project(small)
    settings = load_settings(project)
    paths = Workspace(project).paths
    build_corpus(settings, paths)
    build_tokenizer(settings, paths)
    assert len((paths.tokenizer / "vocab.txt").read_text().splitlines()) == asked
    Path("plenty.txt").write_text("\n\n".join(" ".join(f"w{n}" for n in range(k, k + 50)) for k in range(12_000)))
    assert plan_project(["plenty.txt"]).settings.tokenizer.vocab_size == 8192
