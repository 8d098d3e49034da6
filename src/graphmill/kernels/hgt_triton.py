"""The edge part of HGT's attention for one relation on CUDA, in Triton; the same functions as ``hgt_numba``.

A row of heads is read where it lies, an edge at a time, and nothing of edges × width is written. Sums over a node's edges
go in pieces of at most :data:`hgt_plan.PIECE` edges, so that a hub does not keep one multiprocessor busy while the others
wait, and the pieces of a node are added up in order: no atomics, so that the result is the same every time. Sums and
softmax are in the precision of the rows that come in (fp32, or float64 in tests).
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphmill.kernels.hgt_plan import Pieces, RelationPlan
from graphmill.kernels.hgt_relations import EdgeGradients, Partial
from graphmill.kernels.hgt_torch import head_products

__all__ = [
    "SOURCES_HEAD_MAJOR",
    "backward",
    "forward",
    "head_products",
    "merge",
    "scatter_add",
    "serves_relations",
]

SOURCES_HEAD_MAJOR = False
_EDGES = 16
"""Edges that a program looks at at once."""


@triton.jit
def _logits_kernel(left, right, target, source, factor, kept, out, edges, heads, D: tl.constexpr, WIDE: tl.constexpr,
                   EDGES: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    head = tl.program_id(1)
    e = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    there = e < edges
    d = tl.arange(0, WIDE)
    both = there[:, None] & (d < D)[None, :]
    t = tl.load(target + e, there, 0).to(tl.int64)
    s = tl.load(source + e, there, 0).to(tl.int64)
    a = tl.load(left + (t * heads + head)[:, None] * D + d[None, :], both, 0.0)
    b = tl.load(right + (s * heads + head)[:, None] * D + d[None, :], both, 0.0)
    value = tl.sum(a * b, 1) * tl.load(factor + head)
    if MASKED:
        value = tl.where(tl.load(kept + e, there, 0) != 0, value, float("-inf"))
    tl.store(out + e * heads + head, value, there)


@triton.jit
def _softmax_kernel(logits, indptr, highest, total, heads, EDGES: tl.constexpr):
    """One target and head: the highest logit; each logit becomes exp(logit − highest); their sum."""
    t, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    first, last = tl.load(indptr + t), tl.load(indptr + t + 1)
    lane = tl.arange(0, EDGES)
    most = tl.full([EDGES], float("-inf"), logits.dtype.element_ty)
    for start in range(first, last, EDGES):
        e = start + lane
        most = tl.maximum(most, tl.load(logits + e * heads + head, e < last, float("-inf")))
    top = tl.max(most, 0)
    finite = tl.where(top == float("-inf"), 0.0, top)
    sums = tl.zeros([EDGES], logits.dtype.element_ty)
    for start in range(first, last, EDGES):
        e = start + lane
        share = tl.exp(tl.load(logits + e * heads + head, e < last, float("-inf")) - finite)
        sums += share
        tl.store(logits + e * heads + head, share, e < last)
    tl.store(highest + t * heads + head, top)
    tl.store(total + t * heads + head, tl.sum(sums, 0))


@triton.jit
def _sums_kernel(rows, weights, place, of, start, stop, out, heads, D: tl.constexpr, WIDE: tl.constexpr,
                 EDGES: tl.constexpr, WEIGHTED: tl.constexpr):  # fmt: skip
    """One piece and head: Σ weights[place[e], head] · rows[of[e]] over the edges of the piece; without weights, Σ rows."""
    piece, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    first, last = tl.load(start + piece), tl.load(stop + piece)
    d, lane = tl.arange(0, WIDE), tl.arange(0, EDGES)
    sums = tl.zeros([EDGES, WIDE], out.dtype.element_ty)
    for low in range(first, last, EDGES):
        e = low + lane
        there = e < last
        both = there[:, None] & (d < D)[None, :]
        if WEIGHTED:
            row = tl.load(of + e, there, 0).to(tl.int64)
            weight = tl.load(weights + tl.load(place + e, there, 0) * heads + head, there, 0.0)
            sums += tl.load(rows + (row * heads + head)[:, None] * D + d[None, :], both, 0.0) * weight[:, None]
        else:
            sums += tl.load(rows + (e * heads + head)[:, None] * D + d[None, :], both, 0.0)
    tl.store(out + (piece * heads + head) * D + d, tl.sum(sums, 0), d < D)


@triton.jit
def _backward_kernel(q, k, d_out, v, target, source, factor, kept, log_total, delta, alpha, d_logits, products, edges,
                     heads, D: tl.constexpr, WIDE: tl.constexpr, EDGES: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """Per edge and head: α, the gradient of the product q·k, and what the factor's gradient is the sum of."""
    head = tl.program_id(1)
    e = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    there = e < edges
    d = tl.arange(0, WIDE)
    both = there[:, None] & (d < D)[None, :]
    t = tl.load(target + e, there, 0).to(tl.int64) * heads + head
    s = tl.load(source + e, there, 0).to(tl.int64) * heads + head
    scale = tl.load(factor + head)
    raw = tl.sum(
        tl.load(q + t[:, None] * D + d[None, :], both, 0.0) * tl.load(k + s[:, None] * D + d[None, :], both, 0.0), 1
    )
    share = tl.exp(raw * scale - tl.load(log_total + t, there, 0.0))
    if MASKED:
        share = tl.where(tl.load(kept + e, there, 0) != 0, share, 0.0)
    slope = tl.sum(
        tl.load(d_out + t[:, None] * D + d[None, :], both, 0.0) * tl.load(v + s[:, None] * D + d[None, :], both, 0.0), 1
    )
    slope = (slope - tl.load(delta + t, there, 0.0)) * share
    at = e * heads + head
    tl.store(alpha + at, share, there)
    tl.store(d_logits + at, slope * scale, there)
    tl.store(products + at, slope * raw, there)


