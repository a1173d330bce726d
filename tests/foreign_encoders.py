"""Folders with tiny third-party encoders: random weights, and a tokenizer with a few words."""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, ByteLevelBPETokenizer
from transformers import AutoModel, PreTrainedConfig, PreTrainedTokenizerBase
from transformers.models.albert import AlbertConfig, AlbertTokenizer
from transformers.models.bert import BertConfig, BertTokenizer
from transformers.models.deberta import DebertaConfig, DebertaTokenizer
from transformers.models.deberta_v2 import DebertaV2Config, DebertaV2Tokenizer
from transformers.models.gpt2 import GPT2Config, GPT2Tokenizer
from transformers.models.roberta import RobertaConfig, RobertaTokenizer
from transformers.models.xlnet import XLNetConfig, XLNetTokenizer

from electra.finetune.encoders import EncoderSource, load_transformers_encoder
from tests.small_tasks import VOCAB, WORDS

SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
LETTERS = [*"abcdefghijklmnopqrstuvwxyz.?,"]
MAKES = ["bert", "roberta", "xlnet", "albert", "deberta", "deberta-v2", "gpt2"]


def write_encoder(folder: Path, make: str, **changes: Any) -> Path:
    """Write the folder by ``save_pretrained`` of model and tokenizer."""
    tokenizer = _tokenizer(make)
    torch.manual_seed(0)
    model = AutoModel.from_config(_config(make, len(tokenizer), tokenizer.pad_token_id, **changes))
    for parameter in model.parameters():  # the usual start is so narrow that all tokens look alike
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def load(folder: Path, max_length: int = 32):
    """Encoder, vocabulary and facts of a folder."""
    return load_transformers_encoder(EncoderSource.named(folder), max_length)


def _config(make: str, size: int, pad: int | None, **changes: Any) -> PreTrainedConfig:
    positions: dict[str, Any] = {"max_position_embeddings": 64, "vocab_size": size}
    match make:
        case "bert":
            return BertConfig(**{**SHAPE, **positions, **changes})
        case "roberta":
            return RobertaConfig(**{**SHAPE, **positions, "pad_token_id": pad, "type_vocab_size": 1, **changes})
        case "albert":
            return AlbertConfig(**{**SHAPE, **positions, "embedding_size": 8, **changes})
        case "deberta":
            relative = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
            return DebertaConfig(**{**SHAPE, **positions, **relative, "type_vocab_size": 0, **changes})
        case "deberta-v2":
            relative = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
            relative |= {"share_att_key": True, "norm_rel_ebd": "layer_norm", "position_buckets": 16}
            return DebertaV2Config(**{**SHAPE, **positions, **relative, "type_vocab_size": 0, **changes})
        case "gpt2":
            return GPT2Config(**{"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": size})
    return XLNetConfig(d_model=16, n_layer=2, n_head=2, d_inner=32, vocab_size=size)


def _tokenizer(make: str) -> PreTrainedTokenizerBase:
    match make:
        case "bert":
            return BertTokenizer(vocab={token: i for i, token in enumerate(VOCAB)})
        case "roberta":
            return RobertaTokenizer(**_bytes(["<s>", "<pad>", "</s>", "<unk>", "<mask>"]))
        case "deberta":
            return DebertaTokenizer(**_bytes(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]))
        case "gpt2":
            return GPT2Tokenizer(**_bytes(["<|endoftext|>"]))
        case "albert":
            return AlbertTokenizer(vocab=_pieces(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]))
        case "deberta-v2":
            return DebertaV2Tokenizer(vocab=_pieces(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    special = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    return XLNetTokenizer(vocab=_pieces(special))


def _pieces(special: list[str]) -> list[tuple[str, float]]:
    words = [(f"▁{word}", -3.0) for word in WORDS]
    return [(token, 0.0) for token in special] + words + [(letter, -6.0) for letter in [*LETTERS, "▁"]]


def _bytes(special: list[str]) -> dict[str, Any]:
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        [f" {word}" for word in WORDS] * 3, vocab_size=400, special_tokens=[AddedToken(t) for t in special]
    )
    model = json.loads(trained.to_str())["model"]
    return {"vocab": model["vocab"], "merges": [tuple(merge) for merge in model["merges"]]}
