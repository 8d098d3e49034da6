"""HGT's attention without autograd: relation by relation, forward and backward, on a backend for the edges.

Per relation the matrices are applied on the cheaper side (``RelationPlan.on_target``), as q·(k W) = (q Wᵀ)·k and
Σ α (v W) = (Σ α v) W; the softmax runs over all relations of a target by streaming: each relation adds its unnormalised
sums, total and highest logit. The backward pass recomputes the logits from the inputs and the softmax's log-total.
A backend that takes all relations into a type at once (``hgt.cpu.passes``, ``hgt.sparse``) is given them; one that takes
all types (``hgt.dense``) is given those, and keeps their logits; else (``hgt.cpu.edges``) heads go in groups, so that what a
relation works on stays near the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from graphmill.kernels.hgt.plan import MessageGraph, RelationPlan
from graphmill.kernels.products import product
from graphmill.kernels.runtime.processor import own_blocks

_GROUP_BYTES = 16 << 20

_LARGEST = 1 << 14
"""Numbers of a relation's matrix for one head that goes through in one pass, at most: a few of them are in the second cache,
with room for the rows."""

Rows = Sequence[Tensor | None]


class Weights(NamedTuple):
    """``w_k``, ``w_v`` [relations, H, D, D] and ``prior`` [relations, H]."""

    w_k: Tensor
    w_v: Tensor
    prior: Tensor

    def factor(self, relation: int, first: int, last: int) -> Tensor:
        """[h]: what the logits of heads ``first:last`` are multiplied with, p / √D."""
        return self.prior[relation, first:last] / math.sqrt(self.w_k.shape[-1])


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


def attend(
    node_type: int,
    q: Rows,
    k: Rows,
    v: Rows,
    weights: Weights,
    graph: MessageGraph,
    masked_pairs: Tensor | None,
    edges: ModuleType,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Output [targets, H·D] of one type, log Σ exp(logit) [targets, H] (+∞ where there is no message), and what a backend
    that takes all relations at once wants kept of their edges for its backward pass.

    ``out``: where the output is to be, its columns side by side.
    """
    heads, width = weights.w_k.shape[1], weights.w_k.shape[2]
    queries = _present(q[node_type])
    dtype = weights.w_k.dtype
    chosen = tuple(n for n, r in enumerate(graph.relations) if r.target_type == node_type and r.num_edges)
    total = queries.new_zeros(queries.shape[0], heads, dtype=dtype)
    highest = torch.full_like(total, -math.inf)
    if edges.serves_relations(weights.w_k, *(x for x in (queries, *k, *v) if x is not None)):
        sums = out if out is not None and out.dtype == dtype else queries.new_empty(queries.shape, dtype=dtype)
        kept = [_kept(graph.relations[number], masked_pairs) for number in chosen]
        logits = edges.all_forward(graph, chosen, (queries, k, v), weights, kept, (sums, total, highest))
    else:
        logits = None
        # The backends for edges take rows that lie side by side.
        there = out is not None and out.dtype == dtype and out.is_contiguous()
        sums = out.zero_() if out is not None and there else queries.new_zeros(queries.shape, dtype=dtype)
        for number in chosen:
            r = graph.relations[number]
            rows = (queries, _present(k[r.source_type]), _present(v[r.source_type]))
            _relation_forward(number, r, rows, weights, _kept(r, masked_pairs), (sums, total, highest), edges)
        sums.view(-1, heads, width).div_(total.masked_fill(total == 0, 1.0).unsqueeze(-1))
    if out is None:
        out = sums.to(queries.dtype)
    elif sums is not out:
        out.copy_(sums)
    return out, (highest + total.log()).masked_fill_(total == 0, math.inf), logits


