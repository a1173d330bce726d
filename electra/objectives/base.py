"""What all pre-training methods share: batch and outputs, corrupted inputs, and the interface of a method.

Shape legend: B examples, T tokens, K masked positions of an example (slots), V vocabulary, D hidden width.
"""

import importlib
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra import config
from electra.config.methods import METHODS, MethodInfo
from electra.model.attention import CuSeqlens
from electra.model.encoder import Encoder
from electra.model.generator import Sampler, vocabulary_head
from electra.model.heads import DiscriminatorHead, VocabularyHead
from electra.model.kernels.apply import use_cpu_kernels
from electra.model.layers import DisentangledEmbeddings, truncated_normal
from electra.model.shape import EncoderConfig
from electra.objectives.flops import TRAINED, encoder_flops


@dataclass
class Batch:
    """Examples with everything random about them already drawn, so that the methods themselves are deterministic.

    A row has K slots; those beyond the row's number of masked tokens have weight 0 and point at position 0.
    """

    input_ids_BT: Tensor  # int64 original ids
    segments_BT: Tensor  # int64 0 | 1
    mask_BT: Tensor  # bool, True at real tokens
    mask_positions_BK: Tensor  # int64, the masked positions
    mask_weights_BK: Tensor  # float32, 1 for a real slot
    shown_BK: Tensor  # bool, True where the original is shown instead of [MASK]
    uniforms_BK: Tensor  # float32 in [0, 1): decides which token a distribution yields
    random_BK: Tensor | None = None  # bool, True where a random token is shown instead of [MASK] (BERT)
    candidate_BT: Tensor | None = None  # bool, True at tokens that could be masked
    next_B: Tensor | None = None  # float32, 1: the second segment is a random one, 0: it follows, -1: there is none
    example_BT: Tensor | None = None  # int64, of rows that hold several examples: each token's, from 1; 0 at padding
    ends_N: Tensor | None = None  # int32, where examples end in the flattened rows: for attention on CUDA

    def to(self, device: torch.device | str) -> "Batch":
        moved: dict[str, Any] = {k: v if v is None else v.to(device, non_blocking=True) for k, v in vars(self).items()}
        return Batch(**moved)

    @property
    def attended_BT(self) -> Tensor | CuSeqlens:
        """Attention mask of the encoders: real tokens or, in packed rows, the example of each token."""
        mask_BT = self.mask_BT if self.example_BT is None else self.example_BT
        return mask_BT if self.ends_N is None else CuSeqlens(self.ends_N, mask_BT)

    def original_ids_BK(self) -> Tensor:
        """The tokens at the masked positions."""
        return self.input_ids_BT.gather(1, self.mask_positions_BK)

    def is_masked_BT(self) -> Tensor:
        """True at masked positions, shown or not."""
        return torch.zeros_like(self.mask_BT).scatter(1, self.mask_positions_BK, self.mask_weights_BK > 0)


@dataclass
class Outputs:
    """Losses as sums, never means: the caller divides by the global counts, so the batch's split does not matter."""

    loss_sums: dict[str, Tensor]  # by the term's name; see Objective.counts for what each is summed over
    correct_sums: dict[str, Tensor] = field(default_factory=dict)  # right first guesses; in evaluation only
    sampled_ids_BK: Tensor | None = None  # the generator's tokens
    is_replaced_BT: Tensor | None = None  # bool, True where the discriminator should say replaced
    discriminator_logits_BT: Tensor | None = None  # above zero: replaced
    loss_mask_BT: Tensor | None = None  # bool, True where the discriminator's loss counts


def masked_input(batch: Batch, mask_id: int, vocab_size: int) -> Tensor:
    """Return the ids [B, T] with [MASK] at masked positions, but for slots that show the original or a random token."""
    original_ids_BK = batch.original_ids_BK()
    as_is_BK = batch.shown_BK | (batch.mask_weights_BK == 0)
    tokens_BK = original_ids_BK.masked_fill(~as_is_BK, mask_id)
    if batch.random_BK is not None:
        drawn_BK = (batch.uniforms_BK * vocab_size).long().clamp_(max=vocab_size - 1)
        tokens_BK = torch.where(batch.random_BK & (batch.mask_weights_BK > 0), drawn_BK, tokens_BK)
    return batch.input_ids_BT.scatter(1, batch.mask_positions_BK, tokens_BK)


