"""Attention to the same token in the other text of a pair."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from electra.model.encoder import Encoder
from electra.model.shape import EncoderConfig
from experiments import matching

SPECIAL = {"[CLS]": 0, "[SEP]": 1}
PAIRS = [("a b c", "b d"), ("a a", "a"), ("c", "d")]


@pytest.fixture
def tokenizer() -> Tokenizer:
    words = {**SPECIAL, "a": 2, "b": 3, "c": 4, "d": 5, "[UNK]": 6}
    found = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    found.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=list(SPECIAL.items())
    )
    return found


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> Encoder:
    config = EncoderConfig(7, 8, 8, 2, 2, 16, dropout=0.0, attention_dropout=0.0, positions="rotary")
    found = Encoder(config).eval()
    monkeypatch.setattr(matching, "load_encoder", lambda _: found)
    return found


def test_attention_that_is_even_falls_on_copies_by_their_number(encoder: Encoder, tokenizer: Tokenizer) -> None:
    for layer in encoder.layers:
        torch.nn.init.zeros_(layer.attention.qkv.weight)  # type: ignore[union-attr,arg-type]
        torch.nn.init.zeros_(layer.attention.qkv.bias)  # type: ignore[union-attr,arg-type]
    # both b see one copy among 8 tokens; both first a see one among 6, and the second text's a sees two
    expected = (2 / 8 + 2 / 6 + 2 / 6) / 5
    assert matching.largest_share(Path("weights"), tokenizer, PAIRS) == pytest.approx(expected)


def test_the_share_is_that_of_the_head_that_looks_at_copies_most(encoder: Encoder, tokenizer: Tokenizer) -> None:
    found: list[torch.Tensor] = []
    for layer in encoder.layers:
        layer.attention.register_forward_pre_hook(  # type: ignore[union-attr]
            lambda module, inputs: found.append(matching.weights_of(module, *inputs))
        )
    share = matching.largest_share(Path("weights"), tokenizer, PAIRS)

    texts = [["[CLS]", *first.split(), "[SEP]", *second.split(), "[SEP]"] for first, second in PAIRS]
    ends = [text.index("[SEP]") for text in texts]
    of_heads = []
    with torch.no_grad():
        for text in texts:
            ids = [tokenizer.token_to_id(token) for token in text]
            segments = [int(at > text.index("[SEP]")) for at in range(len(text))]
            encoder(torch.tensor([ids]), torch.tensor([segments]))
    by_pair = [found[at : at + 2] for at in range(len(found) - 6, len(found), 2)]
    for layer in range(2):
        for head in range(2):
            on_copies = []
            for text, end, weights in zip(texts, ends, by_pair, strict=True):
                for at, token in enumerate(text):
                    copies = [to for to, other in enumerate(text) if other == token and (to > end) != (at > end)]
                    if token not in SPECIAL and copies:
                        on_copies.append(sum(float(weights[layer][head, at, to]) for to in copies))
            of_heads.append(sum(on_copies) / len(on_copies))
    assert share == pytest.approx(max(of_heads), rel=1e-4) and max(of_heads) > min(of_heads)


def test_the_weights_are_those_that_the_layer_mixes_by(encoder: Encoder) -> None:
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    attention = encoder.layers[1].attention

    def keep(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        weights = matching.weights_of(module, *inputs)  # type: ignore[arg-type]
        values_THd = module.qkv(inputs[0])[0].unflatten(-1, (3, 2, -1))[:, 2]  # type: ignore[operator]
        mixed = torch.einsum("hqk,khd->qhd", weights, values_THd).flatten(1)
        seen.append((module.output(mixed), output[0]))  # type: ignore[operator]

    attention.register_forward_hook(keep)  # type: ignore[union-attr]
    with torch.no_grad():
        encoder(torch.tensor([[0, 2, 1, 2, 3, 1]]), torch.tensor([[0, 0, 0, 1, 1, 1]]))
    ((mixed, output),) = seen
    assert torch.allclose(mixed, output, atol=1e-5)


def test_pairs_are_read_from_a_tasks_rows(tmp_path: Path) -> None:
    rows = ['{"text_a": "one", "text_b": "two", "label": 1}'] * (matching.NUM_PAIRS + 5)
    (tmp_path / "dev.jsonl").write_text("\n".join(rows))
    assert matching.read_pairs(tmp_path / "dev.jsonl") == [("one", "two")] * matching.NUM_PAIRS
