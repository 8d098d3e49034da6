"""Small products in compiled code: of pairs of bfloat16 where the processor is faster at these, else of what is there."""

from __future__ import annotations

import numpy as np
import pytest
import torch

numba = pytest.importorskip("numba")

from graphmill.kernels import bfloat16_blocks as blocks  # noqa: E402
from graphmill.kernels.products import multiplies_bfloat16  # noqa: E402
from graphmill.kernels.runtime.vectors import LANES, address, hold, padded, whole_lines  # noqa: E402

KINDS = {"bfloat16": np.empty(0, np.uint16), "float32": np.empty(0, np.float32)}


@numba.njit
def _run(kind, rows, others, matrix, width):  # type: ignore[no-untyped-def]
    """Rows [n + 6, line] times a matrix [width, line], and the gradient of that for others [n + 6, line]."""
    line, count = padded(width), len(rows) - 6
    low = np.empty(blocks.low_size(width) + LANES, np.uint32)
    room = np.empty(blocks.room_size(width) + LANES, np.uint32)
    # Pairs of NaN: what a product reads beyond its operands must not reach its result.
    low[:] = 0x7FC07FC0
    room[:] = 0x7FC07FC0
    out = np.zeros((len(rows), line), np.float32)
    into = np.ones((width + 6, line), np.float32)
    left, right, weights = address(rows), address(others), address(matrix)
    found, gradient = address(out), address(into)
    packed, pairs = whole_lines(low), whole_lines(room)
    blocks.pack(kind, weights, 0, packed, 0, width, line)
    blocks.times(kind, left, 0, weights, 0, packed, 0, pairs, found, 0, count, width, line)
    blocks.add_gradient(kind, left, 0, right, 0, pairs, gradient, 0, count, width, line)
    hold(low)
    hold(room)
    hold(rows)
    hold(others)
    hold(matrix)
    return out, into


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("count", "width"), [(1, 32), (48, 32), (101, 64), (7, 33), (50, 9), (97, 100), (13, 128)])
def test_products_are_those_of_rounded_operands(kind: str, count: int, width: int) -> None:
    line, rng = padded(width), np.random.default_rng(count)

    def drawn(rows: int, room: int) -> np.ndarray:
        out = np.zeros((rows + room, line), np.float32)
        out[:rows, :width] = rng.standard_normal((rows, width))
        return out

    rows, others, matrix = drawn(count, 6), drawn(count, 6), drawn(width, 0)
    rows[count:] = np.nan  # room for a whole block, of no account
    out, into = _run(KINDS[kind], rows, others, matrix, width)

    rounds = kind == "bfloat16" and blocks.PAIRS

    def seen(x: np.ndarray) -> np.ndarray:
        return torch.from_numpy(x).bfloat16().double().numpy() if rounds else x.astype(np.float64)

    x, y, w = seen(rows[:count, :width]), seen(others[:count, :width]), seen(matrix[:, :width])
    np.testing.assert_allclose(out[:count, :width], x @ w, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(into[:width, :width], 1 + x.T @ y, rtol=1e-5, atol=1e-4)
    assert not out[:count, width:].any()


def test_pairs_are_multiplied_where_torch_is_faster_at_them_too() -> None:
    assert not blocks.PAIRS or multiplies_bfloat16()
