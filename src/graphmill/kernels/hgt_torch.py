"""The edge part of HGT's attention for one relation, in operators that cpu, cuda and mps all have.

Everything here is compact: row i of ``q`` is the relation's i-th target node, row j of ``k`` and ``v`` its j-th source
node. Edges are taken in chunks that stay in cache, so that edges × width never exists; edges × heads does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from graphmill.kernels.hgt_plan import RelationPlan

_CHUNK_BYTES = 1 << 20


class Partial(NamedTuple):
    """One relation's share of the softmax, per target.

    ``sums`` [n_t, h·D]: Σ exp(a − highest)·v; ``total`` [n_t, h]: Σ exp(a − highest); ``highest`` [n_t, h]: max a.
    """

    sums: Tensor
    total: Tensor
    highest: Tensor


class EdgeGradients(NamedTuple):
    """Gradients of the compact rows; ``prior`` [h] is that of the logits' factor; ``sums`` = Σ α·v where asked for."""

    q: Tensor
    k: Tensor
    v: Tensor
    factor: Tensor
    sums: Tensor | None


def forward(r: RelationPlan, q: Tensor, k: Tensor, v: Tensor, factor: Tensor, kept: Tensor | None) -> Partial:
    """Attention of one relation's targets over its sources, not yet divided by the softmax's total.

    ``q`` [n_t, h·D], ``k``, ``v`` [n_s, h·D]; ``factor`` [h] multiplies the logits; ``kept`` bool [E] drops edges.
    """
    heads = factor.numel()
    logits = _logits(r, q, k, factor, kept)
    index = r.target.long()
    highest = logits.new_full((q.shape[0], heads), -math.inf)
    highest.scatter_reduce_(0, index[:, None].expand_as(logits), logits, "amax")
    weights = (logits - highest.clamp_min(torch.finfo(logits.dtype).min)[index]).exp_()
    total = torch.zeros_like(highest).index_add_(0, r.target, weights)
    return Partial(_weighted_sums(r.target, r.source, weights, v, q.shape[0]), total, highest)


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

    ``d_out`` [n_t, h·D]: gradient of Σ α·v; ``log_total`` [n_t, h]: log of the softmax's total over *all* relations;
    ``delta`` [n_t, h]: Σ α·dα over all relations.
    """
    heads, width = factor.numel(), q.shape[1] // factor.numel()
    raw = _logits(r, q, k, torch.ones_like(factor), None)
    index = r.target.long()
    alpha = (raw * factor - log_total[index]).exp_()
    if kept is not None:
        alpha *= kept[:, None]
    d_logits = torch.empty_like(alpha)
    for c in _chunks(r, d_out):
        products = d_out.index_select(0, r.target[c]) * v.index_select(0, r.source[c])
        torch.sum(products.view(-1, heads, width), -1, out=d_logits[c])
    d_logits -= delta[index]
    d_logits *= alpha
    d_factor = (d_logits * raw).sum(0)
    d_logits *= factor
    d_q = _weighted_sums(r.target, r.source, d_logits, k, q.shape[0])
    sums = _weighted_sums(r.target, r.source, alpha, v, q.shape[0]) if want_sums else None
    order = r.by_source
    source, target = r.source[order], r.target[order]
    d_k = _weighted_sums(source, target, d_logits[order], q, k.shape[0])
    d_v = _weighted_sums(source, target, alpha[order], d_out, v.shape[0])
    return EdgeGradients(d_q, d_k, d_v, d_factor, sums)


def _logits(r: RelationPlan, q: Tensor, k: Tensor, factor: Tensor, kept: Tensor | None) -> Tensor:
    heads, width = factor.numel(), q.shape[1] // factor.numel()
    logits = q.new_empty(r.num_edges, heads)
    for c in _chunks(r, q):
        products = q.index_select(0, r.target[c]) * k.index_select(0, r.source[c])
        torch.sum(products.view(-1, heads, width), -1, out=logits[c])
    logits *= factor
    return logits if kept is None else logits.masked_fill_(~kept[:, None], -math.inf)


def _weighted_sums(into: Tensor, of: Tensor, weights: Tensor, rows: Tensor, size: int) -> Tensor:
    """[size, h·D]: Σ over edges e with into[e] = i of weights[e, head] · rows[of[e]]; ``into`` ascending."""
    heads, width = weights.shape[1], rows.shape[1] // weights.shape[1]
    sums = rows.new_zeros(size, rows.shape[1])
    step = max(1, _CHUNK_BYTES // (rows.element_size() * rows.shape[1]))
    for start in range(0, into.numel(), step):
        c = slice(start, start + step)
        part = rows.index_select(0, of[c]).view(-1, heads, width)
        sums.index_add_(0, into[c], part.mul_(weights[c, :, None]).flatten(1))
    return sums


def _chunks(r: RelationPlan, rows: Tensor) -> Iterator[slice]:
    step = max(1, _CHUNK_BYTES // (rows.element_size() * rows.shape[1]))
    for start in range(0, r.num_edges, step):
        yield slice(start, start + step)
