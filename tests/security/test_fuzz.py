"""Any bytes of external files are read as rows or end in a documented error."""

import gzip
import io
import json
import lzma
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard
from hypothesis import strategies as st
from rich.console import Console
from tokenizers import Tokenizer, models

from electra.common.artifacts import (
    CorpusManifest,
    ShardsManifest,
    TasksManifest,
    read_manifest,
    write_json,
    write_manifest,
)
from electra.common.errors import ElectraError
from electra.common.paths import Paths
from electra.config import FilesCorpus
from electra.config.loading import load_settings
from electra.config.text import SPECIAL_TOKENS
from electra.predict.inputs import Rows
from electra.readers.custom import CustomSource
from electra.readers.custom_schema import read_custom_task
from electra.readers.official import OfficialSource, read_official
from electra.results.outside import outside_scores
from electra.tasks.catalogue import TASKS
from electra.text.corpus.files import FilesSource, read_checksums
from electra.text.tokenizer.measure import show_beside
from electra.text.tokenizer.wordpiece import make_tokenizer, read_vocab_file
from tests.security.fuzzing import JSON, fuzz, json_bytes, mutated, only_documented
from tests.text_stages import write_corpus


def parquet(rows: dict[str, list[Any]]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(rows), file)
    return file.getvalue()


TEXTS = ["A first text.", "Ein zweiter, mit Umlaut: ä.", ""]
JSONL = "".join(json.dumps({"text": text, "n": 1}) + "\n" for text in TEXTS).encode()
CORPUS = {
    "a.txt": "\n\n".join(TEXTS).encode(),
    "a.jsonl": JSONL,
    "a.parquet": parquet({"text": TEXTS}),
    "a.jsonl.gz": gzip.compress(JSONL, mtime=0),
    "a.txt.xz": lzma.compress(JSONL),
    "a.txt.zst": zstandard.compress(JSONL),
    "a.parquet.gz": gzip.compress(parquet({"text": TEXTS}), mtime=0),
    "utf-16.txt": "\n\n".join(TEXTS).encode("utf-16"),
    "shift_jis.txt": "一つ目の文。\n\n二つ目の文。".encode("shift_jis"),
}


@pytest.mark.parametrize("name", CORPUS)
def test_corpus_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    encoding = {"utf-16.txt": "utf-16", "shift_jis.txt": "shift_jis"}.get(name, "utf-8")
    source = FilesCorpus(kind="files", name="f", paths=[str(path)], encoding=encoding)

    def read(data: bytes) -> None:
        path.write_bytes(data)
        only_documented(lambda: [list(part.texts()) for part in FilesSource(source).parts()])

    fuzz(mutated(CORPUS[name]), read)