def attend_types(
    q: Rows,
    k: Rows,
    v: Rows,
    weights: Weights,
    graph: MessageGraph,
    masked_pairs: Tensor | None,
    edges: ModuleType,
    outs: Rows,
) -> list[tuple[Tensor, Tensor, Tensor | None] | None]:
    """:func:`attend` for every type that receives, None for the others; a backend may take all types at once."""
    if not hasattr(edges, "whole_forward"):
        return [
            attend(t, q, k, v, weights, graph, masked_pairs, edges, outs[t]) if t in graph.target_types else None
            for t in range(graph.num_types)
        ]
    types = sorted(graph.target_types)
    given = (_whole(q, types, weights), *(_whole(x, sorted(graph.source_types), weights) for x in (k, v)))
    out, total, logits = edges.whole_forward(graph, *given, weights, masked_pairs)
    sizes = [graph.target_counts[t] for t in types]
    found: list[tuple[Tensor, Tensor, Tensor | None] | None] = [None] * graph.num_types
    for t, rows, totals in zip(types, out.split(sizes), total.split(sizes), strict=True):
        into = outs[t]
        rows = rows.to(_present(q[t]).dtype) if into is None else into.copy_(rows)
        found[t] = rows, totals, logits if t == types[0] else None
    return found


def _whole(rows: Rows, types: Sequence[int], weights: Weights) -> Tensor:
    """The rows of some types, one type after the other, in the weights' precision."""
    heads, width = weights.w_k.shape[1:3]
    if not types:
        return weights.w_k.new_zeros(0, heads * width)
    return torch.cat([_present(rows[t]) for t in types]).to(weights.w_k.dtype)


def _whole_backward(
    saved: Saved,
    d_out: Rows,
    d_rows: tuple[Rows, Rows, Rows],
    weights: Weights,
    graph: MessageGraph,
    edges: ModuleType,
    masked_pairs: Tensor | None,
) -> Weights:
    """:func:`attend_backward` for a backend that takes all types at once."""
    targets, sources = sorted(graph.target_types), sorted(graph.source_types)
    # What has no gradient of its own takes no part.
    slopes = [
        torch.zeros_like(_present(saved.q[t]), dtype=weights.w_k.dtype) if d_out[t] is None else d_out[t]
        for t in targets
    ]
    rows = (_whole(saved.q, targets, weights), *(_whole(x, sources, weights) for x in (saved.k, saved.v)))
    if not targets:
        return Weights(*(torch.zeros_like(w) for w in weights))
    log_total = torch.cat([_present(saved.log_total[t]) for t in targets])
    delta = torch.cat(
        [
            torch.zeros_like(_present(saved.log_total[t])) if saved.delta[t] is None else _present(saved.delta[t])
            for t in targets
        ]
    )
    d_whole = torch.cat([_present(d) for d in slopes]).to(weights.w_k.dtype)
    found, d_weights = edges.whole_backward(
        graph, rows, weights, d_whole, (log_total, delta, saved.logits[targets[0]]), masked_pairs
    )
    for into, whole, types, counts in (
        (d_rows[0], found[0], targets, graph.target_counts),
        (d_rows[1], found[1], sources, graph.source_counts),
        (d_rows[2], found[2], sources, graph.source_counts),
    ):
        for t, part in zip(types, whole.split([counts[t] for t in types]), strict=True):
            _present(into[t]).add_(part)
    return Weights(*d_weights)


def _relation_forward(
    number: int,
    r: RelationPlan,
    rows: tuple[Tensor, Tensor, Tensor],
    weights: Weights,
    kept: Tensor | None,
    found: tuple[Tensor, Tensor, Tensor],
    edges: ModuleType,
) -> None:
    """Bring one relation's share into Σ exp(a − highest)·v, Σ exp(a − highest) and highest of its targets."""
    heads, width, dtype = *weights.w_k.shape[1:3], weights.w_k.dtype
    queries, keys, values = rows
    head_major = edges.SOURCES_HEAD_MAJOR
    for a, b in cache_groups(r, heads, width, dtype):
        # What a matrix is applied to lies as the gathering leaves it; the product puts it into the edges' order.
        q_r = gather(queries, r.target_nodes, a, b, width, dtype)
        k_r = gather(keys, r.source_nodes, a, b, width, dtype, head_major and r.on_target)
        v_r = gather(values, r.source_nodes, a, b, width, dtype, head_major and r.on_target)
        w_k, w_v = weights.w_k[number, a:b], weights.w_v[number, a:b]
        if r.on_target:
            q_r = _times(q_r, w_k.mT)
        else:
            k_r, v_r = _times(k_r, w_k, head_major), _times(v_r, w_v, head_major)
        part = edges.forward(r, q_r, k_r, v_r, weights.factor(number, a, b), kept)
        if r.on_target:
            part = part._replace(sums=_times(part.sums, w_v))
        edges.merge(*found, r.target_nodes, a, b, part)


