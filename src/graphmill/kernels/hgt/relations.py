"""HGT's attention without autograd: forward and backward, type by type, with a backend for the edges.

A backend gets all relations into a type (``by_type``), or all types at once (``dense``). ``dense`` keeps
the logits. The others recompute them in the backward pass, from the inputs and the softmax's log-total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from graphmill.kernels.hgt.plan import MessageGraph

TypeRows = Sequence[Tensor | None]


class Weights(NamedTuple):
    """``w_k``, ``w_v`` [relations, H, D, D] and ``prior`` [relations, H]."""

    w_k: Tensor
    w_v: Tensor
    prior: Tensor


class Rows(NamedTuple):
    """q, k and v, or their gradients, per type: None for types that are never a target, or source."""

    q: TypeRows
    k: TypeRows
    v: TypeRows


class Step(NamedTuple):
    """The graph, bool [pairs] of pairs whose edges carry no message, and the backend of the edges."""

    graph: MessageGraph
    masked_pairs: Tensor | None
    edges: ModuleType

    def kept(self, chosen: Sequence[int]) -> list[Tensor | None]:
        """For each chosen relation bool [E], False for an edge without a message; None if all have one."""
        if self.masked_pairs is None:
            return [None] * len(chosen)
        return [~self.masked_pairs.index_select(0, self.graph.relations[number].pair) for number in chosen]


def attend(node_type: int, rows: Rows, weights: Weights, step: Step) -> tuple[Tensor, Tensor, None]:
    """Output [targets, H·D] of one type and log Σ exp(logit) [targets, H] (+∞ for a node without a message); no logits,
    which the backward pass computes again."""
    graph, heads = step.graph, weights.w_k.shape[1]
    queries = present(rows.q[node_type])
    dtype = weights.w_k.dtype
    chosen = tuple(n for n, r in enumerate(graph.relations) if r.target_type == node_type and r.num_edges)
    total = queries.new_zeros(queries.shape[0], heads, dtype=dtype)
    highest = torch.full_like(total, -math.inf)
    sums = queries.new_empty(queries.shape, dtype=dtype)
    given = (queries, rows.k, rows.v)
    step.edges.all_forward(graph, chosen, given, weights, step.kept(chosen), (sums, total, highest))
    return sums.to(queries.dtype), (highest + total.log()).masked_fill_(total == 0, math.inf), None


def attend_types(rows: Rows, weights: Weights, step: Step) -> list[tuple[Tensor, Tensor, Tensor | None] | None]:
    """:func:`attend` for every receiving type, None for the others. A backend may process all types at once, and keep the
    logits for its backward pass; the first type has them."""
    graph = step.graph
    if not hasattr(step.edges, "whole_forward"):
        return [attend(t, rows, weights, step) if t in graph.target_types else None for t in range(graph.num_types)]
    types = sorted(graph.target_types)
    out, total, logits = step.edges.whole_forward(graph, *_whole_rows(rows, graph, weights), weights, step.masked_pairs)
    sizes = [graph.target_counts[t] for t in types]
    result: list[tuple[Tensor, Tensor, Tensor | None] | None] = [None] * graph.num_types
    if types:
        out = out.to(present(rows.q[types[0]]).dtype)
    for t, part, totals in zip(types, out.split(sizes), total.split(sizes), strict=True):
        result[t] = part, totals, logits if t == types[0] else None
    return result


def _whole_rows(rows: Rows, graph: MessageGraph, weights: Weights) -> list[Tensor]:
    """q of all receiving types, k and v of all sending types, concatenated, in the weights' precision."""
    w_k, result = weights.w_k, []
    for of_type, types in zip(rows, (graph.target_types, graph.source_types, graph.source_types), strict=True):
        parts = [present(of_type[t]) for t in sorted(types)] or [w_k.new_zeros(0, w_k.shape[1] * w_k.shape[2])]
        result.append(torch.cat(parts).to(w_k.dtype))
    return result


