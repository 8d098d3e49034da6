"""HGT's attention over all relations, types and heads at once, differentiable, without a tensor of edges × width.

Heterogeneous Graph Transformer, Hu et al. 2020, equations 3 to 5, with operators that cpu, cuda and mps all have.

A graph with H heads is treated as H separate graphs, and all edges form one bipartite graph. On one side there is a **bag**
for each receiving node and head, on the other a **row** for each sending node, head and relation. Rows are the nodes' k and
v times their relation's matrices. Relations of similar size are padded to the largest of them and multiplied in one batched
product per size class. Everything else is an ``embedding_bag`` over a bag's edges, over a row's edges, or over the rows of
one node. No operator adds to one number from two threads, so results are reproducible bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.hgt.flat_graph import FlatGraph, flat_graph
from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.kernels.hgt.segments import edge_products, head_products, weighted_sums

TypeRows = Sequence[Tensor | None]


class Rows(NamedTuple):
    """``q`` [receivers, H·D] of all types that receive, ``k`` and ``v`` [senders, H·D] of all that send, type by type."""

    q: Tensor
    k: Tensor
    v: Tensor


class Weights(NamedTuple):
    """``w_k``, ``w_v`` [relations, H, D, D] and ``prior`` [relations, H]."""

    w_k: Tensor
    w_v: Tensor
    prior: Tensor


def joined(q: TypeRows, k: TypeRows, v: TypeRows, graph: MessageGraph, like: Tensor) -> Rows:
    """:class:`Rows` of rows per type: q [targets, H·D], None for types that are never a target; k, v [sources, H·D], None
    for types that are never a source. ``like``: ``w_k``, for the width.

    Raises ValueError if they do not fit the graph.
    """
    width = like.shape[1] * like.shape[2]
    counts_of = (graph.target_counts, graph.source_counts, graph.source_counts)
    for name, part, counts in zip(Rows._fields, (q, k, v), counts_of, strict=True):
        for t, (x, count) in enumerate(zip(part, counts, strict=True)):
            if x is not None and x.shape != (count, width):
                raise ValueError(f"{name} of type {t} is [{count}, {width}], not {list(x.shape)}")
    for number, r in enumerate(graph.relations):
        s, t = r.source_type, r.target_type
        if q[t] is None or k[s] is None or v[s] is None:
            raise ValueError(f"relation {number} needs q of type {t} and k and v of type {s}, of which one is None")
    existing = ([x for x in part if x is not None] for part in (q, k, v))
    return Rows(*(torch.cat(part) if part else like.new_zeros(0, width) for part in existing))


def unpack(packed: TypeRows, graph: MessageGraph, w_k: Tensor) -> Rows:
    """:class:`Rows` of tensors per type whose columns are q (of targets), then k and v (of sources)."""
    size = w_k.shape[1] * w_k.shape[2]
    q, k, v = ([None] * graph.num_types for _ in range(3))
    for t, rows in enumerate(packed):
        if rows is None:
            continue
        columns = iter(rows.split(size, dim=1))
        if t in graph.target_types:
            q[t] = next(columns)
        if t in graph.source_types:
            k[t], v[t] = next(columns), next(columns)
    return joined(q, k, v, graph, w_k)


def hgt_attention(
    rows: Rows, w_k: Tensor, w_v: Tensor, prior: Tensor, graph: MessageGraph, masked_pairs: Tensor | None = None
) -> list[Tensor | None]:
    """Σ_j α_ij v_j W^V_r, with α the softmax of (q_i · k_j W^K_r) p_r / √D over all edges j → i, of any relation r.

    ``w_k``, ``w_v`` [relations, H, D, D]; ``prior`` [relations, H]; ``masked_pairs`` bool [pairs], True for pairs whose
    edges carry no message in this step. Returns per type [targets, H·D], zero for nodes without a message, None for types
    that are never a target. Rows may have a lower precision than the weights: then products, softmax and sums are in that
    of the weights, and the result in that of the rows.

    Raises ValueError if shapes or devices do not fit the graph.
    """
    _check(Weights(w_k, w_v, prior), graph, rows)
    out: list[Tensor | None] = [None] * graph.num_types
    if not graph.relations:
        return out
    types = sorted(graph.target_types)
    result: Tensor = _Attention.apply(graph, masked_pairs, w_k, w_v, prior, *rows)
    for t, part in zip(types, result.split([graph.target_counts[t] for t in types]), strict=True):
        out[t] = part
    return out


def _check(weights: Weights, graph: MessageGraph, rows: Rows) -> None:
    w_k, relations = weights.w_k, len(graph.relations)
    square = w_k.dim() == 4 and w_k.shape == (relations, *w_k.shape[1:3], w_k.shape[2])
    if not square or weights.w_v.shape != w_k.shape or weights.prior.shape != w_k.shape[:2]:
        shapes = ", ".join(str(list(w.shape)) for w in weights)
        raise ValueError(f"w_k, w_v [{relations}, H, D, D] and prior [{relations}, H]; not {shapes}")
    if len({w.dtype for w in weights}) > 1:
        raise ValueError(f"w_k, w_v and prior of one dtype; not {', '.join(str(w.dtype) for w in weights)}")
    devices = {x.device for x in (*weights, *rows)} | ({graph.device} if relations else set())
    if len(devices) > 1:
        raise ValueError(f"graph, rows and weights on one device; not {', '.join(sorted(str(d) for d in devices))}")


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graph: MessageGraph, masked_pairs: Tensor | None, *given: Tensor) -> Tensor:
        weights, rows = Weights(*given[:3]), Rows(*given[3:])
        with torch.autocast(rows.q.device.type, enabled=False):
            results = [_forward(graph, *part, masked_pairs) for part in _parts(rows, weights)]
        out, log_total, logits = (
            torch.cat(part, dim) for part, dim in zip(zip(*results, strict=True), (1, 1, 0), strict=True)
        )
        out = out.to(rows.q.dtype)
        ctx.graph = graph
        ctx.save_for_backward(*given, out, log_total, logits)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_out: Tensor) -> tuple[Tensor | None, ...]:
        *given, out, log_total, logits = ctx.saved_tensors
        weights, rows = Weights(*given[:3]), Rows(*given[3:])
        slopes = d_out[0].to(weights.w_k.dtype)
        # Σ α·dα of each node and head is the dot product of its result and the result's gradient.
        softmax = log_total, head_products(slopes, out, weights.w_k.shape[1]), logits
        parts = _parts(rows, weights)
        sides = zip(*(x.tensor_split(len(parts), 1 if x.dim() > 1 else 0) for x in (slopes, *softmax)), strict=True)
        with torch.autocast(slopes.device.type, enabled=False):
            results = [
                _backward(ctx.graph, *part, slope, rest) for part, (slope, *rest) in zip(parts, sides, strict=True)
            ]
        d_rows, d_weights = ([torch.cat(x, 1) for x in zip(*of, strict=True)] for of in zip(*results, strict=True))
        cast = (d.to(x.dtype) for d, x in zip(d_rows, rows, strict=True))
        return (None, None, *d_weights, *cast)


def _parts(rows: Rows, weights: Weights) -> list[tuple[Rows, Weights]]:
    """All heads at once, in the weights' precision; on a CPU each head by itself, which takes a fraction of the memory."""
    count = weights.w_k.shape[1] if rows.q.device.type == "cpu" else 1
    of_rows = zip(*(x.to(weights.w_k.dtype).tensor_split(count, 1) for x in rows), strict=True)
    of_weights = zip(*(w.tensor_split(count, 1) for w in weights), strict=True)
    return [
        (Rows(*(x.contiguous() for x in some)), Weights(*matrices))
        for some, matrices in zip(of_rows, of_weights, strict=True)
    ]


