"""Bytes from outside end in rows or in a documented error, whatever they are.

ELECTRA_FUZZ_EXAMPLES=100000 tries more of them.
"""

import gzip
import io
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from electra.common.errors import ElectraError
from electra.config import FilesCorpus
from electra.config.loading import load_settings
from electra.corpus.file_formats import read_checksums
from electra.corpus.files import FilesSource
from electra.readers.custom_schema import read_custom_task
from electra.readers.official import OfficialSource
from electra.tasks.catalogue import TASKS
from electra.tokenizer.wordpiece import read_vocab_file

EXAMPLES = int(os.environ.get("ELECTRA_FUZZ_EXAMPLES", "60"))
fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
SQUAD = st.fixed_dictionaries(
    {},
    optional={
        "data": JSON
        | st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "paragraphs": JSON
                    | st.lists(
                        st.fixed_dictionaries({}, optional={"context": JSON, "qas": JSON | st.lists(JSON, max_size=2)}),
                        max_size=2,
                    )
                },
            ),
            max_size=2,
        )
    },
)


def mutated(valid: bytes) -> st.SearchStrategy[bytes]:
    """A valid file with bytes changed, removed or put in, or anything at all."""

    def change(edits: list[tuple[int, int, bytes]]) -> bytes:
        data = bytearray(valid)
        for at, length, new in edits:
            start = at % (len(data) + 1)
            data[start : start + length] = new
        return bytes(data)

    edit = st.tuples(st.integers(0, 10**6), st.integers(0, 20), st.binary(max_size=12))
    return st.lists(edit, min_size=1, max_size=4).map(change) | st.binary(max_size=200)


def only_documented(read: Callable[[], Any]) -> None:
    try:
        read()
    except ElectraError as error:
        assert str(error) and error.exit_code in (2, 3, 5)


def parquet(texts: list[str]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), file)
    return file.getvalue()


TEXTS = ["A first text.", "Ein zweiter, mit Umlaut: ä.", ""]
JSONL = "".join(json.dumps({"text": text, "n": 1}) + "\n" for text in TEXTS).encode()
CORPUS = {
    "a.txt": "\n\n".join(TEXTS).encode(),
    "a.jsonl": JSONL,
    "a.parquet": parquet(TEXTS),
    "a.jsonl.gz": gzip.compress(JSONL, mtime=0),
    "a.txt.xz": lzma.compress(JSONL),
    "a.txt.zst": zstandard.compress(JSONL),
    "a.parquet.gz": gzip.compress(parquet(TEXTS), mtime=0),
}


@pytest.mark.parametrize("name", CORPUS)
def test_corpus_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    source = FilesCorpus(kind="files", name="f", paths=[str(path)])

    @fuzz
    @given(mutated(CORPUS[name]))
    def run(data: bytes) -> None:
        path.write_bytes(data)
        only_documented(lambda: [list(part.texts()) for part in FilesSource(source).parts()])

    run()


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


def read_task(folder: Path, task: str) -> Any:
    source = OfficialSource(folder, folder)
    spec = TASKS[task]
    return [list(source.read(spec, split)) for split in ("train",)]


@fuzz
@given(data=SQUAD.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=100))
def test_question_files(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "train-v1.1.json").write_bytes(data)
    only_documented(lambda: read_task(tmp_path, "SQuAD1.1"))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"data": ' + "9" * 5000 + "}", '{"data": 5}', '{"data": [5]}', "[]"])
def test_question_files_that_no_writer_writes(text: str, tmp_path: Path) -> None:
    (tmp_path / "train-v1.1.json").write_text(text)
    with pytest.raises(ElectraError):
        read_task(tmp_path, "SQuAD1.1")


@fuzz
@given(data=mutated(b"gj04\t1\t\tOur friends won't buy this analysis.\ngj04\t0\t*\tThem all left.\n"))
def test_tsv_files(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "CoLA").mkdir(exist_ok=True)
    (tmp_path / "CoLA/train.tsv").write_bytes(data)
    only_documented(lambda: read_task(tmp_path, "CoLA"))


@fuzz
@given(data=mutated(b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n"))
def test_vocabularies(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(data)
    only_documented(lambda: read_vocab_file(tmp_path / "vocab.txt"))


@fuzz
@given(data=mutated(f"{'ab' * 32}  a.txt\n".encode()))
def test_checksum_files(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "SUMS").write_bytes(data)
    only_documented(lambda: read_checksums(tmp_path / "SUMS", ["a.txt"]))


TASK = yaml.safe_dump({"kind": "classification", "text": "t", "label": "l", "train": "a.csv", "dev": "b.csv"}).encode()


@fuzz
@given(data=mutated(TASK) | JSON.map(lambda value: yaml.safe_dump(value).encode()))
def test_descriptions_of_tasks(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "T.yaml").write_bytes(data)
    only_documented(lambda: read_custom_task(tmp_path / "T.yaml"))


@fuzz
@given(data=mutated(b"profile: x\ncells: {tasks: [CoLA], seeds: [1]}\ncluster: {}\n"))
def test_settings(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "params").mkdir(exist_ok=True)
    (tmp_path / "params/x.yaml").write_text("corpus: {sources: []}\n")
    (tmp_path / "params.yaml").write_bytes(data)
    only_documented(lambda: load_settings(tmp_path))
