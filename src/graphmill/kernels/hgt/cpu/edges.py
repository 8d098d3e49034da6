"""The edge part of HGT's attention for one relation, compiled for the CPU; optional.

Source rows are head-major, [h, n, D] contiguous: edges meet them at random, and one head's keys and values of one relation
fit the cache. Target rows are met in order and stay node-major, [n, h, D], as they were gathered. Threads take whole
heads: no two write to one place, and the order of additions does not depend on how many there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.hgt import segments
from graphmill.kernels.hgt.cpu.passes import EMPTY, all_backward, all_forward
from graphmill.kernels.hgt.cpu.passes import serves as serves_relations
from graphmill.kernels.hgt.plan import RelationPlan
from graphmill.kernels.hgt.relations import EdgeGradients, Partial
from graphmill.kernels.runtime.compiled_math import FAST, exp, prefetch
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vectors import LANES, load_first, numbers_as, total

__all__ = [
    "all_backward",
    "all_forward",
    "backward",
    "forward",
    "head_products",
    "merge",
    "scatter_add",
    "serves_relations",
]

# Unsigned offsets: numba would otherwise test every index for being negative, which keeps LLVM from vectorising.
_U = np.uint64
SOURCES_HEAD_MAJOR = True

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
_AHEAD, _LINE = _U(8), _U(16)
"""How many edges ahead the rows of their sources are fetched (they are met at random), and numbers of a cache line."""


def head_products(left: Tensor, right: Tensor, heads: int) -> Tensor:
    """See :func:`graphmill.kernels.hgt.segments.head_products`; rows lie side by side."""
    if left.dtype != right.dtype or left.dtype not in EMPTY:
        return segments.head_products(left, right, heads)
    kind = torch.float32 if left.dtype == torch.bfloat16 else left.dtype
    out = left.new_empty(len(left), heads, dtype=kind)
    tables = (left.data_ptr(), left.stride(0), right.data_ptr(), right.stride(0), out.data_ptr())
    arguments = (EMPTY[left.dtype], EMPTY[kind], *tables, heads, left.shape[1] // heads)
    over_ranges(_head_products, arguments, len(left), left.numel())
    return out


def scatter_add(rows: Tensor, nodes: Tensor, first: int, last: int, values: Tensor) -> None:
    """Add [h, n, D] to heads ``first:last`` of some distinct rows of [N, H·D]."""
    columns, values = rows[:, first * values.shape[2] : last * values.shape[2]], _node_major(values)
    arrays = (_flat(columns), columns.stride(0), nodes.numpy(), _flat(values), columns.shape[1])
    over_ranges(_scatter, arrays, nodes.numel(), values.numel())


def forward(r: RelationPlan, q: Tensor, k: Tensor, v: Tensor, factor: Tensor, kept: Tensor | None) -> Partial:
    """Attention of one relation's targets over its sources, not yet divided by the softmax's total.

    Everything is compact: row i of ``q`` is the relation's i-th target node, row j of ``k`` and ``v`` its j-th source
    node. ``q`` [h, n_t, D], ``k``, ``v`` [h, n_s, D]; ``factor`` [h] multiplies the logits; ``kept`` bool [E] drops edges.
    """
    heads, targets, width = q.shape
    q, k, v = _node_major(q), k.contiguous(), v.contiguous()
    sums = torch.empty_like(q)
    total, highest = q.new_empty(heads, targets), q.new_empty(heads, targets)
    scratch = q.new_empty(heads, r.num_edges)
    arrays = [_flat(x) for x in (q, k, v, factor, sums, total, highest, scratch)]
    edges = (r.source.numpy(), r.indptr.numpy(), _bytes(kept))
    driver = _forward_64 if width == 64 else _forward
    over_ranges(driver, (*edges, *arrays, targets, k.shape[1], width), heads, q.numel() + k.numel())
    return Partial(sums, total, highest)


def merge(sums: Tensor, total: Tensor, highest: Tensor, nodes: Tensor, first: int, last: int, part: Partial) -> None:
    """Add one relation's share to the running softmax of heads ``first:last``, both brought to the higher maximum.

    ``sums`` [N, H·D], ``total`` and ``highest`` [N, H] are changed at the rows ``nodes``.
    """
    heads, _, width = part.sums.shape
    part = part._replace(sums=_node_major(part.sums))
    arrays = [_flat(x) for x in (sums, total, highest, *part)]
    index, all_heads = nodes.numpy(), total.shape[1]
    driver = _merge_64 if width == 64 else _merge
    over_ranges(driver, (*arrays, index, all_heads, first, heads, width), nodes.numel(), sums.numel())


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
    heads, targets, width = q.shape
    q, k, v, d_out = _node_major(q), k.contiguous(), v.contiguous(), _node_major(d_out)
    d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    sums = torch.empty_like(q) if want_sums else q.new_empty(0)
    d_factor = torch.zeros_like(factor)
    scratch = q.new_empty(heads, 2, r.num_edges)
    rows = (q, k, v, factor, d_out, log_total, delta, d_q, d_k, d_v, sums, d_factor, scratch)
    arrays = [_flat(x) for x in rows]
    edges = (r.source.numpy(), r.indptr.numpy(), _bytes(kept))
    driver = _backward_64 if width == 64 else _backward
    over_ranges(driver, (*edges, *arrays, targets, k.shape[1], width), heads, q.numel() + k.numel())
    return EdgeGradients(d_q, d_k, d_v, d_factor, sums if want_sums else None)


def _node_major(x: Tensor) -> Tensor:
    """[h, n, D] as a view of [n, h, D] contiguous."""
    return x.transpose(0, 1).contiguous().transpose(0, 1)


def _flat(x: Tensor) -> np.ndarray:
    """The memory from the tensor's first element to its last as a flat array; bfloat16 as uint16."""
    if not x.numel():
        return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).detach().reshape(-1).numpy()
    length = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    flat = x.detach().as_strided((length,), (1,))
    return (flat.view(torch.uint16) if x.dtype == torch.bfloat16 else flat).numpy()