@triton.jit
def _merge_kernel(sums, total, highest, nodes, part_sums, part_total, part_highest, stride, heads_all, first, heads,
                  D: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    i, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    node = tl.load(nodes + i)
    d = tl.arange(0, WIDE)
    own, at = i * heads + head, node * heads_all + first + head
    old, new = tl.load(highest + at), tl.load(part_highest + own)
    both = tl.maximum(old, new)
    finite = tl.where(both == float("-inf"), 0.0, both)
    old_scale, new_scale = tl.exp(old - finite), tl.exp(new - finite)
    place = sums + node * stride + (first + head) * D + d
    merged = tl.load(place, d < D, 0.0) * old_scale + tl.load(part_sums + own * D + d, d < D, 0.0) * new_scale
    tl.store(place, merged, d < D)
    tl.store(total + at, tl.load(total + at) * old_scale + tl.load(part_total + own) * new_scale)
    tl.store(highest + at, both)


@triton.jit
def _add_rows_kernel(rows, nodes, values, stride, width, WIDE: tl.constexpr):
    i, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    place = rows + tl.load(nodes + i) * stride + c
    added = tl.load(values + i * width + c, c < width, 0.0)
    tl.store(place, (tl.load(place, c < width, 0.0) + added).to(rows.dtype.element_ty), c < width)


def serves_relations(weights: Tensor, *rows: Tensor) -> bool:
    """Never: relations go one by one."""
    return False


def scatter_add(rows: Tensor, nodes: Tensor, first: int, last: int, values: Tensor) -> None:
    """As in ``hgt_numba``; each row is written by one program."""
    width = values.shape[2]
    columns, values = rows[:, first * width : last * width], _rows(values)
    if columns.stride(1) != 1:
        raise ValueError("rows of heads must lie side by side")
    if nodes.numel():
        wide = triton.next_power_of_2(min(values.shape[1], 512))
        grid = (nodes.numel(), triton.cdiv(values.shape[1], wide))
        _add_rows_kernel[grid](columns, nodes, values, columns.stride(0), values.shape[1], WIDE=wide)


def forward(r: RelationPlan, q: Tensor, k: Tensor, v: Tensor, factor: Tensor, kept: Tensor | None) -> Partial:
    """As in ``hgt_numba``."""
    heads, targets, width = q.shape
    logits = q.new_empty(r.num_edges, heads)
    _logits_kernel[_edge_grid(r, heads)](
        _rows(q), _rows(k), r.target, r.source, factor.contiguous(), _bytes(kept, r), logits, r.num_edges, heads, D=width,
        WIDE=triton.next_power_of_2(width), EDGES=_EDGES, MASKED=kept is not None,
    )  # fmt: skip
    highest, total = q.new_empty(targets, heads), q.new_empty(targets, heads)
    _softmax_kernel[targets, heads](logits, r.indptr, highest, total, heads, EDGES=32)
    sums = _weighted_sums(r.target_pieces, logits, _rows(v), heads, width)
    return Partial(_heads_first(sums, heads), total.mT, highest.mT)


def merge(sums: Tensor, total: Tensor, highest: Tensor, nodes: Tensor, first: int, last: int, part: Partial) -> None:
    """As in ``hgt_numba``."""
    heads, count, width = part.sums.shape
    assert total.is_contiguous()
    assert highest.is_contiguous()
    assert sums.stride(1) == 1
    part_total, part_highest = part.total.mT.contiguous(), part.highest.mT.contiguous()
    _merge_kernel[count, heads](
        sums, total, highest, nodes, _rows(part.sums), part_total, part_highest, sums.stride(0), total.shape[1], first,
        heads, D=width, WIDE=triton.next_power_of_2(width),
    )  # fmt: skip


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
    """As in ``hgt_numba``."""
    heads, _, width = q.shape
    q_rows, k_rows, v_rows, d_rows = _rows(q), _rows(k), _rows(v), _rows(d_out)
    alpha, d_logits, products = (q.new_empty(r.num_edges, heads) for _ in range(3))
    _backward_kernel[_edge_grid(r, heads)](
        q_rows, k_rows, d_rows, v_rows, r.target, r.source, factor.contiguous(), _bytes(kept, r),
        log_total.mT.contiguous(), delta.mT.contiguous(), alpha, d_logits, products, r.num_edges, heads, D=width,
        WIDE=triton.next_power_of_2(width), EDGES=_EDGES, MASKED=kept is not None,
    )  # fmt: skip
    by_target, by_source = r.target_pieces, r.source_pieces
    d_q = _weighted_sums(by_target, d_logits, k_rows, heads, width)
    sums = _weighted_sums(by_target, alpha, v_rows, heads, width) if want_sums else None
    d_k = _weighted_sums(by_source, d_logits, q_rows, heads, width)
    d_v = _weighted_sums(by_source, alpha, d_rows, heads, width)
    first, second, third = (_heads_first(x, heads) for x in (d_q, d_k, d_v))
    return EdgeGradients(first, second, third, products.sum(0), None if sums is None else _heads_first(sums, heads))


def _weighted_sums(pieces: Pieces, weights: Tensor, rows: Tensor, heads: int, width: int) -> Tensor:
    """[nodes, h·D]: Σ over each node's edges of weights[edge, head] · rows[other end]."""
    wide = triton.next_power_of_2(width)
    found = rows.new_empty(pieces.start.numel(), heads * width)
    _sums_kernel[pieces.start.numel(), heads](
        rows, weights, pieces.place, pieces.other, pieces.start, pieces.stop, found, heads, D=width, WIDE=wide,
        EDGES=_EDGES, WEIGHTED=True,
    )  # fmt: skip
    if pieces.single:
        return found
    nodes = pieces.bounds.numel() - 1
    whole = rows.new_empty(nodes, heads * width)
    _sums_kernel[nodes, heads](
        found, weights, pieces.place, pieces.other, pieces.bounds, pieces.bounds[1:], whole, heads, D=width, WIDE=wide,
        EDGES=_EDGES, WEIGHTED=False,
    )  # fmt: skip
    return whole


def _edge_grid(r: RelationPlan, heads: int) -> tuple[int, int]:
    return triton.cdiv(r.num_edges, _EDGES), heads


def _bytes(kept: Tensor | None, r: RelationPlan) -> Any:
    """What says which edges are there, as int8; without it, anything that can be pointed at."""
    return r.source if kept is None else kept.view(torch.int8)


def _rows(x: Tensor) -> Tensor:
    """[h, n, D] as contiguous [n, h·D]; no copy where heads lie side by side."""
    return x.transpose(0, 1).flatten(1).contiguous()


def _heads_first(rows: Tensor, heads: int) -> Tensor:
    return rows.unflatten(1, (heads, rows.shape[1] // heads)).transpose(0, 1)