def put_samples(batch: Batch, sampled_ids_BK: Tensor) -> Tensor:
    """Return the ids [B, T] with the samples at their positions.

    Slots that share a position, which only ``fidelity: original`` draws, leave the integer mean of their ids there, as
    the original's scatter_update does.
    """
    real_BK = (batch.mask_weights_BK > 0).long()
    sums_BT = torch.zeros_like(batch.input_ids_BT).scatter_add(1, batch.mask_positions_BK, sampled_ids_BK * real_BK)
    draws_BT = torch.zeros_like(batch.input_ids_BT).scatter_add(1, batch.mask_positions_BK, real_BK)
    return torch.where(draws_BT > 0, sums_BT // draws_BT.clamp(min=1), batch.input_ids_BT)


def total(values_BN: Tensor) -> Tensor:
    """Sum over a batch, a scalar: rows first, since the bits of a whole sum depend on the number of threads."""
    return values_BN.sum(-1).sum()


def num_correct(right_BN: Tensor | None, weights_BN: Tensor) -> Tensor:
    """Return how often the most likely token is the right one, at positions with weight."""
    assert right_BN is not None
    return (right_BN & (weights_BN > 0)).sum()


class Objective(nn.Module):
    """A pre-training method: a module that turns a :class:`Batch` into :class:`Outputs`.

    Its loss is the sum over terms of weight * loss_sum / count, with counts over the global batch. A subclass has
    ``build``, ``loss_weights``, ``counts``, ``forward`` and, for the estimate of a run's cost, ``head_flops``.

    Args:
        model: shapes.
        vocab_size: entries of the vocabulary.
        mask_id: id of [MASK].
        method: loss weights and choices of the generator; the paper's where none is given.
    """

    encoder_name: ClassVar[str] = "discriminator"  # attribute that holds the encoder to fine-tune and publish
    also_initialized: ClassVar[tuple[str, ...]] = ()  # further encoders that pretrain.initialize_from starts
    batch_fields: ClassVar[tuple[str, ...]] = ()  # optional fields of a batch that the method uses
    # shares of masked positions shown as [MASK] and as a random token; None: pretrain.mask_token_probability and none
    masking: ClassVar[tuple[float, float] | None] = None
    scores_texts: ClassVar[bool] = False  # whether token_scores are log-probabilities of the tokens

    generator: Encoder | None
    generator_head: VocabularyHead | None
    discriminator_head: DiscriminatorHead
    frequencies_V: Tensor  # log frequencies, of a generator that is not trained

    def __init__(self, model: config.Model, vocab_size: int, mask_id: int, method: config.Method | None = None):
        super().__init__()
        self.method = method or config.Method()
        self.vocab_size, self.mask_id = vocab_size, mask_id
        self.generator = self.generator_head = None
        self.build(model, vocab_size)

    def build(self, model: config.Model, vocab_size: int) -> None:
        """Create encoders and heads as attributes; their names are those of the weights in files."""
        raise NotImplementedError

    @property
    def loss_weights(self) -> dict[str, float]:
        """Weight of each term, in the order the terms are reported in. Weight 0: measured, not learned from."""
        raise NotImplementedError

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Return how many tokens (or slots, or examples) each term's loss is summed over."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> Outputs:
        """Return the losses of a batch and what its metrics are computed from."""
        raise NotImplementedError

    def initialize(self, std: float, seed: int) -> "Objective":
        """Draw random weights as the original does; the same for the same seed."""
        random = torch.Generator().manual_seed(seed)
        for part in self.children():
            if isinstance(part, nn.Linear):
                truncated_normal(part, std, random)
            elif init_weights := getattr(part, "init_weights", None):
                init_weights(std, random)
        for part in self.children():
            if isinstance(part, DiscriminatorHead):  # after all others: the order of draws decides a seed's weights
                part.init_output(random)
        return self

    # ---- the generator, of methods that have one

    def add_generator(self, generator: Encoder) -> None:
        """Take the generator, with a head on its own word table; or fixed frequencies (``pretrain.generator``)."""
        self.generator = None
        self.sampler = Sampler(self.method.temperature, self.method.disallow_correct)
        if self.method.generator == "transformer":
            self.generator, self.generator_head = generator, vocabulary_head(generator)
        else:
            self.register_buffer("frequencies_V", torch.zeros(self.vocab_size), persistent=False)

    def set_frequencies(self, counts_V: Tensor) -> None:
        """Set how often a unigram generator proposes each token; tokens that never occur are not proposed."""
        if self.info.has_generator and self.method.generator == "unigram":
            self.frequencies_V.copy_(counts_V.double().log())

    # ---- for probes, reports and exports

    @property
    def info(self) -> MethodInfo:
        """Facts that are known without this class."""
        return METHODS[self.method.objective]

    @property
    def main_encoder(self) -> Encoder:
        """The encoder that fine-tuning starts from."""
        encoder: Encoder = getattr(self, self.encoder_name)
        return encoder

    def encoder_to_publish(self) -> Encoder:
        """Return the main encoder with plain embeddings."""
        encoder = self.main_encoder
        if isinstance(encoder.embeddings, DisentangledEmbeddings):
            plain = Encoder(encoder.config, encoder.embeddings.merged(encoder.config))
            for name, part in encoder.named_children():
                if name != "embeddings":
                    setattr(plain, name, part)
            return plain
        return encoder

    def token_scores(self, hidden_BTD: Tensor) -> Tensor | None:
        """Return log P(original) of each token [B, T] from the main encoder's states; None without a discriminator."""
        if not self.info.has_discriminator:
            return None
        return F.logsigmoid(-self.discriminator_head(hidden_BTD).float())

    def pseudo_log_likelihood(
        self, input_ids_BT: Tensor, segments_BT: Tensor, mask_BT: Tensor, candidate_BT: Tensor
    ) -> Tensor:
        """Return the sum of :meth:`token_scores` over the candidates [B], nats, in one pass (Electric, section 3.3)."""
        scores_BT = self.token_scores(self.main_encoder(input_ids_BT, segments_BT, mask_BT))
        assert self.scores_texts and scores_BT is not None
        return (scores_BT * candidate_BT).sum(1)

    def language_model(self) -> tuple[Encoder, VocabularyHead] | None:
        """Return what predicts masked tokens: the generator, or the main encoder; None where there is neither."""
        if self.generator is not None and self.generator_head is not None:
            return self.generator, self.generator_head
        head = getattr(self, "head", None)
        return (self.main_encoder, head) if isinstance(head, VocabularyHead) else None

    # ---- phases

    def phases(self, num_steps: int) -> list[range]:
        """Return the steps of each phase: one range, or two, split at the share ``pretrain.two_stage_switch``."""
        if not self.info.two_phases:
            return [range(num_steps)]
        switch = max(1, min(num_steps - 1, round(self.method.two_stage_switch * num_steps)))
        return [range(switch), range(switch, num_steps)]

    def enter_phase(self, phase: int) -> None:
        """Change weights where a phase starts from what the one before it has learned."""

    def set_phase(self, phase: int) -> None:
        """Choose the phase that is trained, and the parameters that it leaves as they are (requires_grad)."""

    def part_of(self, parameter: str) -> str:
        """Return a parameter's part of the model, for gradient norms.

        That is ``generator``, ``shared_embeddings`` (of generator and main encoder) or the main encoder's name.
        """
        if self.generator is not None and ".embeddings." in parameter:
            weight = self.get_parameter(parameter)
            encoders = (self.main_encoder, self.generator)
            if all(any(weight is own for own in encoder.parameters()) for encoder in encoders):
                return "shared_embeddings"
        return "generator" if parameter.startswith("generator") else self.encoder_name

    # ---- cost per token of an example, matrix products only (flops.py)

    @classmethod
    def generator_flops(
        cls, generator: EncoderConfig | None, encoder: EncoderConfig, length: int, masked_share: float
    ) -> float:
        """Return the forward FLOPs of the generator and its head; 0 where nothing is computed."""
        return 0.0

    @classmethod
    def head_flops(cls, encoder: EncoderConfig, length: int, masked_share: float) -> float:
        """Return the forward FLOPs of the heads on the main encoder."""
        raise NotImplementedError

    @classmethod
    def training_flops(
        cls,
        generator: EncoderConfig | None,
        encoder: EncoderConfig,
        length: int,
        masked_share: float,
        two_stage_switch: float = 0.5,
    ) -> float:
        """Return the FLOPs of training, forward and backward.

        Args:
            generator: shape; None where replacements are drawn from fixed frequencies.
            encoder: shape of the main encoder.
            masked_share: of the tokens, masked and predicted.
        """
        proposing = cls.generator_flops(generator, encoder, length, masked_share)
        detecting = encoder_flops(encoder, length) + cls.head_flops(encoder, length, masked_share)
        return TRAINED * (proposing + detecting)


def build_objective(model: config.Model, vocab_size: int, mask_id: int, method: config.Method) -> Objective:
    """Return the module that ``pretrain.objective`` names, with the CPU kernels and with weights not yet drawn."""
    return use_cpu_kernels(objective_class(method.objective)(model, vocab_size, mask_id, method))


def objective_class(name: str) -> type[Objective]:
    """Return the class of a pre-training method: in the file of its name, which in CamelCase is the class's.

    Raises:
        ValueError: there is no method of this name.
    """
    if name not in METHODS:
        raise ValueError(f"unknown pre-training method {name!r}")
    module = importlib.import_module(f"electra.objectives.{name}")
    found: type[Objective] = getattr(module, "".join(part.capitalize() for part in name.split("_")))
    return found
