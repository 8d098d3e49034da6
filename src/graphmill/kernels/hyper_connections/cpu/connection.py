"""``hyper_connections`` for the CPU, compiled, in blocks of rows; two products of backward are torch's.

A block's streams fit the second-level cache, so that all that is done with them costs one reading of the memory. A row's
maps are a few numbers, so they are computed for ``ROWS`` rows side by side: every loop runs over the rows, and vectorises.
Loops over columns write to one place each; LLVM vectorises only those (it cannot know that arrays do not overlap, and would
need too many tests).

All arrays are contiguous and of one dtype, fp32 or float64. R rows, n streams of C numbers, k = 2 n + m maps. Streams, and
the gradient of H X, may be [R, 1, C], one for all; ``least`` is the number of its last.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.hyper_connections.cpu import loops
from graphmill.kernels.hyper_connections.cpu.maps import (
    ROWS,
)
from graphmill.kernels.products import add_product_, product
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vectors import LANES, LINE

_LARGE = 1 << 24
"""Bytes of streams from which on they are written past the caches: written lines are otherwise read before."""
_BLOCK = 1 << 20
"""Bytes of the streams of one block."""


class Kept(NamedTuple):
    """What backward needs of forward beside its arguments: X Φ [R, k], 1/RMS [R], h and p [R, n], H [R, n, n]."""

    product: Tensor
    scale: Tensor
    h: Tensor
    p: Tensor
    mixing: Tensor


def enter(
    streams: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, iterations: int, eps: float
) -> tuple[Tensor, Kept]:
    """Σ_s h_s X_s [R, C], and the maps. ``bias`` [k] is that of all maps; no ``iterations``: a mean of permutations."""
    streams, phi = streams.detach(), phi.detach()
    (rows, held, width), n = streams.shape, phi.shape[0] // streams.shape[2]
    phi = _folded(phi, held, n)
    read = streams.new_empty(rows, width)
    product, scale = streams.new_empty(rows, phi.shape[1]), streams.new_empty(rows)
    kept = Kept(product, scale, streams.new_empty(rows, n), streams.new_empty(rows, n), streams.new_empty(rows, n, n))
    maps = (*_parameters(alpha, bias, n, iterations), streams.numpy().dtype.type(eps))
    arrays = tuple(t.numpy() for t in (streams, phi.contiguous(), read, *kept))
    _over(loops.enter, (*arrays, *maps, 0, rows), streams)
    return read, kept


def enter_gradients(
    streams: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    iterations: int,
    kept: Kept,
    into_read: Tensor,
    into_p: Tensor,
    into_mixed: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the streams, Φ, α and the bias, of those of what was read [R, C], of p [R, n] and of H X [R, n, C]."""
    streams, phi = streams.detach(), phi.detach()
    (rows, held, width), n, columns = streams.shape, kept.p.shape[1], phi.shape[1]
    phi = _folded(phi, held, n)
    into_streams, into_phi, turned = torch.empty_like(streams), torch.zeros_like(phi), phi.T.contiguous()
    into_product, factor = streams.new_empty(rows, columns), streams.new_empty(rows)
    sums = streams.new_empty(-(-rows // ROWS), columns + 3)
    maps = _parameters(alpha, bias, n, iterations)
    given = tuple(t.detach().numpy() for t in (streams, into_mixed, into_read))
    known = tuple(t.detach().numpy() for t in (into_p, *kept, into_product, factor, sums))
    # What a stream that stands for all is given, all are.
    h, mixing = (kept.h, kept.mixing) if held == n else (kept.h.sum(1, True), kept.mixing.sum(2, True))
    flat, into_flat = streams.view(rows, held * width), into_streams.view(rows, held * width)
    streaming = _streaming(into_streams)
    # What comes by way of the product is put where it stays in the cache, and the sum goes to memory.
    beside = torch.empty_like(flat[: next(_blocks(streams), (0, 0))[1]]) if streaming else into_flat
    last = tuple(t.numpy() for t in (h, mixing, factor, beside, into_streams))
    for start, stop in _blocks(streams):
        _over(loops.into_maps, (*given, *known, *maps, start, stop), streams)
        part = into_product[start:stop]
        add_product_(into_phi, flat[start:stop].T, part)
        product(part, turned, out=beside[: stop - start] if streaming else into_flat[start:stop])
        _over(loops.into_streams, (*given, *last, streaming, start, stop), streams)
    total = sums.sum(0)
    return into_streams, into_phi.repeat(n // held, 1), total[columns:], total[:columns]


def leave(streams: Tensor, mixing: Tensor, p: Tensor, update: Tensor) -> Tensor:
    """[R, n, C]: H X + p ⊗ y."""
    out = streams.new_empty(*p.shape, streams.shape[2])
    arrays = tuple(t.detach().numpy() for t in (streams, mixing, p, update, out))
    over_ranges(loops.leave, (*arrays, _streaming(out)), len(streams), out.numel())
    return out


def _streaming(out: Tensor) -> bool:
    """Whether rows of ``out`` are written past the caches: there are many, and each begins and ends with a cache line."""
    whole = out.shape[2] % LANES == 0 and out.data_ptr() % LINE == 0
    return whole and out.numel() * out.element_size() >= _LARGE


def leave_gradients(p: Tensor, update: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of p and of the update, of ``gradient`` [R, n, C]."""
    into_p, into_update = torch.empty_like(p), torch.empty_like(update)
    arrays = tuple(t.detach().numpy() for t in (p, update, gradient, into_p, into_update))
    over_ranges(loops.leave_gradients, arrays, len(gradient), gradient.numel())
    return into_p, into_update


def _folded(phi: Tensor, held: int, n: int) -> Tensor:
    """Φ for as many streams as are held: one that stands for all is multiplied by the sum."""
    return phi if held == n else phi.view(n, -1, phi.shape[1]).sum(0)


def add_streams(streams: Tensor, factor: float) -> Tensor:
    """[R, C]: the sum over streams times ``factor``."""
    out = streams.new_empty(len(streams), streams.shape[2])
    weights = streams.new_full(streams.shape[:2], factor)
    arrays = tuple(t.detach().numpy() for t in (streams, weights, out))
    over_ranges(loops.read_rows, arrays, len(streams), streams.numel())
    return out


def _blocks(streams: Tensor) -> Iterator[tuple[int, int]]:
    row = max(streams.shape[1] * streams.shape[2] * streams.element_size(), 1)
    size = min(max(_BLOCK // row // ROWS * ROWS, ROWS), loops.SHORT)
    for start in range(0, len(streams), size):
        yield start, min(start + size, len(streams))


def _over(driver: Any, arguments: tuple[Any, ...], streams: Tensor) -> None:
    """A kernel whose arguments end with the rows' bounds, over the groups of ``ROWS`` rows within."""
    count = arguments[-1] - arguments[-2]
    over_ranges(driver, arguments, -(-count // ROWS), count * streams.shape[1] * streams.shape[2])


def _parameters(alpha: Tensor, bias: Tensor, n: int, iterations: int) -> tuple[Any, ...]:
    return alpha.detach().numpy(), bias.detach().numpy(), _orders(n) if iterations == 0 else _orders(0), iterations


@cache
def _orders(n: int) -> Any:
    """[n!, n]: where each row of a permutation matrix has its one, in ``permutation_matrices``' order."""
    return np.array(list(permutations(range(n))) if n else [], np.int64).reshape(-1, max(n, 1))
