"""With every step on, one process and several write the same bytes."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from electra.common.artifacts import write_manifest
from electra.common.errors import InfrastructureError
from electra.common.paths import Paths
from electra.config import Corpus, FilesCorpus, Settings
from electra.text.corpus import cleaned
from electra.text.corpus.build import build_corpus
from electra.text.corpus.decontamination import collect_evaluation_texts
from electra.text.corpus.files import FilesSource
from tests.corpus.small import Built
from tests.reliability import jobs
from tests.text_stages import text_settings

VOCABULARY = "the of and to have that with be in a house river mountain child ship letter winter garden road".split()
EVALUATION = "An evaluation text that somebody has copied into the corpus word by word without a thought about it."


def paragraph(generator: random.Random) -> str:
    words = [generator.choice(VOCABULARY) + str(generator.randrange(30)) for _ in range(40)]
    return " ".join([*words, *VOCABULARY[:8]]) + "."


def write_inputs() -> None:
    generator = random.Random(1)
    common = [paragraph(generator) for _ in range(6)]
    for number in range(4):
        documents = []
        extras = [*common, EVALUATION, "Scanned by Jane Doe", "<p>&amp; more</p>"]
        for place in range(25):
            lines = [paragraph(generator) for _ in range(3)]
            if place < len(extras):
                lines.append(extras[place])
            documents.append("\n".join(lines))
        documents += [documents[0] + " Almost the same.", documents[1], "too short"]
        Path(f"{number}.txt").write_text("\n\n".join(documents + [common[number] + " x\n" + common[5]]))
    folder = Paths().tasks / "RTE"
    folder.mkdir(parents=True)
    (folder / "dev.jsonl").write_text(json.dumps({"id": "0", "text_a": EVALUATION, "text_b": "x"}) + "\n")
    write_manifest(Paths().tasks, source={"kind": "files"}, tasks={"RTE": {"rows": {"dev": 1}}})


def every_step(num_workers: int = 1, **cluster: Any) -> Settings:
    """All steps of the corpus stage on, for the inputs of :func:`write_inputs`."""
    steps = ["unwrap", "boilerplate", "markup", "personal_data", "gopher", "repetition", "fineweb", "repeated_lines"]
    cleaning = [{"kind": kind, **({"scope": "corpus"} if kind == "repeated_lines" else {})} for kind in steps]
    corpus = {
        "sources": [{"kind": "files", "name": "a", "paths": ["*.txt"]}],
        "cleaning": cleaning,
        "near_duplicates": {},
        "decontamination": {},
        "held_out_fraction": 0.1,
        "max_documents": 80,
    }
    return text_settings({"num_workers": num_workers, "executor": "local", **cluster}, corpus=corpus)


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_inputs()
    collect_evaluation_texts(every_step(), Paths())


def built(settings: Settings) -> dict[str, bytes]:
    build_corpus(settings, Paths())
    return Built(Path()).bytes()


@pytest.mark.usefixtures("inputs")
def test_every_step_gives_the_same_bytes_with_two_workers() -> None:
    alone = built(every_step())
    assert built(every_step(num_workers=2)) == alone
    dropped = Built(Path()).manifest["dropped"]
    assert all(dropped[reason] for reason in ("duplicate", "cleaning", "near_duplicate")), dropped
    rules = json.loads(alone["cleaning.json"])
    for rule in ("boilerplate.site_notice", "markup.tag", "decontamination.paragraph", "repeated_lines.corpus"):
        assert rule in rules


@pytest.mark.usefixtures("inputs")
def test_a_killed_worker_leaves_the_corpus_as_it_was_and_the_next_run_writes_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = built(every_step())
    monkeypatch.setattr(cleaned, "write_cleaned", jobs.clean_or_die)
    with pytest.raises(InfrastructureError, match="worker process died"):
        built(every_step(num_workers=2))
    assert Path("killed-in-corpus").exists()
    assert Built(Path()).bytes() == alone
    assert not [path for path in Path("data").iterdir() if path.name.startswith(".")]
    shutil.rmtree(Paths().corpus)
    assert built(every_step(num_workers=2)) == alone


@pytest.mark.usefixtures("inputs")
def test_a_process_that_cleans_a_part_takes_arrows_memory_from_the_system(tmp_path: Path) -> None:
    source = FilesCorpus(kind="files", name="text", paths=["0.txt"])
    before = pa.default_memory_pool()
    try:
        pa.set_memory_pool(pa.mimalloc_memory_pool())
        cleaned.write_cleaned(FilesSource(source).parts()[0], Corpus(sources=[source]), tmp_path, tmp_path / "a.arrow")
        assert pa.default_memory_pool().backend_name == "system"
    finally:
        pa.set_memory_pool(before)
