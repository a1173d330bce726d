"""A linear layer that can leave its bias to what comes after it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.model.kernels.build import library


class Linear(nn.Linear):
    """A product x W^T and the bias that is still to be added, for a fused loop that adds it on its way.

    Adding it there saves a pass over the product, and its gradient falls off in the loop's backward pass. Where no such
    loop will follow, the bias is added already and None stands in its place.
    """

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:  # type: ignore[override]
        if self._can_leave_bias(x):
            return F.linear(x, self.weight), self.bias
        return super().forward(x), None

    def _can_leave_bias(self, x: Tensor) -> bool:
        return (
            x.device.type == "cpu"
            and self.bias.dtype == torch.float32
            and not hasattr(self.bias, "ds_id")  # ZeRO-3 takes it away again at the end of this call
            and not torch.compiler.is_compiling()
            and library() is not None
        )
