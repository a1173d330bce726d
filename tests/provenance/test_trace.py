"""Tracing an artefact back to the raw files, and changes that break the chain."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.provenance import SHOWN_FILES, digest, render, trace


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def write(root: Path, book: str = "a book", license: str | None = "CC0-1.0", code: str = "c0de") -> None:
    """A lock of four stages, as DVC writes it, with the list of inputs beside it."""
    listed = json.dumps([{"path": f"books/{i}.txt", "bytes": 6, "sha256": f"{i}{book}"} for i in range(30)])
    (root / "data/inputs").mkdir(parents=True, exist_ok=True)
    (root / "data/inputs/corpus.json").write_text(listed)
    source = {"kind": "files", "name": "books", **({"license": license} if license else {})}
    hub = {"kind": "hub", "name": "w", "dataset": "owner/name", "revision": "ab" * 20}
    stages: dict[str, Any] = {
        "inputs": {
            "deps": [{"path": "electra/inputs", "md5": code}, {"path": "books", "md5": "b.dir"}],
            "outs": [{"path": "data/inputs", "md5": "i.dir"}],
        },
        "corpus": {
            "deps": [
                {"path": "data/inputs/corpus.json", "md5": md5(listed)},
                {"path": "electra/text/corpus", "md5": code},
            ],
            "params": {"params/x.yaml": {"corpus": {"sources": [source, hub]}}},
            "outs": [{"path": "data/corpus", "md5": f"{md5(book)}.dir"}],
        },
        "tokenizer": {
            "deps": [{"path": "data/corpus", "md5": f"{md5(book)}.dir"}, {"path": "vocab.txt", "md5": "v"}],
            "outs": [{"path": "data/tokenizer", "md5": "t.dir"}],
        },
        "export": {
            "deps": [{"path": "data/tokenizer", "md5": "t.dir"}, {"path": "data/corpus/manifest.json", "md5": "m"}],
            "outs": [{"path": "models/export", "md5": "e.dir"}],
        },
    }
    (root / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))


def shown(root: Path, artefact: str = "models/export", **options: bool) -> str:
    return render(trace(Paths(root), artefact), **options)


def test_the_chain_leads_to_the_raw_files_with_their_checksums(tmp_path: Path) -> None:
    write(tmp_path)
    text = shown(tmp_path)
    order = ["models/export", "data/tokenizer", "data/corpus", "data/inputs/corpus.json", "raw books/0.txt"]
    assert [text.index(name) for name in order] == sorted(text.index(name) for name in order)
    for part in (
        "sha256 0a book",
        "raw vocab.txt  md5 v",
        "made by stage tokenizer",
        "licence CC0-1.0",
        "owner/name at revision abab",
    ):
        assert part in text
    assert f"and {30 - SHOWN_FILES} files more" in text and "books/29.txt" not in text
    assert "books/29.txt" in shown(tmp_path, all_files=True)
    assert "!" not in text


def test_one_changed_byte_of_an_input_changes_the_chain(tmp_path: Path) -> None:
    chains = []
    for number, changes in enumerate([{}, {"book": "b book"}, {"code": "c0df"}, {"license": "MIT"}, {}]):
        root = tmp_path / str(number)
        root.mkdir()
        write(root, **changes)  # type: ignore[arg-type]
        chains.append(digest(trace(Paths(root), "models/export")))
    assert chains[0] == chains[-1] and len(set(chains)) == 4
    assert f"chain: sha256 {chains[0]}" in shown(tmp_path / "0")


def test_something_inside_an_artefact_can_be_asked_for(tmp_path: Path) -> None:
    write(tmp_path)
    assert "made by stage tokenizer" in shown(tmp_path, "data/tokenizer/vocab.txt")


def test_a_folder_with_the_outputs_of_several_stages_leads_to_all_of_them(tmp_path: Path) -> None:
    write(tmp_path)
    lock = yaml.safe_load((tmp_path / "dvc.lock").read_text())
    for seed in (1, 2):
        lock["stages"][f"finetune@a-{seed}"] = {
            "deps": [{"path": "data/tokenizer", "md5": "t.dir"}],
            "outs": [{"path": f"models/finetuned/a-{seed}", "md5": f"f{seed}"}],
        }
    lock["stages"]["evaluate"] = {
        "deps": [{"path": "models/finetuned", "md5": "all.dir"}],
        "outs": [{"path": "results/scores.json", "md5": "s"}],
    }
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump(lock))
    text = shown(tmp_path, "results/scores.json")
    assert "raw models/finetuned  md5 all.dir" in text and "raw books/0.txt" in text
    assert "made by stage finetune@a-1" in text and "made by stage finetune@a-2" in text
    (tmp_path / "params.yaml").write_text("cells: {tasks: [a], seeds: [2]}")
    text = shown(tmp_path, "results/scores.json")
    assert "finetune@a-1" not in text and "finetune@a-2" in text, "the lock keeps runs that are no longer asked for"


def test_a_list_of_inputs_that_is_asked_for_itself_is_not_called_another_one(tmp_path: Path) -> None:
    write(tmp_path)
    text = shown(tmp_path, "data/inputs/corpus.json")
    assert "!" not in text and "data/inputs/corpus.json  md5 i.dir of data/inputs" in text and "raw books/0.txt" in text


def test_what_was_made_again_since_is_told(tmp_path: Path) -> None:
    write(tmp_path)
    lock = yaml.safe_load((tmp_path / "dvc.lock").read_text())
    lock["stages"]["corpus"]["outs"][0]["md5"] = "new.dir"
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump(lock))
    assert "stage corpus has made new.dir since" in shown(tmp_path)
    write(tmp_path)
    (tmp_path / "data/inputs/corpus.json").write_text("[]")
    assert "is not the one that was read" in shown(tmp_path)


def test_an_artefact_nobody_makes_and_a_missing_lock_end_with_a_message(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"dvc\.lock"):
        trace(Paths(tmp_path), "models/export")
    write(tmp_path)
    with pytest.raises(ConfigError, match=r"(?s)makes models/none.*models/export"):
        trace(Paths(tmp_path), "models/none")
    for broken in ("[", "a: 1", "- x"):
        (tmp_path / "dvc.lock").write_text(broken)
        with pytest.raises(DataError):
            trace(Paths(tmp_path), "models/export")


def test_the_projects_own_lock_can_be_traced() -> None:
    root = Path(__file__).resolve().parents[2]
    text = render(trace(Paths(root), "models/export"))
    assert "made by stage pretrain" in text
    if (root / "data/inputs/corpus.json").is_file():
        assert "from files of source books, licence public domain" in text
    else:  # a fresh clone, before the first run
        assert "the list is not in this workspace" in text
