"""Pre-trained weights on single sentences: how likely each token is a replacement, and what fits in its place."""

from dataclasses import dataclass

import torch

from electra.predict.probe import Probe

MASK = "[MASK]"  # in a text that somebody gives; other special tokens are text


@dataclass(frozen=True)
class Piece:
    """A wordpiece of a text.

    Attributes:
        id: in the vocabulary.
        text: as it stands in the text, with what stands before it since the last piece.
        before: white space and dropped characters before it.
    """

    id: int
    text: str
    before: str

    @property
    def is_mask(self) -> bool:
        return self.text == MASK


def pieces_of(probe: Probe, text: str) -> list[Piece]:
    """Wordpieces of a text in which ``[MASK]`` stands for a token to fill; as many as the encoder has room for."""
    pieces, rest = list[Piece](), ""
    room = probe.encoder.config.max_positions - 2
    for number, part in enumerate(text.split(MASK)):
        if number:
            pieces.append(Piece(probe.mask, MASK, rest))
        encoding, done = probe.tokenizer.encode(part, add_special_tokens=False), 0
        for token, (first, last) in zip(encoding.ids, encoding.offsets, strict=True):
            pieces.append(Piece(token, part[max(first, done) : last], part[done:first]))
            done = max(done, last)
        rest = part[done:]
    return pieces[:room]


@torch.inference_mode()
def replaced(probe: Probe, ids: list[int]) -> list[float] | None:
    """The discriminator's P(replaced) of each wordpiece; None for methods without one, and for Electric's scores."""
    if probe.objective.method.objective == "electric":
        return None
    values = probe.one_pass([ids])
    return None if values is None else [float(1 - value.exp()) for value in values[0]]


@torch.inference_mode()
def fills(probe: Probe, ids: list[int], places: list[int], number: int) -> list[list[tuple[str, float]]]:
    """The most probable wordpieces in each of these places, all of them masked, with their probabilities.

    By the generator, or the masked language model that was pre-trained; nothing for methods without either.
    """
    encoder, head = probe.language_model()
    if encoder is None or head is None or not places:
        return []
    masked = [probe.mask if place in places else token for place, token in enumerate(ids)]
    row_TD = next(probe.hidden(encoder, [[probe.cls, *masked, probe.sep]]))[0]
    chosen_1ND = row_TD[[place + 1 for place in places]][None]
    with probe.precision():
        shares_NV = head(chosen_1ND)[0].float().softmax(-1)
    values, tokens = shares_NV.topk(min(number, shares_NV.shape[1]))
    return [
        [(str(probe.tokenizer.id_to_token(token)), share) for token, share in zip(*pair, strict=True)]
        for pair in zip(tokens.tolist(), values.tolist(), strict=True)
    ]
