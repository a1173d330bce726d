"""Near-duplicates: their definition, and that exactly these are found, by every way of running the stage."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from electra.common.artifacts import read_json
from electra.config import Corpus
from electra.config.text import NearDuplicates
from electra.text.corpus import near_duplicates
from electra.text.corpus.cleaning.notes import Notes
from electra.text.corpus.near_duplicates import (
    KEPT_POWERS,
    NearDuplicateIndex,
    Signer,
    ngram_hashes,
    word_hashes,
    words_of,
)
from tests.corpus.small import Build, cleaned_by_a_worker_too, write_documents
from tests.fixtures import text_source

RULES = NearDuplicates()
VOCABULARY = ["".join(random.Random(i).choices("abcdefghijklmnop", k=6)) for i in range(2000)]


def prose(seed: int, num_words: int = 250) -> list[str]:
    return random.Random(seed).choices(VOCABULARY, k=num_words)


def shingles(words: list[str], n: int = 5) -> set[tuple[str, ...]]:
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


def jaccard(one: list[str], two: list[str]) -> float:
    a, b = shingles(one), shingles(two)
    return len(a & b) / len(a | b)


def changed(words: list[str], similarity: float, seed: int) -> list[str]:
    """The words with some replaced, until the Jaccard similarity is just at or above the given one."""
    generator = random.Random(seed)
    best = list(words)
    places = list(range(len(words)))
    generator.shuffle(places)
    for place in places:
        trial = [*best[:place], f"new{generator.randrange(10**6)}", *best[place + 1 :]]
        if jaccard(words, trial) >= similarity:
            best = trial
        elif jaccard(words, best) < similarity + 0.03:
            break
    return best


@pytest.fixture(scope="module")
def planted() -> list[tuple[float, list[str], list[str]]]:
    """(exact similarity, document, its near-duplicate), 40 at each of five similarities."""
    pairs = []
    for similarity in (0.5, 0.7, 0.77, 0.8, 0.9):
        for number in range(40):
            words = prose(int(similarity * 1000) + number * 7919)
            other = changed(words, similarity, number)
            pairs.append((jaccard(words, other), words, other))
    return pairs


def test_planted_near_duplicates_are_found_and_less_similar_documents_stay(
    planted: list[tuple[float, list[str], list[str]]], tmp_path: Path
) -> None:
    notes = Notes()
    index = NearDuplicateIndex(tmp_path, RULES, notes)
    signer = Signer(RULES)
    for _, words, _ in planted:
        assert index.add(" ".join(words), signer.sign([" ".join(words)])[0])
    dropped = [not index.add(" ".join(other), signer.sign([" ".join(other)])[0]) for _, _, other in planted]
    similar = [similarity >= RULES.threshold for similarity, _, _ in planted]
    assert sum(similar) == 80
    found = sum(d and s for d, s in zip(dropped, similar, strict=True))
    assert found / sum(similar) >= 0.95  # recall
    assert sum(dropped) == found  # precision: what is dropped is decided by the exact similarity
    assert notes.report()["near_duplicates.document"]["documents"] == found
    index.close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_filter_changes_nothing_of_what_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [" ".join(prose(seed, 40)) for seed in range(20)]
    signatures = Signer(RULES).sign(texts)
    found = []
    for number, size in enumerate((1, near_duplicates.FILTER_BYTES)):
        monkeypatch.setattr(near_duplicates, "FILTER_BYTES", size)
        (tmp_path / str(number)).mkdir()
        index = NearDuplicateIndex(tmp_path / str(number), RULES, Notes())
        found.append([index.add(texts[k], signatures[k]) for k in (*range(20), 3, 7)])
        index.close()
    assert found[0] == found[1] == [True] * 20 + [False] * 2


def test_case_and_punctuation_do_not_count() -> None:
    signer = Signer(RULES)
    text = "The old house, on the hill (so they said) was never lived in: Nobody knew why."
    other = "the OLD house on the hill... so they said -- was never lived in! nobody knew why"
    one, same, changed = signer.sign([text, other, text.replace("hill", "hills")])
    assert one == same != changed


def test_typographic_quotes_dashes_and_ligatures_do_not_count() -> None:
    signer = Signer(RULES)
    text = "'The old house - on the first hill...' they said, \"wasn't ever lived in\" -- and nobody knew: why?"
    other = "‘The old house — on the ﬁrst hill…’ they said, “wasn’t ever lived in” ― and «nobody» knew： why⁈"
    one, same = signer.sign([text, other])
    assert one == same


def test_a_text_of_few_words_and_one_of_none() -> None:
    signer = Signer(RULES)
    few, none = signer.sign(["Two words", "... !"])
    assert len(few.shingles) == 4 and none.shingles == none.bands == b""


SIGNED = ["", "... !", "a", "one two three four five", "été à 東京", "a b c d e f g " * 9]


@given(st.lists(st.sampled_from(SIGNED), max_size=9))
def test_texts_that_are_signed_together_get_the_signatures_they_have_alone(texts: list[str]) -> None:
    signer = Signer(RULES)
    assert signer.sign(texts) == [signer.sign([text])[0] for text in texts]


def test_words_of_ascii_and_other_lines_are_cut_alike() -> None:
    text = "It's 3.5 x_y z-w, (A) B"
    assert words_of(text) == words_of(text + "\né")[:-1] == ["it", "s", "3", "5", "x", "y", "z", "w", "a", "b"]
    assert words_of("東京へ行く。Cafe\u0301 ﬁn") == ["東", "京", "へ", "行", "く", "café", "fin"]


@given(st.lists(st.sampled_from(["a", "Bc", "d-e", "x_y", "été", "東京", "...", "3.5"]), max_size=20))
def test_a_word_has_one_hash_wherever_it_stands_and_in_whatever_script_the_text_is(parts: list[str]) -> None:
    text = " ".join(parts)
    words, hashes = words_of(text), word_hashes([text])[0].tolist()
    assert hashes == word_hashes(words)[0].tolist() == [word_hashes([word])[0][0] for word in words]
    assert len(set(hashes)) == len(set(words))


def test_a_text_longer_than_the_powers_that_are_kept_has_the_same_hashes() -> None:
    text = "one two three " * (KEPT_POWERS // 10)
    (hashes, _), (few, _) = word_hashes([text]), word_hashes(["one two three"])
    assert hashes[:3].tolist() == hashes[-3:].tolist() == few.tolist()


def test_equal_ngrams_have_equal_hashes_and_others_do_not() -> None:
    words, _ = word_hashes(["a b c a b d b a c"])
    grams = [tuple("abcabdbac"[i : i + 2]) for i in range(8)]
    numbered = dict(zip(grams, ngram_hashes(words, 2).tolist(), strict=True))
    assert [numbered[gram] for gram in grams] == ngram_hashes(words, 2).tolist()
    assert len(set(numbered.values())) == len(numbered)


def test_the_signature_of_a_text_never_changes() -> None:
    signature = Signer(RULES).sign(["one two three four five six seven"])[0]
    assert np.frombuffer(signature.shingles, np.uint32).tolist() == [371384065, 947644559, 2896309193]
    assert np.frombuffer(signature.bands, np.uint64)[:2].tolist() == [10974696211485791319, 3156354897839252059]


def write_texts() -> None:
    base = [" ".join(prose(seed, 60)) + "." for seed in range(30)]
    copies = [text.replace(text.split()[30], "another") for text in base[:10]]
    write_documents("a.txt", base)
    write_documents("b.txt", [*copies, *(" ".join(prose(seed, 60)) for seed in range(100, 110))])


def test_the_first_document_stays_and_the_manifest_counts_the_others(build: Build) -> None:
    write_texts()
    sources = [{"name": "a", "paths": ["a.txt"], "weight": 9}, {"name": "b", "paths": ["b.txt"]}]
    built = build(*sources, near_duplicates={"threshold": 0.7})
    assert built.manifest["dropped"] == {"duplicate": 0, "too_short": 0, "near_duplicate": 10}
    report = read_json(built.folder / "cleaning.json")["near_duplicates.document"]
    assert report["documents"] == 10 and len(report["examples"]) == 10
    for example in report["examples"]:
        assert jaccard(example["before"].split()[:40], example["after"].split()[:40]) > 0.5
    assert sorted(path.suffix for path in built.folder.iterdir()) == [".json", ".json", ".parquet", ".parquet"]


def test_no_held_out_document_is_a_near_duplicate_of_a_training_document(build: Build) -> None:
    write_texts()
    options = {"held_out_fraction": 0.4, "documents_per_file": 7}
    sources = [{"paths": ["a.txt"]}, {"paths": ["b.txt"]}]

    def leaked(**more: Any) -> int:
        built = build(*sources, **options, **more)
        train = [text.rstrip(".").split() for text in built.texts("train")]
        return sum(
            any(jaccard(text.rstrip(".").split(), other) >= 0.7 for other in train) for text in built.texts("heldout")
        )

    assert leaked() > 0
    assert leaked(near_duplicates={"threshold": 0.7}) == 0


def test_a_workers_file_carries_the_signatures_that_this_process_would_have_made(tmp_path: Path) -> None:
    texts = [" ".join(prose(seed, 40)) for seed in range(8)] + ["..." * 20]
    corpus = Corpus.model_validate({"sources": [text_source()], "near_duplicates": {}})
    here = cleaned_by_a_worker_too(texts, corpus, tmp_path, tmp_path / "part.arrow")
    assert all(len(made.bands) == 8 * RULES.bands for made in here[:8])


def test_a_full_disk_under_the_table_of_bands_is_an_os_error(tmp_path: Path) -> None:
    index = NearDuplicateIndex(tmp_path, RULES, Notes())
    index._database.execute("PRAGMA max_page_count = 6")
    signer = Signer(RULES)
    with pytest.raises(OSError, match="No space left"):
        for seed in range(1000):
            index.add(" ".join(prose(seed)), signer.sign([" ".join(prose(seed))])[0])
    index.close()
