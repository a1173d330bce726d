"""The text stages as a whole, from files to shards, in scripts with and without spaces."""

import re
import unicodedata
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from electra.common.artifacts import listed_files, read_manifest
from electra.common.corpus_file import read_documents
from electra.text.corpus.build import build_corpus
from electra.text.shards.build import build_shards
from electra.text.tokenizer.build import build_tokenizer
from tests.shards.test_boundaries import SAMPLES, SPACED
from tests.workspace import Workspace

# A composed letter has the offsets of its base: marks that follow it in NFD text belong to it
MARKS = "[\u0300-\u036f\u0653-\u0655\u3099\u309a]*"
LANGUAGES = ["Chinese", "Japanese", "Hungarian", "Arabic", "Vietnamese"]


@pytest.fixture(scope="module", params=LANGUAGES)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Workspace]:
    """A language, and a workspace with corpus, vocabulary and shards of documents of its sentences."""
    workspace = Workspace(tmp_path_factory.mktemp(request.param))
    sentences = re.findall(r".+?[.!?。！？؟][”」]?\s*", SAMPLES[request.param])
    documents = [
        "".join(sentences[(number + i * (1 + number // 8)) % len(sentences)].strip() + " " for i in range(14))
        + f"{number}."
        for number in range(40)
    ]
    (workspace.root / "texts.txt").write_text("\n\n".join(documents), encoding="utf-8")
    corpus: dict[str, Any] = {
        "sources": [{"kind": "files", "name": "texts", "paths": [str(workspace.root / "texts.txt")]}],
        "cleaning": [{"kind": "boilerplate"}, {"kind": "markup"}],
        "near_duplicates": {"threshold": 0.99},
        "held_out_fraction": 0.1,
    }
    workspace.write(
        corpus=corpus,
        tokenizer={"vocab_size": 104 if request.param == "Chinese" else 120, "lowercase": False, "min_frequency": 1},
        shards={"max_length": 48, "boundaries": "sentences", "short_example_probability": 0.0},
    )
    settings = workspace.settings()
    for stage in (build_corpus, build_tokenizer, build_shards):
        stage(settings, workspace.paths)
    return request.param, workspace


def texts(workspace: Workspace) -> list[str]:
    files = listed_files(workspace.paths.corpus, "*.parquet")
    return [text for file in files for _, batch in read_documents(file.path) for text in batch]


def tokenizer_of(workspace: Workspace) -> Any:
    return AutoTokenizer.from_pretrained(workspace.paths.tokenizer)


def segments(workspace: Workspace) -> list[list[str]]:
    """The tokens of each segment of each example, as the shards have them."""
    tokenizer, found = tokenizer_of(workspace), []
    for path in sorted(workspace.paths.shards.glob("*.tokens.npy")):
        spans = np.load(path.with_name(path.name.replace(".tokens.", ".spans.")), allow_pickle=False)
        for row, (length, first) in zip(np.load(path, allow_pickle=False), spans, strict=True):
            tokens = tokenizer.convert_ids_to_tokens(row[:length].tolist())
            found += [tokens[1 : first - 1], *([tokens[first : length - 1]] if first < length else [])]
    return found


def test_the_corpus_is_composed_and_every_character_has_an_entry(built: tuple[str, Workspace]) -> None:
    _, workspace = built
    assert all(text == unicodedata.normalize("NFC", text) for text in texts(workspace)) and len(texts(workspace)) > 20
    assert read_manifest(workspace.paths.corpus)["dropped"]["cleaning"] == 0
    assert all("[UNK]" not in segment for segment in segments(workspace))


def test_the_published_tokenizer_gives_text_back_and_its_spans_are_exact(built: tuple[str, Workspace]) -> None:
    _, workspace = built
    tokenizer = tokenizer_of(workspace)
    for text in texts(workspace):
        for written in (text, unicodedata.normalize("NFD", text)):
            encoded = tokenizer(written, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
            pieces = [token.removeprefix("##") for token in tokenizer.convert_ids_to_tokens(encoded["input_ids"])]
            assert "".join(pieces) == text.replace(" ", "")
            ends = [b + len(re.match(MARKS, written[b:])[0]) for _, b in encoded["offset_mapping"]]  # type: ignore[index]
            starts = [a for a, _ in encoded["offset_mapping"]]
            spans = [unicodedata.normalize("NFC", written[a:b]) for a, b in zip(starts, ends, strict=True)]
            assert spans == pieces


def test_segments_hold_the_whole_corpus_and_do_not_cut_words_or_sentences(built: tuple[str, Workspace]) -> None:
    language, workspace = built
    found = segments(workspace)
    spelled = "".join(token.removeprefix("##") for segment in found for token in segment)
    assert sorted(spelled) == sorted("".join(texts(workspace)).replace(" ", ""))
    for segment in found:
        assert not segment[0].startswith("##")
        if language not in SPACED:
            assert segment[-1].removeprefix("##") in "。！？，、”」：.", segment
