"""The original's optimizer and schedule (google-research/electra, model/optimization.py)."""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed
from torch import nn

from electra import config


class ElectraAdamW(torch.optim.AdamW):
    """Adam without bias correction, with decoupled weight decay.

        m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2        p -= lr (m / (sqrt(v) + eps) + decay p)

    PyTorch's fused AdamW always corrects the bias. Rate, epsilon and decay are therefore handed to it so that the
    corrections cancel at every step: with c1 = 1 - b1^t and c2 = sqrt(1 - b2^t), a rate of lr c1 / c2 and an epsilon
    of eps / c2 give exactly the update above, at the fused kernel's speed.

    With ``guard``, a step whose gradients are not all finite changes nothing and is counted. The kernel decides on the
    device, so nobody waits for the answer.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        guard: bool = False,
    ):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
        self.guard = guard
        self._skipped: torch.Tensor | None = None
        for group in self.param_groups:
            group["step_number"] = 0  # steps already taken

    def create_moments(self, tensors: Iterable[torch.Tensor]) -> None:
        """Zero moments before the first step, for whoever must know where they are."""
        for tensor in tensors:
            moments = {name: torch.zeros_like(tensor) for name in ("exp_avg", "exp_avg_sq")}
            self.state[tensor] = {"step": torch.tensor(0.0), **moments}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        plain = [(group["lr"], group["eps"], group["weight_decay"]) for group in self.param_groups]
        for group, (lr, eps, decay) in zip(self.param_groups, plain, strict=True):
            for parameter in group["params"]:  # the kernel counts for itself: after a resume it must agree
                if "step" in (state := self.state.get(parameter, {})):
                    state["step"].fill_(group["step_number"])
            group["step_number"] += 1
            beta1, beta2 = group["betas"]
            first = 1 - beta1 ** group["step_number"]
            second = (1 - beta2 ** group["step_number"]) ** 0.5
            group["lr"] = lr * first / second
            group["eps"] = eps / second
            group["weight_decay"] = decay * second / first
        if self.guard:
            self._guard()
        super().step(closure)
        for group, (lr, eps, decay) in zip(self.param_groups, plain, strict=True):
            group["lr"], group["eps"], group["weight_decay"] = lr, eps, decay

    def _guard(self) -> None:
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not gradients:
            return
        norms = torch.stack(torch._foreach_norm(gradients))
        found = (~torch.isfinite(norms).all()).float()
        if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)  # ZeRO: each process sees its part
        self.found_inf = found  # what the fused kernel looks at
        self._skipped = found if self._skipped is None else self._skipped + found

    def take_skipped(self) -> int:
        """Steps skipped since the last call; the same number on every process. Waits for the device."""
        skipped, self._skipped = self._skipped, None
        return 0 if skipped is None else int(skipped.item())


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: matrices and tables decay, biases and LayerNorm do not. A shared parameter is listed once.

    Parameters at rest (``requires_grad`` false) are in neither.
    """
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        is_norm = name.rsplit(".", 2)[-2].endswith("norm")
        (plain if is_norm or name.endswith("bias") else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]


def rate_of(step: int, recipe: config.Pretrain, stage: range) -> float:
    """Learning rate of a step of pre-training; every stage has a schedule of its own."""
    warmup_steps = min(recipe.warmup_steps, len(stage) // 2)
    return learning_rate(step - stage.start, recipe.learning_rate, len(stage), warmup_steps, recipe.decay_power)


def learning_rate(step: int, peak: float, num_steps: int, warmup_steps: int, power: float = 1.0) -> float:
    """Rate of a step (counted from 0): warm-up and polynomial decay to zero, multiplied.

    The decay starts at step 0, so the peak itself is never reached: lr(warmup) = peak * (1 - warmup / num_steps).
    """
    warmup = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    return peak * warmup * max(0.0, 1 - step / num_steps) ** power