def _bytes(kept: Tensor | None) -> np.ndarray:
    return np.empty(0, np.uint8) if kept is None else kept.view(torch.uint8).numpy()


@_jit
def _fetch(rows, first, width):  # type: ignore[no-untyped-def]
    for place in range(first, first + width, _LINE):
        prefetch(rows, np.int64(place))


def _compiled(fixed: int) -> tuple[Any, Any, Any]:
    """Forward, merge and backward for one head width known to the compiler (0: any, slower by the loops' remainders).

    LLVM unrolls 32 and less whole and then fails to vectorise, three times slower; 64 is worth kernels of its own.
    """
    known = fixed > 0
    constant = _U(fixed)

    @_jit
    def forward(  # type: ignore[no-untyped-def]
        source, indptr, kept, q, k, v, factor, sums, total, highest, scratch, targets, sources, width, a, b
    ):
        D = constant if known else _U(width)
        masked, edges, heads = kept.shape[0] > 0, _U(source.shape[0]), _U(factor.shape[0])
        lowest = -np.inf
        for h in range(_U(a), _U(b)):
            f, own, to_k = factor[h], h * edges, h * _U(sources) * D
            for i in range(_U(targets)):
                row = (i * heads + h) * D
                start, stop = _U(indptr[i]), _U(indptr[i + _U(1)])
                top = scratch.dtype.type(lowest)
                for e in range(start, stop):
                    if e + _AHEAD < edges:
                        ahead = to_k + _U(source[e + _AHEAD]) * D
                        _fetch(k, ahead, D)
                        _fetch(v, ahead, D)
                    at = to_k + _U(source[e]) * D
                    s = scratch.dtype.type(0)
                    for d in range(D):
                        s += q[row + d] * k[at + d]
                    s *= f
                    if masked and kept[e] == 0:
                        s = scratch.dtype.type(lowest)
                    scratch[own + e] = s
                    top = max(top, s)
                for d in range(D):
                    sums[row + d] = 0
                z = scratch.dtype.type(0)
                if top > lowest:
                    for e in range(start, stop):
                        p = exp(scratch[own + e] - top)
                        scratch[own + e] = p
                        z += p
                    for e in range(start, stop):
                        p = scratch[own + e]
                        at = to_k + _U(source[e]) * D
                        for d in range(D):
                            sums[row + d] += p * v[at + d]
                total[h * _U(targets) + i] = z
                highest[h * _U(targets) + i] = top

    @_jit
    def merge(  # type: ignore[no-untyped-def]
        sums, total, highest, new_sums, new_total, new_highest, nodes, all_heads, first, heads, width, a, b
    ):
        D = constant if known else _U(width)
        n = _U(nodes.shape[0])
        for i in range(_U(a), _U(b)):
            for h in range(_U(heads)):
                own, new = _U(nodes[i]) * _U(all_heads) + _U(first) + h, h * n + i
                if new_total[new] == 0:
                    continue
                top = max(highest[own], new_highest[new])
                old_scale, new_scale = exp(highest[own] - top), exp(new_highest[new] - top)
                highest[own] = top
                total[own] = total[own] * old_scale + new_total[new] * new_scale
                to, at = own * D, (i * _U(heads) + h) * D
                for d in range(D):
                    sums[to + d] = sums[to + d] * old_scale + new_sums[at + d] * new_scale

    @_jit
    def backward(  # type: ignore[no-untyped-def]
        source,
        indptr,
        kept,
        q,
        k,
        v,
        factor,
        d_out,
        log_total,
        delta,
        d_q,
        d_k,
        d_v,
        sums,
        d_factor,
        scratch,
        targets,
        sources,
        width,
        a,
        b,
    ):
        D = constant if known else _U(width)
        masked, edges, want_sums = kept.shape[0] > 0, _U(source.shape[0]), sums.shape[0] > 0
        heads = _U(factor.shape[0])
        for h in range(_U(a), _U(b)):
            f, to_k = factor[h], h * _U(sources) * D
            at_s, at_p = h * _U(2) * edges, (h * _U(2) + _U(1)) * edges
            total_factor = scratch.dtype.type(0)
            for own in range(to_k, to_k + _U(sources) * D):
                d_k[own] = 0
                d_v[own] = 0
            for i in range(_U(targets)):
                row = (i * heads + h) * D
                for d in range(D):
                    d_q[row + d] = 0
                if want_sums:
                    for d in range(D):
                        sums[row + d] = 0
                start, stop = _U(indptr[i]), _U(indptr[i + _U(1)])
                for e in range(start, stop):
                    if e + _AHEAD < edges:
                        ahead = to_k + _U(source[e + _AHEAD]) * D
                        _fetch(k, ahead, D)
                        _fetch(v, ahead, D)
                        _fetch(d_k, ahead, D)
                        _fetch(d_v, ahead, D)
                    at = to_k + _U(source[e]) * D
                    s = scratch.dtype.type(0)
                    g = scratch.dtype.type(0)
                    for d in range(D):
                        s += q[row + d] * k[at + d]
                        g += d_out[row + d] * v[at + d]
                    scratch[at_s + e] = s
                    scratch[at_p + e] = g
                shift, own_delta = log_total[h * _U(targets) + i], delta[h * _U(targets) + i]
                for e in range(start, stop):
                    s = scratch[at_s + e]
                    p = exp(s * f - shift)
                    if masked and kept[e] == 0:
                        p = scratch.dtype.type(0)
                    ds = p * (scratch[at_p + e] - own_delta)
                    total_factor += ds * s
                    scratch[at_s + e] = ds * f
                    scratch[at_p + e] = p
                for e in range(start, stop):
                    at = to_k + _U(source[e]) * D
                    ds, p = scratch[at_s + e], scratch[at_p + e]
                    for d in range(D):
                        d_q[row + d] += ds * k[at + d]
                    for d in range(D):
                        d_k[at + d] += ds * q[row + d]
                    for d in range(D):
                        d_v[at + d] += p * d_out[row + d]
                    if want_sums:
                        for d in range(D):
                            sums[row + d] += p * v[at + d]
            d_factor[h] += total_factor

    return forward, merge, backward


@_jit
def _head_products(kind, own_kind, left, left_pitch, right, right_pitch, out, heads, width, a, b):  # type: ignore[no-untyped-def]
    x, y, found = numbers_as(kind, left), numbers_as(kind, right), numbers_as(own_kind, out)
    for i in range(a, b):
        for h in range(heads):
            to_x, to_y = i * left_pitch + h * width, i * right_pitch + h * width
            sums = load_first(x, to_x, width) * load_first(y, to_y, width)
            for c in range(LANES, width, LANES):
                sums += load_first(x, to_x + c, width - c) * load_first(y, to_y + c, width - c)
            found[i * heads + h] = total(sums)


@_jit
def _scatter(target, stride, nodes, values, length, a, b):  # type: ignore[no-untyped-def]
    for i in range(_U(a), _U(b)):
        to, at = _U(nodes[i]) * _U(stride), i * _U(length)
        for d in range(_U(length)):
            target[to + d] += values[at + d]


_forward, _merge, _backward = _compiled(0)
_forward_64, _merge_64, _backward_64 = _compiled(64)
