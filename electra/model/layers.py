"""Building blocks of an encoder: LayerNorm, activations, embeddings, and how weights are drawn.

Shape legend: B examples, T tokens, E embedding width, F feed-forward width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.model.shape import EncoderConfig


class LayerNorm(nn.LayerNorm):
    """LayerNorm whose gradients on CPUs are the same bits on any number of threads."""

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "cpu":  # PyTorch's own gradients of weight and bias are sums per thread
            normalized = F.layer_norm(x.float(), self.normalized_shape, eps=self.eps)
            scaled = normalized * self.weight
            return (scaled if self.bias is None else scaled + self.bias).to(x.dtype)
        return super().forward(x)


class Gelu(nn.Module):
    """The exact (erf) GELU."""

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x)


class Geglu(nn.Module):
    """GELU of the first half of x [B, T, 2 F] times the second half: [B, T, F]."""

    def forward(self, x_BT2F: Tensor) -> Tensor:
        gate, values = x_BT2F.chunk(2, -1)
        return F.gelu(gate) * values


@torch.no_grad()
def truncated_normal(module: nn.Linear | nn.Embedding, std: float, generator: torch.Generator | None) -> None:
    """Draw weights as the original does: a normal distribution cut at two deviations, zero biases."""
    nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
    _zero_bias(module)


@torch.no_grad()
def glorot(linear: nn.Linear, generator: torch.Generator | None) -> None:
    """Draw glorot-uniform weights, zero biases."""
    nn.init.xavier_uniform_(linear.weight, generator=generator)
    _zero_bias(linear)


def _zero_bias(module: nn.Module) -> None:
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def tables_of(config: EncoderConfig) -> dict[str, int]:
    """The tables that are added up, and their rows: words, learned positions, and segments where there are any."""
    tables = {"word": config.vocab_size}
    if config.positions == "learned":
        tables["position"] = config.max_positions
    if not config.is_modern:
        tables["segment"] = config.num_segments
    return tables


class Embeddings(nn.Module):
    """Word + position + segment embeddings, LayerNorm, dropout. One instance serves generator and discriminator.

    ``modern`` has no segments, and LayerNorm and dropout above the projection (:class:`electra.model.encoder.Encoder`).
    """

    word: nn.Embedding
    position: nn.Embedding
    segment: nn.Embedding

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.is_modern, self.has_positions = config.is_modern, config.positions == "learned"
        self.tables = list(tables_of(config))
        for name, rows in tables_of(config).items():
            self.add_module(name, nn.Embedding(rows, config.embedding_size))
        if not config.is_modern:
            self.norm = LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
            self.dropout = nn.Dropout(config.dropout)

    def forward(self, input_ids_BT: Tensor, segments_BT: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        embedded_BTE = self.word(input_ids_BT)
        if self.has_positions:
            embedded_BTE = embedded_BTE + self.position(_positions(input_ids_BT, positions_BT))
        if self.is_modern:
            return embedded_BTE
        return self.dropout(self.norm(embedded_BTE + self.segment(segments_BT)))

    def init_weights(self, std: float, generator: torch.Generator | None = None) -> None:
        for name in self.tables:
            truncated_normal(getattr(self, name), std, generator)


def _positions(input_ids_BT: Tensor, positions_BT: Tensor | None) -> Tensor:
    return torch.arange(input_ids_BT.shape[1], device=input_ids_BT.device) if positions_BT is None else positions_BT


class DisentangledEmbeddings(nn.Module):
    """The main encoder's embeddings: the generator's tables without their gradient, plus differences that are trained.

    Gradient-disentangled sharing of DeBERTa-v3 (He et al., ICLR 2023, section 3.2): table = stop_grad(generator's) +
    difference, for words, positions and segments. The differences start at zero; the LayerNorm is our own.

    Args:
        source: the generator's embeddings.
    """

    def __init__(self, config: EncoderConfig, source: Embeddings):
        super().__init__()
        self.source = source
        self.is_modern, self.tables = config.is_modern, list(tables_of(config))
        for name, rows in tables_of(config).items():
            self.add_module(f"{name}_difference", nn.Embedding(rows, config.embedding_size))
        if not config.is_modern:
            self.norm = LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
            self.dropout = nn.Dropout(config.dropout)

    def forward(self, input_ids_BT: Tensor, segments_BT: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        rows = {"word": input_ids_BT, "position": _positions(input_ids_BT, positions_BT), "segment": segments_BT}
        # through the generator's modules, so that ZeRO-3 has gathered the tables
        theirs_BTE = _sum([getattr(self.source, name)(rows[name]) for name in self.tables])
        ours_BTE = _sum([getattr(self, f"{name}_difference")(rows[name]) for name in self.tables])
        if self.is_modern:
            return theirs_BTE.detach() + ours_BTE
        return self.dropout(self.norm(theirs_BTE.detach() + ours_BTE))

    def init_weights(self, std: float, generator: torch.Generator | None = None) -> None:
        self.source.init_weights(std, generator)
        for name in self.tables:
            nn.init.zeros_(getattr(self, f"{name}_difference").weight)

    @torch.no_grad()
    def merged(self, config: EncoderConfig) -> Embeddings:
        """Plain embeddings that compute the same: what is published."""
        plain = Embeddings(config)
        for name in self.tables:
            difference = getattr(self, f"{name}_difference").weight
            getattr(plain, name).weight.copy_(getattr(self.source, name).weight + difference)
        if not self.is_modern:
            plain.norm.load_state_dict(self.norm.state_dict())
        return plain


def _sum(tables: list[Tensor]) -> Tensor:
    total = tables[0]
    for table in tables[1:]:
        total = total + table
    return total


def with_differences(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of an encoder with plain embeddings as gradient-disentangled ones that compute the same."""
    found = {name: tensor for name, tensor in weights.items() if not name.startswith("embeddings.")}
    for name in weights.keys() - found.keys():
        part = name.removeprefix("embeddings.")
        found[f"embeddings.source.{part}"] = weights[name]
        if part.startswith("norm."):  # of the generator's embeddings and of the encoder's own
            found[name] = weights[name]
        else:
            table, _ = part.split(".")
            found[f"embeddings.{table}_difference.weight"] = torch.zeros_like(weights[name])
    return found


def merge_differences(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights of an encoder by name, with gradient-disentangled embeddings as the plain ones that compute the same."""
    merged = {name: tensor for name, tensor in weights.items() if "_difference." not in name and ".source." not in name}
    for table in ("word", "position", "segment"):
        if (difference := weights.get(f"embeddings.{table}_difference.weight")) is not None:
            merged[f"embeddings.{table}.weight"] = weights[f"embeddings.source.{table}.weight"] + difference
    return merged
