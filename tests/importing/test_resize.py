"""A new vocabulary keeps what was learned about wordpieces."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from electra.common.artifacts import read_json, sha256
from electra.common.errors import ConfigError, DataError
from electra.config import Method, Model
from electra.config.text import SPECIAL_TOKENS
from electra.hub.importing.resize import resize_vocabulary
from electra.model.pretrained import save_pretrained
from electra.objectives.base import build_objective
from electra.objectives.electra import Electra
from electra.objectives.saved import load_electra, load_objective
from electra.text.tokenizer.wordpiece import make_tokenizer

OLD = [*SPECIAL_TOKENS, "un", "able", "want", "##able", "##ed", "##s", "go", "a", "##b"]
NEW = ["[PAD]", "go", "unwanted", "[MASK]", "##ables", "[UNK]", "want", "zebra", "[CLS]", "##ed", "wants", "[SEP]"]
TINY = Model(
    num_layers=1, hidden_size=16, num_heads=2, intermediate_size=32, embedding_size=8, generator_width=0.5,
    max_positions=16, initializer_range=0.01,
)  # fmt: skip


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer").mkdir()
    make_tokenizer(OLD, lowercase=True).save(str(tmp_path / "tokenizer/tokenizer.json"))
    return tmp_path / "tokenizer"


@pytest.fixture
def new_vocabulary(tmp_path: Path) -> Path:
    (tmp_path / "new.txt").write_text("\n".join(NEW) + "\n")
    return tmp_path / "new.txt"


def save_random(folder: Path, tokenizer: Path, model: Model = TINY, method: Method | None = None) -> None:
    torch.manual_seed(1)
    objective = build_objective(model, len(OLD), 4, method or Method())
    weights = {name: torch.randn_like(parameter) for name, parameter in objective.named_parameters()}
    save_pretrained(folder, weights, model, len(OLD), tokenizer, method)


@pytest.fixture
def resized(tokenizer: Path, new_vocabulary: Path, tmp_path: Path) -> tuple[Electra, Electra]:
    save_random(tmp_path / "before", tokenizer)
    resize_vocabulary(tmp_path / "before", new_vocabulary, tmp_path / "after", tokenizer)
    return load_electra(tmp_path / "before"), load_electra(tmp_path / "after")


def tables(electra: Electra) -> list[torch.Tensor]:
    assert electra.generator_head is not None
    return [electra.discriminator.embeddings.word.weight, electra.generator_head.bias]


def test_rows_follow_their_wordpiece(resized: tuple[Electra, Electra]) -> None:
    for old, new in zip(*map(tables, resized), strict=True):
        assert len(new) == len(NEW)
        for entry in set(OLD) & set(NEW):
            assert torch.equal(new[NEW.index(entry)], old[OLD.index(entry)]), entry


@pytest.mark.parametrize(
    ("entry", "pieces"),
    [("unwanted", []), ("wants", ["want", "##s"]), ("##ables", ["##able", "##s"])],
)
def test_new_wordpieces_are_means_of_the_old_ones(
    entry: str, pieces: list[str], resized: tuple[Electra, Electra]
) -> None:
    """unwanted cannot be spelt: there is no ##want. ##ables continues a word, so it is never ``able`` + ``##s``."""
    for old, new in zip(*map(tables, resized), strict=True):
        if pieces:
            expected = old[[OLD.index(piece) for piece in pieces]].mean(0)
            assert torch.allclose(new[NEW.index(entry)], expected, atol=1e-6)
        else:
            assert new[NEW.index(entry)].abs().max() <= 2 * TINY.initializer_range


def test_what_the_old_vocabulary_cannot_spell_starts_as_before_pretraining(
    resized: tuple[Electra, Electra],
) -> None:
    table, bias = (tensor[NEW.index("zebra")] for tensor in tables(resized[1]))
    assert 0 < table.abs().max() <= 2 * TINY.initializer_range, "truncated at two deviations"
    assert bias == 0


def test_all_other_parameters_stay(resized: tuple[Electra, Electra]) -> None:
    old, new = (dict(model.named_parameters()) for model in resized)
    changed = {name for name in old if old[name].shape != new[name].shape or not torch.equal(old[name], new[name])}
    assert old.keys() == new.keys()
    assert changed == {"discriminator.embeddings.word.weight", "generator_head.bias"}
    assert resized[1].mask_id == NEW.index("[MASK]")


