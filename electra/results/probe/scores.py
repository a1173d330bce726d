"""Zero-shot probes of pre-trained weights: minimal pairs and sentence similarity, without training labels.

Shape legend: B texts, T tokens, D hidden width, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from electra.common.artifacts import MANIFEST
from electra.common.errors import ConfigError, DataError
from electra.common.parsing import read_tokenizer
from electra.common.paths import Paths
from electra.common.subwords import entries_of, labels_of
from electra.model.encoder import Encoder
from electra.model.pretrained import require_tokenizer, special_token_ids
from electra.objectives.base import Objective
from electra.objectives.saved import load_objective
from electra.results.probe.embeddings import read_similar, score_similarity
from electra.results.probe.word_vectors import have_ids_of_tokenizer, sample_of
from electra.tasks.matrix import read_lines
from electra.text.shards.layout import Shards

_BATCH = 64  # rows in one pass
_ALL = "all"
Scores = dict[str, dict[str, float]]  # scoring method -> rule -> accuracy


def read_pairs(files: list[Path]) -> list[dict[str, str]]:
    """Read pairs from BLiMP's files: ``sentence_good``, ``sentence_bad``, and the rule: ``UID`` or the file's name.

    Raises:
        DataError: a file is missing or not JSONL, or a row lacks one of the two sentences.
    """
    pairs: list[dict[str, str]] = []
    next_step = "give files of JSON lines with sentence_good and sentence_bad"
    for file in files:
        for number, row in enumerate(read_lines(file, next_step), 1):
            names = ("sentence_good", "sentence_bad")
            texts: list[Any] = [row.get(name) for name in names] if isinstance(row, dict) else [None]
            if not all(isinstance(text, str) and text.strip() for text in texts):
                raise DataError("there is no pair of sentences", where=f"{file}:{number}", next_step=next_step)
            pairs.append({"sentence_good": texts[0], "sentence_bad": texts[1], "UID": str(row.get("UID", file.stem))})
    if not pairs:
        raise DataError("there are no pairs", where=", ".join(map(str, files)), next_step=next_step)
    return pairs


class Probe:
    """Pre-trained weights with their tokenizer, on one device.

    Args:
        bf16: compute matrix products in bf16.
        weights: folder of the weights, such as a milestone's; None: ``models/pretrained``.
    """

    def __init__(self, paths: Paths, device: torch.device, bf16: bool, weights: Path | None = None):
        self.objective: Objective = load_objective(weights or paths.pretrained).to(device)
        self.encoder = self.objective.main_encoder
        self.tokenizer = read_tokenizer(paths.tokenizer / "tokenizer.json")
        require_tokenizer(weights or paths.pretrained, paths.tokenizer)
        self.tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text
        self._labels = dict(zip(entries_of(self.tokenizer), labels_of(self.tokenizer), strict=True))
        self.pad, self.cls, self.sep, self.mask = special_token_ids(paths.tokenizer)
        self.device, self.bf16 = device, bf16
        self._paths = paths

    def label(self, entry: str) -> str:
        """Return an entry of the vocabulary, of whatever kind, in WordPiece's notation."""
        return self._labels.get(entry, entry)

    def ids(self, text: str) -> list[int]:
        """Return the wordpieces of a text, truncated to the encoder's length."""
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return found[: self.encoder.config.max_positions - 2]

    def one_pass(self, texts: list[list[int]]) -> list[Tensor] | None:
        """Return each wordpiece's log P(real) by the discriminator, or Electric's log p; None without either."""
        if not self.objective.info.has_discriminator:
            return None
        rows = [[self.cls, *ids, self.sep] for ids in texts]
        scores = self._run(self.encoder, self.objective.token_scores, rows)
        return [row[1 : 1 + len(ids)] for row, ids in zip(scores, texts, strict=True)]

    def masked(self, texts: list[list[int]]) -> list[Tensor] | None:
        """Return each wordpiece's log-probability, masked in its copy of the text; None without a language model."""
        model = self.objective.language_model()
        if model is None:
            return None
        encoder, head = model
        copies, places, targets, owners = [], [], [], []
        for text in _by_length(texts):
            ids = texts[text]
            for place, token in enumerate(ids):
                copies.append([self.cls, *ids[:place], self.mask, *ids[place + 1 :], self.sep])
                places.append(place + 1)
                targets.append(token)
                owners.append(text)
        found, done = [torch.zeros(len(ids)) for ids in texts], 0
        for hidden_BTD in self.hidden(encoder, copies):
            here = slice(done, done + len(hidden_BTD))
            rows = torch.arange(len(hidden_BTD), device=self.device)
            place_B, target_B = (torch.tensor(values[here], device=self.device) for values in (places, targets))
            with self.precision():
                logits_BV = head(hidden_BTD[rows, place_B][:, None])[:, 0]
            values = logits_BV.float().log_softmax(-1)[rows, target_B].tolist()
            for owner, place, value in zip(owners[here], places[here], values, strict=True):
                found[owner][place - 1] = value
            done = here.stop
        return found

    def log_frequencies(self) -> Tensor | None:
        """Return the log of each entry's share of the training text [V], all counts plus one.

        None where there are no shards, or only those of another tokenizer.
        """
        if not (self._paths.shards / MANIFEST).exists() or not have_ids_of_tokenizer(self._paths):
            return None
        shards = Shards(self._paths.shards, "train")
        text = sample_of(shards, [self.pad, self.cls, self.sep, self.mask])
        counts_V = torch.from_numpy(np.bincount(text, minlength=shards.vocab_size) + 1).double()
        return (counts_V / counts_V.sum()).log().float()

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Return :meth:`embed` of the texts' wordpieces."""
        return self.embed([self.ids(text) for text in texts])

    def embed(self, texts: list[list[int]]) -> Tensor:
        """Return the mean [B, D] of the last hidden states over all tokens, including [CLS] and [SEP]."""
        rows = [[self.cls, *ids, self.sep] for ids in texts]
        return torch.stack([row.mean(0) for row in self._run(self.encoder, lambda hidden: hidden.float(), rows)])

    def _run(self, encoder: Encoder, score: Callable[[Tensor], Any], rows: list[list[int]]) -> list[Tensor]:
        """Return ``score`` of the hidden states of each row, without padding, on the CPU."""
        order, found = _by_length(rows), dict[int, Tensor]()
        for hidden_BTD in self.hidden(encoder, [rows[number] for number in order]):
            with self.precision():
                values = score(hidden_BTD).cpu()
            for value, number in zip(values, order[len(found) :], strict=False):
                found[number] = value[: len(rows[number])]
        return [found[number] for number in range(len(rows))]

    def hidden(self, encoder: Encoder, rows: list[list[int]]) -> Iterator[Tensor]:
        """Yield the last hidden states [B, T, D] of the rows, batch by batch."""
        for start in range(0, len(rows), _BATCH):
            part = rows[start : start + _BATCH]
            width = max(map(len, part))
            tokens_BT = torch.tensor([row + [self.pad] * (width - len(row)) for row in part], device=self.device)
            lengths_B1 = torch.tensor([[len(row)] for row in part], device=self.device)
            mask_BT = torch.arange(width, device=self.device) < lengths_B1
            with self.precision():
                yield encoder(tokens_BT, torch.zeros_like(tokens_BT), mask_BT)

    def precision(self) -> Any:
        """Return the autocast context for matrix products."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16)


def _by_length(rows: list[list[int]]) -> list[int]:
    """Return the indices of the rows, shortest first: batches of similar length have little padding."""
    return sorted(range(len(rows)), key=lambda number: len(rows[number]))


def changed(ids: list[int], other: list[int]) -> list[int]:
    """Return the positions of the wordpieces that do not match the other sentence in an alignment."""
    blocks = SequenceMatcher(None, ids, other, autojunk=False).get_opcodes()
    return [place for kind, first, last, *_ in blocks if kind != "equal" for place in range(first, last)]


@torch.inference_mode()
def score_pairs(probe: Probe, pairs: list[dict[str, str]]) -> Scores:
    """Return the share of pairs whose good sentence scores higher, by rule and over all; a tie is wrong.

    A discriminator (or Electric) scores a sentence by the sum of log P(real) over its wordpieces, by their mean, and by
    the sum over those that differ from the other sentence. The log-odds log P(real) - log P(replaced) do not depend on
    how many tokens were replaced in pre-training, but for a constant. A masked language model scores it by its
    pseudo-log-likelihood, by the part of it that is of the wordpieces that differ, and by how much more likely the
    context makes these than their frequency in the training text, which is what the log-odds of a discriminator are
    where both are optimal. The log-odds and the generator's pseudo-log-likelihood together are then
    log p(token | context) (Electric, section 3.2).
    """
    good, bad = ([probe.ids(pair[name]) for pair in pairs] for name in ("sentence_good", "sentence_bad"))
    texts, others = [*good, *bad], [*bad, *good]
    ways: dict[str, list[float]] = {}  # a score for each text
    distinct = list(dict.fromkeys(map(tuple, texts)))  # scores of equal texts in two batches differ by their rounding
    number = {text: n for n, text in enumerate(distinct)}
    listed = [list(text) for text in distinct]
    one_pass, by_masks = probe.one_pass(listed), probe.masked(listed)
    real = None if one_pass is None else [one_pass[number[tuple(text)]] for text in texts]
    masked = None if by_masks is None else [by_masks[number[tuple(text)]] for text in texts]
    places = [changed(*both) for both in zip(texts, others, strict=True)]
    if real is not None:
        name = "Electric" if probe.objective.scores_texts else "discriminator"
        ways[f"{name}, sum"] = [float(values.sum()) for values in real]
        ways[f"{name}, mean"] = [float(values.mean()) for values in real]
        ways[f"{name}, changed tokens"] = _sums_at(real, places)
    if masked is not None:
        name = "generator" if probe.objective.info.has_generator else "masked language model"
        ways[f"{name}, masked"] = [float(values.sum()) for values in masked]
        ways[f"{name}, changed tokens"] = _sums_at(masked, places)
        if (frequencies_V := probe.log_frequencies()) is not None:
            gains = [values - frequencies_V[text] for values, text in zip(masked, texts, strict=True)]
            ways[f"{name}, changed tokens over frequency"] = _sums_at(gains, places)
    if real is not None and not probe.objective.scores_texts:
        odds = [values - torch.log(-torch.expm1(values.clamp(max=-1e-7))) for values in real]
        ways["discriminator, log-odds"] = [float(values.sum()) for values in odds]
        ways["discriminator, log-odds of changed tokens"] = _sums_at(odds, places)
        if masked is not None:
            both = zip(masked, odds, strict=True)
            ways["discriminator and generator"] = [float(by_mask.sum() + of_odds.sum()) for by_mask, of_odds in both]
    rules, half = [pair["UID"] for pair in pairs], len(pairs)
    return {way: _accuracies(rules, list(zip(found[:half], found[half:], strict=True))) for way, found in ways.items()}


def _sums_at(rows: list[Tensor], places: list[list[int]]) -> list[float]:
    return [float(values[chosen].sum()) for values, chosen in zip(rows, places, strict=True)]


def _accuracies(rules: list[str], scores: list[tuple[float, float]]) -> dict[str, float]:
    right = [good > bad for good, bad in scores]
    found = {_ALL: sum(right) / len(right)}
    for rule in dict.fromkeys(rules):
        of_rule = [hit for hit, name in zip(right, rules, strict=True) if name == rule]
        found[rule] = sum(of_rule) / len(of_rule)
    return found


def run_probe(
    paths: Paths, files: list[Path], similarity: Path | None, device: torch.device, bf16: bool
) -> dict[str, Any]:
    """Return accuracies on minimal pairs and the correlation of similarities, each if a file is given.

    Args:
        files: files in BLiMP's format.

    Raises:
        ConfigError: no file is given.
        DataError: a file cannot be used; all are read before anything is scored.
    """
    if not files and similarity is None:
        raise ConfigError(
            "there is nothing to probe", next_step="name files of minimal pairs (BLiMP's JSONL), or --similarity FILE"
        )
    pairs = read_pairs(files) if files else []
    similar = None if similarity is None else read_similar(similarity)
    probe = Probe(paths, device, bf16)
    found: dict[str, Any] = {"pairs": len(pairs), "accuracy": score_pairs(probe, pairs)} if pairs else {}
    if similar is not None:
        found["similarity_spearman"] = score_similarity(probe.embed_texts, similar)
    return found


def render(found: dict[str, Any]) -> str:
    """Return the figures as a text table, in percent."""
    lines = []
    if "pairs" in found:
        lines.append(f"{found['pairs']:,} minimal pairs, share with the good sentence ahead (ties are wrong)")
    width = max(map(len, found.get("accuracy", {})), default=0) + 2
    for way, accuracies in found.get("accuracy", {}).items():
        lines.append(f"  {way:<{width}}" + "  ".join(f"{rule} {100 * value:.1f}" for rule, value in accuracies.items()))
    if "similarity_spearman" in found:
        lines.append(f"similarity of mean-pooled sentences: Spearman {100 * found['similarity_spearman']:.1f}")
    if retrieval := found.get("retrieval"):
        lines.append(
            f"{retrieval['questions']:,} questions of {retrieval['task']}, {retrieval['paragraphs']:,} paragraphs: "
            f"nDCG@10 {100 * retrieval['ndcg_at_10']:.1f}, MRR {100 * retrieval['mrr']:.1f}"
        )
    if "word_vectors" in found:
        lines.append("averaged word vectors of the same text:")
        lines += [f"  {line}" for line in render(found["word_vectors"]).splitlines()]
    return "".join(f"{line}\n" for line in lines)
