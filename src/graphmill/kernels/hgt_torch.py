"""The edge part of HGT's attention for one relation, in operators that cpu, cuda and mps all have.

Everything here is compact: row i of ``q`` is the relation's i-th target node, row j of ``k`` and ``v`` its j-th source
node; shapes are [h, n, D] for h heads, whatever the order in memory. Heads go one after the other. Weighted sums over a
node's edges are ``torch.nn.functional.embedding_bag``, which writes no row an edge and adds in the order of the edges;
products of an edge's two ends are made of rows, in chunks that stay in cache. Of an edge and head there are a few numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.devices import part_bytes
from graphmill.kernels.hgt_plan import RelationPlan

SOURCES_HEAD_MAJOR = True
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
    columns = rows[:, first * values.shape[2] : last * values.shape[2]]
    # index_add_ would sort the nodes on the CPU, and add in any order on CUDA.
    found = columns.index_select(0, nodes)
    found.view(len(nodes), *values.shape[::2]).add_(values.transpose(0, 1))
    columns.index_copy_(0, nodes, found)


def forward(r: RelationPlan, q: Tensor, k: Tensor, v: Tensor, factor: Tensor, kept: Tensor | None) -> Partial:
    """Attention of one relation's targets over its sources, not yet divided by the softmax's total.

    ``q`` [h, n_t, D], ``k``, ``v`` [h, n_s, D]; ``factor`` [h] multiplies the logits; ``kept`` bool [E] drops edges.
    """
    heads, targets, _ = q.shape
    q, k, v = (q * factor[:, None, None]).contiguous(), k.contiguous(), v.contiguous()
    sums, (total, highest) = torch.empty_like(q), q.new_empty(2, heads, targets)
    bounds, index, ones = r.indptr.int(), r.target.long(), q.new_ones(r.num_edges)
    every = torch.arange(r.num_edges, dtype=torch.int32, device=q.device)
    for head in range(heads):
        logits = _dots(r, q[head], k[head])
        if kept is not None:
            logits.masked_fill_(~kept, -math.inf)
        top = torch.full_like(highest[head], -math.inf).scatter_reduce_(0, index, logits, "amax")
        weights = logits.sub_(top.clamp_min(torch.finfo(top.dtype).min).index_select(0, r.target)).exp_()
        sums[head], highest[head] = weighted_sums(r.source, bounds, weights, v[head]), top
        # index_add_ adds in any order on CUDA.
        total[head] = weighted_sums(every, bounds, ones, weights[:, None])[:, 0]
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
    scaled = (q * factor[:, None, None]).contiguous()
    k, v, d_out = k.contiguous(), v.contiguous(), d_out.contiguous()
    d_q, d_k, d_v = (torch.empty_like(x) for x in (scaled, k, v))
    sums = torch.empty_like(d_q) if want_sums else None
    bounds, (order, target, by_source) = r.indptr.int(), r.transposed
    for head, of_target in enumerate(zip(log_total, delta, strict=True)):
        logs, deltas = (x.index_select(0, r.target) for x in of_target)
        alpha = _dots(r, scaled[head], k[head]).sub_(logs).exp_()
        if kept is not None:
            alpha *= kept
        d_logits = _dots(r, d_out[head], v[head]).sub_(deltas).mul_(alpha)
        d_q[head] = weighted_sums(r.source, bounds, d_logits, k[head])
        if sums is not None:
            sums[head] = weighted_sums(r.source, bounds, alpha, v[head])
        d_k[head] = weighted_sums(target, by_source, d_logits.index_select(0, order), scaled[head])
        d_v[head] = weighted_sums(target, by_source, alpha.index_select(0, order), d_out[head])
    # Σ over edges of the logits' gradient times q · k, as each target's q times what its edges send back.
    d_factor = (q * d_q).sum((1, 2))
    return EdgeGradients(d_q.mul_(factor[:, None, None]), d_k, d_v, d_factor, sums)


def weighted_sums(of: Tensor, bounds: Tensor, weights: Tensor, rows: Tensor) -> Tensor:
    """[n, D]: Σ weights[e] · rows[of[e]] over each node's edges e, which are ``bounds[i]:bounds[i + 1]``; both int32."""
    return F.embedding_bag(of, rows, bounds, mode="sum", per_sample_weights=weights, include_last_offset=True)


def _dots(r: RelationPlan, left: Tensor, right: Tensor) -> Tensor:
    """[E]: products of each edge's row of ``left`` (by target) and ``right`` (by source), [n, D]."""
    out = left.new_empty(r.num_edges)
    step = max(1, part_bytes(left.device, _CHUNK_BYTES) // (left.element_size() * left.shape[1]))
    for start in range(0, r.num_edges, step):
        c = slice(start, start + step)
        products = left.index_select(0, r.target[c]).mul_(right.index_select(0, r.source[c]))
        torch.sum(products, 1, out=out[c])
    return out


def _heads_first(rows: Tensor, heads: int) -> Tensor:
    return rows.unflatten(1, (heads, rows.shape[1] // heads)).transpose(0, 1)
