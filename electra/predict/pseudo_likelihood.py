"""Pseudo-log-likelihoods of texts, by a model pre-trained by ``electric``.

Shape legend: B texts or parts of texts, T tokens.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from electra.common.errors import DataError
from electra.common.lines import batches
from electra.common.parsing import read_tokenizer
from electra.common.paths import Paths
from electra.model.pretrained import require_tokenizer, special_token_ids
from electra.objectives.saved import load_objective

_BATCH = 64


@dataclass
class _Part:
    """Wordpieces of a text in one model input; ``first`` to ``last`` (exclusive) are scored."""

    text: int
    ids: list[int]
    first: int
    last: int


@torch.inference_mode()
def score_lines(
    paths: Paths, lines: Iterable[str], device: torch.device, bf16: bool
) -> Iterator[tuple[str, float, int]]:
    """Yield each text with its sum of log p(wordpiece | the others) in nats, and its number of wordpieces.

    A text longer than the model's inputs is scored in parts that overlap by half: each wordpiece once, in the part with
    most context on both sides. Lines are streamed.

    Args:
        bf16: compute matrix products in bf16.

    Raises:
        DataError: the model was pre-trained by another method, or with another tokenizer.
    """
    model = load_objective(paths.pretrained)
    if not model.scores_texts:
        raise DataError(
            f"pre-trained by objective {model.method.objective}, which does not score texts",
            where=str(paths.pretrained),
            next_step="pre-train with: dvc exp run -S pretrain.objective=electric",
        )
    model.to(device)
    tokenizer = read_tokenizer(paths.tokenizer / "tokenizer.json")
    require_tokenizer(paths.pretrained, paths.tokenizer)
    tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text
    special = special_token_ids(paths.tokenizer)
    room = model.main_encoder.config.max_positions - 2  # without [CLS] and [SEP]
    for texts in batches((line.rstrip("\r\n") for line in lines), _BATCH, len):
        ids = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
        scores = np.zeros(len(texts))
        parts = (part for number, text_ids in enumerate(ids) for part in _parts(number, text_ids, room))
        for batch in batches(parts, _BATCH, lambda _: 0):
            inputs = [tensor.to(device) for tensor in _inputs(batch, special)]
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                found_B = model.pseudo_log_likelihood(*inputs)
            np.add.at(scores, [part.text for part in batch], found_B.double().cpu().numpy())
        yield from zip(texts, scores.tolist(), map(len, ids), strict=True)


def _parts(text: int, ids: list[int], room: int) -> Iterator[_Part]:
    """Yield the parts of a text, ``room`` wordpieces long; neighbours meet in the middle of their overlap."""
    starts = [*range(0, len(ids) - room, max(1, room // 2)), max(0, len(ids) - room)]
    borders = [0, *((here + room + after) // 2 for here, after in zip(starts, starts[1:], strict=False)), len(ids)]
    for number, start in enumerate(starts):
        yield _Part(text, ids[start : start + room], borders[number] - start, borders[number + 1] - start)


def _inputs(parts: list[_Part], special: list[int]) -> list[torch.Tensor]:
    """Return tokens, segments, mask and candidates [B, T] of parts, with [CLS] before and [SEP] after each."""
    pad, cls, sep = special[:3]
    width = max(len(part.ids) for part in parts) + 2
    tokens_BT = torch.full((len(parts), width), pad)
    mask_BT = torch.zeros((len(parts), width), dtype=torch.bool)
    candidate_BT = torch.zeros((len(parts), width), dtype=torch.bool)
    for row, part in enumerate(parts):
        tokens_BT[row, : len(part.ids) + 2] = torch.tensor([cls, *part.ids, sep])
        mask_BT[row, : len(part.ids) + 2] = True
        candidate_BT[row, part.first + 1 : part.last + 1] = True
    return [tokens_BT, torch.zeros_like(tokens_BT), mask_BT, candidate_BT]