@dataclass(frozen=True)
class _Sent:
    """The factors of the senders' rows: k and v of each row [rows, D], and the relations' matrices in the plan's order."""

    flat: FlatGraph
    keys: Tensor
    values: Tensor
    m_k: Tensor
    w_v: Tensor

    @staticmethod
    def of(flat: FlatGraph, rows: Rows, weights: Weights) -> _Sent:
        """``m_k`` includes the prior: logits are q · k m_k."""
        width = weights.w_k.shape[-1]
        m_k = (weights.w_k * (weights.prior / math.sqrt(width))[..., None, None]).index_select(0, flat.order)
        keys, values = (x.reshape(-1, width).index_select(0, flat.sender) for x in (rows.k, rows.v))
        return _Sent(flat, keys, values, m_k, weights.w_v.index_select(0, flat.order))

    def rows(self) -> tuple[Tensor, Tensor]:
        """k W^K p / √D and v W^V, [rows, D] both."""
        return _products(self.flat, self.keys, self.m_k), _products(self.flat, self.values, self.w_v)


def _forward(
    graph: MessageGraph, rows: Rows, weights: Weights, masked_pairs: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """(output [receivers, H·D], log Σ exp(logit) [receivers, H], the edges' logits [H·E]).

    The log-sum is +∞ for a node without a message, a logit −∞ for an edge of a masked pair.
    """
    heads, width = weights.w_k.shape[1:3]
    q, flat = rows.q, flat_graph(graph, heads)
    if not flat.edges:
        return torch.zeros_like(q), q.new_full((len(q), heads), math.inf), q.new_zeros(0)
    keys, values = _Sent.of(flat, rows, weights).rows()
    logits = edge_products(q.reshape(-1, width), keys, flat.row, flat.bounds, flat.bag)
    if masked_pairs is not None:
        logits.masked_fill_(masked_pairs.index_select(0, flat.pair), -math.inf)
    highest = logits.new_full((flat.bags,), -math.inf)
    highest.scatter_reduce_(0, flat.bag.long(), logits, "amax")
    shares = (logits - highest.clamp_min(torch.finfo(highest.dtype).min).index_select(0, flat.bag)).exp_()
    total = weighted_sums(flat.every, flat.bounds, None, shares[:, None])[:, 0]
    nothing = total == 0
    sums = weighted_sums(flat.row, flat.bounds, shares, values)
    out = sums.div_(total.masked_fill(nothing, 1.0)[:, None]).view(q.shape)
    return out, (highest + total.log()).masked_fill_(nothing, math.inf).view(-1, heads), logits


def _backward(
    graph: MessageGraph, rows: Rows, weights: Weights, slopes: Tensor, softmax: Sequence[Tensor]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Gradients of q, k and v, and of the weights.

    ``slopes`` [receivers, H·D]: the gradient of the output. ``softmax``: the log-total and Σ α·dα [receivers, H], and
    the logits of :func:`_forward`.
    """
    w_k, _, prior = weights
    width = w_k.shape[2]
    flat = flat_graph(graph, w_k.shape[1])
    if not flat.edges:
        return tuple(torch.zeros_like(x) for x in rows), tuple(torch.zeros_like(w) for w in weights)
    log_total, delta, logits = softmax
    sent = _Sent.of(flat, rows, weights)
    keys, values = sent.rows()
    queries, into = rows.q.reshape(-1, width), slopes.reshape(-1, width)
    alpha = (logits - log_total.reshape(-1).index_select(0, flat.bag)).exp_()
    d_logits = edge_products(into, values, flat.row, flat.bounds, flat.bag)
    d_logits.sub_(delta.reshape(-1).index_select(0, flat.bag)).mul_(alpha)
    d_q = weighted_sums(flat.row, flat.bounds, d_logits, keys)
    del keys, values
    d_keys = weighted_sums(flat.row_bag, flat.row_bounds, d_logits.index_select(0, flat.by_row), queries)
    d_values = weighted_sums(flat.row_bag, flat.row_bounds, alpha.index_select(0, flat.by_row), into)
    d_m_k, d_w_v = _slopes(flat, sent.keys, d_keys), _slopes(flat, sent.values, d_values)
    d_k, d_v = (
        weighted_sums(flat.of_sender, flat.sender_bounds, None, _products(flat, d, m.mT))
        for d, m in ((d_keys, sent.m_k), (d_values, sent.w_v))
    )
    # Back from the plan's order of relations to the graph's. Relations without edges have gradient 0.
    scale = 1 / math.sqrt(width)
    result = torch.zeros_like(w_k), torch.zeros_like(w_k)
    for whole, part in zip(result, (d_m_k, d_w_v), strict=True):
        whole.index_copy_(0, flat.order.long(), part)
    d_prior = torch.linalg.vecdot(result[0].flatten(2), w_k.flatten(2)) * scale
    d_w_k = result[0].mul_((prior * scale)[..., None, None])
    return (d_q.view(rows.q.shape), d_k.view(rows.k.shape), d_v.view(rows.v.shape)), (d_w_k, result[1], d_prior)


def _products(flat: FlatGraph, rows: Tensor, matrices: Tensor) -> Tensor:
    """[rows, D]: each row times its relation's and head's matrix, ``matrices`` [relations in order, H, D, D]."""
    out = torch.empty_like(rows)
    for c in flat.classes:
        torch.bmm(c.batched(rows), c.of(matrices), out=c.batched(out))
    return out


def _slopes(flat: FlatGraph, rows: Tensor, slopes: Tensor) -> Tensor:
    """[relations in order, H, D, D]: rowsᵀ · slopes of each relation and head."""
    width = rows.shape[1]
    out = rows.new_empty(flat.order.numel(), flat.heads, width, width)
    for c in flat.classes:
        torch.bmm(c.batched(rows).mT, c.batched(slopes), out=c.of(out))
    return out
