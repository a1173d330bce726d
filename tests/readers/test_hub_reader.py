"""Hugging Face datasets, with a local dataset folder in place of the hub."""

import json

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from electra.common.artifacts import read_manifest
from electra.common.errors import ConfigError, DataError, InfrastructureError
from electra.readers.build import prepare_tasks
from tests.small_tasks import make_settings


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def write_dataset(folder, configs):
    """A dataset folder as the hub lays it out: parquet files and a README that names configurations and splits."""
    lines = ["---", "configs:"]
    for config, splits in configs.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        for split, columns in splits.items():
            path = folder / config / f"{split}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table(columns), path)
            lines += [f"  - split: {split}", f"    path: {config}/{split}.parquet"]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))
    return str(folder)


def lines(paths, name):
    return [json.loads(line) for line in (paths.tasks / name).read_text(encoding="utf-8").splitlines()]


def test_glue_and_squad_become_the_official_words(tmp_path, paths):
    def nli(labels):
        return {"premise": ['a\t"b'] * len(labels), "hypothesis": ["c"] * len(labels), "label": labels}

    glue = write_dataset(
        tmp_path / "glue",
        {
            "mnli": {
                "train": nli([0, 1, 2]),
                "validation_matched": nli([2]),
                "validation_mismatched": nli([1]),
                "test_matched": nli([-1]),
                "test_mismatched": nli([-1]),
            },
            "ax": {"test": nli([-1, -1])},
            "stsb": {
                split: {"sentence1": ["a"], "sentence2": ["b"], "label": [3.8]} for split in ("train", "validation")
            },
        },
    )
    item = {
        "id": ["q"],
        "question": ["who?"],
        "context": ["a red cat"],
        "answers": [{"text": ["red"], "answer_start": [3]}],
    }
    none = {**item, "answers": [{"text": pa.array([], pa.string()), "answer_start": pa.array([], pa.int32())}]}
    kind = pa.struct([("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int32()))])
    none["answers"] = pa.array([{"text": [], "answer_start": []}], kind)
    squad = write_dataset(tmp_path / "squad", {"plain_text": {"train": item, "validation": item}})
    squad_v2 = write_dataset(tmp_path / "squad_v2", {"squad_v2": {"train": item, "validation": none}})
    source = {"kind": "hub", "glue": glue, "squad": squad, "squad_v2": squad_v2}
    prepare_tasks(make_settings(source, ["MNLI", "STS-B", "SQuAD1.1", "SQuAD2.0"]), paths)

    assert [row["label"] for row in lines(paths, "MNLI/train.jsonl")] == ["entailment", "neutral", "contradiction"]
    assert lines(paths, "MNLI/dev_mismatched.jsonl") == [
        {"id": "0", "text_a": 'a\t"b', "text_b": "c", "label": "neutral"}
    ]
    assert lines(paths, "MNLI/test.jsonl")[0]["label"] is None
    assert len(lines(paths, "MNLI/test_diagnostic.jsonl")) == 2  # of another configuration
    assert lines(paths, "STS-B/dev.jsonl")[0]["label"] == 3.8
    assert lines(paths, "SQuAD1.1/dev.jsonl")[0]["answers"] == [{"text": "red", "start": 2}]
    assert lines(paths, "SQuAD2.0/dev.jsonl")[0]["impossible"] is True
    tasks = read_manifest(paths.tasks)["tasks"]
    assert tasks["SQuAD1.1"]["offsets_repaired"] == 2
    assert not (paths.tasks / "STS-B/test.jsonl").exists()
    assert str(tmp_path) not in (paths.tasks / "manifest.json").read_text()


def test_a_wrong_label_and_a_missing_configuration_are_named(tmp_path, paths):
    bad = {"sentence1": ["a"], "sentence2": ["b"], "label": [7]}
    glue = write_dataset(tmp_path / "glue", {"rte": {"train": bad, "validation": bad}})
    with pytest.raises(DataError, match=r"'7' is not one of entailment(.|\n)*row 0"):
        prepare_tasks(make_settings({"kind": "hub", "glue": glue}, ["RTE"]), paths)
    with pytest.raises(DataError, match="cannot be loaded"):
        prepare_tasks(make_settings({"kind": "hub", "glue": glue}, ["WNLI"]), paths)


def test_a_damaged_dataset_and_an_unreachable_hub_are_named(tmp_path, paths, monkeypatch):
    nli = {"sentence1": ["a"], "sentence2": ["b"], "label": [0]}
    glue = write_dataset(tmp_path / "glue", {"rte": {"train": nli, "validation": nli}})
    file = tmp_path / "glue/rte/train.parquet"
    content = file.read_bytes()
    file.write_bytes(content[:4] + b"\xff" * 40 + content[44:])  # the footer is whole
    with pytest.raises(DataError, match=r"RTE: .*glue cannot be loaded(.|\n)*tasks\.source"):
        prepare_tasks(make_settings({"kind": "hub", "glue": glue}, ["RTE"]), paths)

    def unreachable(*_, **__):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(datasets, "get_dataset_split_names", unreachable)
    with pytest.raises(InfrastructureError, match="cannot be fetched: no route to host"):
        prepare_tasks(make_settings({"kind": "hub", "glue": glue}, ["RTE"]), paths)


def test_tasks_that_are_read_from_files_only_are_refused(paths):
    with pytest.raises(ConfigError, match="CoNLL-2003 is read from files only"):
        prepare_tasks(make_settings({"kind": "hub"}, ["CoNLL-2003"]), paths)