def test_the_counts_are_printed(
    tokenizer: Path, new_vocabulary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_random(tmp_path / "before", tokenizer)
    resize_vocabulary(tmp_path / "before", new_vocabulary, tmp_path / "after", tokenizer)
    assert "8 carried over, 2 composed of old wordpieces, 2 random" in capsys.readouterr().out


def test_the_new_folder_can_be_resized_again_and_twice_gives_the_same(
    tokenizer: Path, new_vocabulary: Path, tmp_path: Path
) -> None:
    save_random(tmp_path / "before", tokenizer)
    for name in ("after", "again"):
        resize_vocabulary(tmp_path / "before", new_vocabulary, tmp_path / name, tokenizer)
    assert sha256(tmp_path / "after/model.safetensors") == sha256(tmp_path / "again/model.safetensors")
    resize_vocabulary(tmp_path / "after", new_vocabulary, tmp_path / "third")  # its tokenizer is with it
    assert sha256(tmp_path / "after/model.safetensors") == sha256(tmp_path / "third/model.safetensors")
    facts = read_json(tmp_path / "after/config.json")
    assert facts["tokenizer_sha256"] == sha256(tmp_path / "after/tokenizer/tokenizer.json")
    assert facts["vocab_size"] == len(NEW)


@pytest.mark.parametrize(
    ("model", "method", "words"),
    [
        (TINY.model_copy(update={"embedding_sharing": "none"}), Method(), "generator.embeddings.word.weight"),
        (
            TINY.model_copy(update={"embedding_sharing": "gradient_disentangled"}),
            Method(),
            "discriminator.embeddings.word_difference.weight",
        ),
        (TINY, Method(objective="bert"), "encoder.embeddings.word.weight"),
    ],
    ids=["none", "gradient_disentangled", "bert"],
)
def test_every_table_of_words_is_resized(
    model: Model, method: Method, words: str, tokenizer: Path, new_vocabulary: Path, tmp_path: Path
) -> None:
    save_random(tmp_path / "before", tokenizer, model, method)
    resize_vocabulary(tmp_path / "before", new_vocabulary, tmp_path / "after", tokenizer)
    old, new = (dict(load_objective(tmp_path / name).named_parameters())[words] for name in ("before", "after"))
    assert torch.equal(new[NEW.index("go")], old[OLD.index("go")])


def test_another_tokenizer_or_none_is_refused(tokenizer: Path, new_vocabulary: Path, tmp_path: Path) -> None:
    save_random(tmp_path / "before", tokenizer)
    with pytest.raises(ConfigError, match="--tokenizer data/tokenizer"):
        resize_vocabulary(tmp_path / "before", new_vocabulary, tmp_path / "after")
    make_tokenizer(OLD, lowercase=False).save(str(tokenizer / "tokenizer.json"))
    with pytest.raises(ConfigError, match="not the tokenizer the weights were made with"):
        resize_vocabulary(tmp_path / "before", new_vocabulary, tmp_path / "after", tokenizer)


@pytest.mark.parametrize(("lowercase", "strip_accents"), [(False, None), (True, False), (True, None)])
def test_the_new_tokenizer_normalises_as_the_old_one(
    lowercase: bool, strip_accents: bool | None, tokenizer: Path, new_vocabulary: Path, tmp_path: Path
) -> None:
    old = make_tokenizer(OLD, lowercase=lowercase, strip_accents=strip_accents)
    old.save(str(tokenizer / "tokenizer.json"))
    save_random(tmp_path / "before", tokenizer)
    resize_vocabulary(tmp_path / "before", new_vocabulary, tmp_path / "after", tokenizer)
    new = Tokenizer.from_file(str(tmp_path / "after/tokenizer/tokenizer.json"))
    assert new.normalizer.normalize_str("E\u0301TE\u0301") == old.normalizer.normalize_str("E\u0301TE\u0301")
    said = json.loads((tmp_path / "after/tokenizer/tokenizer_config.json").read_text())
    assert (said["do_lower_case"], said.get("strip_accents")) == (lowercase, strip_accents)


def test_special_tokens_must_stay(tokenizer: Path, new_vocabulary: Path, tmp_path: Path) -> None:
    save_random(tmp_path / "before", tokenizer)
    new_vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\ngo\n")
    with pytest.raises(DataError, match=r"lacks \[MASK\]"):
        resize_vocabulary(tmp_path / "before", new_vocabulary, tmp_path / "after", tokenizer)
    assert not (tmp_path / "after").exists()