class Saved(NamedTuple):
    """What the backward pass needs, per type: inputs, log-totals, :func:`deltas`, and logits where they were kept."""

    q: Rows
    k: Rows
    v: Rows
    log_total: Rows
    delta: Rows
    logits: Rows


def deltas(d_out: Rows, out: Rows, heads: int, edges: ModuleType) -> list[Tensor | None]:
    """Per type [targets, H]: Σ α·dα, which equals the product of output and its gradient."""
    pairs = zip(d_out, out, strict=True)
    return [None if d is None or o is None else edges.head_products(d, o, heads) for d, o in pairs]


def side_by_side(rows: Rows) -> list[Tensor | None]:
    """Rows as compiled code reads them: their numbers follow each other. A gradient may be one number, stretched."""
    return [r if r is None or r.stride(1) == 1 else r.contiguous() for r in rows]


def attend_backward(
    saved: Saved,
    d_out: Rows,
    d_q: Rows,
    d_k: Rows,
    d_v: Rows,
    weights: Weights,
    graph: MessageGraph,
    masked_pairs: Tensor | None,
    edges: ModuleType,
) -> Weights:
    """Add the gradients of q, k and v to ``d_q``, ``d_k``, ``d_v``; return those of the weights.

    ``d_out`` has its rows :func:`side_by_side`.
    """
    if hasattr(edges, "whole_backward"):
        return _whole_backward(saved, d_out, (d_q, d_k, d_v), weights, graph, edges, masked_pairs)
    heads, width = weights.w_k.shape[1], weights.w_k.shape[2]
    d_weights = Weights(*(torch.zeros_like(w) for w in weights))
    chosen = tuple(
        number
        for number, r in enumerate(graph.relations)
        if r.num_edges and d_out[r.target_type] is not None and saved.delta[r.target_type] is not None
    )
    rows = [x for part in (saved.q, saved.k, saved.v, d_out) for x in part if x is not None]
    if chosen and edges.serves_relations(weights.w_k, *rows):
        kept = [_kept(graph.relations[number], masked_pairs) for number in chosen]
        softmax, gradients = (d_out, saved.log_total, saved.delta, saved.logits), (d_q, d_k, d_v)
        edges.all_backward(graph, chosen, saved[:3], weights, kept, softmax, gradients, d_weights)
        return d_weights
    for number in chosen:
        r = graph.relations[number]
        s, t = r.source_type, r.target_type
        own = (_present(saved.q[t]), _present(saved.k[s]), _present(saved.v[s]), _present(d_out[t]))
        outputs = (_present(d_q[t]), _present(d_k[s]), _present(d_v[s]))
        log_total = _present(saved.log_total[t]).index_select(0, r.target_nodes)
        delta = _present(saved.delta[t]).index_select(0, r.target_nodes)
        mask = _kept(r, masked_pairs)
        for a, b in cache_groups(r, heads, width, weights.w_k.dtype):
            scalars = (log_total[:, a:b].T.contiguous(), delta[:, a:b].T.contiguous())
            _relation_backward(number, r, a, b, own, scalars, outputs, weights, d_weights, mask, edges)
    return d_weights


