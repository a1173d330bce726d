"""How likely texts are: pseudo-log-likelihoods of a model pre-trained by ``electric``, one pass a text."""

from collections.abc import Iterable, Iterator
from itertools import islice

import torch
from tokenizers import Tokenizer

from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.model.pretrained import load_objective, special_token_ids
from electra.objectives.electric import Electric

_BATCH = 64


@torch.inference_mode()
def score_lines(paths: Paths, lines: Iterable[str]) -> Iterator[tuple[str, float, int]]:
    """Each text with the sum over its wordpieces of log p(wordpiece | the others), nats, and how many they are.

    Texts are cut at the model's length. Lines stream: nothing is kept.

    Raises:
        DataError: the model was pre-trained by another method.
    """
    model = load_objective(paths.pretrained)
    if not isinstance(model, Electric):
        raise DataError(
            f"pre-trained by objective {model.method.objective}, which does not score texts",
            where=str(paths.pretrained),
            next_step="pre-train with: dvc exp run -S pretrain.objective=electric",
        )
    tokenizer = Tokenizer.from_file(str(paths.tokenizer / "tokenizer.json"))
    tokenizer.enable_padding(pad_id=special_token_ids(paths.tokenizer)[0])
    tokenizer.enable_truncation(model.discriminator.config.max_positions)
    texts = (line.rstrip("\n") for line in lines)
    while batch := list(islice(texts, _BATCH)):
        encoded = tokenizer.encode_batch(batch)
        tokens_BT = torch.tensor([e.ids for e in encoded])
        mask_BT = torch.tensor([e.attention_mask for e in encoded]).bool()
        candidate_BT = mask_BT & ~torch.tensor([e.special_tokens_mask for e in encoded]).bool()
        scores_B = model.pseudo_log_likelihood(tokens_BT, torch.zeros_like(tokens_BT), mask_BT, candidate_BT)
        yield from zip(batch, scores_B.tolist(), candidate_BT.sum(1).tolist(), strict=True)
