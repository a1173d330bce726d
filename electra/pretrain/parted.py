"""An optimizer that treats parts of the model differently: Muon for matrices, another rate for the generator."""

from typing import Any

import torch
from torch import Tensor, nn

from electra import config
from electra.model.objective import Objective
from electra.optim import ElectraAdamW, parameter_groups

MOMENTUM, ITERATIONS = 0.95, 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan et al. 2024: singular values end between 0.7 and 1.2 or so


def parted_groups(model: Objective, recipe: config.Pretrain) -> list[dict[str, Any]]:
    """The plain groups, split by what the recipe treats differently.

    ``by_muon`` is the number of matrices that lie in one parameter: queries, keys and values, or a gate and what it
    lets through; 0 where Adam does it.
    """
    is_gated = getattr(model, model.main).config.is_gated
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def traits(parameter: nn.Parameter) -> tuple[int, bool]:
        name = names[id(parameter)]
        is_generators = recipe.generator_rate_factor != 1 and model.part_of(name) == "generator"
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
            groups.append({**plain, "params": parameters, "by_muon": by_muon, "rate_factor": factor})
    return groups


class PartedOptimizer(ElectraAdamW):
    """Adam as ever, but for groups marked ``by_muon``.

        m = b m + (1 - b) g     u = orthogonal((1 - b) g + b m)     p -= lr (0.2 sqrt(max(rows, columns)) u + decay p)

    The factor gives an update the root mean square of one of Adam's, so that Adam's rate fits.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        every = self.param_groups
        matrices = [group for group in every if group.get("by_muon")]
        for group in matrices:
            self._step_matrices(group)
        self.param_groups = [group for group in every if not group.get("by_muon")]
        try:
            super().step(closure)
        finally:
            self.param_groups = every

    def _step_matrices(self, group: dict[str, Any]) -> None:
        number = group["by_muon"]
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            if parameter not in self.state:
                self.create_moments([parameter])
            gradient, momentum = parameter.grad, self.state[parameter]["exp_avg"]
            momentum.lerp_(gradient, 1 - MOMENTUM)
            direction = gradient.lerp(momentum, MOMENTUM)
            for weight, part in zip(parameter.chunk(number), direction.chunk(number), strict=True):
                by_shape.setdefault(part.shape, []).append((weight, part))
        group["step_number"] += 1
        for (rows, columns), pairs in by_shape.items():
            updates = orthogonal(torch.stack([part for _, part in pairs]))
            for (weight, _), update in zip(pairs, updates, strict=True):
                change = 0.2 * max(rows, columns) ** 0.5 * update + group["weight_decay"] * weight
                weight.sub_(group["lr"] * change)


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