def _relation_backward(
    number: int,
    r: RelationPlan,
    a: int,
    b: int,
    rows: tuple[Tensor, Tensor, Tensor, Tensor],
    scalars: tuple[Tensor, Tensor],
    outputs: tuple[Tensor, Tensor, Tensor],
    weights: Weights,
    d_weights: Weights,
    kept: Tensor | None,
    edges: ModuleType,
) -> None:
    """One relation, heads ``a:b``."""
    width, dtype = weights.w_k.shape[2], weights.w_k.dtype
    queries, keys, values, d_rows = rows
    head_major = edges.SOURCES_HEAD_MAJOR
    q_r = gather(queries, r.target_nodes, a, b, width, dtype)
    d_r = gather(d_rows, r.target_nodes, a, b, width, dtype)
    k_r = gather(keys, r.source_nodes, a, b, width, dtype, head_major and r.on_target)
    v_r = gather(values, r.source_nodes, a, b, width, dtype, head_major and r.on_target)
    w_k, w_v = weights.w_k[number, a:b], weights.w_v[number, a:b]
    factor = weights.factor(number, a, b)
    if r.on_target:
        of_targets = _times(q_r, w_k.mT), _times(d_r, w_v.mT)
        g = edges.backward(r, of_targets[0], k_r, v_r, factor, kept, of_targets[1], *scalars, True)
        product(g.q.mT, q_r, out=d_weights.w_k[number, a:b])
        product(g.sums.mT, d_r, out=d_weights.w_v[number, a:b])
        g_q, g_k, g_v = _times(g.q, w_k), g.k, g.v
    else:
        of_sources = _times(k_r, w_k, head_major), _times(v_r, w_v, head_major)
        g = edges.backward(r, q_r, *of_sources, factor, kept, d_r, *scalars, False)
        product(k_r.mT, g.k, out=d_weights.w_k[number, a:b])
        product(v_r.mT, g.v, out=d_weights.w_v[number, a:b])
        g_q, g_k, g_v = g.q, _times(g.k, w_k.mT), _times(g.v, w_v.mT)
    d_weights.prior[number, a:b] = g.factor / math.sqrt(width)
    edges.scatter_add(outputs[0], r.target_nodes, a, b, g_q)
    edges.scatter_add(outputs[1], r.source_nodes, a, b, g_k)
    edges.scatter_add(outputs[2], r.source_nodes, a, b, g_v)


def gather(
    rows: Tensor, nodes: Tensor, first: int, last: int, width: int, dtype: torch.dtype, head_major: bool = False
) -> Tensor:
    """Heads ``first:last`` of some rows of [N, H·D], as [h, n, D] in ``dtype``; in memory [n, h, D], or ``head_major``."""
    columns = rows[:, first * width : last * width]
    if not head_major:
        return columns.index_select(0, nodes).to(dtype).unflatten(1, (last - first, width)).transpose(0, 1)
    out = rows.new_empty(last - first, len(nodes), width, dtype=dtype)
    for head, part in zip(out, columns.split(width, 1), strict=True):
        if dtype == rows.dtype:
            torch.index_select(part, 0, nodes, out=head)
        else:
            head.copy_(part.index_select(0, nodes))
    return out


def in_one_pass(width: int) -> bool:
    """Whether on this machine's CPU a relation with heads of this width is one pass (``hgt.cpu.rows``)."""
    return own_blocks() and width * (-(-width // 16) * 16) <= _LARGEST


def cache_groups(r: RelationPlan, heads: int, width: int, dtype: torch.dtype) -> Iterator[tuple[int, int]]:
    """First and last head of groups whose rows of one relation stay near the cache."""
    if r.source.device.type != "cpu":
        # Calls cost more than memory does there, and no cache holds a relation.
        yield 0, heads
        return
    rows = max(r.source_nodes.numel(), r.target_nodes.numel(), 1)
    size = _GROUP_BYTES // (rows * width * dtype.itemsize)
    groups = -(-heads // min(heads, max(size, torch.get_num_threads(), 1)))
    for i in range(groups):
        yield heads * i // groups, heads * (i + 1) // groups


def _times(rows: Tensor, matrices: Tensor, head_major: bool = False) -> Tensor:
    """[h, n, D] times [h, D, D]; in memory [h, n, D] or [n, h, D]."""
    heads, n, width = rows.shape
    out = rows.new_empty(rows.shape) if head_major else rows.new_empty(n, heads, width).transpose(0, 1)
    return product(rows, matrices, out=out)


def _kept(r: RelationPlan, masked_pairs: Tensor | None) -> Tensor | None:
    return None if masked_pairs is None else ~masked_pairs.index_select(0, r.pair)


def _present(x: Tensor | None) -> Tensor:
    assert x is not None
    return x
