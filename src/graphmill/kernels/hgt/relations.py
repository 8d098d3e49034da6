"""HGT's attention without autograd: forward and backward, type by type, with a backend for the edges.

A backend gets all relations into a type (``sparse``, ``cpu.passes``), or all types at once (``dense``). ``dense`` keeps
the logits. The others recompute them in the backward pass, from the inputs and the softmax's log-total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from graphmill.kernels.hgt.plan import MessageGraph, RelationPlan
from graphmill.kernels.runtime.processor import own_blocks

_LARGEST = 1 << 14
"""Largest size (numbers) of a relation's matrix for one head in the compiled pass: a few of them and the rows fit the
L2 cache."""

TypeRows = Sequence[Tensor | None]


class Weights(NamedTuple):
    """``w_k``, ``w_v`` [relations, H, D, D] and ``prior`` [relations, H]."""

    w_k: Tensor
    w_v: Tensor
    prior: Tensor


def attend(
    node_type: int,
    q: TypeRows,
    k: TypeRows,
    v: TypeRows,
    weights: Weights,
    graph: MessageGraph,
    masked_pairs: Tensor | None,
    edges: ModuleType,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Output [targets, H·D] of one type, log Σ exp(logit) [targets, H] (+∞ for a node without a message), and the
    logits if the backend keeps them for its backward pass.

    ``out``: a tensor for the output, with contiguous columns.
    """
    heads = weights.w_k.shape[1]
    queries = _present(q[node_type])
    dtype = weights.w_k.dtype
    chosen = tuple(n for n, r in enumerate(graph.relations) if r.target_type == node_type and r.num_edges)
    total = queries.new_zeros(queries.shape[0], heads, dtype=dtype)
    highest = torch.full_like(total, -math.inf)
    sums = out if out is not None and out.dtype == dtype else queries.new_empty(queries.shape, dtype=dtype)
    kept = [_kept(graph.relations[number], masked_pairs) for number in chosen]
    logits = edges.all_forward(graph, chosen, (queries, k, v), weights, kept, (sums, total, highest))
    if out is None:
        out = sums.to(queries.dtype)
    elif sums is not out:
        out.copy_(sums)
    return out, (highest + total.log()).masked_fill_(total == 0, math.inf), logits


def attend_types(
    q: TypeRows,
    k: TypeRows,
    v: TypeRows,
    weights: Weights,
    graph: MessageGraph,
    masked_pairs: Tensor | None,
    edges: ModuleType,
    outs: TypeRows,
) -> list[tuple[Tensor, Tensor, Tensor | None] | None]:
    """:func:`attend` for every receiving type, None for the others. A backend may process all types at once."""
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
    if types:
        out = out.to(_present(q[types[0]]).dtype)
    for t, rows, totals in zip(types, out.split(sizes), total.split(sizes), strict=True):
        into = outs[t]
        found[t] = rows if into is None else into.copy_(rows), totals, logits if t == types[0] else None
    return found


def _whole(rows: TypeRows, types: Sequence[int], weights: Weights) -> Tensor:
    """The rows of some types, concatenated, in the weights' precision."""
    heads, width = weights.w_k.shape[1:3]
    if not types:
        return weights.w_k.new_zeros(0, heads * width)
    return torch.cat([_present(rows[t]) for t in types]).to(weights.w_k.dtype)


