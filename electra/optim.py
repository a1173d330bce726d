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
    device, so the host does not wait for the answer.

    With ``max_grad_norm``, it clips the global norm of the gradients, which must be whole and the same on all processes
    (ZeRO 0). The kernel scales them on its way: the host neither waits for the norm nor passes over the gradients.
    """

    moments = ("exp_avg", "exp_avg_sq")  # its state of each parameter, of the parameter's shape

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        guard: bool = False,
        max_grad_norm: float | None = None,
    ):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
        self.guard, self.max_grad_norm = guard, max_grad_norm
        self._skipped: torch.Tensor | None = None
        for group in self.param_groups:
            group["step_number"] = 0  # steps already taken

    def create_moments(self, tensors: Iterable[torch.Tensor]) -> None:
        """Zero moments before the first step, for whoever must know where they are."""
        for tensor in tensors:
            self.set_moments(tensor, {name: torch.zeros_like(tensor) for name in self.moments})

    def set_moments(self, tensor: torch.Tensor, moments: dict[str, torch.Tensor]) -> None:
        """Give a parameter its moments, with the count of steps that the fused kernel wants beside them.

        The count must lie where the parameter does: on CUDA the kernel refuses one that lies on the CPU. Its value is
        that of the parameter's group, set at every step.
        """
        self.state[tensor] = {"step": torch.zeros((), device=tensor.device), **moments}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        found, scale = self._judge() if self.guard or self.max_grad_norm else (None, None)
        counts: dict[tuple[torch.device, int], torch.Tensor] = {}
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            self.create_moments(parameter for parameter in parameters if parameter not in self.state)
            group["step_number"] += 1
            beta1, beta2 = group["betas"]
            first = 1 - beta1 ** group["step_number"]
            second = (1 - beta2 ** group["step_number"]) ** 0.5
            for device, tensors in _by_device(parameters).items():
                key = (device, group["step_number"])
                if key not in counts:  # the kernel only reads it: one for all, instead of one for each parameter
                    counts[key] = torch.full((), float(group["step_number"]), device=device)
                states = [self.state[parameter] for parameter in tensors]
                torch._fused_adamw_(
                    tensors,
                    [parameter.grad for parameter in tensors if parameter.grad is not None],
                    [state["exp_avg"] for state in states],
                    [state["exp_avg_sq"] for state in states],
                    [],
                    [counts[key]] * len(states),
                    lr=group["lr"] * first / second,
                    beta1=beta1,
                    beta2=beta2,
                    weight_decay=group["weight_decay"] * second / first,
                    eps=group["eps"] / second,
                    amsgrad=False,
                    maximize=False,
                    grad_scale=scale,
                    found_inf=found,
                )

    def _judge(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """1.0 if the gradients are not finite, else 0.0, and the kernel's divisor of them; on their device."""
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not gradients:
            return None, None
        norms = torch.stack(torch._foreach_norm(gradients))
        found, scale = None, None
        if self.max_grad_norm:
            norm = torch.linalg.vector_norm(norms)
            scale = ((norm + 1e-6) / self.max_grad_norm).clamp(min=1.0)
        if self.guard:
            found = (~torch.isfinite(norms).all()).float()
            if not self.max_grad_norm and _num_processes() > 1:
                torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)  # ZeRO: each process sees its part
            self._skipped = found if self._skipped is None else self._skipped + found
        return found, scale

    def take_skipped(self) -> int:
        """Steps skipped since the last call; the same number on every process. Waits for the device."""
        skipped, self._skipped = self._skipped, None
        return 0 if skipped is None else int(skipped.item())


def _by_device(tensors: Iterable[torch.Tensor]) -> dict[torch.device, list[torch.Tensor]]:
    found: dict[torch.device, list[torch.Tensor]] = {}
    for tensor in tensors:
        found.setdefault(tensor.device, []).append(tensor)
    return found


def _num_processes() -> int:
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def parameter_groups(module: nn.Module, weight_decay: float, generator_rate: float = 1.0) -> list[dict[str, Any]]:
    """Groups of parameters by decay and by learning rate.

    Matrices and tables decay, biases and LayerNorm do not. ``rate_factor`` of a group is what its learning rate is
    multiplied with: ``generator_rate`` for the generator's own parameters, 1 for what it shares and for all others. A
    shared parameter is listed once. Parameters at rest (``requires_grad`` false) are in no group.
    """
    shared = {id(p) for n, p in module.named_parameters(remove_duplicate=False) if not n.startswith("generator")}
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {(True, 1.0): [], (False, 1.0): []}  # by decay and rate
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        decays = not (name.endswith("bias") or name.rsplit(".", 2)[-2].endswith("norm"))
        factor = 1.0 if id(parameter) in shared else generator_rate
        groups.setdefault((decays, factor), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": weight_decay if decays else 0.0, "rate_factor": factor}
        for (decays, factor), parameters in groups.items()
    ]


def rate_of(step: int, recipe: config.Pretrain, stage: range) -> float:
    """Learning rate of a step of pre-training; every stage has a schedule of its own."""
    done, num_steps = step - stage.start, len(stage)
    warmup_steps = min(recipe.warmup_steps, num_steps // 2)
    if recipe.schedule == "wsd":
        return warmup_stable_decay(done, recipe.learning_rate, num_steps, warmup_steps, recipe.decay_share)
    return learning_rate(done, recipe.learning_rate, num_steps, warmup_steps, recipe.decay_power)


def learning_rate(step: int, peak: float, num_steps: int, warmup_steps: int, power: float = 1.0) -> float:
    """Rate of a step (counted from 0): warm-up and polynomial decay to zero, multiplied.

    The decay starts at step 0, so the peak itself is never reached: lr(warmup) = peak * (1 - warmup / num_steps).
    """
    warmup = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    return peak * warmup * max(0.0, 1 - step / num_steps) ** power


def warmup_stable_decay(step: int, peak: float, num_steps: int, warmup_steps: int, decay_share: float) -> float:
    """Rate of a step (counted from 0): linear warm-up, the peak, and 1 - sqrt to zero in the last steps.

    Of the last ``decay_share * num_steps`` steps, a share x has been taken: the rate is peak * (1 - sqrt(x)) (Haegele
    et al. 2024, who compared shapes).
    """
    warmup = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    decayed = max(0.0, 1 - (num_steps - step) / (decay_share * num_steps))
    return peak * warmup * (1 - decayed**0.5)
