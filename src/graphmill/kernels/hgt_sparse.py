"""The edge part of HGT's attention for one relation, in torch's own sparse operators; same contract as ``hgt_torch``.

What the CPU takes where numba is not installed. A head at a time: products of an edge's two ends are
``torch.sparse.sampled_addmm``, weighted sums over a node's edges ``torch.nn.functional.embedding_bag``, the maximum and the
total of the softmax ``torch.segment_reduce``. None of them writes a row an edge, and each adds in the order of the edges,
whatever the number of threads. fp32 and fp64. (Where a relation has more parallel edges than pairs of nodes, the
products are made of rows, some edges at a time.)
"""

from __future__ import annotations

import math
import warnings
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.hgt_plan import RelationPlan
from graphmill.kernels.hgt_torch import EdgeGradients, Partial, head_products, merge, serves_relations

__all__ = [
    "SOURCES_HEAD_MAJOR",
    "TARGETS_HEAD_MAJOR",
    "backward",
    "forward",
    "head_products",
    "merge",
    "scatter_add",
    "serves_relations",
]

SOURCES_HEAD_MAJOR = TARGETS_HEAD_MAJOR = True
_PART = 4096
_SPARSE = 4
"""Where fewer than one in so many of a type's nodes occur in a relation, only their rows are written."""


def scatter_add(rows: Tensor, nodes: Tensor, first: int, last: int, values: Tensor) -> None:
    """Add [h, n, D] to heads ``first:last`` of some distinct rows, ascending, of [N, H·D]."""
    heads, n, width = values.shape
    columns = rows[:, first * width : last * width]
    if n == len(rows):
        columns.unflatten(1, (heads, width)).add_(values.transpose(0, 1))
    elif n * _SPARSE >= len(rows):
        # All rows are gone through, with zeros for those that are not meant.
        taken = nodes.new_zeros(len(rows) + 1, dtype=torch.int32).index_fill_(0, nodes + 1, 1)
        bounds, each = taken.cumsum(0, dtype=torch.int32), torch.arange(n, dtype=torch.int32)
        for column, own in zip(columns.split(width, 1), values, strict=True):
            column.add_(F.embedding_bag(each, own.contiguous(), bounds, mode="sum", include_last_offset=True))
    else:
        # index_add_ would sort the nodes.
        found = columns.index_select(0, nodes)
        found.view(n, heads, width).add_(values.transpose(0, 1))
        columns.index_copy_(0, nodes, found)


def forward(r: RelationPlan, q: Tensor, k: Tensor, v: Tensor, factor: Tensor, kept: Tensor | None) -> Partial:
    """See :func:`graphmill.kernels.hgt_torch.forward`."""
    logits = _dots(r, q, k).mul_(factor[:, None])
    if kept is not None:
        logits.masked_fill_(~kept, -math.inf)
    highest = _of_segments("max", logits, r.indptr)
    weights = _minus(logits, highest.clamp_min(torch.finfo(logits.dtype).min), r.target).exp_()
    total = _of_segments("sum", weights, r.indptr)
    return Partial(_weighted_sums(r.source, r.bounds, weights, v), total, highest)


def backward(
    r: RelationPlan,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    factor: Tensor,
    kept: Tensor | None,
    d_out: Tensor,
    log_total: Tensor,
    delta: Tensor,
    want_sums: bool,
) -> EdgeGradients:
    """See :func:`graphmill.kernels.hgt_torch.backward`."""
    q, k, v, d_out = q.contiguous(), k.contiguous(), v.contiguous(), d_out.contiguous()
    raw = _dots(r, q, k)
    alpha = _minus(raw * factor[:, None], log_total, r.target).exp_()
    if kept is not None:
        alpha *= kept
    d_logits = _minus(_dots(r, d_out, v), delta, r.target).mul_(alpha)
    d_factor = torch.linalg.vecdot(d_logits, raw)
    del raw
    d_logits *= factor[:, None]
    d_q = _weighted_sums(r.source, r.bounds, d_logits, k)
    sums = _weighted_sums(r.source, r.bounds, alpha, v) if want_sums else None
    order, target, bounds = r.transposed
    d_k = _weighted_sums(target, bounds, d_logits.index_select(1, order), q)
    del d_logits
    d_v = _weighted_sums(target, bounds, alpha.index_select(1, order), d_out)
    return EdgeGradients(d_q, d_k, d_v, d_factor, sums)


def _dots(r: RelationPlan, left: Tensor, right: Tensor) -> Tensor:
    """[h, E]: each edge's product of a row of ``left`` [h, n_t, D] (by target) and one of ``right`` [h, n_s, D]."""
    heads, targets, _ = left.shape
    # What sampled_addmm finds there is multiplied with beta, and would be NaN still if it were.
    out = left.new_zeros(heads, r.num_edges)
    if r.num_edges > targets * right.shape[1]:
        # More parallel edges than a matrix has places, which sampled_addmm refuses.
        for start in range(0, r.num_edges, _PART):
            part = slice(start, start + _PART)
            rows = left.index_select(1, r.target[part]).mul_(right.index_select(1, r.source[part]))
            torch.sum(rows, 2, out=out[:, part])
        return out
    _without_warning()
    places = (targets, right.shape[1])
    for head, found in enumerate(out):
        one, other = left[head].contiguous(), right[head].contiguous()
        pattern = torch.sparse_csr_tensor(r.bounds, r.source, found, places, check_invariants=False)
        torch.sparse.sampled_addmm(pattern, one, other.T, beta=0.0, out=pattern)
        # As torch makes it, its values are the memory of ``found``; no version promises that.
        if pattern.values().data_ptr() != found.data_ptr():
            found.copy_(pattern.values())
    return out


@cache
def _without_warning() -> None:
    """Torch says once a process that its sparse tensors are in beta state; have it said unheard."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        torch.sparse_csr_tensor([0, 0], [], [], (1, 1), check_invariants=False)


def _minus(values: Tensor, of_targets: Tensor, target: Tensor) -> Tensor:
    """``values`` [h, E] less each edge's target's number of ``of_targets`` [h, n_t], in place, a head at a time."""
    for row, numbers in zip(values, of_targets, strict=True):
        row.sub_(numbers.index_select(0, target))
    return values


def _weighted_sums(of: Tensor, bounds: Tensor, weights: Tensor, rows: Tensor) -> Tensor:
    """[h, n, D]: Σ weights[head, e] · rows[head, of[e]] over each node's edges e, which are ``bounds[i]:bounds[i + 1]``."""
    out = rows.new_empty(len(rows), len(bounds) - 1, rows.shape[2])
    for head, own in enumerate(rows):
        table = own.contiguous()
        out[head] = F.embedding_bag(
            of, table, bounds, mode="sum", per_sample_weights=weights[head], include_last_offset=True
        )
    return out


def _of_segments(reduction: str, values: Tensor, bounds: Tensor) -> Tensor:
    """[h, n]: ``reduction`` of the runs ``bounds[i]:bounds[i + 1]`` of each row of ``values`` [h, E]; none is empty."""
    return torch.stack([torch.segment_reduce(row, reduction, offsets=bounds, unsafe=True) for row in values])
