"""Sums over each node's edges, and dot products of an edge's two ends, without a row per edge, by torch's own operators."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

_edge_products = torch.ops.aten._embedding_bag_per_sample_weights_backward
_SUM = 0
"""``mode="sum"`` in its arguments."""
_MOST_PRODUCTS = 1 << 26
"""Largest number of edges in one call: CUDA's kernel uses 32 threads for each, and numbers them in int32."""
_GATHERS = frozenset({"mps"})
"""Devices whose kernel sums in any order and indexes edges × width in uint32. There both rows are gathered instead."""
_GATHERED_NUMBERS = 1 << 24
_WIDE = 4
"""Bytes of fp32."""


def weighted_sums(of: Tensor, bounds: Tensor, weights: Tensor | None, rows: Tensor) -> Tensor:
    """[n, D]: Σ weights[e] · rows[of[e]] over each node's edges e, ``bounds[i]:bounds[i + 1]``; int32 indices.

    ``weights`` None: all 1.
    """
    return F.embedding_bag(of, rows, bounds, mode="sum", per_sample_weights=weights, include_last_offset=True)


def edge_products(left: Tensor, right: Tensor, of: Tensor, bounds: Tensor, node: Tensor) -> Tensor:
    """[E]: the dot product of row ``node[e]`` of ``left`` and row ``of[e]`` of ``right`` [n, D]. All indices are int32.

    A node's edges are consecutive, ``bounds[i]:bounds[i + 1]``.
    """
    gathers = left.device.type in _GATHERS
    size = max(_GATHERED_NUMBERS // left.shape[1], 1) if gathers else _MOST_PRODUCTS
    ends = zip(node.split(size), of.split(size), strict=True)
    if gathers:
        result = [(left.index_select(0, t) * right.index_select(0, s)).sum(1) for t, s in ends]
    else:
        result = [_edge_products(left, right, s, bounds, t, _SUM) for t, s in ends]
    return result[0] if len(result) == 1 else torch.cat(result)


def head_products(left: Tensor, right: Tensor, heads: int) -> Tensor:
    """[n, H]: for each head the dot product of two rows [n, H·D]. Half precision is computed in fp32."""
    both = left * right if left.itemsize >= _WIDE else left.float() * right.float()
    return both.unflatten(1, (heads, left.shape[1] // heads)).sum(-1)
