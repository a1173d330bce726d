"""Rows for a device: several short examples in one row, and batches of a few fixed shapes for CUDA.

Packing (``cluster.pack_examples``) computes nothing on padding. Fixed shapes are for a device whose kernels are
compiled and launched ahead: a forward pass is compiled once for each shape, and where examples end is known on the
host, which need not wait for the device.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from electra.model.attention import example_ends
from electra.objectives.base import Batch


def packed(batch: Batch, width: int) -> Batch:
    """Return the same examples in fewer rows of at most ``width`` tokens; attention stays within an example.

    First-fit decreasing by length: as few rows as one example less, in practice. Losses and gradients are those of the
    plain batch to rounding (without dropout, whose draws depend on positions).

    Args:
        batch: examples with padding, each in a row of its own; without next-sentence labels.
    """
    lengths = batch.mask_BT.sum(1)
    rows, starts, num_rows = _assign_rows(lengths.tolist(), width)
    shape = (num_rows, width)
    source_BT = batch.mask_BT
    targets = (rows * width + starts)[:, None] + torch.arange(source_BT.shape[1])
    targets_N = targets[source_BT]  # flat position of every real token

    def move(values_BT: Tensor) -> Tensor:
        return values_BT.new_zeros(shape).flatten().index_put((targets_N,), values_BT[source_BT]).view(shape)

    numbers_B = torch.arange(1, len(lengths) + 1)
    slots, slots_shape = _slot_targets(rows, batch.mask_weights_BK > 0, num_rows)

    def move_slots(values_BK: Tensor) -> Tensor:
        real = values_BK[batch.mask_weights_BK > 0]
        return values_BK.new_zeros(slots_shape).flatten().index_put((slots,), real).view(slots_shape)

    example_BT = move(numbers_B[:, None].expand_as(source_BT).contiguous())
    return Batch(
        input_ids_BT=move(batch.input_ids_BT),
        segments_BT=move(batch.segments_BT),
        mask_BT=example_BT > 0,
        mask_positions_BK=move_slots(batch.mask_positions_BK + starts[:, None]),
        mask_weights_BK=move_slots(batch.mask_weights_BK),
        shown_BK=move_slots(batch.shown_BK),
        uniforms_BK=move_slots(batch.uniforms_BK),
        random_BK=None if batch.random_BK is None else move_slots(batch.random_BK),
        candidate_BT=None if batch.candidate_BT is None else move(batch.candidate_BT),
        example_BT=example_BT,
    )


def _assign_rows(lengths: list[int], width: int) -> tuple[Tensor, Tensor, int]:
    """Return row and first position of each example, and the number of rows."""
    used: list[int] = []
    rows, starts = [0] * len(lengths), [0] * len(lengths)
    for example in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        length = lengths[example]
        row = next((row for row, filled in enumerate(used) if filled + length <= width), len(used))
        if row == len(used):
            used.append(0)
        rows[example], starts[example] = row, used[row]
        used[row] += length
    return torch.tensor(rows), torch.tensor(starts), len(used)


def _slot_targets(rows: Tensor, real_BK: Tensor, num_rows: int) -> tuple[Tensor, tuple[int, int]]:
    """Return the flat position of each masked slot, one after the other in its row, and the shape [rows, slots]."""
    row_of_slot = rows[:, None].expand_as(real_BK)[real_BK]
    counts = torch.bincount(row_of_slot, minlength=num_rows)
    order = torch.argsort(row_of_slot, stable=True)
    in_row = torch.arange(len(order)) - (counts.cumsum(0) - counts)[row_of_slot[order]]
    most = max(1, int(counts.max()))
    targets = torch.empty_like(order)
    targets[order] = row_of_slot[order] * most + in_row
    return targets, (num_rows, most)


ROW_BUCKETS = 4  # packed rows: a quarter, half, three quarters or all of a micro-batch
_RARE = {"random_BK", "candidate_BT"}  # of the optional fields, those that most methods do not use


@dataclass(frozen=True)
class StaticShapes:
    """How batches are brought to few shapes.

    Args:
        batch_fields: optional fields that the method uses; the others are left out.
        with_ends: say where examples end, for the flash kernel.
        pinned: in memory from which the device copies without anybody waiting.
    """

    batch_fields: Collection[str] = ()
    with_ends: bool = True
    pinned: bool = True

    def apply(self, batch: Batch, num_rows: int, width: int) -> Batch:
        """Return the batch with rows and columns of padding added, which no loss counts.

        Args:
            num_rows: of a full micro-batch; packed rows are rounded up to a quarter of it.
            width: tokens of a full row.
        """
        is_packed = batch.example_BT is not None
        rows, slots = num_rows, batch.mask_positions_BK.shape[1]
        num_examples = 2 * num_rows  # each with its padding
        if is_packed:
            quarter = -(-num_rows // ROW_BUCKETS)
            rows = -(-len(batch.input_ids_BT) // quarter) * quarter
            most = -(-width // 4)  # of the usual 15%, with a slot more for each example that is rounded up
            slots = -(-slots // most) * most
        fields: dict[str, Any] = {}
        for name, value in vars(batch).items():
            if value is None or (name in _RARE and name not in self.batch_fields):
                fields[name] = None
            elif name == "next_B":
                fields[name] = _padded(value, (rows,), -1)
            else:
                fields[name] = _padded(value, (rows, slots if name.endswith("_BK") else width))
        static = Batch(**fields)
        if self.with_ends:
            static = replace(static, ends_N=self._ends(static, num_examples))
        if self.pinned:
            moved: dict[str, Any] = {k: v if v is None else v.pin_memory() for k, v in vars(static).items()}
            static = Batch(**moved)
        return static

    def _ends(self, batch: Batch, num_examples: int) -> Tensor:
        if batch.example_BT is None:
            return example_ends(batch.mask_BT, num_examples)
        return example_ends(batch.example_BT, num_examples + len(batch.input_ids_BT))


def _padded(value: Tensor, shape: tuple[int, ...], fill: float = 0) -> Tensor:
    """Return ``value`` in the corner of a larger tensor."""
    if value.shape == shape:
        return value.contiguous()
    larger = value.new_full(shape, fill)
    larger[tuple(slice(size) for size in value.shape)] = value
    return larger