def whole_gradients(saved: Saved, d_out: TypeRows, weights: Weights, step: Step) -> tuple[Rows, Weights]:
    """Gradients of q, k and v per type, and of the weights, from a backend that takes all types at once."""
    graph = step.graph
    targets, sources = sorted(graph.target_types), sorted(graph.source_types)
    d_rows: list[list[Tensor | None]] = [[None] * graph.num_types for _ in range(3)]
    rows = _whole_rows(saved.rows, graph, weights)
    if targets:
        # Types without a gradient take no part.
        queries, totals = ([present(x[t]) for t in targets] for x in (saved.rows.q, saved.log_total))
        slopes, deltas = (
            [torch.zeros_like(x) if given[t] is None else present(given[t]) for t, x in zip(targets, like, strict=True)]
            for given, like in ((d_out, queries), (saved.delta, totals))
        )
        d_whole = torch.cat(slopes).to(weights.w_k.dtype)
        softmax = (torch.cat(totals), torch.cat(deltas), saved.logits[targets[0]])
        result, d_weights = step.edges.whole_backward(graph, rows, weights, d_whole, softmax, step.masked_pairs)
    else:
        result, d_weights = (torch.zeros_like(x) for x in rows), (torch.zeros_like(w) for w in weights)
    ends = ((targets, graph.target_counts), (sources, graph.source_counts), (sources, graph.source_counts))
    for into, given, whole, (types, counts) in zip(d_rows, saved.rows, result, ends, strict=True):
        # Convert all to the rows' precision at once.
        whole = whole.to(present(given[types[0]]).dtype) if types else whole
        for t, part in zip(types, whole.split([counts[t] for t in types]), strict=True):
            into[t] = part
    return Rows(*d_rows), Weights(*d_weights)


class Saved(NamedTuple):
    """Data for the backward pass, per type: inputs, log-totals, :func:`deltas`, and logits if they were kept."""

    rows: Rows
    log_total: TypeRows
    delta: TypeRows
    logits: TypeRows


def deltas(d_out: TypeRows, out: TypeRows, heads: int, edges: ModuleType) -> list[Tensor | None]:
    """Per type [targets, H]: Σ α·dα, which equals the dot product of the output and its gradient."""
    pairs = [None if d is None or o is None else (d, o) for d, o in zip(d_out, out, strict=True)]
    existing = [pair for pair in pairs if pair is not None]
    if not hasattr(edges, "whole_backward") or not existing:
        return [None if pair is None else edges.head_products(*pair, heads) for pair in pairs]
    products = edges.head_products(*(torch.cat(side) for side in zip(*existing, strict=True)), heads)
    parts = iter(products.split([len(d) for d, _ in existing]))
    return [None if pair is None else next(parts) for pair in pairs]


def side_by_side(rows: TypeRows) -> list[Tensor | None]:
    """Rows with contiguous numbers, as compiled code needs them. A gradient may be an expanded scalar."""
    return [r if r is None or r.stride(1) == 1 else r.contiguous() for r in rows]


def attend_backward(saved: Saved, d_out: TypeRows, d_rows: Rows, weights: Weights, step: Step) -> Weights:
    """Add the gradients of q, k and v to ``d_rows``, and return those of the weights.

    ``d_out`` must have contiguous rows (:func:`side_by_side`).
    """
    d_weights = Weights(*(torch.zeros_like(w) for w in weights))
    chosen = tuple(
        number
        for number, r in enumerate(step.graph.relations)
        if r.num_edges and d_out[r.target_type] is not None and saved.delta[r.target_type] is not None
    )
    if chosen:
        softmax, kept = (d_out, saved.log_total, saved.delta), step.kept(chosen)
        step.edges.all_backward(step.graph, chosen, saved.rows, weights, kept, softmax, d_rows, d_weights)
    return d_weights


def present(x: Tensor | None) -> Tensor:
    """The tensor, which must not be None: types without rows have no edges."""
    assert x is not None
    return x
