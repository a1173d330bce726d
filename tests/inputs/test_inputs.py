"""Hashes of external input files, and that DVC notices when the files change."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from electra import inputs
from electra.common.artifacts import sha256
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config.loading import load_settings
from electra.inputs import BEGIN, END, Outside, RememberedHashes, list_inputs, outside, watched, write_watched
from tests.workspace import Workspace

DVC_YAML = f"""stages:
  inputs:
    cmd: electra inputs
    deps:
      - params.yaml
      {BEGIN}
      {END}
    outs:
      - data/inputs
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with two books, an own task and a vocabulary."""
    monkeypatch.chdir(tmp_path)
    Path("dvc.yaml").write_text(DVC_YAML)
    for name in ("books/b.txt", "books/a.txt", "books/deep/notes.md"):
        Path(name).parent.mkdir(exist_ok=True, parents=True)
        Path(name).write_text(f"the text of {name}")
    Path("mine").mkdir()
    task = {"kind": "classification", "text": "t", "label": "l", "train": "../tables/train.csv", "dev": "dev.csv"}
    Path("mine/Mood.yaml").write_text(yaml.safe_dump(task))
    Path("tables").mkdir()
    Path("tables/train.csv").write_text("t,l\na,1\n")
    Path("mine/dev.csv").write_text("t,l\nb,2\n")
    Path("vocab.txt").write_text("[PAD]\n")
    source = {"kind": "files", "name": "books", "paths": ["books/*.txt"]}
    Workspace(tmp_path).write(
        {"cells": {"tasks": ["Mood"]}},
        corpus={"sources": [source]},
        tasks={"own": ["mine/Mood.yaml"]},
        tokenizer={"vocab_file": "vocab.txt"},
    )
    return tmp_path


def run() -> dict[str, list[dict[str, Any]]]:
    """Run the stage and return its output."""
    list_inputs(load_settings(), Paths())
    return {
        path.stem: json.loads(path.read_text()) for path in Paths().inputs.glob("*.json") if path.stem != "manifest"
    }


def test_every_file_is_listed_with_its_hash_for_the_stage_that_reads_it(folder: Path) -> None:
    listed = run()
    assert {stage: [file["path"] for file in files] for stage, files in listed.items()} == {
        "corpus": ["books/a.txt", "books/b.txt"],
        "tasks": ["mine/../tables/train.csv", "mine/Mood.yaml", "mine/dev.csv"],
        "tokenizer": ["vocab.txt"],
        "pretrain": [],
        "probe": [],
    }
    book = Path("books/a.txt")
    assert listed["corpus"][0] == {"path": "books/a.txt", "bytes": book.stat().st_size, "sha256": sha256(book)}


def test_only_the_stage_whose_file_changed_gets_other_bytes(folder: Path) -> None:
    before = run()
    Path("tables/train.csv").write_text("t,l\na,2\n")
    after = run()
    assert {stage for stage in before if before[stage] != after[stage]} == {"tasks"}


def test_tables_with_wildcards_are_listed_one_by_one(folder: Path) -> None:
    text = Path("mine/Mood.yaml").read_text().replace("../tables/train.csv", "parts/*.csv")
    Path("mine/Mood.yaml").write_text(text)
    Path("mine/parts").mkdir()
    for name in "ab":
        Path(f"mine/parts/{name}.csv").write_text("t,l\na,1\n")
    listed = [file["path"] for file in run()["tasks"]]
    assert listed == ["mine/Mood.yaml", "mine/dev.csv", "mine/parts/a.csv", "mine/parts/b.csv"]


@pytest.mark.parametrize("place", ["elsewhere/official", "official", "../beside"])
def test_of_official_folders_the_files_of_the_chosen_tasks_are_listed_wherever_they_are(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    """A folder may hold much more: all of GLUE, results of others."""
    official = str(tmp_path_factory.mktemp("elsewhere")) if place == "elsewhere/official" else place
    for name in ("wnut/readme.txt", "eng.train", "eng.testa", "conll2003/testb.txt", "esp.train", "big.bin",
                 "CoLA/train.tsv", "CoLA/dev.tsv", "QQP/train.tsv", "train/NewsQA.jsonl.gz", "dev/NewsQA.jsonl",
                 "diagnostic/diagnostic.tsv", "MNLI/train.tsv"):  # fmt: skip
        (folder / official / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / official / name).write_text(name)
    Workspace(folder).write(
        {"cells": {"tasks": ["CoLA", "CoNLL-2003", "NewsQA", "MNLI"]}},
        corpus={"sources": [{"kind": "files", "name": "books", "paths": ["books/*.txt"]}]},
        tasks={"source": {"kind": "files"} | dict.fromkeys(["glue", "conll", "mrqa", "swag"], official)},
        tokenizer={"vocab_file": "vocab.txt"},
    )
    read = ["CoLA/dev.tsv", "CoLA/train.tsv", "MNLI/../diagnostic/diagnostic.tsv", "MNLI/train.tsv",
            "conll2003/testb.txt", "dev/NewsQA.jsonl", "eng.testa", "eng.train", "train/NewsQA.jsonl.gz"]  # fmt: skip
    assert [file["path"] for file in run()["tasks"]] == [f"{official}/{name}" for name in read]
    deps = yaml.safe_load(Path("dvc.yaml").read_text())["stages"]["inputs"]["deps"][1:]
    assert [name for name in deps if name not in ("books", "vocab.txt")] == [
        os.path.normpath(f"{official}/{name}") for name in sorted(read, key=os.path.normpath)
    ]


@pytest.mark.parametrize("is_absolute", [True, False])
def test_all_files_of_a_start_and_of_a_dataset_folder_are_listed(folder: Path, is_absolute: bool) -> None:
    place = str(folder / "mine") if is_absolute else "mine"
    Path("squad/data").mkdir(parents=True)
    Path("squad/data/train.parquet").write_text("x")
    Workspace(folder).write(
        {"cells": {"tasks": ["SQuAD2.0"]}},
        corpus={"sources": [{"kind": "hub", "name": "books", "dataset": str(folder / "books")}]},
        tasks={"source": {"kind": "hub", "glue": "books", "squad_v2": "squad"}},
        pretrain={"initialize_from": place},
    )
    listed = {stage: [file["path"] for file in files] for stage, files in run().items()}
    assert listed["pretrain"] == [f"{place}/Mood.yaml", f"{place}/dev.csv"]
    assert listed["tasks"] == ["squad/data/train.parquet"], "no GLUE task is chosen"
    assert listed["corpus"] == [f"{folder}/books/{name}" for name in ("a.txt", "b.txt", "deep/notes.md")]


def test_a_missing_table_is_named(folder: Path) -> None:
    Path("mine/dev.csv").unlink()
    with pytest.raises(DataError, match=r"(?s)no such file.*mine/dev\.csv"):
        run()


def test_dvc_status_notices_changed_added_and_removed_files(folder: Path) -> None:
    from dvc.repo import Repo

    with Repo.init(str(folder), no_scm=True) as repo:
        run()
        assert yaml.safe_load(Path("dvc.yaml").read_text())["stages"]["inputs"]["deps"] == [
            "params.yaml", "books", "mine/Mood.yaml", "mine/dev.csv", "tables/train.csv", "vocab.txt",
        ]  # fmt: skip

        def status() -> dict[str, Any]:
            repo._reset()
            return repo.status()

        repo._reset()
        repo.commit("inputs", force=True)
        assert status() == {}
        os.utime("books/a.txt")  # touched: the content is the same
        assert status() == {}
        Path("books/a.txt").write_text("another text")
        assert status() == {"inputs": [{"changed deps": {"books": "modified"}}]}
        Path("books/a.txt").write_text("the text of books/a.txt")
        assert status() == {}
        Path("books/c.txt").write_text("new")
        assert status() == {"inputs": [{"changed deps": {"books": "modified"}}]}
        Path("books/c.txt").unlink()
        Path("books/b.txt").unlink()
        Path("tables/train.csv").write_text("t,l\n")
        assert status() == {"inputs": [{"changed deps": {"books": "modified", "tables/train.csv": "modified"}}]}


def test_files_are_not_read_again_while_size_time_and_inode_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, young = tmp_path / "old", tmp_path / "young"
    for path in (old, young):
        path.write_text(path.name)
    os.utime(old, (1e9, 1e9))
    read: list[Path] = []
    monkeypatch.setattr(inputs, "sha256", lambda path: read.append(path) or sha256(path))  # type: ignore[func-returns-value]
    first = RememberedHashes(tmp_path / "memory").of([old, young])
    assert sorted(read) == [old, young]
    assert RememberedHashes(tmp_path / "memory").of([old, young]) == first
    assert read[2:] == [young]  # it may have been changed again within a tick of the clock
    old.write_text("newer")
    os.utime(old, (1e9, 1e9))
    assert RememberedHashes(tmp_path / "memory").of([old])[0] == (5, sha256(old))


def test_a_file_that_was_replaced_by_one_of_its_size_and_time_is_read_again(tmp_path: Path) -> None:
    """As `cp -p` and `mv` of an edited copy do it, or a restored backup."""
    file, other = tmp_path / "a", tmp_path / "b"
    for path in (file, other):
        path.write_text(path.name)
        os.utime(path, (1e9, 1e9))
    hashes = RememberedHashes(tmp_path / "memory").of([file])
    os.replace(other, file)
    assert RememberedHashes(tmp_path / "memory").of([file]) == [(1, sha256(file))] != hashes


def test_a_damaged_memory_is_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("a")
    for text in ("{", "[]", json.dumps({str(file): [1]})):
        (tmp_path / "memory").write_text(text)
        assert RememberedHashes(tmp_path / "memory").of([file]) == [(1, sha256(file))]


def of(patterns: list[str], root: Path) -> tuple[list[str], list[str]]:
    return watched([Outside(pattern, "corpus.sources paths") for pattern in patterns], root)


def test_a_glob_watches_the_folder_it_looks_into(folder: Path) -> None:
    assert of(["books/*.txt", "books/deep/*.md", "books/a.txt", "vocab.txt"], folder) == (["books", "vocab.txt"], [])
    assert of([f"{folder}/books/**/*.txt"], folder) == ([f"{folder}/books"], [])


def test_a_local_path_that_is_written_as_a_url_is_watched(folder: Path) -> None:
    assert of([f"file://{folder}/books/*.txt"], folder) == ([f"{folder}/books"], [])


def test_a_glob_in_the_workspace_itself_watches_its_files_and_says_what_is_missed(folder: Path) -> None:
    paths, notes = of(["*.txt"], folder)
    assert paths == ["vocab.txt"]
    assert "added ones are not" in notes[0]


def test_a_glob_in_a_folder_that_stages_write_into_watches_its_files(folder: Path) -> None:
    """DVC refuses data/ as a dependency, since the stages' outputs are in it."""
    Path("data").mkdir()
    Path("data/own.txt").write_text("text")
    paths, notes = of(["data/*.txt"], folder)
    assert paths == ["data/own.txt"] and "added ones are not" in notes[0]


