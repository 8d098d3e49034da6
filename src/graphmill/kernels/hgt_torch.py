"""The edge part of HGT's attention for one relation, in operators that cpu, cuda and mps all have.

Everything here is compact: row i of ``q`` is the relation's i-th target node, row j of ``k`` and ``v`` its j-th source
node; shapes are [h, n, D] for h heads, whatever the order in memory. Edges are taken in chunks that stay in cache, so
that edges × width never exists; edges × heads does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from graphmill.kernels.devices import part_bytes
from graphmill.kernels.hgt_plan import RelationPlan

SOURCES_HEAD_MAJOR = False
_CHUNK_BYTES = 1 << 20


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
    """[n, H]: the product of each head's numbers of two rows [n, H·D]. Of bfloat16, in fp32."""
    both = left * right if left.dtype != torch.bfloat16 else left.float() * right.float()
    return both.unflatten(1, (heads, left.shape[1] // heads)).sum(-1)


def scatter_add(rows: Tensor, nodes: Tensor, first: int, last: int, values: Tensor) -> None:
    """Add [h, n, D] to heads ``first:last`` of some distinct rows of [N, H·D]."""
    width = values.shape[2]
    rows[:, first * width : last * width].index_add_(0, nodes, _rows(values).to(rows.dtype))


def forward(r: RelationPlan, q: Tensor, k: Tensor, v: Tensor, factor: Tensor, kept: Tensor | None) -> Partial:
    """Attention of one relation's targets over its sources, not yet divided by the softmax's total.

    ``q`` [h, n_t, D], ``k``, ``v`` [h, n_s, D]; ``factor`` [h] multiplies the logits; ``kept`` bool [E] drops edges.
    """
    heads, targets, _ = q.shape
    logits = _dots(r, _rows(q), _rows(k), heads).mul_(factor)
    if kept is not None:
        logits.masked_fill_(~kept[:, None], -math.inf)
    index = r.target.long()
    highest = logits.new_full((targets, heads), -math.inf)
    highest.scatter_reduce_(0, index[:, None].expand_as(logits), logits, "amax")
    weights = (logits - highest.clamp_min(torch.finfo(logits.dtype).min)[index]).exp_()
    total = torch.zeros_like(highest).index_add_(0, r.target, weights)
    sums = _weighted_sums(r.target, r.source, weights, _rows(v), targets)
    return Partial(_heads_first(sums, heads), total.mT, highest.mT)


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
    heads, targets, _ = q.shape
    q_rows, k_rows, v_rows, d_rows = _rows(q), _rows(k), _rows(v), _rows(d_out)
    raw = _dots(r, q_rows, k_rows, heads)
    alpha = (raw * factor).sub_(log_total.mT.index_select(0, r.target)).exp_()
    if kept is not None:
        alpha *= kept[:, None]
    d_logits = _dots(r, d_rows, v_rows, heads).sub_(delta.mT.index_select(0, r.target)).mul_(alpha)
    d_factor = (d_logits * raw).sum(0)
    d_logits *= factor
    d_q = _weighted_sums(r.target, r.source, d_logits, k_rows, targets)
    sums = _weighted_sums(r.target, r.source, alpha, v_rows, targets) if want_sums else None
    order = r.by_source
    source, target = r.source.index_select(0, order), r.target.index_select(0, order)
    d_k = _weighted_sums(source, target, d_logits.index_select(0, order), q_rows, k.shape[1])
    d_v = _weighted_sums(source, target, alpha.index_select(0, order), d_rows, v.shape[1])
    first, second, third = (_heads_first(x, heads) for x in (d_q, d_k, d_v))
    return EdgeGradients(first, second, third, d_factor, None if sums is None else _heads_first(sums, heads))


def _dots(r: RelationPlan, left: Tensor, right: Tensor, heads: int) -> Tensor:
    """[E, h]: head-wise products of each edge's row of ``left`` (by target) and ``right`` (by source)."""
    out = left.new_empty(r.num_edges, heads)
    for c in _chunks(r.num_edges, left):
        products = left.index_select(0, r.target[c]).mul_(right.index_select(0, r.source[c]))
        torch.sum(products.unflatten(1, (heads, -1)), -1, out=out[c])
    return out


def _weighted_sums(into: Tensor, of: Tensor, weights: Tensor, rows: Tensor, size: int) -> Tensor:
    """[size, h·D]: Σ over edges e with into[e] = i of weights[e, head] · rows[of[e]]; ``into`` ascending."""
    heads = weights.shape[1]
    sums = rows.new_zeros(size, rows.shape[1])
    for c in _chunks(into.numel(), rows):
        part = rows.index_select(0, of[c])
        part.unflatten(1, (heads, -1)).mul_(weights[c, :, None])
        sums.index_add_(0, into[c], part)
    return sums


def _chunks(edges: int, rows: Tensor) -> Iterator[slice]:
    step = max(1, part_bytes(rows.device, _CHUNK_BYTES) // (rows.element_size() * rows.shape[1]))
    for start in range(0, edges, step):
        yield slice(start, start + step)


def _rows(x: Tensor) -> Tensor:
    """[h, n, D] as [n, h·D]; no copy where heads lie side by side."""
    return x.transpose(0, 1).flatten(1)


def _heads_first(rows: Tensor, heads: int) -> Tensor:
    return rows.unflatten(1, (heads, rows.shape[1] // heads)).transpose(0, 1)
