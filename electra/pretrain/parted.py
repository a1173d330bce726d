"""Optimizers that treat parts of the model differently: Muon for matrices, generator and main encoder apart."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from electra import config
from electra.model.objective import Objective
from electra.pretrain.optimizer import ElectraAdamW, parameter_groups

MOMENTUM, ITERATIONS = 0.95, 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan et al. 2024: singular values end between 0.7 and 1.2 or so


def parted_groups(model: Objective, recipe: config.Pretrain) -> list[dict[str, Any]]:
    """The plain groups, split by what the recipe treats differently; each says how.

    ``by_muon`` is the number of matrices that lie in one parameter: queries, keys and values, or a gate and what it
    lets through; 0 where Adam does it.
    """
    is_gated = getattr(model, model.main).config.feed_forward == "geglu"
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def traits(parameter: nn.Parameter) -> tuple[int, bool]:
        name = names[id(parameter)]
        is_apart = recipe.generator_rate_factor != 1 or recipe.clipping == "separate"
        is_generators = is_apart and model.part_of(name) == "generator"
        if recipe.optimizer == "adam" or ".layers." not in name or parameter.dim() != 2:
            return 0, is_generators
        return 3 if ".qkv." in name else 2 if ".feed_forward_in." in name and is_gated else 1, is_generators

    groups = []
    for plain in parameter_groups(model, recipe.weight_decay):
        split: dict[tuple[int, bool], list[nn.Parameter]] = {}
        for parameter in plain["params"]:
            split.setdefault(traits(parameter), []).append(parameter)
        for (by_muon, is_generators), parameters in split.items():
            factor = recipe.generator_rate_factor if is_generators else 1.0
            facts = {"by_muon": by_muon, "is_generators": is_generators, "rate_factor": factor}
            groups.append({**plain, "params": parameters, **facts})
    return groups


class PartedOptimizer(ElectraAdamW):
    """Adam as ever, but for groups marked ``by_muon``.

        m = b m + (1 - b) g     u = orthogonal((1 - b) g + b m)     p -= lr (0.2 sqrt(max(rows, columns)) u + decay p)

    The factor gives an update the root mean square of one of Adam's, so that Adam's rate fits.

    Args:
        separate_norm: what gradients are clipped to, generator and rest each; 0: they are not.
    """

    def __init__(self, params: Iterable[Any], *args: Any, separate_norm: float = 0.0, **kwargs: Any):
        super().__init__(params, *args, **kwargs)
        self.separate_norm = separate_norm

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if self.separate_norm:
            for is_generators in (False, True):
                groups = [group for group in self.param_groups if group["is_generators"] == is_generators]
                nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], self.separate_norm)
        matrices = [group for group in self.param_groups if group.get("by_muon")]
        if not matrices:
            super().step(closure)
            return
        every, guard = self.param_groups, self.guard
        if guard:
            self._guard()
        found = self.found_inf.bool() if guard else torch.tensor(False)
        for group in matrices:
            self._step_matrices(group, found)
        self.param_groups, self.guard = [group for group in every if not group.get("by_muon")], False
        try:
            super().step(closure)
        finally:
            self.param_groups, self.guard = every, guard

    def _step_matrices(self, group: dict[str, Any], skip: Tensor) -> None:
        number = group["by_muon"]
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state.update(exp_avg=torch.zeros_like(parameter), exp_avg_sq=torch.zeros_like(parameter))
            gradient, momentum = parameter.grad, state["exp_avg"]
            new = momentum.lerp(gradient, 1 - MOMENTUM)
            direction = gradient.lerp(new, MOMENTUM)
            momentum.copy_(torch.where(skip, momentum, new))
            for weight, part in zip(parameter.chunk(number), direction.chunk(number), strict=True):
                by_shape.setdefault(part.shape, []).append((weight, part))
        group["step_number"] += 1
        for (rows, columns), pairs in by_shape.items():
            updates = orthogonal(torch.stack([part for _, part in pairs]))
            for (weight, _), update in zip(pairs, updates, strict=True):
                change = 0.2 * max(rows, columns) ** 0.5 * update + group["weight_decay"] * weight
                weight.sub_(torch.where(skip, 0.0, group["lr"] * change))


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices [N, rows, columns] with their singular values moved close to 1 (Newton-Schulz, quintic)."""
    a, b, c = COEFFICIENTS
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if is_tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.transpose(1, 2) if is_tall else x
