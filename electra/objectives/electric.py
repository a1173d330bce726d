"""Electric (Clark et al., EMNLP 2020): an energy-based cloze model, trained by noise-contrastive estimation.

Shape legend: B examples, T tokens, K masked slots per example, V vocabulary, G generator width.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from electra import config
from electra.model.attention import CuSeqlens
from electra.model.encoder import Encoder
from electra.model.generator import at_positions, sample, token_losses
from electra.model.heads import DiscriminatorHead, VocabularyHead
from electra.model.shape import EncoderConfig
from electra.objectives.base import Batch, Objective, Outputs, num_correct, put_samples, total
from electra.objectives.flops import binary_head_flops, encoder_flops, vocabulary_head_flops


class Electric(Objective):
    """The discriminator's output is an energy E: p(token | context) is proportional to exp(-E), and about exp(-E).

    The noise q comes from a two-tower cloze generator: one causal transformer reads from the left, one from the right,
    and the two states around a position predict it, for all positions in one pass. Noise positions are the masked
    ones, even where the sample hits the original. The logit of noise at a token x is
    E(x) + log q(x) + log(k / (n - k)), with k of n tokens replaced; no gradient flows into log q.
    """

    batch_fields = ("candidate_BT",)
    scores_texts = True

    def build(self, model: config.Model, vocab_size: int) -> None:
        self.discriminator = Encoder(EncoderConfig.discriminator(model, vocab_size))
        embeddings = self.discriminator.plain_embeddings
        shape = EncoderConfig.generator(model.model_copy(update={"embedding_sharing": "embeddings"}), vocab_size)
        self.discriminator_head = DiscriminatorHead(self.discriminator.config)
        self.generator_from_left = Encoder(shape, embeddings)
        self.generator_from_right = Encoder(shape, embeddings)
        self.generator_head = VocabularyHead(shape, embeddings, 2 * shape.hidden_size)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"cloze": self.method.generator_weight, "disc": self.method.discriminator_weight}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.candidate_BT is not None
        return {"cloze": batch.candidate_BT.sum(), "disc": batch.candidate_BT.sum()}

    def part_of(self, parameter: str) -> str:
        if ".embeddings." in parameter:
            return "shared_embeddings"
        return "generator" if parameter.startswith("generator") else self.encoder_name

    def forward(self, batch: Batch) -> Outputs:
        assert batch.candidate_BT is not None
        # q of every token given the original tokens on both sides of it
        logits_BTV = self.cloze(batch)
        cloze_BT = token_losses(logits_BTV, batch.input_ids_BT)
        noise_BTV = (logits_BTV.detach() / self.method.temperature).log_softmax(-1)

        sampled_ids_BK = sample(at_positions(noise_BTV, batch.mask_positions_BK), batch.uniforms_BK)
        corrupted_ids_BT = put_samples(batch, sampled_ids_BK)
        log_q_BT = noise_BTV.gather(-1, corrupted_ids_BT[..., None]).squeeze(-1)
        ratio = self.method.mask_probability / (1 - self.method.mask_probability)

        logits_BT = self.energies(corrupted_ids_BT, batch.segments_BT, batch.attended_BT) + log_q_BT + math.log(ratio)
        is_replaced_BT = batch.is_masked_BT()
        losses_BT = F.binary_cross_entropy_with_logits(logits_BT, is_replaced_BT.float(), reduction="none")
        correct = {}
        if not self.training:
            correct["cloze"] = num_correct(logits_BTV.argmax(-1) == batch.input_ids_BT, batch.candidate_BT)
        return Outputs(
            {"cloze": total(cloze_BT * batch.candidate_BT), "disc": total(losses_BT * batch.candidate_BT)},
            correct,
            sampled_ids_BK=sampled_ids_BK,
            is_replaced_BT=is_replaced_BT,
            discriminator_logits_BT=logits_BT.detach(),
            loss_mask_BT=batch.candidate_BT,
        )

    def cloze(self, batch: Batch) -> Tensor:
        """Return the logits [B, T, V] of each token, from the tokens before it and those after it, not from itself."""
        inputs = (batch.input_ids_BT, batch.segments_BT, batch.attended_BT)
        before_BTG = self.generator_from_left(*inputs, direction="left").roll(1, dims=1)
        after_BTG = self.generator_from_right(*inputs, direction="right").roll(-1, dims=1)
        assert self.generator_head is not None
        return self.generator_head(torch.cat([before_BTG, after_BTG], -1)).float()

    def energies(self, input_ids_BT: Tensor, segments_BT: Tensor, mask_BT: Tensor | CuSeqlens) -> Tensor:
        """Return E of each token in its context [B, T]; low for likely tokens."""
        return self.discriminator_head(self.discriminator(input_ids_BT, segments_BT, mask_BT)).float()

    def token_scores(self, hidden_BTD: Tensor) -> Tensor:
        """Return log p(token | the others) of each token [B, T]."""
        return -self.discriminator_head(hidden_BTD).float()

    @classmethod
    def generator_flops(
        cls, generator: EncoderConfig | None, encoder: EncoderConfig, length: int, masked_share: float
    ) -> float:
        """Two causal towers side by side, which predict every token."""
        if generator is None:
            raise ValueError("electric trains its generator")
        return 2 * encoder_flops(generator, length) + vocabulary_head_flops(generator, 2 * generator.hidden_size)

    @classmethod
    def head_flops(cls, encoder: EncoderConfig, length: int, masked_share: float) -> float:
        return binary_head_flops(encoder)
