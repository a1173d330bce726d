"""The original's optimizer and schedule (google-research/electra, model/optimization.py); parameter groups.

Another optimizer is a subclass of :class:`Optimizer` and a line of :data:`OPTIMIZERS`.
"""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
import torch.distributed
from torch import Tensor, nn

from electra import config


class Optimizer(torch.optim.Optimizer):
    """Base class: a step that is skipped where gradients are not finite, and moments that checkpoints can name.

    With ``skip_non_finite``, a step whose gradients are not all finite changes nothing and is counted. The decision is
    made on the device, so the host does not wait for it.

    With ``max_grad_norm``, the step clips the global norm of the gradients, which must be whole and the same on all
    processes (ZeRO 0).

    Attributes:
        moments: names of the state of a parameter, each a tensor of its shape.
    """

    moments: ClassVar[tuple[str, ...]] = ()

    # PyTorch's methods without their decorator `_disable_dynamo`. It imports torch.compile's package at the first call,
    # 1.5 s of a processor in each of a run's many short fine-tunings, and no step of an optimizer is compiled here.
    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        weight_decay: float = 0.0,
        skip_non_finite: bool = False,
        max_grad_norm: float | None = None,
        **defaults: Any,
    ):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, **defaults})
        self.skip_non_finite, self.max_grad_norm = skip_non_finite, max_grad_norm
        self._skipped: Tensor | None = None
        for group in self.param_groups:
            group["step_number"] = 0  # steps already taken

    def update(
        self, parameters: list[Tensor], group: dict[str, Any], skip: Tensor | None, divisor: Tensor | None
    ) -> None:
        """Update the parameters of a group that have gradients, all on one device; the kernel of a step.

        Args:
            group: its settings; ``step_number`` is 1 in the first step.
            skip: 1.0 where nothing may change, else 0.0; None where that is not checked.
            divisor: of the gradients, for clipping; None where there is none.
        """
        raise NotImplementedError

    def create_moments(self, tensors: Iterable[Tensor]) -> None:
        """Create zero moments before the first step, for ZeRO, which must know where they are."""
        for tensor in tensors:
            self.set_moments(tensor, {name: torch.zeros_like(tensor) for name in self.moments})

    def set_moments(self, tensor: Tensor, moments: dict[str, Tensor]) -> None:
        """Set the moments of a parameter.

        A count of steps lies beside them, as in PyTorch's optimizers, on the parameter's device: on CUDA a fused kernel
        refuses one that lies on the CPU. The group's ``step_number`` is the one in use.
        """
        self.state[tensor] = {"step": torch.zeros((), device=tensor.device), **moments}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        skip, divisor = self._inspect_gradients()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            self.create_moments(parameter for parameter in parameters if parameter not in self.state)
            group["step_number"] += 1
            for device in dict.fromkeys(parameter.device for parameter in parameters):
                self.update([p for p in parameters if p.device == device], group, skip, divisor)

    def _inspect_gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Return 1.0 if the gradients are not finite, else 0.0, and their divisor for clipping; on their device."""
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not gradients or not (self.skip_non_finite or self.max_grad_norm):
            return None, None
        norms = torch.stack(torch._foreach_norm(gradients))
        skip, divisor = None, None
        if self.max_grad_norm:
            norm = torch.linalg.vector_norm(norms)
            divisor = ((norm + 1e-6) / self.max_grad_norm).clamp(min=1.0)
        if self.skip_non_finite:
            skip = (~torch.isfinite(norms).all()).float()
            if not self.max_grad_norm and _num_processes() > 1:
                skip = _largest(skip)  # ZeRO: each process has a part
            self._skipped = skip if self._skipped is None else self._skipped + skip
        return skip, divisor

    def take_skipped(self) -> int:
        """Return the steps skipped since the last call, the same number on every process. Waits for the device."""
        skipped, self._skipped = self._skipped, None
        return 0 if skipped is None else int(skipped.item())


class ElectraAdamW(Optimizer):
    """Adam without bias correction, with decoupled weight decay.

        m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2        p -= lr (m / (sqrt(v) + eps) + decay p)

    PyTorch's fused AdamW always corrects the bias. Rate, epsilon and decay are therefore set so that the corrections
    cancel at every step: with c1 = 1 - b1^t and c2 = sqrt(1 - b2^t), a rate of lr c1 / c2 and an epsilon of eps / c2
    give exactly the update above, at the fused kernel's speed.
    """

    moments = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        **options: Any,
    ):
        super().__init__(params, lr, betas=betas, eps=eps, **options)
        self._counts: dict[tuple[int, torch.device], Tensor] = {}

    def update(
        self, parameters: list[Tensor], group: dict[str, Any], skip: Tensor | None, divisor: Tensor | None
    ) -> None:
        beta1, beta2 = group["betas"]
        first = 1 - beta1 ** group["step_number"]
        second = (1 - beta2 ** group["step_number"]) ** 0.5
        states = [self.state[parameter] for parameter in parameters]
        count = self._count(group["step_number"], parameters[0].device)
        torch._fused_adamw_(
            parameters,
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [count] * len(states),
            lr=group["lr"] * first / second,
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"] * second / first,
            eps=group["eps"] / second,
            amsgrad=False,
            maximize=False,
            grad_scale=divisor,
            found_inf=skip,
        )

    def _count(self, step_number: int, device: torch.device) -> Tensor:
        """Return a step's number as a tensor; the kernel only reads it, so all groups of a step share one."""
        if (step_number, device) not in self._counts:
            self._counts = {(step_number, device): torch.full((), float(step_number), device=device)}
        return self._counts[step_number, device]


