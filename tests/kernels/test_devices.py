"""What a kind of device lacks, and memory that products add up alike from."""

import numpy as np
import pytest
import torch

from graphmill.kernels.devices import writable_copy


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_copies_begin_with_a_cache_line_wherever_the_numbers_lay(dtype: type) -> None:
    base = np.arange(24_000).astype(dtype)
    for first in range(4):
        rows = base[first : first + 12_000].reshape(300, 40)[::2]
        copy = writable_copy(rows)
        assert copy.numpy().dtype == dtype
        assert np.array_equal(copy.numpy(), rows)
        assert copy.is_contiguous()
        assert copy.data_ptr() % 64 == 0
        copy[0, 0] = 7
        assert rows[0, 0] != 7


def test_an_array_without_rows() -> None:
    assert writable_copy(np.zeros((0, 5), np.float32)).shape == torch.Size((0, 5))
