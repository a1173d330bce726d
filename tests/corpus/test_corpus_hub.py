"""Sources of kind hub, on a local dataset folder: the same code path, no network."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from pydantic import ValidationError

from electra.common.errors import DataError, InfrastructureError
from electra.config import Corpus
from tests.corpus.small import Build, sentences

TEXTS = sentences(8)


@pytest.fixture
def dataset(workspace: Path) -> str:
    """A dataset folder with two parquet files of its split train."""
    (workspace / "dataset/data").mkdir(parents=True)
    for part, texts in enumerate([TEXTS[:4], TEXTS[4:]]):
        path = workspace / f"dataset/data/train-{part:05d}-of-00002.parquet"
        pq.write_table(pa.table({"title": texts, "text": texts, "length": [len(t) for t in texts]}), path)
    return "dataset"


@pytest.mark.parametrize("data_files", [None, "data/*.parquet"])
def test_streams_a_dataset_in_its_order(build: Build, dataset: str, data_files: str | None) -> None:
    built = build({"kind": "hub", "dataset": dataset, "data_files": data_files, "text_field": "title"})
    assert sorted(built.texts()) == TEXTS
    train = built.texts("train")
    assert set(train[-3:]) <= set(TEXTS[4:])
    facts = built.manifest["sources"]["source 0"]
    assert (facts["dataset"], facts["split"], facts["data_files"]) == (dataset, "train", data_files)
    assert [file["path"] for file in facts["files"]] == [f"data/train-0000{i}-of-00002.parquet" for i in range(2)]


def test_the_pinned_revision_is_asked_for_and_recorded(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(*args: object, **options: object) -> list[dict[str, str]]:
        asked.append((args, options))
        return [{"text": text} for text in TEXTS]

    monkeypatch.setattr("datasets.load_dataset", load)
    revision = "0123456789" * 4
    hub = {"kind": "hub", "dataset": "owner/name", "revision": revision}
    built = build({**hub, "config_name": "en", "split": "all"}, {**hub, "data_files": "raw/*.parquet"})
    assert asked == [
        (("owner/name", "en"), {"split": "all", "revision": revision, "streaming": True}),
        (
            ("parquet",),
            {
                "data_files": f"hf://datasets/owner/name@{revision}/raw/*.parquet",
                "split": "train",
                "streaming": True,
            },
        ),
    ]
    assert [source["revision"] for source in built.manifest["sources"].values()] == [revision] * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": "dev"}, "dev"),
        ({"config_name": "other"}, "other"),
        ({"data_files": "other/*.parquet"}, "data file"),
        ({"text_field": "body"}, "the columns are: title, text, length"),
        ({"text_field": "length"}, "int"),
    ],
)
def test_wrong_settings_are_data_errors(build: Build, dataset: str, change: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        build({"kind": "hub", "dataset": dataset, **change})
    assert error.value.exit_code == 3
    assert "dataset" in str(error.value)


def test_an_unreachable_hub_is_an_infrastructure_error(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*args: object, **options: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr("datasets.load_dataset", load)
    with pytest.raises(InfrastructureError, match="no route to host") as error:
        build({"kind": "hub", "dataset": "owner/name", "revision": "0" * 40})
    assert error.value.exit_code == 5


def test_load_dataset_still_takes_the_options_used() -> None:
    import inspect

    assert {"split", "revision", "streaming", "data_files"} <= set(inspect.signature(load_dataset).parameters)


@pytest.mark.parametrize("revision", [None, "main", "b04c8d1", "B" * 40, "b" * 41])
def test_a_hub_dataset_without_its_full_commit_is_refused(workspace: Path, revision: str | None) -> None:
    source = {"kind": "hub", "name": "wikipedia", "dataset": "wikimedia/wikipedia", "revision": revision}
    with pytest.raises(ValidationError, match="40-hex commit|should match pattern"):
        Corpus.model_validate({"sources": [source]})