def whole_gradients(
    saved: Saved, d_out: TypeRows, weights: Weights, graph: MessageGraph, edges: ModuleType, masked_pairs: Tensor | None
) -> tuple[list[list[Tensor | None]], Weights]:
    """Gradients of q, k and v per type, and of the weights, from a backend that takes all types at once."""
    targets, sources = sorted(graph.target_types), sorted(graph.source_types)
    d_rows: list[list[Tensor | None]] = [[None] * graph.num_types for _ in range(3)]
    rows = (_whole(saved.q, targets, weights), *(_whole(x, sources, weights) for x in (saved.k, saved.v)))
    if targets:
        # Types without a gradient take no part.
        slopes = [
            torch.zeros_like(_present(saved.q[t]), dtype=weights.w_k.dtype) if d_out[t] is None else d_out[t]
            for t in targets
        ]
        log_total = torch.cat([_present(saved.log_total[t]) for t in targets])
        delta = torch.cat(
            [
                torch.zeros_like(_present(saved.log_total[t])) if saved.delta[t] is None else _present(saved.delta[t])
                for t in targets
            ]
        )
        d_whole = torch.cat([_present(d) for d in slopes]).to(weights.w_k.dtype)
        softmax = (log_total, delta, saved.logits[targets[0]])
        found, d_weights = edges.whole_backward(graph, rows, weights, d_whole, softmax, masked_pairs)
    else:
        found, d_weights = (torch.zeros_like(x) for x in rows), (torch.zeros_like(w) for w in weights)
    ends = ((targets, graph.target_counts), (sources, graph.source_counts), (sources, graph.source_counts))
    for into, given, whole, (types, counts) in zip(d_rows, saved[:3], found, ends, strict=True):
        # Convert all to the rows' precision at once.
        whole = whole.to(_present(given[types[0]]).dtype) if types else whole
        for t, part in zip(types, whole.split([counts[t] for t in types]), strict=True):
            into[t] = part
    return d_rows, Weights(*d_weights)


class Saved(NamedTuple):
    """Data for the backward pass, per type: inputs, log-totals, :func:`deltas`, and logits if they were kept."""

    q: TypeRows
    k: TypeRows
    v: TypeRows
    log_total: TypeRows
    delta: TypeRows
    logits: TypeRows


def deltas(d_out: TypeRows, out: TypeRows, heads: int, edges: ModuleType) -> list[Tensor | None]:
    """Per type [targets, H]: Σ α·dα, which equals the dot product of the output and its gradient."""
    pairs = [None if d is None or o is None else (d, o) for d, o in zip(d_out, out, strict=True)]
    there = [pair for pair in pairs if pair is not None]
    if not hasattr(edges, "whole_backward") or not there:
        return [None if pair is None else edges.head_products(*pair, heads) for pair in pairs]
    products = edges.head_products(*(torch.cat(side) for side in zip(*there, strict=True)), heads)
    parts = iter(products.split([len(d) for d, _ in there]))
    return [None if pair is None else next(parts) for pair in pairs]


def side_by_side(rows: TypeRows) -> list[Tensor | None]:
    """Rows with contiguous numbers, as compiled code needs them. A gradient may be an expanded scalar."""
    return [r if r is None or r.stride(1) == 1 else r.contiguous() for r in rows]


def attend_backward(
    saved: Saved,
    d_out: TypeRows,
    d_q: TypeRows,
    d_k: TypeRows,
    d_v: TypeRows,
    weights: Weights,
    graph: MessageGraph,
    masked_pairs: Tensor | None,
    edges: ModuleType,
) -> Weights:
    """Add the gradients of q, k and v to ``d_q``, ``d_k``, ``d_v``, and return those of the weights.

    ``d_out`` must have contiguous rows (:func:`side_by_side`).
    """
    d_weights = Weights(*(torch.zeros_like(w) for w in weights))
    chosen = tuple(
        number
        for number, r in enumerate(graph.relations)
        if r.num_edges and d_out[r.target_type] is not None and saved.delta[r.target_type] is not None
    )
    if chosen:
        kept = [_kept(graph.relations[number], masked_pairs) for number in chosen]
        softmax, gradients = (d_out, saved.log_total, saved.delta, saved.logits), (d_q, d_k, d_v)
        edges.all_backward(graph, chosen, saved[:3], weights, kept, softmax, gradients, d_weights)
    return d_weights


def in_one_pass(width: int) -> bool:
    """Whether this machine's CPU supports the compiled pass for heads of this width."""
    return own_blocks() and width * (-(-width // 16) * 16) <= _LARGEST


def _kept(r: RelationPlan, masked_pairs: Tensor | None) -> Tensor | None:
    return None if masked_pairs is None else ~masked_pairs.index_select(0, r.pair)


def _present(x: Tensor | None) -> Tensor:
    assert x is not None
    return x
