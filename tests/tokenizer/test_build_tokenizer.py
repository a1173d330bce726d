"""The tokenizer stage: reproducible training, existing vocabularies, and loading with transformers."""

import io
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tokenizers import Tokenizer, models, pre_tokenizers

from electra.common.artifacts import read_manifest, sha256, write_manifest
from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.config.loading import load_settings
from electra.config.text import SPECIAL_TOKENS
from electra.text.tokenizer.build import build_tokenizer
from electra.text.tokenizer.measure import _heldout_texts, _load, show_beside
from electra.text.tokenizer.sample import in_sample
from electra.text.tokenizer.wordpiece import alphabet_of, count_characters, make_tokenizer, train_vocabulary
from tests.text_stages import REPO, text_settings, write_corpus

BERT_VOCABULARY = REPO / "../shared/data/vocab/bert-base-uncased-vocab.txt"
SENTENCES = ["The café's naïve owner (aged 42) re-opened it!", "中文 and unbelievable ﬁne print?", "x [SEP] y"]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A workspace with 120 documents of made-up words; many pairs are equally frequent."""
    draw = random.Random(1)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiouéß"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(1500)]

    def text() -> str:
        return "\n".join(" ".join(draw.choices(words, k=12)).capitalize() + "." for _ in range(20))

    paths = Paths(tmp_path)
    write_corpus(paths.corpus, "train-00000", [text() for _ in range(100)])
    write_corpus(paths.corpus, "heldout-00000", [text() for _ in range(20)])
    return paths


def build(paths: Paths, **options: Any) -> None:
    build_tokenizer(text_settings(tokenizer=options), paths)


def test_two_processes_write_the_same_bytes(paths: Paths) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from electra.config import Tokenizer\n"
        "from electra.config.loading import load_settings\n"
        "from electra.common.paths import Paths\n"
        "from electra.text.tokenizer.build import build_tokenizer\n"
        "made = load_settings(Path(sys.argv[1])).model_copy(update={'tokenizer': Tokenizer(vocab_size=900)})\n"
        "build_tokenizer(made, Paths(Path(sys.argv[2])))\n"
    )
    digests = []
    for threads in ["1", "2"]:
        variables = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        command = [sys.executable, "-c", program, str(REPO), str(paths.root)]
        subprocess.run(command, env=variables, check=True, cwd=REPO, capture_output=True)
        digests.append({path.name: sha256(path) for path in paths.tokenizer.iterdir()})
    assert len(digests[0]) == 4
    assert digests[0] == digests[1]


def test_a_trained_vocabulary_starts_with_special_tokens_and_the_sorted_alphabet(paths: Paths) -> None:
    build(paths, vocab_size=400)
    entries = (paths.tokenizer / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert entries[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    alphabet = sorted(set("abdefgiklmnoprstuß."))  # é loses its accent
    assert entries[5 : 5 + len(alphabet)] == alphabet
    inside = ["##" + c for c in alphabet if c != "."]
    assert entries[5 + len(alphabet) :][: len(inside)] == inside
    assert len(entries) == len(set(entries)) == 400
    facts = read_manifest(paths.tokenizer)
    assert facts["vocab_size"] == 400
    assert facts["trained_on"]["documents"] == 100
    assert facts["held_out"]["wordpieces_per_word"] > 1
    assert facts["held_out"]["unknown_rate"] == 0


def test_frequent_words_become_one_piece() -> None:
    alphabet = alphabet_of(Counter("winter garden"), lowercase=True)
    texts = iter([["winter garden winter garden\nwinter garden"]])
    entries = train_vocabulary(texts, alphabet, size=100, min_frequency=2, lowercase=True)
    tokenizer = make_tokenizer(entries, lowercase=True)
    assert tokenizer.encode("Winter garden dire", add_special_tokens=False).tokens == [
        "winter", "garden", "d", "##i", "##r", "##e",
    ]  # fmt: skip


@pytest.mark.parametrize("lowercase", [True, False])
def test_transformers_loads_the_folder_with_the_same_ids(paths: Paths, lowercase: bool) -> None:
    transformers = pytest.importorskip("transformers")
    write_corpus(paths.corpus, "train-00000", SENTENCES)
    build(paths, vocab_size=102, min_frequency=1, lowercase=lowercase)
    ours = Tokenizer.from_file(str(paths.tokenizer / "tokenizer.json"))
    for loader in [transformers.AutoTokenizer, transformers.ElectraTokenizerFast]:
        theirs = loader.from_pretrained(paths.tokenizer)
        for first in SENTENCES:
            for second in SENTENCES:
                expected, got = ours.encode(first, second), theirs(first, second)
                assert got["input_ids"] == expected.ids
                assert got["token_type_ids"] == expected.type_ids
            assert theirs.decode(theirs(first)["input_ids"]) == ours.decode(ours.encode(first).ids, False)
        assert theirs.mask_token_id == 4
        assert theirs.model_max_length == load_settings(REPO).model.max_positions
        assert len(theirs) == 102


def test_a_vocabulary_larger_than_the_corpus_allows_is_refused(paths: Paths) -> None:
    write_corpus(paths.corpus, "train-00000", ["winter garden"] * 3)
    with pytest.raises(ConfigError, match="yields (\\d+) vocabulary entries, 5000 are asked for") as caught:
        build(paths, vocab_size=5000)
    assert caught.value.exit_code == 2
    assert "lower tokenizer.vocab_size to at most 3" in str(caught.value)
    assert not paths.tokenizer.exists()


def test_a_vocabulary_too_small_for_the_characters_is_refused(paths: Paths) -> None:
    write_corpus(paths.corpus, "train-00000", ["".join(map(chr, range(0x400, 0x500)))])
    with pytest.raises(ConfigError, match="tokenizer.max_alphabet"):
        build(paths, vocab_size=100)


def test_only_the_most_frequent_characters_get_entries() -> None:
    characters = count_characters(iter([["aaa bbb"], ["ab!!! cab! dÉ", "中中中中"]]))
    assert characters["É"] == 1
    chosen = alphabet_of(characters, lowercase=True, max_alphabet=4)
    assert (chosen.characters, chosen.inside) == (["!", "a", "b", "中"], ["a", "b"])
    assert chosen.left_out == ["c", "d", "e"] and chosen.left_out_share == 3 / 21
    assert alphabet_of(characters, lowercase=True, max_alphabet=9).inside == ["a", "b", "c", "d", "e"]
    assert alphabet_of(characters, lowercase=False, max_alphabet=9).inside == ["a", "b", "c", "d", "É"]


def many_characters(count: int) -> Counter[str]:
    """Chinese characters with the frequencies of a large corpus: the n-th is 1 / n times as frequent as the first."""
    return Counter({chr(0x4E00 + rank): 10**7 // (rank + 1) for rank in range(count)})


def test_the_alphabet_covers_the_share_of_the_text_that_is_asked_for() -> None:
    characters = many_characters(8000)
    for coverage in (0.99, 0.9995, 1.0):
        chosen = alphabet_of(characters, lowercase=True, coverage=coverage)
        assert chosen.left_out_share <= 1 - coverage
        assert sum(characters[c] for c in chosen.characters[:-1]) < coverage * characters.total()
        assert Counter([*chosen.characters, *chosen.left_out]).keys() == characters.keys()
    assert alphabet_of(characters, lowercase=True, coverage=0.9995, max_alphabet=1234).left_out == [
        chr(0x4E00 + rank) for rank in range(1234, 8000)
    ]


def test_an_alphabet_of_a_thousand_characters_loses_none() -> None:
    characters = many_characters(1000) | Counter({"a": 10**12})
    assert alphabet_of(characters, lowercase=True, coverage=0.5).left_out == [chr(0x4E00 + 999)]
    del characters[chr(0x4E00 + 999)]
    assert alphabet_of(characters, lowercase=True, coverage=0.5).left_out == []


def test_characters_that_were_left_out_are_named(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    build(paths, vocab_size=100, max_alphabet=17)
    facts = read_manifest(paths.tokenizer)["alphabet"]
    assert (facts["characters"], facts["left_out"], facts["most_frequent_left_out"]) == (17, 2, "n.")
    assert 0.05 < facts["left_out_share"] < 0.06
    printed = capsys.readouterr().out
    assert f"2 characters, {facts['left_out_share']:.2%} of the text, have no entry" in printed
    assert "(the most frequent: n .)" in printed and "raise tokenizer.max_alphabet (now 17)" in printed
    build(paths, vocab_size=100)
    assert "alphabet" not in read_manifest(paths.tokenizer)
    assert "no entry" not in capsys.readouterr().out


def test_where_characters_are_left_out_they_are_the_remedy_for_a_small_vocabulary(paths: Paths) -> None:
    """A Chinese vocabulary is its characters: a smaller one would only make more of the text [UNK]."""
    text = "".join(character * min(count // 10**3, 50) for character, count in many_characters(1500).items())
    write_corpus(paths.corpus, "train-00000", [text])
    with pytest.raises(ConfigError, match=r"yields 1\d{3} vocabulary entries, 5000 are asked for") as caught:
        build(paths, vocab_size=5000, character_coverage=0.9)
    assert "raise tokenizer.character_coverage (now 0.9): " in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        build(paths, vocab_size=5000, character_coverage=1.0)
    assert "character_coverage" not in str(caught.value)


def test_training_takes_a_sample_of_about_the_size_asked_for(paths: Paths) -> None:
    build(paths, vocab_size=200, max_training_chars=60_000)
    assert 30_000 < read_manifest(paths.tokenizer)["trained_on"]["characters"] < 90_000


def test_the_sample_is_independent_of_the_held_out_split_by_document_id() -> None:
    ids = [f"{number * 2**52:016x}" for number in range(4096)]
    assert 0.4 < sum(in_sample(doc_id, 0.5) for doc_id in ids[:2048]) / 2048 < 0.6
    assert all(in_sample(doc_id, 1.0) for doc_id in ids)


def test_the_sample_is_the_same_in_every_version() -> None:
    """A vocabulary that was trained on a sample can be trained again: the hash may not change."""
    ids = [f"{number:016x}" for number in range(24)]
    assert [number for number, doc_id in enumerate(ids) if in_sample(doc_id, 0.25)] == [2, 16, 19]


def test_an_existing_vocabulary_keeps_its_ids(paths: Paths) -> None:
    if not BERT_VOCABULARY.exists():
        pytest.skip("the BERT vocabulary is not on this machine")
    build(paths, vocab_file=str(BERT_VOCABULARY.resolve()))
    facts = read_manifest(paths.tokenizer)
    assert facts["vocab_size"] == 30522
    assert facts["vocab_file"] == {"name": BERT_VOCABULARY.name, "sha256": sha256(BERT_VOCABULARY)}
    tokenizer = Tokenizer.from_file(str(paths.tokenizer / "tokenizer.json"))
    assert tokenizer.encode("Hello, world!").ids == [101, 7592, 1010, 2088, 999, 102]
    assert (paths.tokenizer / "vocab.txt").read_bytes().rstrip(b"\n") == BERT_VOCABULARY.read_bytes().rstrip(b"\n")


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_entries_of_a_given_vocabulary_may_hold_line_ends_of_other_kinds(paths: Paths, line_end: str) -> None:
    entries = [*SPECIAL_TOKENS, "a", "\u2028", "##\u2029", "b\rc", "\x85"]
    (paths.root / "own.txt").write_bytes("".join(entry + line_end for entry in entries).encode())
    build(paths, vocab_file="own.txt")
    tokenizer = Tokenizer.from_file(str(paths.tokenizer / "tokenizer.json"))
    assert tokenizer.get_vocab() == {entry: number for number, entry in enumerate(entries)}
    assert (paths.tokenizer / "vocab.txt").read_bytes() == ("\n".join(entries) + "\n").encode()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[PAD]\n[UNK]\n[CLS]\na\n", r"lacks \[SEP\], \[MASK\]"),
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n", r"repeats 1 entries, first 'a' in lines \[6, 8\]"),
        (  # as BlingFire's uncased vocabulary
            "[pad]\n[unk]\n[cls]\n[sep]\n[mask]\na\n",
            r"lacks \[PAD\].*it has .*\[mask\]: its special tokens are in lower case(.|\n)*write .*\[CLS\] for \[cls\]",
        ),
        ("a\n[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", r"first line of the vocabulary is 'a'"),
        ("\udcff", "not UTF-8"),
    ],
)
def test_an_unusable_vocabulary_file_is_named(paths: Paths, content: str, complaint: str) -> None:
    (paths.root / "own.txt").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=complaint) as caught:
        build(paths, vocab_file="own.txt")
    assert "own.txt" in str(caught.value)


def test_a_missing_vocabulary_file_is_a_wrong_setting(paths: Paths) -> None:
    with pytest.raises(ConfigError, match="own.txt"):
        build(paths, vocab_file="own.txt")


def test_an_empty_or_damaged_corpus_is_refused(paths: Paths) -> None:
    (paths.corpus / "train-00000.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match="train-00000.parquet"):
        build(paths, vocab_size=100)
    (paths.corpus / "train-00000.parquet").unlink()
    write_manifest(paths.corpus)
    with pytest.raises(DataError, match="no training text"):
        build(paths, vocab_size=100)


def beside(paths: Paths, *others: Path) -> list[list[str]]:
    """The lines of the table, without the column of names."""
    console = Console(file=io.StringIO(), width=200)
    show_beside(paths, list(others), console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return [line.split()[-4:] for line in lines if "%" in line]


def test_other_vocabularies_are_measured_on_the_same_words(paths: Paths, tmp_path: Path) -> None:
    build(paths, vocab_size=900, lowercase=False)
    letters = [*SPECIAL_TOKENS, *"bdfgklmnprstaeiou.", *(f"##{letter}" for letter in "bdfgklmnprstaeiouß")]
    (tmp_path / "vocab.txt").write_text("\n".join(letters) + "\n")
    library = Tokenizer(models.Unigram([("<unk>", 0.0), ("\u2581", -1.0), ("b", -2.0)], unk_id=0))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.enable_truncation(1)
    library.save(str(tmp_path / "other.json"))
    own, plain, unigram = beside(paths, tmp_path / "vocab.txt", tmp_path / "other.json")
    held_out = read_manifest(paths.tokenizer)["held_out"]
    assert own == [
        "900",
        f"{held_out['wordpieces_per_word']:.2f}",
        f"{held_out['characters'] / (held_out['words'] * held_out['wordpieces_per_word']):.2f}",
        f"{held_out['unknown_rate']:.3%}",
    ]
    # of lowercased text, as it has no capitals: only what has an é, or begins with ß, is unknown
    texts = [text for batch in _heldout_texts(paths.corpus) for text in batch]
    words = [word for text in texts for word in text.lower().replace(".", " .").split()]
    # BERT strips accents from lowercased text
    unknown = sum(word.startswith("ß") for word in words)
    pieces = sum(1 if word.startswith("ß") else len(word) for word in words)
    characters = sum(map(len, texts))
    assert plain == [
        str(len(letters)),
        f"{pieces / len(words):.2f}",
        f"{characters / pieces:.2f}",
        f"{unknown / pieces:.3%}",
    ]
    library.no_truncation()
    ids = [id for text in texts for line in text.split("\n") for id in library.encode(line).ids]
    assert unigram == [
        "3",
        f"{len(ids) / len(words):.2f}",
        f"{characters / len(ids):.2f}",
        f"{ids.count(0) / len(ids):.3%}",
    ]


@pytest.mark.parametrize("word", ["h\u1ecdc", "\ud55c\uad6d"])  # Vietnamese, Korean
def test_a_vocabulary_with_accents_is_measured_on_text_with_accents(tmp_path: Path, word: str) -> None:
    """As `electra init` makes it for some languages: lowercase, accents kept."""
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "a", word]) + "\n", encoding="utf-8")
    assert _load(tmp_path / "vocab.txt").encode(f"A {word}", add_special_tokens=False).tokens == ["a", word]


def test_a_vocabulary_beside_that_is_missing_or_broken_is_named(paths: Paths, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"manifest\.json"):
        beside(paths, tmp_path / "vocab.txt")
    build(paths, vocab_size=900)
    with pytest.raises(ConfigError, match=r"there is no file .*vocab\.txt"):
        beside(paths, tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match="cannot be read"):
        beside(paths, tmp_path)
    Tokenizer(models.BPE({"a": 0}, [], unk_token="<unk>")).save(str(tmp_path / "tokenizer.json"))  # by a fuzzer
    with pytest.raises(DataError, match="cannot be used"):
        beside(paths, tmp_path)
