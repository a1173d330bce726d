"""Speed of one joint pre-training step: this project compared with transformers' two ELECTRA models.

    python -m benchmarks.pretrain_step --shape small --length 128 --precision bf16
    python -m benchmarks.pretrain_step --shape small --architecture modern

Our side is the project's step: DeepSpeed engine, only masked positions through the generator's head, the optimizer
without bias correction and with its guard, clip 1.0. The peers train ElectraForMaskedLM and ElectraForPreTraining
jointly with shared embeddings, Gumbel noise for the samples, fused AdamW, clip 1.0: *all positions* computes the loss
as the library does, *masked positions* passes only those through the head. All sides have the same shapes, masked
tokens, dropout 0.1 and precision (autocast). The peers' attention is PyTorch's SDPA; on CUDA they get no mask, since
there is no padding and a mask rules out the flash kernel. Every side has a separate process. Ours is set up as by
`electra pretrain`, compiled on CUDA. The peers run with the library's defaults, once with the C library's allocator
keeping freed memory, as on our side: otherwise a library that allocates large tensors in every step spends much of its
time in page faults. ``--compile`` adds compiled peers. The matrix peak is the best of several square products in the
same precision, before and after the sides.

With ``--architecture modern`` the shapes are those of modern-small and modern-base, which cost the same FLOPs; our step
with the paper's blocks is another side, and the peers are ModernBertForMaskedLM and ModernBertForTokenClassification.
They do not share a table of embeddings: the library's is as wide as the layers, and the generator is narrower.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import torch
import torch.nn.functional as F
import yaml

from benchmarks import measure
from electra.cluster.estimate.cost import flops_per_token
from electra.cluster.hardware import Machine, matrix_peak, resolve_machine
from electra.cluster.memory import keep_freed_memory
from electra.common.errors import ConfigError
from electra.config import Cluster, Settings
from electra.config.loading import parse_settings
from electra.hub.export.modernbert import modernbert_config
from electra.model.attention import has_kernel
from electra.model.shape import EncoderConfig
from electra.objectives.base import Batch, build_objective
from electra.objectives.electra import Electra
from electra.pretrain.data.packing import StaticShapes
from electra.pretrain.engine import build_engine, set_step, start_distributed

VOCAB_SIZE, MASK = 30522, 103
STEPS = 3  # default per call
KEPT, COMPILED = ", allocator as ours", ", allocator as ours, compiled"
OURS, ALL, MASKED = "ours", "transformers, all positions", "transformers, masked positions"
PAPERS = "ours, the paper's blocks"


@dataclass(frozen=True)
class Shape:
    """Settings of a timed step."""

    settings: Settings
    machine: Machine
    batch_size: int
    length: int
    steps: int = STEPS

    @property
    def tokens(self) -> int:
        return self.batch_size * self.length

    @property
    def num_masked(self) -> int:
        return max(1, round(self.settings.pretrain.mask_probability * self.length))


def main() -> None:
    parser = measure.argument_parser(__doc__, "pretrain_step")
    parser.add_argument("--shape", choices=("small", "base", "large"), default="small")
    parser.add_argument("--architecture", choices=("electra", "modern"), default="electra")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch-size", type=int, help="examples per step; default: small 32, base 8, large 4")
    parser.add_argument("--precision", choices=get_args(Cluster.model_fields["precision"].annotation), default="bf16")
    parser.add_argument("--layers", type=int, help="fewer layers than the shape, for trying")
    parser.add_argument("--peers", nargs="*", choices=("all", "masked"), default=["all", "masked"])
    parser.add_argument("--compile", action="store_true", help="also time the peers with torch.compile")
    options = parser.parse_args()
    shape = make_shape(options)
    torch.set_num_threads(shape.machine.num_threads)
    sides: dict[str, measure.Side] = {OURS: measure.apart(shape.machine.device, our_steps, shape)}
    if options.architecture == "modern":
        papers = make_shape(argparse.Namespace(**{**vars(options), "architecture": "electra"}))
        sides[PAPERS] = measure.apart(shape.machine.device, our_steps, papers)
    for name, masked_only in [(ALL, False), (MASKED, True)]:
        if ("masked" if masked_only else "all") in options.peers:
            for kind in ("", KEPT, COMPILED) if options.compile else ("", KEPT):
                sides[name + kind] = measure.apart(shape.machine.device, peer_steps, shape, masked_only, kind)
    peaks = [peak(shape)]
    seconds = measure.interleave(sides, options.repeats, warmups=2, device=shape.machine.device)
    peaks.append(peak(shape))
    result = {
        "machine": measure.machine(shape.machine.device),
        "shape": {
            "profile": options.shape if options.architecture == "electra" else f"modern-{options.shape}",
            "layers": shape.settings.model.num_layers,
            "length": shape.length,
            "batch_size": shape.batch_size,
            "masked": shape.num_masked,
            "precision": shape.machine.precision,
        },
        "matrix_peak_flops": max(peaks),
        "flops_per_token": flops_of(shape),
        "tokens_per_second": {
            name: measure.rates(shape.steps * shape.tokens, values) for name, values in seconds.items()
        },
        "seconds_over_ours": measure.ratios(seconds, OURS),
    }
    measure.finish(options, result, as_table(result))


def make_shape(options: argparse.Namespace) -> Shape:
    """Return the profile's model with the requested length and device.

    Raises:
        ConfigError: CUDA is requested but unavailable, or the profile does not exist.
    """
    modern = getattr(options, "architecture", "electra") == "modern"
    name = f"modern-{options.shape}" if modern else options.shape
    file = Path(__file__).parents[1] / f"params/{name}.yaml"
    if not file.is_file():
        raise ConfigError(f"there is no profile {name}", next_step="--architecture modern has --shape small and base")
    batch_size = options.batch_size or {"small": 32, "base": 8, "large": 4}[options.shape]
    profile = yaml.safe_load(file.read_text())
    profile["shards"]["max_length"] = options.length
    profile["pretrain"]["batch_size"] = batch_size
    if options.layers:
        profile["model"]["num_layers"] = options.layers
    cluster = {"device": options.device, "precision": options.precision, "num_processes": 1}
    common = {"profile": name, "cells": {"tasks": ["CoLA"], "seeds": [1]}, "cluster": cluster}
    settings = parse_settings({**common, **profile}, where="benchmarks.pretrain_step")
    return Shape(settings, resolve_machine(settings.cluster, batch_size), batch_size, options.length)


def make_batch(shape: Shape, seed: int) -> Batch:
    """Return random tokens without padding, with the same number of masked positions in every row."""
    generator = torch.Generator().manual_seed(seed)
    B, T, K = shape.batch_size, shape.length, shape.num_masked
    mask_positions_BK = torch.rand(B, T, generator=generator).argsort(-1)[:, :K].sort(-1).values
    return Batch(
        input_ids_BT=torch.randint(1000, VOCAB_SIZE, (B, T), generator=generator),
        segments_BT=torch.zeros(B, T, dtype=torch.long),
        mask_BT=torch.ones(B, T, dtype=torch.bool),
        mask_positions_BK=mask_positions_BK,
        mask_weights_BK=torch.ones(B, K),
        shown_BK=torch.rand(B, K, generator=generator) < 0.15,
        uniforms_BK=torch.rand(B, K, generator=generator),
    )


def our_steps(shape: Shape) -> measure.Side:
    """Return our side, set up as by :func:`electra.pretrain.run.pretrain`."""
    torch.set_num_threads(shape.machine.num_threads)
    torch.set_flush_denormal(True)
    keep_freed_memory()
    batch = make_batch(shape, seed=1)
    start_distributed(shape.machine, timedelta(minutes=5))
    if shape.machine.device == "cuda":
        with_ends = has_kernel(torch.device("cuda"), shape.machine.precision == "bf16")
        batch = StaticShapes(Electra.batch_fields, with_ends).apply(batch, shape.batch_size, shape.length)
    batch = batch.to(torch.device(shape.machine.device))
    recipe = shape.settings.pretrain
    model = build_objective(shape.settings.model, VOCAB_SIZE, MASK, recipe)
    model.initialize(shape.settings.model.initializer_range, seed=1)
    if shape.machine.compile == "model":
        model.forward = torch.compile(model.forward, dynamic=False, fullgraph=True)  # type: ignore[method-assign]
    engine, _ = build_engine(model, recipe, shape.machine)
    weights, counts = model.loss_weights, model.counts(batch)
    number = iter(range(10**9))

    def steps() -> None:
        for _ in range(shape.steps):
            set_step(engine, next(number), 1e-5)
            outputs = engine(batch)
            engine.backward(sum(weights[term] * outputs.loss_sums[term] / counts[term] for term in weights))
            engine.step()

    return steps


def peer_steps(shape: Shape, masked_only: bool, kind: str) -> measure.Side:
    """Return a side that trains transformers' generator and discriminator jointly; ELECTRA's share embeddings."""
    torch.set_num_threads(shape.machine.num_threads)
    torch.set_flush_denormal(True)
    if kind:
        keep_freed_memory()
    device, is_modern = torch.device(shape.machine.device), shape.settings.model.architecture == "modern"
    batch = make_batch(shape, seed=1).to(device)
    torch.manual_seed(1)
    discriminator, generator = (model.to(device).train() for model in (modern_peers if is_modern else peers)(shape))
    parameters = list(dict.fromkeys([*generator.parameters(), *discriminator.parameters()]))
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)
    masked_BT = batch.is_masked_BT()
    inputs = {} if is_modern else {"token_type_ids": batch.segments_BT}
    if device.type == "cpu":  # on CUDA a mask, even one that blocks nothing, would rule out the flash kernel
        inputs["attention_mask"] = batch.mask_BT.long()
    rows_B1, places_BK = torch.arange(shape.batch_size, device=device)[:, None], batch.mask_positions_BK
    shown_BT = batch.input_ids_BT.masked_fill(masked_BT, MASK)
    bf16 = shape.machine.precision == "bf16"

    def propose() -> tuple[Any, torch.Tensor]:
        if masked_only:
            hidden = generator.base_model(input_ids=shown_BT, **inputs)[0][rows_B1, places_BK]
            transform = generator.head if is_modern else generator.generator_predictions
            logits = generator.get_output_embeddings()(transform(hidden))
            return F.cross_entropy(logits.float().flatten(0, 1), batch.original_ids_BK().flatten()), logits
        is_replaced_BT = batch.input_ids_BT.masked_fill(~masked_BT, -100)
        found = generator(input_ids=shown_BT, labels=is_replaced_BT, **inputs)
        return found.loss, found.logits[rows_B1, places_BK]

    def losses() -> torch.Tensor:
        mlm, logits = propose()
        with torch.no_grad():
            noise = -torch.empty_like(logits, dtype=torch.float32).exponential_().log()
            sampled = (logits.float() + noise).argmax(-1)
        corrupted_ids_BT = batch.input_ids_BT.scatter(1, places_BK, sampled)
        labels = (corrupted_ids_BT != batch.input_ids_BT).long()
        return mlm + 50 * discriminator(input_ids=corrupted_ids_BT, labels=labels, **inputs).loss

    forward: Callable[[], torch.Tensor] = torch.compile(losses) if kind == COMPILED else losses

    def steps() -> None:
        for _ in range(shape.steps):
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                loss = forward()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return steps


def peers(shape: Shape) -> tuple[Any, Any]:
    """Return ElectraForPreTraining and ElectraForMaskedLM of a shape, with shared embeddings."""
    from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

    def config(encoder: EncoderConfig) -> ElectraConfig:
        return ElectraConfig(
            vocab_size=VOCAB_SIZE,
            embedding_size=encoder.embedding_size,
            hidden_size=encoder.hidden_size,
            num_hidden_layers=encoder.num_layers,
            num_attention_heads=encoder.num_heads,
            intermediate_size=encoder.intermediate_size,
            max_position_embeddings=encoder.max_positions,
            attn_implementation="sdpa",
        )

    model = shape.settings.model
    discriminator = ElectraForPreTraining(config(EncoderConfig.discriminator(model, VOCAB_SIZE)))
    generator = ElectraForMaskedLM(config(EncoderConfig.generator(model, VOCAB_SIZE)))
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    return discriminator, generator


def modern_peers(shape: Shape) -> tuple[Any, Any]:
    """Return ModernBertForTokenClassification and ModernBertForMaskedLM of a shape."""
    from transformers import ModernBertConfig, ModernBertForMaskedLM, ModernBertForTokenClassification

    def config(encoder: EncoderConfig, kind: type) -> ModernBertConfig:
        facts = modernbert_config(encoder, kind.__name__, 0.02, {"pad": 0, "cls": 101, "sep": 102})
        return ModernBertConfig(**{**facts, "attn_implementation": "sdpa"})

    encoders = (EncoderConfig.discriminator, EncoderConfig.generator)
    kinds = (ModernBertForTokenClassification, ModernBertForMaskedLM)
    one, other = (
        kind(config(encoder(shape.settings.model, VOCAB_SIZE), kind))
        for encoder, kind in zip(encoders, kinds, strict=True)
    )
    return one, other


def peak(shape: Shape, seconds: float = 0.5) -> float:
    """Return the FLOP/s of the best square matrix product; each size is tried for ``seconds``."""
    return max(matrix_peak(shape.machine, size, seconds) for size in (512, 1024, 2048))


def flops_of(shape: Shape) -> float:
    """Return the hardware FLOPs per token."""
    return flops_per_token(shape.settings, VOCAB_SIZE)


def as_table(result: dict[str, Any]) -> str:
    shape, top = result["shape"], result["matrix_peak_flops"]
    rows = []
    for name, rate in result["tokens_per_second"].items():
        ratio = result["seconds_over_ours"].get(name)
        share = rate["median"] * result["flops_per_token"] / top
        rows.append(
            [
                name,
                measure.spread(rate),
                measure.spread(ratio, ".2f", "x") if ratio else "1",
                f"{share:.1%}" if name == OURS else "",
            ]
        )
    heading = ["step", "tokens/s, median (min - max)", "its seconds over ours", "of the matrix peak"]
    about = (
        f"{shape['profile']}, {shape['layers']} layers, {shape['batch_size']} x {shape['length']} tokens, "
        f"{shape['precision']}; matrix peak {top / 1e9:,.0f} GFLOP/s"
    )
    return f"{about}\n\n{measure.table(heading, rows)}"


if __name__ == "__main__":
    measure.run(main)
