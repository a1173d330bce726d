"""Probe pre-trained weights without fine-tuning: the stage ``probe``, and single sentences for it and the demo.

Shape legend: N masked tokens or questions, P paragraphs, T tokens, D hidden width, V vocabulary.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

import pyarrow.parquet as pq
import torch
from torch import Tensor

from electra.cluster.hardware import choose_device, choose_precision, repeat_exactly
from electra.common.artifacts import write_json
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import Settings
from electra.results.probe.embeddings import rounded, score_embeddings
from electra.results.probe.scores import Probe, read_pairs, render, score_pairs
from electra.results.probe.word_vectors import WordVectors

MASK = "[MASK]"  # in texts from a user; other special tokens are plain text


@dataclass(frozen=True)
class Piece:
    """A wordpiece of a text.

    Attributes:
        id: id in the vocabulary.
        text: characters of the text that it covers.
        before: white space and dropped characters before it.
    """

    id: int
    text: str
    before: str

    @property
    def is_mask(self) -> bool:
        return self.text == MASK


def pieces_of(probe: Probe, text: str) -> list[Piece]:
    """Return the wordpieces of a text, truncated to the encoder's length; ``[MASK]`` is a token to predict."""
    pieces, rest = list[Piece](), ""
    room = probe.encoder.config.max_positions - 2
    parts = text.split(MASK)
    for number, part in enumerate(parts):
        if number:
            pieces.append(Piece(probe.mask, MASK, rest))
        # the space before [MASK] belongs to the word in its place, not to a token of its own
        given = part.rstrip() if number + 1 < len(parts) else part
        encoding, done = probe.tokenizer.encode(given, add_special_tokens=False), 0
        for token, (first, last) in zip(encoding.ids, encoding.offsets, strict=True):
            while first < last and part[first].isspace():  # entries that include the space before their word
                first += 1
            pieces.append(Piece(token, part[max(first, done) : last], part[done:first]))
            done = max(done, last)
        rest = part[done:]
    return pieces[:room]


@torch.inference_mode()
def replaced(probe: Probe, ids: list[int]) -> list[float] | None:
    """Return the discriminator's P(replaced) of each wordpiece; None for Electric and without a discriminator."""
    if probe.objective.scores_texts:
        return None
    values = probe.one_pass([ids])
    return None if values is None else [float(1 - value.exp()) for value in values[0]]


@torch.inference_mode()
def masked_probabilities(probe: Probe, ids: list[int], places: list[int]) -> Tensor | None:
    """Mask all of these positions and return the probabilities [N, V] of all wordpieces at each of them.

    Computed by the generator or the pre-trained masked language model; None for methods without either.
    """
    model = probe.objective.language_model()
    if model is None or not places:
        return None
    encoder, head = model
    masked = [probe.mask if place in places else token for place, token in enumerate(ids)]
    row_TD = next(probe.hidden(encoder, [[probe.cls, *masked, probe.sep]]))[0]
    chosen_1ND = row_TD[[place + 1 for place in places]][None]
    with probe.precision():
        return head(chosen_1ND)[0].float().softmax(-1)


def fills(probe: Probe, shares_NV: Tensor | None, number: int) -> list[list[tuple[str, float]]]:
    """Return the most probable wordpieces of each position with their probabilities; empty without a language model."""
    if shares_NV is None:
        return []
    values, tokens = shares_NV.topk(min(number, shares_NV.shape[1]))
    return [
        [(str(probe.tokenizer.id_to_token(token)), share) for token, share in zip(*pair, strict=True)]
        for pair in zip(tokens.tolist(), values.tolist(), strict=True)
    ]


SENTENCES = 6  # shown on the card: half of them the best of CANDIDATES, half the worst
CANDIDATES = 120
WORDPIECES = (8, 32)  # range of the length of sentences that are shown
FILLS = 3


def probe_pretrained(settings: Settings, paths: Paths) -> None:
    """Write ``results/probe.json``.

    Includes minimal pairs of ``tasks.pairs``, similarity if STS-B is among the tasks, retrieval if a task has
    questions, and sentences of the held-out text in which the generator replaced tokens. Probes that do not apply are
    left out.
    """
    device = choose_device(settings.cluster)
    if settings.cluster.num_threads != "auto":
        torch.set_num_threads(settings.cluster.num_threads)
    if device != "cpu":
        repeat_exactly(strict=settings.cluster.deterministic)
    probe = Probe(paths, torch.device(device), choose_precision(settings.cluster, device) == "bf16")
    found: dict[str, Any] = {}
    if settings.tasks.pairs:
        pairs = read_pairs([paths.root / file for file in settings.tasks.pairs])
        scores = {way: rounded(accuracies) for way, accuracies in score_pairs(probe, pairs).items()}
        found |= {"pairs": len(pairs), "accuracy": scores}
    found |= score_embeddings(settings, paths, probe.embed_texts)
    if "similarity_spearman" in found or "retrieval" in found:
        found["word_vectors"] = score_embeddings(settings, paths, WordVectors.learn(paths).embed)
    candidates = held_out_sentences(probe, paths, CANDIDATES)
    frequent = [token for text in candidates for token in probe.ids(text)]  # each as often as it occurs
    shown = [show(probe, text, number, frequent) for number, text in enumerate(candidates)]
    found |= {"candidates": len(shown), "sentences": best_and_worst(shown)}
    write_json(paths.results / "probe.json", found)
    print(render(found), end="")
    print(f"probe: {paths.results / 'probe.json'}, {len(found['sentences'])} sentences")