@pytest.mark.parametrize(
    "line",
    [
        '{"text": ' + "9" * 5000 + "}",
        "[" * 100_000,
        '{"text": ' + '{"a":' * 50_000 + "1",
        '{"text": "a", "text": 1e999999}',
        '{"text": "\\ud800"}',
        '{"text": NaN}',
    ],
)
def test_json_that_no_writer_writes(line: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(line + "\n")
    source = FilesCorpus(kind="files", name="f", paths=[str(path)])
    only_documented(lambda: [list(part.texts()) for part in FilesSource(source).parts()])


ANSWER = {"text": "cat", "answer_start": 4}
QUESTION = {"id": "1", "question": "who?", "answers": [ANSWER], "is_impossible": False}
SQUAD = {"data": [{"paragraphs": [{"context": "the cat sat", "qas": [QUESTION]}]}]}
MRQA_ANSWERS = [{"text": "cat", "char_spans": [[4, 6]]}]
MRQA_QUESTION = {"qid": "1", "question": "who?", "answers": ["cat"], "detected_answers": MRQA_ANSWERS}
MRQA = [{"header": {"dataset": "NewsQA"}}, {"context": "the cat sat", "qas": [MRQA_QUESTION]}]
MRQA_BYTES = "".join(json.dumps(line) + "\n" for line in MRQA).encode()
BOOLQ = {"question": "is it?", "passage": "it is", "idx": 0, "label": True}
SWAG = (
    b",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    b'0,v,1,"a ""b""",c,d,gold,e,f,g,h,2\n'
)
OFFICIAL: dict[str, tuple[str, str, bytes | Any]] = {
    "SQuAD1.1": ("SQuAD1.1", "dev.json", SQUAD),
    "SQuAD2.0": ("SQuAD2.0", "dev.json", SQUAD),
    "NewsQA": ("NewsQA", "dev.jsonl", MRQA_BYTES),
    "NewsQA, a line": ("NewsQA", "dev.jsonl", MRQA[1]),
    "NewsQA, compressed": ("NewsQA", "dev.jsonl.gz", gzip.compress(MRQA_BYTES, mtime=0)),
    "CoLA": (
        "CoLA", "dev.tsv", b"gj04\t1\t\tOur friends won't buy this analysis.\ngj04\t0\t*\tThem all left.\n",
    ),
    "MRPC": ("MRPC", "dev.tsv", b"Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tIt is so .\tSo it is .\n"),
    "STS-B": ("STS-B", "dev.tsv", b"index\tsentence1\tsentence2\tscore\n0\ta\tb\t2.5\n"),
    "BoolQ": ("BoolQ", "val.jsonl", BOOLQ),
    "CoNLL-2003": (
        "CoNLL-2003", "testa.txt", b"-DOCSTART- -X- -X- O\n\nJane NNP I-NP I-PER\nsat VBD I-VP O\n",
    ),
    "SWAG": ("SWAG", "val.csv", SWAG),
}  # fmt: skip


@pytest.mark.parametrize("name", OFFICIAL)
def test_files_of_benchmarks(name: str, tmp_path: Path) -> None:
    task, file, valid = OFFICIAL[name]
    path = tmp_path / file
    first = json.dumps(MRQA[0]).encode() + b"\n" if name == "NewsQA, a line" else b""

    def rows() -> list[Any]:
        return list(read_official(TASKS[task], "dev", path, Counter()))

    def read(data: bytes) -> None:
        path.write_bytes(first + data)
        with suppress(UnicodeDecodeError):  # OfficialSource.read has the message for it
            only_documented(rows)

    path.write_bytes(first + (valid if isinstance(valid, bytes) else json.dumps(valid).encode()))
    assert rows(), "what is changed is a valid file"
    fuzz(mutated(valid) if isinstance(valid, bytes) else json_bytes(valid), read)


@pytest.mark.parametrize(
    ("file", "data", "said"),
    [
        ("dev.jsonl", b'{"header": {}}\n{"context": "the cat sat", "qas": -1}\n', "`qas` is no list"),
        ("dev.jsonl.gz", gzip.compress(MRQA_BYTES, mtime=0).replace(b"\xad", b"\x00", 1)[:-9], "damaged"),
    ],
)
def test_question_files_that_a_fuzzer_made(file: str, data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / file).write_bytes(data)
    with pytest.raises(ElectraError, match=said):
        list(read_official(TASKS["NewsQA"], "dev", tmp_path / file, Counter()))


def test_a_prediction_that_is_null_under_an_empty_name(tmp_path: Path) -> None:
    (tmp_path / "gold").write_bytes(MRQA_BYTES)
    (tmp_path / "predictions").write_text('{"": null, "1": null}')
    with pytest.raises(ElectraError, match="is no text"):
        outside_scores("NewsQA", tmp_path / "predictions", tmp_path / "gold")


def test_a_benchmarks_file_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA/train.tsv").write_bytes(b"gj04\t1\t\tOur \xff friends\n")
    with pytest.raises(ElectraError, match="not UTF-8"):
        list(OfficialSource(glue=tmp_path, squad=tmp_path).read(TASKS["CoLA"], "train"))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"data": ' + "9" * 5000 + "}", '{"data": 5}', '{"data": [5]}', "[]"])
def test_question_files_that_no_writer_writes(text: str, tmp_path: Path) -> None:
    (tmp_path / "train-v1.1.json").write_text(text)
    with pytest.raises(ElectraError):
        list(OfficialSource(glue=tmp_path, squad=tmp_path).read(TASKS["SQuAD1.1"], "train"))


CLASSES = {"kind": "classification", "text": "t", "label": "l", "train": "a", "dev": "a"}
TAGS = {"kind": "tagging", "words": "0", "tags": "1", "train": "a", "dev": "a"}
OBJECTS = [{"t": "good", "l": "1"}, {"t": "bad", "l": "0"}]
LISTS = {"t": "both", "list": [{"l": "0"}, {"l": "1"}]}
TABLES: dict[str, tuple[dict[str, Any], bytes | Any]] = {
    "csv": (CLASSES, b't,l\n"good, ""very""",1\nbad,0\n'),
    "tsv": (CLASSES, b"t\tl\ngood\t1\nbad\t0\n"),
    "jsonl": (CLASSES, b"".join(json.dumps(row).encode() + b"\n" for row in OBJECTS)),
    "json": (CLASSES, OBJECTS),
    "parquet": (CLASSES, parquet({"t": ["good", "bad"], "l": ["1", "0"]})),
    "conll": (TAGS, b"Jane B-PER\nsat O\n\nHe O\n"),
    "lines": ({**CLASSES, "lines": "{l}: {t}", "format": None}, b"1: good\n0: bad\n"),
    "each": ({**CLASSES, "label": "list.l", "each": ["list"], "format": "json"}, LISTS),
    "squad": ({"kind": "span", "format": "squad", "train": "a", "dev": "a"}, SQUAD),
    "latin-1": ({**CLASSES, "format": "csv", "encoding": "latin-1"}, "t,l\ngrün,1\nbad,0\n".encode("latin-1")),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_own_tasks(name: str, tmp_path: Path) -> None:
    description, valid = TABLES[name]
    facts = {key: value for key, value in {"format": name, **description}.items() if value is not None}
    (tmp_path / "T.yaml").write_text(yaml.safe_dump(facts))

    def rows() -> list[Any]:
        source = CustomSource(tmp_path / "T.yaml")
        return [list(source.read(source.spec, split)) for split in source.splits(source.spec)]

    def read(data: bytes) -> None:
        (tmp_path / "a").write_bytes(data)
        only_documented(rows)

    (tmp_path / "a").write_bytes(valid if isinstance(valid, bytes) else json.dumps(valid).encode())
    assert all(rows()), "what is changed is a valid file"
    fuzz(mutated(valid) if isinstance(valid, bytes) else json_bytes(valid), read)


TASK = yaml.safe_dump({"kind": "classification", "text": "t", "label": "l", "train": "a.csv", "dev": "b.csv"}).encode()


def test_descriptions_of_tasks(tmp_path: Path) -> None:
    def read(data: bytes) -> None:
        (tmp_path / "T.yaml").write_bytes(data)
        only_documented(lambda: read_custom_task(tmp_path / "T.yaml"))

    fuzz(mutated(TASK) | JSON.map(lambda value: yaml.safe_dump(value).encode()), read)


@pytest.mark.parametrize("format", ["jsonl", "csv", "tsv", "lines"])
def test_inputs_of_predictions(format: Any) -> None:
    valid = {
        "jsonl": b'{"id": 1, "t": "good"}\n{"t": "bad"}\n', "csv": b't,id\n"good, ""very""",1\nbad,2\n',
        "tsv": b"t\tid\ngood\t1\n", "lines": b"good\nbad\n",
    }[format]  # fmt: skip

    def read(data: bytes) -> None:
        only_documented(lambda: list(Rows(io.BytesIO(data), format, ("text_a",), ("t",), "input")))

    assert list(Rows(io.BytesIO(valid), format, ("text_a",), ("t",), "input"))
    fuzz(mutated(valid), read)


TAGGED = b"Jane B-PER B-PER\nsat O O\n\nHe O O\n"
PREDICTIONS: dict[str, dict[str, bytes | Any]] = {
    "SQuAD2.0": {"gold": SQUAD, "predictions": {"1": "cat"}, "odds": {"1": 0.5}},
    "SQuAD1.1": {"gold": SQUAD, "predictions": {"1": "cat"}},
    "NewsQA": {"gold": MRQA_BYTES, "predictions": {"1": "cat"}},
    "MRPC": {"gold": OFFICIAL["MRPC"][2], "predictions": b"index\tprediction\n0\t1\n"},
    "STS-B": {"gold": OFFICIAL["STS-B"][2], "predictions": b"index\tprediction\n0\t1.5\n"},
    "conll": {"gold": TAGGED, "predictions": TAGGED},
}


@pytest.mark.parametrize(("task", "which"), [(task, which) for task, files in PREDICTIONS.items() for which in files])
def test_predictions_made_elsewhere(task: str, which: str, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in PREDICTIONS[task]}

    def scores() -> dict[str, Any]:
        return outside_scores(task, files["predictions"], files["gold"], files.get("odds"))

    def read(data: bytes) -> None:
        files[which].write_bytes(data)
        only_documented(scores)

    for name, valid in PREDICTIONS[task].items():
        files[name].write_bytes(valid if isinstance(valid, bytes) else json.dumps(valid).encode())
    assert scores(), "what is changed is a valid file"
    valid = PREDICTIONS[task][which]
    fuzz(mutated(valid) if isinstance(valid, bytes) else json_bytes(valid), read)


def test_vocabularies(tmp_path: Path) -> None:
    def read(data: bytes) -> None:
        (tmp_path / "vocab.txt").write_bytes(data)
        only_documented(lambda: read_vocab_file(tmp_path / "vocab.txt"))

    fuzz(mutated(b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n"), read)


@pytest.mark.parametrize("kind", ["WordPiece", "Unigram", "BPE"])
def test_tokenizers_to_compare_with(kind: str, tmp_path: Path) -> None:
    tokenizer = {
        "WordPiece": lambda: make_tokenizer([*SPECIAL_TOKENS, "a", "##b"], lowercase=True),
        "Unigram": lambda: Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0)], unk_id=0)),
        "BPE": lambda: Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")], unk_token="a")),
    }[kind]()
    paths = Paths(tmp_path)
    write_corpus(paths.corpus, "heldout-00000", ["A text that is held out, ab."])
    write_json(tmp_path / "other/tokenizer.json", json.loads(tokenizer.to_str()))
    paths.tokenizer.mkdir(parents=True)
    make_tokenizer([*SPECIAL_TOKENS, "a"], lowercase=True).save(str(paths.tokenizer / "tokenizer.json"))
    write_manifest(paths.tokenizer)

    def compare() -> None:
        show_beside(paths, [tmp_path / "other"], Console(file=io.StringIO()))

    def read(data: bytes) -> None:
        (tmp_path / "other/tokenizer.json").write_bytes(data)
        only_documented(compare)

    compare()
    fuzz(json_bytes(json.loads(tokenizer.to_str())), read)


