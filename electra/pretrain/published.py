"""The compute and size columns of the ELECTRA paper's tables 1, 2 and 8, beside the shapes and recipes that give them.

Published figures are the paper's (Clark et al., ICLR 2020); ``printed`` ones are those of its authors' script. All
shapes but ELMo's are written as :class:`EncoderConfig`; where a network differs from BERT's in small things, the script
counts it as if it did not, and so do these rows.
"""

from dataclasses import dataclass

import torch

from electra.model.encoder import Encoder
from electra.model.shape import EncoderConfig
from electra.pretrain import paper_flops


@dataclass(frozen=True)
class Recipe:
    """A transformer and its pre-training run."""

    encoder: EncoderConfig
    steps: float
    batch: int
    length: int = 512
    generator: EncoderConfig | None = None  # None: (masked) language modelling
    predicted_share: float = paper_flops.PREDICTED_SHARE

    def training_flops(self) -> float:
        """Of the whole run, by the paper's rules."""
        examples = self.steps * self.batch
        if self.generator is None:
            return paper_flops.mlm_training_flops(self.encoder, self.length, examples, self.predicted_share)
        return paper_flops.electra_training_flops(self.generator, self.encoder, self.length, examples)

    def inference_flops(self) -> float:
        """Of one example of 128 tokens, by the paper's rules."""
        return paper_flops.inference_flops(self.encoder)

    def parameters(self) -> int:
        """The encoder and one dense layer of its width: BERT's pooler, or the first layer of ELECTRA's head."""
        with torch.device("meta"):
            encoder = Encoder(self.encoder)
        return sum(p.numel() for p in encoder.parameters()) + self.encoder.hidden_size * (self.encoder.hidden_size + 1)


@dataclass(frozen=True)
class Elmo:
    """10 epochs of the One Billion Word benchmark, its 30,301,028 sentence ends counted as words."""

    words: float = 10 * (768_648_884 + 30_301_028)

    def training_flops(self) -> float:
        return 2 * self.words * paper_flops.elmo_forward_flops()

    def inference_flops(self) -> float:
        return paper_flops.INFERENCE_LENGTH * paper_flops.elmo_forward_flops()


@dataclass(frozen=True)
class Xlnet:
    """XLNet-Large: 500K steps of 8192 examples of 512 tokens, 85 of them predicted; counted over batches of 32."""

    encoder: EncoderConfig
    examples: float = 500_000 * 8192

    def training_flops(self) -> float:
        return 2 * self.examples * paper_flops.xlnet_forward_flops(self.encoder, 512, 85, share_positions_over=32)


@dataclass(frozen=True)
class Row:
    """One model of the tables.

    Attributes:
        training_flops, inference_flops, parameters: as published; None where the tables' figure is not checked here.
        printed: training FLOPs that the script prints.
        note: where counting, script and paper differ.
    """

    name: str
    recipe: Recipe | Elmo | Xlnet
    training_flops: float
    printed: float
    inference_flops: float | None = None
    parameters: float | None = None
    note: str = ""

    def counted_training_flops(self) -> float:
        return self.recipe.training_flops()

    def counted_inference_flops(self) -> float | None:
        return None if isinstance(self.recipe, Xlnet) else self.recipe.inference_flops()

    def counted_parameters(self) -> int | None:
        return self.recipe.parameters() if isinstance(self.recipe, Recipe) and self.parameters else None


def _shape(hidden: int, layers: int, embedding: int | None = None, vocab: int = 30522) -> EncoderConfig:
    """BERT's proportions: 64-wide heads, feed-forward four times as wide."""
    return EncoderConfig(vocab, embedding or hidden, hidden, layers, max(1, hidden // 64), 4 * hidden)


_SMALL, _BASE, _LARGE = _shape(256, 12, embedding=128), _shape(768, 12), _shape(1024, 24)
_SMALL_GENERATOR, _BASE_GENERATOR = _shape(64, 12, embedding=128), _shape(256, 12, embedding=768)
_LARGE_GENERATOR = _shape(256, 24, embedding=1024)

ROWS = (
    Row(
        "ELMo", Elmo(), 3.3e18, printed=3.41e18, inference_flops=2.6e10,
        note="counted are the network's matrix products, 2.04e8 a token, without the softmax, over words and sentence "
        "ends. The paper does not say how it comes to 3.3e18; its script prints 3.41e18, from a profiler's 2.219e8 a "
        "token over the words alone. Counted that way, with a softmax over 8192 sampled words, it is 3.40e18.",
    ),
    Row(
        "GPT", Recipe(_shape(768, 12, vocab=40_000), 960_800, 128, predicted_share=1), 4.0e19, printed=3.97e19,
        inference_flops=3.0e10, note="960,800 steps of 128 examples, as the script counts; every token is predicted.",
    ),
    Row(
        "BERT-Small", Recipe(_SMALL, 1.45e6, 128, 128), 1.4e18, printed=1.419e18, inference_flops=3.7e9,
        parameters=14e6, note="1.45M steps, as the script counts; the paper's text says 1.5M.",
    ),
    Row(
        "BERT-Base", Recipe(_BASE, 1e6, 256), 6.4e19, printed=6.428e19, inference_flops=2.9e10, parameters=110e6
    ),
    Row("BERT-Large", Recipe(_LARGE, 1e6, 256), 1.9e20, printed=1.917e20, parameters=335e6),
    Row(
        "ELECTRA-Small", Recipe(_SMALL, 1e6, 128, 128, _SMALL_GENERATOR), 1.4e18, printed=1.294e18,
        inference_flops=3.7e9, parameters=14e6,
        note="the paper says 1.4e18, its own script prints 1.294e18 for its own recipe (1M steps, generator 64 wide).",
    ),
    Row(
        "ELECTRA-Base", Recipe(_BASE, 766_000, 256, 512, _BASE_GENERATOR), 6.4e19, printed=6.425e19,
        inference_flops=2.9e10, parameters=110e6,
    ),
    Row(
        "ELECTRA-400K", Recipe(_LARGE, 400_000, 2048, 512, _LARGE_GENERATOR), 7.1e20, printed=7.118e20,
        parameters=335e6,
    ),
    Row(
        "ELECTRA-1.75M", Recipe(_LARGE, 1.75e6, 2048, 512, _LARGE_GENERATOR), 3.1e21, printed=3.114e21,
        parameters=335e6,
    ),
    Row(
        "RoBERTa", Recipe(_shape(1024, 24, vocab=50_265), 500_000, 8000), 3.2e21, printed=3.187e21,
        note="500K steps, batches taken as 8000.",
    ),
    Row(
        "XLNet", Xlnet(_shape(1024, 24, vocab=32_000)), 3.9e21, printed=3.857e21,
        note="two streams of attention: counted here; the script takes a profiler's 4.708e11 an example (counted: "
        "4.707e11).",
    ),
    Row(
        "ALBERT", Recipe(_shape(4096, 12, embedding=128, vocab=30_000), 1.5e6, 4096), 3.1e22, printed=3.114e22,
        note="xxlarge; sharing weights between layers saves parameters, not FLOPs.",
    ),
)  # fmt: skip
