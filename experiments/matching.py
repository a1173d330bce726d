"""How much attention heads look at the same token in the other text of a pair.

A head that does so compares the two texts word by word, which fine-tuning on similarity can build on.
"""

import json
import math
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from electra.model.attention import Rotation, SelfAttention, rotate
from electra.model.encoder import Encoder
from electra.model.pretrained import load_encoder

NUM_PAIRS = 400


def read_pairs(file: Path) -> list[tuple[str, str]]:
    """Return the first :data:`NUM_PAIRS` pairs of texts of a file of a task's rows."""
    with open(file, encoding="utf-8") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(NUM_PAIRS), strict=False)]
    return [(row["text_a"], row["text_b"]) for row in rows]


@torch.no_grad()
def largest_share(weights: Path, tokenizer: Tokenizer, pairs: list[tuple[str, str]]) -> float:
    """Return the largest value over heads of the attention from a token to its copies in the other text.

    Averaged over all tokens that have a copy there, [CLS] and [SEP] left out; 1 is all of a head's attention.

    Args:
        weights: folder of a pre-trained model, or of a milestone.
    """
    fast = load_encoder(weights)
    encoder = Encoder(fast.config).eval()  # plain modules: the CPU loops have no attention weights to look at
    encoder.load_state_dict(fast.state_dict())
    shares: list[Tensor] = []  # of the layers [H, T, T]
    for layer in encoder.layers:
        layer.attention.register_forward_pre_hook(lambda module, inputs: shares.append(weights_of(module, *inputs)))
    total, number = torch.zeros(()), 0
    for pair in pairs:
        encoded = tokenizer.encode(*pair)
        ids, segments = torch.tensor(encoded.ids), torch.tensor(encoded.type_ids)
        is_word = torch.tensor(encoded.special_tokens_mask) == 0
        is_copy = (ids[:, None] == ids) & (segments[:, None] != segments) & is_word & is_word[:, None]
        shares.clear()
        encoder(ids[None], segments[None])
        on_copies = (torch.stack(shares) * is_copy).sum((-1, -2))  # [layers, H]
        total, number = total + on_copies, number + int(is_copy.any(-1).sum())
    return float(total.max()) / max(number, 1)


def weights_of(
    attention: SelfAttention, hidden_BTD: Tensor, bias: Tensor | None, rotation: Rotation | None, *_: object
) -> Tensor:
    """Return the attention weights of the first example [H, T, T]."""
    q_BTHd, k_BTHd, _ = attention.qkv(hidden_BTD).unflatten(-1, (3, attention.num_heads, -1)).unbind(2)
    if rotation is not None:
        q_BTHd, k_BTHd = rotate(q_BTHd, rotation), rotate(k_BTHd, rotation)
    scores_HTT = q_BTHd[0].transpose(0, 1) @ k_BTHd[0].permute(1, 2, 0) / math.sqrt(q_BTHd.shape[-1])
    return (scores_HTT if bias is None else scores_HTT + bias[0]).softmax(-1)
