"""HGT's attention over all relations of a typed graph, forward and backward, without a tensor of edges × width.

Per relation the matrices are applied on the side with fewer occurring nodes, as q·(k W) = (q Wᵀ)·k and
Σ α (v W) = (Σ α v) W; the softmax runs over all relations of a target by streaming: each relation adds its unnormalised
sums, total and highest logit. The backward pass recomputes the logits from the inputs and the softmax's log-total.

Heterogeneous Graph Transformer, Hu et al. 2020, equations 3 to 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphmill.kernels import hgt_torch
from graphmill.kernels.hgt_plan import MessageGraph, RelationPlan


def hgt_attention(
    q: Sequence[Tensor | None],
    k: Sequence[Tensor | None],
    v: Sequence[Tensor | None],
    w_k: Tensor,
    w_v: Tensor,
    prior: Tensor,
    graph: MessageGraph,
    masked_pairs: Tensor | None = None,
) -> list[Tensor | None]:
    """Σ_j α_ij v_j W^V_r, with α the softmax of (q_i · k_j W^K_r) p_r / √D over all edges j → i, of any relation r.

    q: per node type [targets, H·D], None for types that are never a target; k, v: [sources, H·D], None for types that
    are never a source; w_k, w_v: [relations, H, D, D]; prior: [relations, H]; masked_pairs: bool [pairs], true where an
    edge's pair carries no message in this step. Returns per type [targets, H·D], zero for nodes without a message, None
    for types that are never a target. Deterministic on CPU; on CUDA under ``torch.use_deterministic_algorithms``.
    """
    types = graph.num_types
    flat: Any = _Attention.apply(graph, masked_pairs, w_k, w_v, prior, *q, *k, *v)
    return [flat[t] if t in graph.target_types else None for t in range(types)]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        graph: MessageGraph,
        masked_pairs: Tensor | None,
        w_k: Tensor,
        w_v: Tensor,
        prior: Tensor,
        *qkv: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        n = graph.num_types
        q, k, v = qkv[:n], qkv[n : 2 * n], qkv[2 * n :]
        outputs: list[Tensor | None] = [None] * n
        log_totals: list[Tensor | None] = [None] * n
        for t in graph.target_types:
            outputs[t], log_totals[t] = _attend(t, q, k, v, w_k, w_v, prior, graph, masked_pairs)
        ctx.graph = graph
        ctx.save_for_backward(masked_pairs, w_k, w_v, prior, *qkv, *outputs, *log_totals)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *d_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        graph: MessageGraph = ctx.graph
        n = graph.num_types
        masked_pairs, w_k, w_v, prior, *rest = ctx.saved_tensors
        q, k, v, outputs, log_totals = (rest[i * n : (i + 1) * n] for i in range(5))
        heads, width = w_k.shape[1], w_k.shape[2]
        d_q, d_k, d_v = (_zeros(xs) for xs in (q, k, v))
        d_w_k, d_w_v, d_prior = torch.zeros_like(w_k), torch.zeros_like(w_v), torch.zeros_like(prior)
        deltas: list[Tensor | None] = [None] * n
        for t in graph.target_types:
            d_out = d_outputs[t]
            if d_out is not None:
                deltas[t] = (d_out * outputs[t]).view(-1, heads, width).sum(-1)
        for number, r in enumerate(graph.relations):
            s, t = r.source_type, r.target_type
            d_out, delta = d_outputs[t], deltas[t]
            if not r.num_edges or d_out is None or delta is None:
                continue
            q_r, k_r, v_r = _rows(q[t], r.target_nodes), _rows(k[s], r.source_nodes), _rows(v[s], r.source_nodes)
            d_r = d_out.index_select(0, r.target_nodes)
            a, m = w_k[number], w_v[number]
            factor = prior[number] / math.sqrt(width)
            if r.on_target:
                left = (_transform(q_r, a.mT), k_r, v_r)
                d_left = _transform(d_r, m.mT)
            else:
                left = (q_r, _transform(k_r, a), _transform(v_r, m))
                d_left = d_r
            g = hgt_torch.backward(
                r,
                *left,
                factor,
                _kept(r, masked_pairs),
                d_left,
                log_totals[t].index_select(0, r.target_nodes),
                delta.index_select(0, r.target_nodes),
                r.on_target,
            )
            d_prior[number] = g.factor / math.sqrt(width)
            g_q, g_k, g_v = g.q, g.k, g.v
            if r.on_target:
                assert g.sums is not None
                d_w_k[number] = _outer(g_q, q_r, heads)
                d_w_v[number] = _outer(g.sums, d_r, heads)
                g_q = _transform(g_q, a)
            else:
                d_w_k[number] = _outer(k_r, g_k, heads)
                d_w_v[number] = _outer(v_r, g_v, heads)
                g_k, g_v = _transform(g_k, a.mT), _transform(g_v, m.mT)
            d_q[t].index_add_(0, r.target_nodes, g_q)
            d_k[s].index_add_(0, r.source_nodes, g_k)
            d_v[s].index_add_(0, r.source_nodes, g_v)
        return (None, None, d_w_k, d_w_v, d_prior, *d_q, *d_k, *d_v)


def _attend(
    node_type: int,
    q: Sequence[Tensor | None],
    k: Sequence[Tensor | None],
    v: Sequence[Tensor | None],
    w_k: Tensor,
    w_v: Tensor,
    prior: Tensor,
    graph: MessageGraph,
    masked_pairs: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Output [targets, H·D] of one type, and log Σ exp(logit) [targets, H] (+∞ where there is no message)."""
    heads, width = w_k.shape[1], w_k.shape[2]
    queries = q[node_type]
    assert queries is not None
    sums = torch.zeros_like(queries)
    total = queries.new_zeros(queries.shape[0], heads)
    highest = torch.full_like(total, -math.inf)
    for number, r in enumerate(graph.relations):
        if r.target_type != node_type or not r.num_edges:
            continue
        s = r.source_type
        q_r, k_r, v_r = _rows(queries, r.target_nodes), _rows(k[s], r.source_nodes), _rows(v[s], r.source_nodes)
        if r.on_target:
            q_r = _transform(q_r, w_k[number].mT)
        else:
            k_r, v_r = _transform(k_r, w_k[number]), _transform(v_r, w_v[number])
        part = hgt_torch.forward(r, q_r, k_r, v_r, prior[number] / math.sqrt(width), _kept(r, masked_pairs))
        part_sums = _transform(part.sums, w_v[number]) if r.on_target else part.sums
        _merge(sums, total, highest, r.target_nodes, part_sums, part.total, part.highest)
    empty = total == 0
    sums.view(-1, heads, width).div_(total.masked_fill(empty, 1.0).unsqueeze(-1))
    return sums, (highest + total.log()).masked_fill_(empty, math.inf)


