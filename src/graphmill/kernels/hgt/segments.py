"""Sums over runs of edges, and products of an edge's two ends, without a row an edge: torch's own operators for both."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

_edge_products = torch.ops.aten._embedding_bag_per_sample_weights_backward
_SUM = 0
"""``mode="sum"`` in its arguments."""
_MOST_PRODUCTS = 1 << 26
"""At most so many at once: CUDA's kernel has 32 threads for each, whose numbers are int32."""
_GATHERS = frozenset({"mps"})
"""Devices whose kernel for it adds up in any order, and numbers edges × width in uint32: there both rows are gathered."""
_GATHERED_NUMBERS = 1 << 24
_WIDE = 4
"""Bytes of fp32."""


def weighted_sums(of: Tensor, bounds: Tensor, weights: Tensor | None, rows: Tensor) -> Tensor:
    """[n, D]: Σ weights[e] · rows[of[e]] over each node's edges e, which are ``bounds[i]:bounds[i + 1]``; both int32.

    ``weights`` None: all 1.
    """
    return F.embedding_bag(of, rows, bounds, mode="sum", per_sample_weights=weights, include_last_offset=True)


def edge_products(left: Tensor, right: Tensor, of: Tensor, bounds: Tensor, node: Tensor) -> Tensor:
    """[E]: the product of row ``node[e]`` of ``left`` and row ``of[e]`` of ``right`` [n, D]; all int32.

    A node's edges are side by side, ``bounds[i]:bounds[i + 1]``.
    """
    gathers = left.device.type in _GATHERS
    size = max(_GATHERED_NUMBERS // left.shape[1], 1) if gathers else _MOST_PRODUCTS
    ends = zip(node.split(size), of.split(size), strict=True)
    if gathers:
        found = [(left.index_select(0, t) * right.index_select(0, s)).sum(1) for t, s in ends]
    else:
        found = [_edge_products(left, right, s, bounds, t, _SUM) for t, s in ends]
    return found[0] if len(found) == 1 else torch.cat(found)


def runs(ascending: Tensor, count: int) -> Tensor:
    """int32 [count + 1]: where the run of each of the numbers 0 … count − 1 begins, and the last one ends."""
    numbers = torch.arange(count + 1, dtype=ascending.dtype, device=ascending.device)
    return torch.searchsorted(ascending, numbers, out_int32=True)


def head_products(left: Tensor, right: Tensor, heads: int) -> Tensor:
    """[n, H]: the product of each head's numbers of two rows [n, H·D]. Of half precision, in fp32."""
    both = left * right if left.itemsize >= _WIDE else left.float() * right.float()
    return both.unflatten(1, (heads, left.shape[1] // heads)).sum(-1)
