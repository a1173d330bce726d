"""The Croissant file: its description of the corpus, and that the format's library accepts it, if installed."""

import json
from pathlib import Path
from typing import Any

import pytest

from electra.common.paths import Paths
from electra.config import Corpus
from electra.config.loading import load_settings
from electra.provenance import describe_corpus
from electra.text.corpus.build import build_corpus
from tests.fixtures import documents

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("\n\n".join(f"Document {i} is one of many." for i in range(60)))
    Path("b.txt").write_text("\n\n".join(documents()[:60]))
    source = {"kind": "files", "name": "mine", "paths": ["a.txt"], "license": "CC-BY-4.0"}
    other = {"kind": "files", "name": "stories", "paths": ["b.txt"], "weight": 0.5}
    loaded = load_settings(REPO)
    corpus = Corpus.model_validate({"sources": [source, other], "held_out_fraction": 0.1, "documents_per_file": 20})
    cluster = loaded.cluster.model_copy(update={"num_workers": 1})
    settings = loaded.model_copy(update={"corpus": corpus, "cluster": cluster})
    build_corpus(settings, Paths())
    assert describe_corpus(settings, Paths()) == describe_corpus(settings, Paths())
    return describe_corpus(settings, Paths())


def test_files_columns_licence_and_origin_are_described(described: dict[str, Any]) -> None:
    assert [file["name"] for file in described["distribution"]][:2] == ["heldout-00000.parquet", "train-00000.parquet"]
    assert all(len(file["sha256"]) == 64 for file in described["distribution"])
    assert described["license"] == "CC-BY-4.0"
    origin, other = described["isBasedOn"]
    assert other["name"] == "stories" and "license" not in other
    assert origin["name"] == "mine" and origin["identifier"][0].startswith("sha256:")
    assert [field["name"] for field in described["recordSet"][0]["field"]] == ["doc_id", "source", "text"]


def test_the_library_of_the_format_takes_it_and_reads_the_records(described: dict[str, Any]) -> None:
    mlcroissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed: pip install mlcroissant")
    path = Paths().corpus / "croissant.json"
    path.write_text(json.dumps(described))
    dataset = mlcroissant.Dataset(jsonld=str(path))
    assert not dataset.metadata.ctx.issues.errors
    rows = list(dataset.records(record_set="heldout"))
    assert {row["heldout/source"] for row in rows} == {b"mine", b"stories"}
    assert any(b"is one of many" in row["heldout/text"] for row in rows)
