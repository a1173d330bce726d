"""With every step on, one process and several write the same bytes."""

import json
import random
from pathlib import Path

import pytest

from electra.common.artifacts import write_manifest
from electra.common.paths import Paths
from electra.config import Corpus
from electra.config.loading import load_settings
from electra.corpus.build import build_corpus
from electra.corpus.decontamination import collect_evaluation_texts
from tests.corpus.small import REPO, Built

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


def test_every_step_gives_the_same_bytes_with_two_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_inputs()
    steps = ["unwrap", "boilerplate", "markup", "personal_data", "gopher", "repetition", "fineweb", "repeated_lines"]
    cleaning = [{"kind": kind, **({"scope": "corpus"} if kind == "repeated_lines" else {})} for kind in steps]
    corpus = Corpus.model_validate(
        {
            "sources": [{"kind": "files", "name": "a", "paths": ["*.txt"]}],
            "cleaning": cleaning,
            "near_duplicates": {},
            "decontamination": {},
            "held_out_fraction": 0.1,
            "max_documents": 80,
        }
    )
    settings = load_settings(REPO).model_copy(update={"corpus": corpus})
    collect_evaluation_texts(settings, Paths())
    written = []
    for num_workers in (1, 2):
        cluster = settings.cluster.model_copy(update={"num_workers": num_workers, "executor": "local"})
        build_corpus(settings.model_copy(update={"cluster": cluster}), Paths())
        written.append(Built(Path()).bytes())
    assert written[0] == written[1]
    dropped = Built(Path()).manifest["dropped"]
    assert all(dropped[reason] for reason in ("duplicate", "cleaning", "near_duplicate")), dropped
    rules = json.loads(written[0]["cleaning.json"])
    for rule in ("boilerplate.site_notice", "markup.tag", "decontamination.paragraph", "repeated_lines.corpus"):
        assert rule in rules