def test_a_linked_folder_inside_is_watched_too(folder: Path) -> None:
    shutil.move("books/deep", "elsewhere")
    Path("books/deep").symlink_to("../elsewhere")
    assert of(["books/**/*.md"], folder)[0] == ["books", "books/deep"]


def test_urls_with_secrets_never_get_into_dvc_yaml(folder: Path) -> None:
    paths, notes = of(["https://user:word@host/a.txt", "https://host/a.txt?token=word", "nowhere://x/*.txt"], folder)
    assert paths == []
    assert len(notes) == 3 and not any("word" in note for note in notes)


def test_urls_that_dvc_knows_are_watched(folder: Path) -> None:
    assert of(["https://host/a.txt", "s3://bucket/texts/*.jsonl"], folder)[0] == [
        "https://host/a.txt",
        "s3://bucket/texts",
    ]


def test_names_that_yaml_or_dvc_would_misread_are_escaped(tmp_path: Path) -> None:
    file = tmp_path / "dvc.yaml"
    file.write_text(DVC_YAML)
    assert write_watched(file, ['a "b": #c', "d/${e}"])
    assert yaml.safe_load(file.read_text())["stages"]["inputs"]["deps"][1:] == ['a "b": #c', "d/\\${e}"]
    assert not write_watched(file, ['a "b": #c', "d/${e}"])
    assert write_watched(file, []) and file.read_text() == DVC_YAML


def test_a_dvc_yaml_without_the_comments_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "dvc.yaml"
    file.write_text("stages: {}\n")
    assert not write_watched(file, ["a"]) and file.read_text() == "stages: {}\n"


def test_the_projects_own_dvc_yaml_watches_the_files_of_the_default_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).resolve().parents[2]
    monkeypatch.chdir(root)
    names, notes = watched((item for items in outside(load_settings(), Path()).values() for item in items), Path())
    assert "data/books" in names and notes == []
    copy = tmp_path / "dvc.yaml"
    shutil.copy(root / "dvc.yaml", copy)
    assert not write_watched(copy, names), "run: electra inputs --watch"
