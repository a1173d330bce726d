"""The stage embed: contrastive learning from pre-trained weights, scored before and after."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from electra.common.artifacts import building, verify_folder, write_json, write_manifest
from electra.common.errors import ConfigError, TrainingError
from electra.common.locks import exclusive
from electra.common.paths import Paths
from electra.config import SENTENCES, Embed, Settings
from electra.embed.contrastive import SentenceEncoder, contrastive_loss, same_texts
from electra.embed.folder import write_folder
from electra.embed.pairs import Texts, sentence_batches, task_batches
from electra.finetune.features import Batch, Feature, Vocabulary, collate, sorted_batches
from electra.finetune.run import prepare_machine
from electra.hub.export.modernbert import check_home
from electra.model.pretrained import load_encoder, require_tokenizer
from electra.optim import build_optimizer, learning_rate, parameter_groups
from electra.results.probe.embeddings import score_embeddings
from electra.results.probe.word_vectors import WordVectors


def embed(settings: Settings, paths: Paths, *, source: str, seed: int) -> Path:
    """Train a sentence encoder, write it as a folder of ``sentence-transformers``, and return the folder.

    ``run.json`` in the folder has the scores of the pre-trained encoder (``before``), of the trained one (``after``)
    and of averaged word vectors of the same text, on development rows of the card's tasks.

    The same run on the same machine writes the same bytes. A run that is ended leaves nothing; it starts anew.

    Args:
        source: ``sentences``: pairs of the training text; or a task with pairs.

    Raises:
        ConfigError: the task does not exist or has no pairs, or no class of ``transformers`` has these blocks.
        DataError: shards, tasks, tokenizer or pre-trained weights are missing or broken.
        TrainingError: the loss is not finite.
        InfrastructureError: another process is doing the same.
    """
    folder, options = paths.embedding(f"{source}-{seed}"), settings.embed
    with exclusive(folder):  # locked before training: a second process would train in vain
        device, bf16 = prepare_machine(settings.cluster)
        verify_folder(paths.tokenizer)
        vocabulary = Vocabulary.load(paths)
        encoder = load_encoder(paths.pretrained, dropout=options.dropout, attention_dropout=options.dropout)
        require_tokenizer(paths.pretrained, paths.tokenizer)
        check_home(encoder.config)
        if too_large := [size for size in options.sizes if size > encoder.config.hidden_size]:
            raise ConfigError(
                f"embed.sizes {too_large} are larger than the {encoder.config.hidden_size} of the encoder",
                where=str(paths.pretrained),
            )
        model = SentenceEncoder(encoder, options.pooling).to(device)
        embedder = Embedder(model, vocabulary, options.max_length or encoder.config.max_positions, bf16)

        batches = (
            sentence_batches(options, paths, vocabulary, seed)
            if source == SENTENCES
            else task_batches(options, paths, vocabulary, seed, source)
        )
        scores = {"before": score_embeddings(settings, paths, embedder)}
        loss = train(embedder, batches, options, seed=seed, name=folder.name)
        scores["after"] = score_embeddings(settings, paths, embedder)
        if scores["after"]:
            scores["word_vectors"] = score_embeddings(settings, paths, WordVectors.learn(paths).embed)
        facts: dict[str, Any] = {"source": source, "seed": seed, "loss": float(f"{loss:.6g}"), **scores}
        with building(folder) as scratch:
            write_folder(scratch, model, paths.tokenizer, embedder.max_length, settings.model.initializer_range, facts)
            write_json(scratch / "run.json", {**facts, "embed": options.model_dump()})
            write_manifest(scratch, embedding=folder.name)
    print(f"{folder.name}: {folder}, for SentenceTransformer()")
    return folder


class Embedder:
    """A sentence encoder with its tokenizer: texts to embeddings."""

    def __init__(self, model: SentenceEncoder, vocabulary: Vocabulary, max_length: int, bf16: bool):
        self.model, self.vocabulary, self.max_length, self.bf16 = model, vocabulary, max_length, bf16
        self.longest = max_length - vocabulary.inputs.num_special(pair=False)

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str], batch_size: int = 64) -> Tensor:
        """Return the embeddings [B, D] of texts, on the CPU."""
        self.model.eval()
        ids = self.vocabulary.encode(list(texts), self.longest)
        rows: list[Tensor] = [torch.empty(0)] * len(ids)
        for chosen in sorted_batches([len(text) for text in ids], batch_size):
            for i, row in zip(chosen, self.run([ids[i] for i in chosen]).cpu(), strict=True):
                rows[i] = row
        return torch.stack(rows)

    def run(self, texts: Texts) -> Tensor:
        """Return the embeddings [B, D] of texts given by their ids, as one batch."""
        device = next(self.model.parameters()).device
        batch = self.batch(texts).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=self.bf16):
            return self.model(batch)

    def batch(self, texts: Texts) -> Batch:
        """Return the texts with special tokens, cut to the longest input and padded."""
        inputs = [self.vocabulary.inputs.single(text[: self.longest]) for text in texts]
        features = [Feature(ids, len(ids), None, row) for row, ids in enumerate(inputs)]
        return collate(features, self.vocabulary.pad, max(map(len, inputs)))


def train(embedder: Embedder, batches: Iterator[tuple[Texts, Texts]], options: Embed, *, seed: int, name: str) -> float:
    """Train the encoder in place; pairs and dropout follow from the seed. Return the mean loss of the last fifth.

    Raises:
        TrainingError: the loss is not finite.
    """
    model, steps = embedder.model, options.num_steps
    optimizer = build_optimizer("adamw", parameter_groups(model, options.weight_decay), lr=options.learning_rate)
    torch.manual_seed(seed)
    losses, report_every = torch.zeros(steps), max(1, math.ceil(steps / 5))
    model.train()
    for step in range(steps):
        firsts, seconds = next(batches)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, options.learning_rate, steps, int(steps * options.warmup_fraction))
        a_BD, b_BD = embedder.run([*firsts, *seconds]).chunk(2)  # every text with a dropout of its own
        is_same_BB = same_texts(firsts, seconds).to(a_BD.device)
        loss = contrastive_loss(a_BD, b_BD, is_same_BB, options.temperature, options.sizes)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), options.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses[step] = loss.detach()
        if (step + 1) % report_every == 0 or step + 1 == steps:
            recent = losses[max(0, step + 1 - report_every) : step + 1].mean().item()
            if not math.isfinite(recent):
                raise TrainingError(
                    f"{name}: the loss is not finite at step {step + 1} of {steps}",
                    next_step="lower embed.learning_rate",
                )
            print(f"{name}: step {step + 1}/{steps}, loss {recent:.4f}", flush=True)
    return losses[-report_every:].mean().item()
