"""Interface of all pre-training methods: their batch and output, the terms of a loss, an encoder to publish, phases."""

import importlib
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from electra import config
from electra.model.encoder import CuSeqlens, Encoder, initialize
from electra.model.heads import DiscriminatorHead
from electra.model.layers import DisentangledEmbeddings


@dataclass
class Batch:
    """Examples with everything random about them already drawn, so that the methods themselves are deterministic.

    A row has K slots; those beyond the row's number of masked tokens have weight 0 and point at position 0.
    """

    tokens_BT: Tensor  # int64 original ids
    segments_BT: Tensor  # int64 0 | 1
    mask_BT: Tensor  # bool, True at real tokens
    positions_BK: Tensor  # int64, the masked positions
    weights_BK: Tensor  # float32, 1 for a real slot
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

    def originals_BK(self) -> Tensor:
        """The tokens at the masked positions."""
        return self.tokens_BT.gather(1, self.positions_BK)

    def is_masked_BT(self) -> Tensor:
        """True at masked positions, shown or not."""
        return torch.zeros_like(self.mask_BT).scatter(1, self.positions_BK, self.weights_BK > 0)


@dataclass
class Outputs:
    """Losses as sums, never means: the caller divides by the global counts, so the batch's split does not matter."""

    loss_sums: dict[str, Tensor]  # by the term's name; see Objective.counts for what each is summed over
    correct_sums: dict[str, Tensor] = field(default_factory=dict)  # right first guesses; in evaluation only
    sampled_BK: Tensor | None = None  # the generator's tokens
    labels_BT: Tensor | None = None  # bool, True where the discriminator should say replaced
    discriminator_logits_BT: Tensor | None = None  # above zero: replaced
    judged_BT: Tensor | None = None  # bool, True where the discriminator's loss counts


def total(values_BN: Tensor) -> Tensor:
    """Sum over a batch, a scalar: rows first, since the bits of a whole sum depend on the number of threads."""
    return values_BN.sum(-1).sum()


class Objective(nn.Module):
    """A pre-training method: a module that turns a :class:`Batch` into :class:`Outputs`.

    Its loss is the sum over terms of weight * loss_sum / count, with counts over the global batch.
    """

    main: ClassVar[str] = "discriminator"  # the attribute that holds the encoder fine-tuning starts from
    reads: ClassVar[tuple[str, ...]] = ()  # optional fields of a batch that the method looks at

    def __init__(self, method: config.Method):
        super().__init__()
        self.method = method

    @property
    def loss_weights(self) -> dict[str, float]:
        """Weight of each term, in the order the terms are reported in. Weight 0: measured, not learned from."""
        raise NotImplementedError

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """How many tokens (or slots, or examples) each term's loss is summed over."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> Outputs:
        raise NotImplementedError

    def initialize(self, std: float, seed: int) -> "Objective":
        """Random weights as the original draws them; the same for the same seed."""
        random = torch.Generator().manual_seed(seed)
        initialize(self, std, random)
        for module in self.modules():
            if isinstance(module, DiscriminatorHead):
                nn.init.xavier_uniform_(module.output.weight, generator=random)
        return self

    def encoder_to_publish(self) -> Encoder:
        """The main encoder with plain embeddings."""
        encoder: Encoder = getattr(self, self.main)
        if isinstance(encoder.embeddings, DisentangledEmbeddings):
            plain = Encoder(encoder.config, encoder.embeddings.merged(encoder.config))
            for name, part in encoder.named_children():
                if name != "embeddings":
                    setattr(plain, name, part)
            return plain
        return encoder

    def phases(self, num_steps: int) -> list[range]:
        """The steps of each phase; all methods but one have a single phase."""
        return [range(num_steps)]

    def enter_phase(self, phase: int) -> None:
        """Change weights where a phase starts from what the one before it has learned."""

    def set_phase(self, phase: int) -> None:
        """Say which phase is trained, and which parameters it leaves as they are (requires_grad)."""

    def part_of(self, parameter: str) -> str:
        """Part that a parameter belongs to, for gradient norms: generator, shared, or the main encoder's name."""
        if ".embeddings." in parameter or parameter.endswith("generator_head.weight"):
            return "shared_embeddings" if hasattr(self, "generator") else self.main
        return "generator" if parameter.startswith("generator") else self.main


def build_objective(model: config.Model, vocab_size: int, mask_id: int, method: config.Method) -> Objective:
    """The module that ``pretrain.objective`` names, with weights not yet drawn."""
    return objective_class(method.objective)(model, vocab_size, mask_id, method)


def objective_class(name: config.ObjectiveName) -> Any:
    """The class of a pre-training method, a subclass of :class:`Objective`.

    Each method is one file of ``electra/objectives``, imported only when it is asked for; its class has the file's name
    in CamelCase. So ``dvc.yaml`` can name the one file that a run depends on.
    """
    module = importlib.import_module(f"electra.objectives.{name}")
    return getattr(module, "".join(part.capitalize() for part in name.split("_")))
