"""The edge part of HGT's attention for one relation, in operators that cpu, cuda and mps all have.

Everything here is compact: row i of ``q`` is the relation's i-th target node, row j of ``k`` and ``v`` its j-th source
node; shapes are [h, n, D] for h heads, whatever the order in memory. On the CPU heads go one after the other. Weighted
sums over a node's edges are ``torch.nn.functional.embedding_bag``, which writes no row an edge and adds in the order of the
edges; products of an edge's two ends are what torch has for the gradients of its weights. Of an edge and head there are a
few numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.hgt_plan import RelationPlan

SOURCES_HEAD_MAJOR = True
_WIDE = 4
"""Bytes of fp32."""
_MOST = (1 << 31) - 1
"""Edges, or nodes, that int32 can number."""
weight_gradients = torch.ops.aten._embedding_bag_per_sample_weights_backward
"""[E]: products of row ``bag[e]`` of the first table [n, D] and row ``of[e]`` of the second, from both tables, ``of``, the
bags' bounds, ``bag`` (int32 all) and a mode."""
_SUM = 0
"""``mode="sum"`` in its arguments."""
_ONE_BY_ONE = frozenset({"cpu"})
"""Devices on which heads go one after the other."""


class Partial(NamedTuple):
    """One relation's share of the softmax, per target.

    ``sums`` [h, n_t, D]: Σ exp(a − highest)·v; ``total`` [h, n_t]: Σ exp(a − highest); ``highest`` [h, n_t]: max a.
    """

    sums: Tensor
    total: Tensor
    highest: Tensor


class EdgeGradients(NamedTuple):
    """Gradients of the compact rows; ``factor`` [h] is that of the logits' factor; ``sums`` = Σ α·v where asked for."""

    q: Tensor
    k: Tensor
    v: Tensor
    factor: Tensor
    sums: Tensor | None


def gather(
    rows: Tensor, nodes: Tensor, first: int, last: int, width: int, dtype: torch.dtype, head_major: bool = False
) -> Tensor:
    """Heads ``first:last`` of some rows of [N, H·D], as [h, n, D] in ``dtype``; in memory [n, h, D], or ``head_major``."""
    columns = rows[:, first * width : last * width]
    if not head_major:
        return _heads_first(columns.index_select(0, nodes).to(dtype), last - first)
    out = rows.new_empty(last - first, len(nodes), width, dtype=dtype)
    for head, part in zip(out, columns.split(width, 1), strict=True):
        if dtype == rows.dtype:
            torch.index_select(part, 0, nodes, out=head)
        else:
            head.copy_(part.index_select(0, nodes))
    return out


def serves_relations(weights: Tensor, *rows: Tensor) -> bool:
    """Whether all relations are done in one call, by functions of the module beside this one."""
    return False