def best_and_worst(shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return :data:`SENTENCES` of these: half with the lowest loss, half with the highest.

    Returns the first ones if the method has no loss. With a discriminator, sentences without a replaced token are left
    out, since a discriminator that never predicts "replaced" is best on them.
    """
    ranked = [one for one in shown if one["was"] or one["replaced"] is None] or shown
    if any(sentence["loss"] is None for sentence in ranked):
        return ranked[:SENTENCES]
    ranked.sort(key=lambda sentence: float(sentence["loss"]))
    return ranked if len(ranked) <= SENTENCES else ranked[: SENTENCES // 2] + ranked[-SENTENCES // 2 :]


def held_out_sentences(probe: Probe, paths: Paths, number: int = SENTENCES) -> list[str]:
    """Return ``number`` sentences of suitable length from the held-out documents, spread evenly over all of them."""
    texts = [
        text
        for file in sorted(paths.corpus.glob("heldout-*.parquet"))
        for text in pq.read_table(file, columns=["text"])["text"].to_pylist()
    ]
    if not texts:
        raise DataError("there is no held-out text", where=str(paths.corpus), next_step="run: dvc repro corpus")
    found: dict[str, None] = {}
    of_each = -(-number // len(texts))
    for step in range(len(texts)):
        text = texts[step * _stride(len(texts)) % len(texts)]
        sentences = re.findall(r"[^\s.!?][^.!?\n]*[.!?]+(?=\s|$)", text[: 4_000 * of_each])
        fitting = (one for one in sentences if WORDPIECES[0] <= len(probe.ids(one)) <= WORDPIECES[1])
        found.update(dict.fromkeys(islice(fitting, of_each)))
    return list(found)[:number]


def _stride(number: int) -> int:
    """Return a step that visits every document once, and places the first visits far apart."""
    step = max(1, number // SENTENCES)
    while math.gcd(step, number) > 1:
        step += 1
    return step


def show(probe: Probe, text: str, seed: int, frequent: Sequence[int] = ()) -> dict[str, Any]:
    """Mask some tokens of a sentence, fill them in, and return the model's scores.

    The tokens are filled with the generator's samples if the method has a discriminator, else with the model's best
    guesses. In place of a generator without weights, tokens of ``frequent`` are drawn.

    Returns:
        ``tokens``, separated by spaces; ``replaced``, the discriminator's P(replaced) of each, in the same format;
        ``was``, the original token at each replaced position (from 0); ``fills``, the best proposals at each masked
        position; ``loss`` in nats, the mean cross-entropy of the discriminator's outputs or, without a discriminator,
        of the masked tokens.
    """
    ids, random = probe.ids(text), Random(f"replaced {seed}")
    share = 0.15 if len(ids) >= 14 else 2 / len(ids)
    places = sorted(random.sample(range(len(ids)), max(1, round(share * len(ids)))))
    shares_NV = masked_probabilities(probe, ids, places)
    proposed = fills(probe, shares_NV, 1_000)
    has_discriminator = replaced(probe, ids) is not None
    corrupted = list(ids)
    if has_discriminator and shares_NV is None and frequent:
        for place in places:
            corrupted[place] = random.choice(frequent)
    for place, options in zip(places, proposed, strict=False):
        token = options[0][0]
        if has_discriminator:
            (token,) = random.choices([name for name, _ in options], [share for _, share in options])
        number = probe.tokenizer.token_to_id(token)
        corrupted[place] = ids[place] if number is None else number
    names = [probe.label(str(probe.tokenizer.id_to_token(token))) for token in corrupted]
    scores = replaced(probe, corrupted)
    right = [score if old != new else 1 - score for score, old, new in zip(scores or [], ids, corrupted, strict=False)]
    if not has_discriminator and shares_NV is not None:
        right = [float(shares_NV[number, ids[place]]) for number, place in enumerate(places)]
    losses = [-math.log(max(probability, 1e-7)) for probability in right]
    return {
        "tokens": " ".join(names),
        "replaced": None if scores is None else " ".join(f"{score:.2f}" for score in scores),
        "loss": round(math.fsum(losses) / len(losses), 4) if losses else None,
        "was": {
            str(p): probe.label(str(probe.tokenizer.id_to_token(ids[p]))) for p in places if corrupted[p] != ids[p]
        },
        "fills": {
            str(place): ", ".join(f"{probe.label(token)} {share:.2f}" for token, share in options[:FILLS])
            for place, options in zip(places, proposed, strict=False)
        },
    }