def _merge(
    sums: Tensor,
    total: Tensor,
    highest: Tensor,
    nodes: Tensor,
    new_sums: Tensor,
    new_total: Tensor,
    new_highest: Tensor,
) -> None:
    """Add one relation's unnormalised softmax to the running one, both brought to the higher of the two maxima."""
    heads = total.shape[1]
    old_highest = highest.index_select(0, nodes)
    both = torch.maximum(old_highest, new_highest)
    finite = both.clamp_min(torch.finfo(both.dtype).min)
    old_scale, new_scale = (old_highest - finite).exp_(), (new_highest - finite).exp_()
    merged = sums.index_select(0, nodes).view(nodes.numel(), heads, -1).mul_(old_scale.unsqueeze(-1))
    merged.addcmul_(new_sums.view_as(merged), new_scale.unsqueeze(-1))
    sums.index_copy_(0, nodes, merged.flatten(1))
    total.index_copy_(0, nodes, total.index_select(0, nodes) * old_scale + new_total * new_scale)
    highest.index_copy_(0, nodes, both)


def _zeros(rows: Sequence[Tensor | None]) -> list[Any]:
    return [None if x is None else torch.zeros_like(x) for x in rows]


def _rows(x: Tensor | None, nodes: Tensor) -> Tensor:
    assert x is not None
    return x.index_select(0, nodes)


def _transform(rows: Tensor, matrices: Tensor) -> Tensor:
    """[n, H·D] times [H, D, D], head by head."""
    heads, width, _ = matrices.shape
    out = torch.empty_like(rows)
    torch.bmm(rows.view(-1, heads, width).transpose(0, 1), matrices, out=out.view(-1, heads, width).transpose(0, 1))
    return out


def _outer(left: Tensor, right: Tensor, heads: int) -> Tensor:
    """[H, D, D]: Σ over rows of leftᵀ right, head by head."""
    n = left.shape[0]
    return torch.bmm(left.view(n, heads, -1).permute(1, 2, 0), right.view(n, heads, -1).transpose(0, 1))


def _kept(r: RelationPlan, masked_pairs: Tensor | None) -> Tensor | None:
    return None if masked_pairs is None else ~masked_pairs.index_select(0, r.pair)