def head_products(left: Tensor, right: Tensor, heads: int) -> Tensor:
    """[n, H]: the product of each head's numbers of two rows [n, H·D]. Of half precision, in fp32."""
    both = left * right if left.itemsize >= _WIDE else left.float() * right.float()
    return both.unflatten(1, (heads, left.shape[1] // heads)).sum(-1)


def scatter_add(rows: Tensor, nodes: Tensor, first: int, last: int, values: Tensor) -> None:
    """Add [h, n, D] to heads ``first:last`` of some distinct rows of [N, H·D]."""
    columns = rows[:, first * values.shape[2] : last * values.shape[2]]
    if len(nodes) == len(rows):  # each of them, in order
        columns.unflatten(1, values.shape[::2]).add_(values.transpose(0, 1))
        return
    # index_add_ would sort the nodes on the CPU, and add in any order on CUDA.
    found = columns.index_select(0, nodes)
    found.view(len(nodes), *values.shape[::2]).add_(values.transpose(0, 1))
    columns.index_copy_(0, nodes, found)


def forward(r: RelationPlan, q: Tensor, k: Tensor, v: Tensor, factor: Tensor, kept: Tensor | None) -> Partial:
    """Attention of one relation's targets over its sources, not yet divided by the softmax's total.

    ``q`` [h, n_t, D], ``k``, ``v`` [h, n_s, D]; ``factor`` [h] multiplies the logits; ``kept`` bool [E] drops edges.
    """
    heads, targets, _ = q.shape
    q, k, v = _scaled(q, factor), k.contiguous(), v.contiguous()
    sums, (total, highest) = torch.empty_like(q), q.new_empty(2, heads, targets)
    dropped = None if kept is None else ~kept
    for part, edges in _groups(r, heads):
        logits = edges.dots(q[part], k[part])
        if dropped is not None:
            logits.view(-1, r.num_edges).masked_fill_(dropped, -math.inf)
        top = highest[part].view(-1).fill_(-math.inf).scatter_reduce_(0, edges.index, logits, "amax")
        weights = logits.sub_(top.clamp_min(torch.finfo(top.dtype).min).index_select(0, edges.target)).exp_()
        total[part], sums[part] = edges.totals(weights), edges.sums(weights, v[part])
    return Partial(sums, total, highest)


def merge(sums: Tensor, total: Tensor, highest: Tensor, nodes: Tensor, first: int, last: int, part: Partial) -> None:
    """Add one relation's share to the running softmax of heads ``first:last``, both brought to the higher maximum.

    ``sums`` [N, H·D], ``total`` and ``highest`` [N, H] are changed at the rows ``nodes``.
    """
    width = part.sums.shape[2]
    columns = sums[:, first * width : last * width]
    total, highest = total[:, first:last], highest[:, first:last]
    old_highest = highest.index_select(0, nodes)
    both = torch.maximum(old_highest, part.highest.mT)
    finite = both.clamp_min(torch.finfo(both.dtype).min)
    old_scale, new_scale = (old_highest - finite).exp_(), (part.highest.mT - finite).exp_()
    merged = columns.index_select(0, nodes).view(nodes.numel(), last - first, width).mul_(old_scale.unsqueeze(-1))
    merged.addcmul_(part.sums.transpose(0, 1), new_scale.unsqueeze(-1))
    columns.index_copy_(0, nodes, merged.flatten(1))
    total.index_copy_(0, nodes, total.index_select(0, nodes) * old_scale + part.total.mT * new_scale)
    highest.index_copy_(0, nodes, both)


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
    """Gradients of :func:`forward` followed by the softmax's division, with the logits computed anew.

    ``d_out`` [h, n_t, D]: gradient of Σ α·v; ``log_total`` [h, n_t]: log of the softmax's total over *all* relations;
    ``delta`` [h, n_t]: Σ α·dα over all relations.
    """
    scaled, k, v, d_out = _scaled(q, factor), k.contiguous(), v.contiguous(), d_out.contiguous()
    d_q, d_k, d_v = (torch.empty_like(x) for x in (scaled, k, v))
    sums = torch.empty_like(d_q) if want_sums else None
    dropped = None if kept is None else ~kept
    for part, edges in _groups(r, len(q)):
        logs, deltas = (x[part].flatten().index_select(0, edges.target) for x in (log_total, delta))
        alpha = edges.dots(scaled[part], k[part]).sub_(logs).exp_()
        if dropped is not None:  # their logits are not in the total, and may be far above it
            alpha.view(-1, r.num_edges).masked_fill_(dropped, 0.0)
        d_logits = edges.dots(d_out[part], v[part]).sub_(deltas).mul_(alpha)
        d_q[part] = edges.sums(d_logits, k[part])
        if sums is not None:
            sums[part] = edges.sums(alpha, v[part])
        d_k[part] = edges.sums_by_source(d_logits, scaled[part])
        d_v[part] = edges.sums_by_source(alpha, d_out[part])
    # Σ over edges of the logits' gradient times q · k, as each target's q times what its edges send back.
    d_factor = (q * d_q).sum((1, 2))
    return EdgeGradients(d_q.mul_(factor[:, None, None]), d_k, d_v, d_factor, sums)


class _Edges:
    """A relation's edges for one head, or for some at once as if those were a graph beside the other: nodes and edges of a
    head follow those of the one before. ``source`` and ``target`` int32 [h·E]; ``bounds`` int32 [h·n_t + 1]."""

    def __init__(self, r: RelationPlan, heads: int) -> None:
        self.heads, self._plan = heads, r
        self._sizes = r.source_nodes.numel(), r.target_nodes.numel(), r.num_edges
        self.source = self._repeated(r.source, self._sizes[0])
        self.target = self._repeated(r.target, self._sizes[1])
        self.bounds = self._runs(r.indptr.int())

    def dots(self, left: Tensor, right: Tensor) -> Tensor:
        """[h·E]: products of each edge's row of ``left`` (by target) and ``right`` (by source), [h, n, D]."""
        rows = left.flatten(0, 1), right.flatten(0, 1)
        return weight_gradients(*rows, self.source, self.bounds, self.target, _SUM)

    @cached_property
    def index(self) -> Tensor:
        """``target`` as int64."""
        return self.target.long()

    def totals(self, weights: Tensor) -> Tensor:
        """[h, n_t]: Σ weights over each target's edges. (``index_add_`` adds in any order on CUDA.)"""
        found = F.embedding_bag(self._every, weights[:, None], self.bounds, mode="sum", include_last_offset=True)
        return found.view(self.heads, -1)

    @cached_property
    def _every(self) -> Tensor:
        return torch.arange(len(self.target), dtype=torch.int32, device=self.target.device)

    def sums(self, weights: Tensor, rows: Tensor) -> Tensor:
        """[h, n_t, D]: Σ weights · rows of the sources, over each target's edges."""
        found = weighted_sums(self.source, self.bounds, weights, rows.flatten(0, 1))
        return found.view(self.heads, -1, rows.shape[2])

    def sums_by_source(self, weights: Tensor, rows: Tensor) -> Tensor:
        """[h, n_s, D]: Σ weights · rows of the targets, over each source's edges."""
        order, target, bounds = self._plan.transposed
        of, turned = self._repeated(target, self._sizes[1]), self._repeated(order, self._sizes[2])
        found = weighted_sums(of, self._runs(bounds), weights.index_select(0, turned), rows.flatten(0, 1))
        return found.view(self.heads, -1, rows.shape[2])

    def _repeated(self, numbers: Tensor, count: int) -> Tensor:
        """``numbers`` for each head, which has ``count`` of what they name."""
        if self.heads == 1:
            return numbers
        first = torch.arange(self.heads, dtype=numbers.dtype, device=numbers.device).mul_(count)
        return (first[:, None] + numbers).flatten()

    def _runs(self, bounds: Tensor) -> Tensor:
        return torch.cat([bounds[:1], self._repeated(bounds[1:], self._sizes[2])])


def _groups(r: RelationPlan, heads: int) -> Iterator[tuple[slice, _Edges]]:
    """Heads that go together: one on the CPU; elsewhere, where calls cost more than memory does, as many as can be."""
    most = _MOST // max(r.num_edges, r.source_nodes.numel(), r.target_nodes.numel())
    size = 1 if r.source.device.type in _ONE_BY_ONE else min(max(most, 1), heads)
    edges = _Edges(r, size)
    for first in range(0, heads, size):
        last = min(first + size, heads)
        yield slice(first, last), edges if last - first == size else _Edges(r, last - first)


def _scaled(q: Tensor, factor: Tensor) -> Tensor:
    """``q`` times each head's ``factor``, head by head in memory."""
    return torch.mul(q, factor[:, None, None], out=q.new_empty(q.shape))


def weighted_sums(of: Tensor, bounds: Tensor, weights: Tensor, rows: Tensor) -> Tensor:
    """[n, D]: Σ weights[e] · rows[of[e]] over each node's edges e, which are ``bounds[i]:bounds[i + 1]``; both int32."""
    return F.embedding_bag(of, rows, bounds, mode="sum", per_sample_weights=weights, include_last_offset=True)


def _heads_first(rows: Tensor, heads: int) -> Tensor:
    return rows.unflatten(1, (heads, rows.shape[1] // heads)).transpose(0, 1)
