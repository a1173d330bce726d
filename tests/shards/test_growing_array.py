"""An array file that grew has the same bytes as one written by numpy at once."""

import numpy as np
import pytest

from electra.text.shards.growing_array import GrowingArray


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("sizes", [[1], [3, 1, 4000], [7] * 30])
def test_the_bytes_are_those_of_numpy(tmp_path, sizes, dtype):
    rows = np.arange(sum(sizes) * 5).reshape(-1, 5).astype(dtype)
    growing = GrowingArray(tmp_path / "grown.npy")
    for end, size in zip(np.cumsum(sizes), sizes, strict=True):
        growing.append(rows[end - size : end])
        assert len(growing) == end
    growing.close()
    np.save(tmp_path / "whole.npy", rows)
    assert (tmp_path / "grown.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
