"""How large the gradients of generator, discriminator and shared embeddings are, and how often they are clipped."""

from collections.abc import Callable
from typing import Any

import torch


def gradient_norms(engine: Any, part_of: Callable[[str], str]) -> dict[str, float]:
    """Norm of the whole gradient (``total``, what is clipped) and of each part, between backward and step.

    Every process must call it.

    Args:
        part_of: a parameter's part by its name.
    """
    from deepspeed.utils import safe_get_full_grad

    squares: dict[str, torch.Tensor] = {}
    for name, parameter in engine.module.named_parameters():
        if not parameter.requires_grad:
            continue
        gradient = parameter.grad if engine.zero_optimization_stage() == 0 else safe_get_full_grad(parameter)
        if gradient is not None:
            part = part_of(name)
            squares[part] = squares.get(part, torch.zeros((), device=gradient.device)) + gradient.float().square().sum()
    norms = {part: square.sqrt().item() for part, square in squares.items()}
    return {"total": sum(norm**2 for norm in norms.values()) ** 0.5, **norms}
