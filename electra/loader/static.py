"""Batches of a few shapes only, for a device whose kernels are compiled and launched ahead: CUDA.

A compiled forward pass is one for each shape; and what a host needs to know of a batch's contents (where examples end)
it must not ask the device for. Both are settled here, in the loader.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from electra.model.batch import Batch
from electra.model.packed_attention import example_ends

ROW_BUCKETS = 4  # packed rows: a quarter, half, three quarters or all of a micro-batch
_UNREAD = {"random_BK", "candidate_BT"}  # of the optional fields, those that most methods do not look at


@dataclass(frozen=True)
class StaticShapes:
    """How batches are brought to few shapes.

    Args:
        reads: optional fields that the method looks at; the others are left out.
        with_ends: say where examples end, for the flash kernel.
        pinned: in memory from which the device copies without anybody waiting.
    """

    reads: Collection[str] = ()
    with_ends: bool = True
    pinned: bool = True

    def apply(self, batch: Batch, num_rows: int, width: int) -> Batch:
        """The batch with rows and columns of padding added, which no loss counts.

        Args:
            num_rows: of a full micro-batch; packed rows are rounded up to a quarter of it.
            width: tokens of a full row.
        """
        is_packed = batch.example_BT is not None
        rows, slots = num_rows, batch.positions_BK.shape[1]
        num_examples = 2 * num_rows  # each with its padding
        if is_packed:
            quarter = -(-num_rows // ROW_BUCKETS)
            rows = -(-len(batch.tokens_BT) // quarter) * quarter
            most = -(-width // 4)  # of the usual 15%, with a slot more for each example that is rounded up
            slots = -(-slots // most) * most
        fields: dict[str, Any] = {}
        for name, value in vars(batch).items():
            if value is None or (name in _UNREAD and name not in self.reads):
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
        return example_ends(batch.example_BT, num_examples + len(batch.tokens_BT))


def _padded(value: Tensor, shape: tuple[int, ...], fill: float = 0) -> Tensor:
    """``value`` in the corner of a larger tensor."""
    if value.shape == shape:
        return value.contiguous()
    larger = value.new_full(shape, fill)
    larger[tuple(slice(size) for size in value.shape)] = value
    return larger
