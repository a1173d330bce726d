"""Interface of all pre-training methods: terms of a loss, an encoder to publish, phases."""

import importlib
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from electra import config
from electra.model.batch import Batch, Outputs
from electra.model.embeddings import DisentangledEmbeddings
from electra.model.encoder import Encoder, initialize
from electra.model.heads import DiscriminatorHead


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