OPTIMIZERS: dict[str, type[Optimizer]] = {"adamw": ElectraAdamW}


def build_optimizer(name: str, groups: list[dict[str, Any]], **settings: Any) -> Optimizer:
    """Return the optimizer of a name of :data:`OPTIMIZERS`.

    Args:
        groups: of :func:`parameter_groups`.
        settings: of the optimizer, and those of :class:`Optimizer`.
    """
    return OPTIMIZERS[name](groups, **settings)


def _num_processes() -> int:
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def _largest(flag: Tensor) -> Tensor:
    """Return the largest value over all processes, on the flag's device."""
    # an offloaded optimizer has its gradients on the host, and NCCL exchanges tensors of GPUs only
    exchanged = flag.cuda() if torch.distributed.get_backend() == "nccl" else flag
    torch.distributed.all_reduce(exchanged, torch.distributed.ReduceOp.MAX)
    return exchanged.to(flag.device)


def parameter_groups(
    module: nn.Module, weight_decay: float, rate_factors: Mapping[str, float] | None = None
) -> list[dict[str, Any]]:
    """Return groups of parameters by weight decay and by learning rate, for pre-training and fine-tuning.

    Matrices and tables decay, biases and the gains of norms do not. A shared parameter is listed once, a
    frozen one in no group.

    Args:
        rate_factors: of the learning rate, by a parameter's name; 1 by default. A group's is its ``rate_factor``.
    """
    factors = rate_factors or {}
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {(True, 1.0): [], (False, 1.0): []}  # by decay and rate
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            decays = parameter.dim() >= 2 and not name.endswith("bias")
            groups.setdefault((decays, factors.get(name, 1.0)), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": weight_decay if decays else 0.0, "rate_factor": factor}
        for (decays, factor), parameters in groups.items()
    ]


def generator_rates(module: nn.Module, rate: float) -> dict[str, float]:
    """Return a rate factor for the generator's own parameters; what it shares learns at the rate of all others."""
    shared = {id(p) for n, p in module.named_parameters(remove_duplicate=False) if not n.startswith("generator")}
    return {name: rate for name, parameter in module.named_parameters() if id(parameter) not in shared}


def rate_of(step: int, recipe: config.Pretrain, phase: range) -> float:
    """Return the learning rate of a step of pre-training; every phase has a schedule of its own.

    In one of two phases, or where ``epochs`` makes a run shorter than its warm-up, warm-up takes half of the phase at
    most.
    """
    done, num_steps = step - phase.start, len(phase)
    warmup_steps = recipe.warmup_steps
    if num_steps < recipe.num_steps or num_steps <= warmup_steps:
        warmup_steps = min(warmup_steps, num_steps // 2)
    if recipe.schedule == "wsd":
        return warmup_stable_decay(done, recipe.learning_rate, num_steps, warmup_steps, recipe.decay_share)
    return learning_rate(done, recipe.learning_rate, num_steps, warmup_steps, recipe.decay_power)


def learning_rate(step: int, peak: float, num_steps: int, warmup_steps: int, power: float = 1.0) -> float:
    """Return the rate of a step (counted from 0): warm-up and polynomial decay to zero, multiplied.

    The decay starts at step 0, so the peak itself is never reached: lr(warmup) = peak * (1 - warmup / num_steps).
    """
    warmup = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    return peak * warmup * max(0.0, 1 - step / num_steps) ** power


def warmup_stable_decay(step: int, peak: float, num_steps: int, warmup_steps: int, decay_share: float) -> float:
    """Return the rate of a step (counted from 0): linear warm-up, the peak, and 1 - sqrt to zero in the last steps.

    Of the last ``decay_share * num_steps`` steps, a share x has been taken: the rate is peak * (1 - sqrt(x)) (Haegele
    et al. 2024, who compared shapes).
    """
    warmup = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    decayed = max(0.0, 1 - (num_steps - step) / (decay_share * num_steps))
    return peak * warmup * (1 - decayed**0.5)
