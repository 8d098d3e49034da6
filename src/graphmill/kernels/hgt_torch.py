"""The edges of HGT's attention in operators that cpu, cuda and mps all have, over all relations into a type.

Each relation's edges stay together, and its matrices are applied on the cheaper side (``RelationPlan.on_target``); the
softmax goes over the edges of all of them. Weighted sums over a node's edges are ``torch.nn.functional.embedding_bag``,
which writes no row an edge and adds in the order of the edges; products of an edge's two ends are what torch has for the
gradients of its weights. Those cost most, a call of BLAS for each on the CPU: so that the backward pass need not repeat the
logits, a number an edge and head is kept for it, unless the layer is recomputed anyway. On the CPU heads go one after the
other. The edges and what is done with their rows: ``hgt_edges_into``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from graphmill.kernels.hgt_edges_into import EdgesInto, Heads, Matrices, Part, Rows, edges_into, present, times
from graphmill.kernels.hgt_plan import MessageGraph
from graphmill.kernels.products import product

_WIDE = 4
"""Bytes of fp32."""
_MOST = (1 << 31) - 1
"""Edges, or nodes, that int32 can number."""
_ONE_BY_ONE = frozenset({"cpu"})
"""Devices on which heads go one after the other."""


def serves_relations(weights: Tensor, *rows: Tensor) -> bool:
    """Always: this way knows no other."""
    return True


def head_products(left: Tensor, right: Tensor, heads: int) -> Tensor:
    """[n, H]: the product of each head's numbers of two rows [n, H·D]. Of half precision, in fp32."""
    both = left * right if left.itemsize >= _WIDE else left.float() * right.float()
    return both.unflatten(1, (heads, left.shape[1] // heads)).sum(-1)


def all_forward(
    graph: MessageGraph,
    chosen: tuple[int, ...],
    rows: tuple[Tensor, Rows, Rows],
    matrices: Matrices,
    kept: Sequence[Tensor | None],
    found: tuple[Tensor, Tensor, Tensor],
) -> Tensor:
    """Fill ``found`` with what ``chosen`` relations, which end in one type, bring there; return the logits [h, E].

    ``rows``: that type's q [targets, h·D], and per type k and v [sources, h·D]. ``kept``: for each chosen relation
    bool [E], False where an edge carries nothing. ``found``: Σ α v [targets, h·D], Σ exp(a − highest) and highest
    [targets, h]; before, the total is 0 and highest −∞. Edges of the logits are one relation's after the other's.
    """
    queries, keys, values = rows
    sums, totals, highest = found
    sums.zero_()
    logits = sums.new_empty(matrices[0].shape[1], sum(graph.relations[number].num_edges for number in chosen))
    if not chosen:
        return logits
    edges = edges_into(graph, chosen)
    dropped = edges.dropped(kept)
    for heads in _groups(edges, matrices, sums):
        own, into = logits[heads.first : heads.last], heads.of(sums)
        edges.fill_logits(own, heads, queries, keys, dropped)
        top = own.new_full((heads.count, edges.num_targets), -math.inf)
        top.scatter_reduce_(1, edges.target.expand(heads.count, -1), own, "amax")
        weights = own - top.clamp_min(torch.finfo(top.dtype).min).index_select(1, edges.target)
        weights.exp_()
        total = torch.zeros_like(top)
        for part in edges.parts:
            ends = part.ends(heads.count)
            share = weights[:, part.first : part.last].flatten()
            part.targets.add_(total, ends.totals(share), 1)
            of_sources = part.sources.rows(values[part.source_type], heads)
            w_v = heads.w_v(part)
            if part.on_target:
                part.targets.add_product_(into, ends.sums(share, of_sources.contiguous()), w_v)
            else:
                part.targets.add_(into, ends.sums(share, times(of_sources, w_v)))
        into.div_(total.masked_fill(total == 0, 1.0).unsqueeze(-1))
        totals[:, heads.first : heads.last], highest[:, heads.first : heads.last] = total.T, top.T
    return logits


def all_backward(
    graph: MessageGraph,
    chosen: tuple[int, ...],
    rows: tuple[Rows, Rows, Rows],
    matrices: Matrices,
    kept: Sequence[Tensor | None],
    softmax: tuple[Rows, Rows, Rows, Rows],
    d_rows: tuple[Rows, Rows, Rows],
    d_matrices: Matrices,
) -> None:
    """Add the gradients of ``chosen`` relations to ``d_rows``; fill their ``d_matrices``.

    ``rows`` and ``d_rows``: q, k and v per type. ``softmax``, per type: the gradient of the attention's result
    [targets, h·D]; the log of the softmax's total over all relations and Σ α·dα [targets, h]; the logits [h, E] of
    :func:`all_forward`, or None, and they are made once more.
    """
    target_type = {number: graph.relations[number].target_type for number in chosen}
    masks = dict(zip(chosen, kept, strict=True))
    for t, numbers in groupby(sorted(chosen, key=target_type.__getitem__), key=target_type.__getitem__):
        edges = edges_into(graph, tuple(numbers))
        dropped = edges.dropped([masks[part.relation] for part in edges.parts])
        slopes, log_total, delta = (present(of_type[t]) for of_type in softmax[:3])
        logits = softmax[3][t]
        for heads in _groups(edges, matrices, log_total):
            if logits is None:
                own = log_total.new_empty(heads.count, edges.num_edges)
                edges.fill_logits(own, heads, present(rows[0][t]), rows[1], dropped)
            else:
                own = logits[heads.first : heads.last]
            logs, deltas = (x.T[heads.first : heads.last].index_select(1, edges.target) for x in (log_total, delta))
            # Those of dropped edges are −∞, and what carries nothing is 0.
            alpha = torch.sub(own, logs, out=logs).exp_()
            for part in edges.parts:
                here = slice(part.first, part.last)
                shares = alpha[:, here].flatten(), deltas[:, here].flatten()
                _part_backward(part, heads, t, rows, slopes, shares, d_rows, d_matrices)


def _part_backward(
    part: Part,
    heads: Heads,
    t: int,
    rows: tuple[Rows, Rows, Rows],
    slopes: Tensor,
    shares: tuple[Tensor, Tensor],
    d_rows: tuple[Rows, Rows, Rows],
    d_matrices: Matrices,
) -> None:
    """One relation into type ``t``; ``shares``: α and Σ α·dα of each edge's target, [h·E]."""
    ends = part.ends(heads.count)
    alpha, deltas = shares
    q, d_out = (part.targets.rows(x, heads) for x in (rows[0][t], slopes))
    k, v = (part.sources.rows(x[part.source_type], heads) for x in rows[1:])
    m_k, w_v = heads.m_k(part), heads.w_v(part)
    into_q = heads.of(present(d_rows[0][t]))
    into_k, into_v = (heads.of(present(x[part.source_type])) for x in d_rows[1:])
    if part.on_target:
        near = times(q, m_k.mT), times(d_out, w_v.mT)
        far = k.contiguous(), v.contiguous()
    else:
        near = q.contiguous(), d_out.contiguous()
        far = times(k, m_k), times(v, w_v)
    d_logits = ends.dots(near[1], far[1]).sub_(deltas).mul_(alpha)
    g_q = ends.sums(d_logits, far[0])
    if part.on_target:
        d_m_k = product(g_q.mT, q)
        product(ends.sums(alpha, far[1]).mT, d_out, out=heads.w_v(part, d_matrices))
    del far
    g_k, g_v = ends.sums_by_source(d_logits, near[0]), ends.sums_by_source(alpha, near[1])
    del near, d_logits
    if part.on_target:
        part.targets.add_product_(into_q, g_q, m_k)
        part.sources.add_(into_k, g_k)
        part.sources.add_(into_v, g_v)
    else:
        d_m_k = product(k.mT, g_k)
        product(v.mT, g_v, out=heads.w_v(part, d_matrices))
        part.targets.add_(into_q, g_q)
        part.sources.add_product_(into_k, g_k, m_k.mT)
        part.sources.add_product_(into_v, g_v, w_v.mT)
    heads.put_slopes(part, d_m_k, d_matrices)


def _groups(edges: EdgesInto, matrices: Matrices, like: Tensor) -> Iterator[Heads]:
    """Heads that go together: one on the CPU; elsewhere, where calls cost more than memory does, as many as can be."""
    heads = matrices[0].shape[1]
    largest = max(max(p.last - p.first, p.sources.count, p.targets.count) for p in edges.parts)
    size = 1 if like.device.type in _ONE_BY_ONE else min(max(_MOST // largest, 1), heads)
    for first in range(0, heads, size):
        yield Heads(first, min(first + size, heads), matrices)
