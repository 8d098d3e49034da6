"""HGT's attention over all relations, types and heads at once, with operators that cpu, cuda and mps all have.

It is made for accelerators, where kernel launches cost more than memory. On the CPU it is used for float16.

A graph with H heads is treated as H separate graphs, and all edges form one bipartite graph. On one side there is a **bag**
for each receiving node and head, on the other a **row** for each sending node, head and relation. Rows are the nodes' k and
v times their relation's matrices. Relations of similar size are padded to the largest of them and multiplied in one batched
product per size class. Everything else is an ``embedding_bag`` over a bag's edges, over a row's edges, or over the rows of
one node. No operator adds to one number from two threads, so results are reproducible bit by bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmill.kernels.hgt.dense_plan import FlatGraph, flat_graph
from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.kernels.hgt.segments import edge_products, head_products, weighted_sums

__all__ = ["head_products", "whole_backward", "whole_forward"]

Matrices = tuple[Tensor, Tensor, Tensor]
"""``w_k``, ``w_v`` [relations, H, D, D] and ``prior`` [relations, H]."""


@dataclass(frozen=True)
class Sent:
    """The factors of the senders' rows: k and v of each row [rows, D], and the relations' matrices in the plan's order."""

    flat: FlatGraph
    keys: Tensor
    values: Tensor
    m_k: Tensor
    w_v: Tensor

    @staticmethod
    def of(flat: FlatGraph, k: Tensor, v: Tensor, matrices: Matrices) -> Sent:
        """``k``, ``v`` [senders, H·D]. ``m_k`` includes the prior: logits are q · k m_k."""
        w_k, w_v, prior = matrices
        width = w_k.shape[-1]
        m_k = (w_k * (prior / math.sqrt(width))[..., None, None]).index_select(0, flat.order)
        keys, values = (x.view(-1, width).index_select(0, flat.sender) for x in (k, v))
        return Sent(flat, keys, values, m_k, w_v.index_select(0, flat.order))

    def rows(self) -> tuple[Tensor, Tensor]:
        """k W^K p / √D and v W^V, [rows, D] both."""
        return _products(self.flat, self.keys, self.m_k), _products(self.flat, self.values, self.w_v)


def whole_forward(
    graph: MessageGraph, q: Tensor, k: Tensor, v: Tensor, matrices: Matrices, masked_pairs: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """(output [receivers, H·D], log Σ exp(logit) [receivers, H], the edges' logits [H·E]) of all types at once.

    ``q`` [receivers, H·D]; ``k``, ``v`` [senders, H·D]: the rows of all receiving or sending types, one type after the
    other. ``masked_pairs`` bool [pairs]: True for pairs whose edges carry no message. The log-sum is +∞ for a node
    without a message.
    """
    heads, width = matrices[0].shape[1], matrices[0].shape[2]
    flat = flat_graph(graph, heads)
    if not flat.edges:
        return torch.zeros_like(q), q.new_full((len(q), heads), math.inf), q.new_zeros(0)
    keys, values = Sent.of(flat, k, v, matrices).rows()
    logits = _logits(flat, q.view(-1, width), keys, masked_pairs)
    highest = logits.new_full((flat.bags,), -math.inf)
    highest.scatter_reduce_(0, flat.bag.long(), logits, "amax")
    shares = (logits - highest.clamp_min(torch.finfo(highest.dtype).min).index_select(0, flat.bag)).exp_()
    total = weighted_sums(flat.every, flat.bounds, None, shares[:, None])[:, 0]
    nothing = total == 0
    sums = weighted_sums(flat.row, flat.bounds, shares, values)
    out = sums.div_(total.masked_fill(nothing, 1.0)[:, None]).view(q.shape)
    return out, (highest + total.log()).masked_fill_(nothing, math.inf).view(-1, heads), logits


def whole_backward(
    graph: MessageGraph,
    rows: tuple[Tensor, Tensor, Tensor],
    matrices: Matrices,
    slopes: Tensor,
    softmax: tuple[Tensor, Tensor, Tensor | None],
    masked_pairs: Tensor | None,
) -> tuple[tuple[Tensor, Tensor, Tensor], Matrices]:
    """Gradients of q, k and v, in the same shapes, and of the matrices.

    ``slopes`` [receivers, H·D]: the gradient of the output. ``softmax``: the log-total and Σ α·dα [receivers, H], and
    the logits of :func:`whole_forward`; with None they are recomputed.
    """
    q, k, v = rows
    w_k, w_v, prior = matrices
    heads, width = w_k.shape[1:3]
    flat = flat_graph(graph, heads)
    if not flat.edges:
        none: tuple[Tensor, ...] = tuple(torch.zeros_like(x) for x in (*rows, *matrices))
        return none[:3], none[3:]  # type: ignore[return-value]
    log_total, delta, logits = softmax
    sent = Sent.of(flat, k, v, matrices)
    keys, values = sent.rows()
    queries, into = q.view(-1, width), slopes.view(-1, width)
    if logits is None:
        logits = _logits(flat, queries, keys, masked_pairs)
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
    result = torch.zeros_like(w_k), torch.zeros_like(w_v)
    for whole, part in zip(result, (d_m_k, d_w_v), strict=True):
        whole.index_copy_(0, flat.order.long(), part)
    d_prior = torch.linalg.vecdot(result[0].flatten(2), w_k.flatten(2)) * scale
    d_w_k = result[0].mul_((prior * scale)[..., None, None])
    return (d_q.view(q.shape), d_k.view(k.shape), d_v.view(v.shape)), (d_w_k, result[1], d_prior)


def _logits(flat: FlatGraph, queries: Tensor, keys: Tensor, masked_pairs: Tensor | None) -> Tensor:
    """The logits [H·E], −∞ for the edges of a masked pair."""
    logits = edge_products(queries, keys, flat.row, flat.bounds, flat.bag)
    if masked_pairs is not None:
        logits.masked_fill_(masked_pairs.index_select(0, flat.pair), -math.inf)
    return logits


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