def test_checksum_files(tmp_path: Path) -> None:
    def read(data: bytes) -> None:
        (tmp_path / "SUMS").write_bytes(data)
        only_documented(lambda: read_checksums(tmp_path / "SUMS", ["a.txt"]))

    fuzz(mutated(f"{'ab' * 32}  a.txt\n".encode()), read)


@pytest.mark.parametrize("which", ["params.yaml", "params/x.yaml"])
def test_settings(which: str, tmp_path: Path) -> None:
    (tmp_path / "params").mkdir()
    valid: dict[str, Any] = {
        "params.yaml": {"profile": "x", "cells": {"tasks": ["CoLA"], "seeds": [1]}, "cluster": {}},
        "params/x.yaml": {"corpus": {"sources": [{"kind": "files", "name": "a", "paths": ["a.txt"]}], "cleaning": []}},
    }
    for name, value in valid.items():
        (tmp_path / name).write_text(yaml.safe_dump(value))

    def read(data: bytes) -> None:
        (tmp_path / which).write_bytes(data)
        only_documented(lambda: load_settings(tmp_path))

    fuzz(mutated(yaml.safe_dump(valid[which]).encode()) | json_bytes(valid[which]), read)


FILE = {"path": "a", "bytes": 1, "sha256": "ab" * 32}
SHARD = {"name": "train-0", "examples": 1, "tokens": 9}
MANIFESTS: dict[Any, dict[str, Any]] = {
    CorpusManifest: {"files": [FILE], "documents": 1},
    ShardsManifest: {
        "files": [FILE], "max_length": 8, "vocab_size": 9,
        "splits": {"train": {"examples": 1, "tokens": 9, "shards": [SHARD]}},
    },
    TasksManifest: {"files": [FILE], "source": {"kind": "files"}, "tasks": {"CoLA": {"rows": {"dev": 1}}}},
}  # fmt: skip


@pytest.mark.parametrize("shape", MANIFESTS)
def test_manifests(shape: Any, tmp_path: Path) -> None:
    def read(data: bytes) -> None:
        (tmp_path / "manifest.json").write_bytes(data)
        only_documented(lambda: read_manifest(tmp_path, shape))

    fuzz(json_bytes(MANIFESTS[shape]) | st.binary(max_size=50), read)
