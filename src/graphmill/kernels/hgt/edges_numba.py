"""The edges of HGT's attention for one head, compiled. See ``edges_torch``, which has the same functions.

A target's edges are consecutive: their logits are computed, then the softmax, then the sum of the values, while the
target's rows stay in the L1 cache. In the backward pass the same edges are followed once more by their sources, so that
every thread writes only to rows of its own, and sums have one order.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.runtime.compiled_math import exp
from graphmill.kernels.runtime.jit import jit_fast
from graphmill.kernels.runtime.team import even_pieces, over_ranges

if TYPE_CHECKING:
    from graphmill.kernels.hgt.by_type import Inbox

_SIXTEENS = {16: (0,), 32: (0, 0), 64: (0, 0, 0, 0)}
"""Widths of a head that are compile-time constants (:func:`_width`). For others, loops have remainders."""
_Edges = namedtuple("_Edges", "source indptr dropped pieces sixteens width")
_Forward = namedtuple("_Forward", "edges q keys values logits out total top")
_Targets = namedtuple("_Targets", "edges q d_out keys values log_total delta alpha slope d_q")
_Sources = namedtuple("_Sources", "order target bounds pieces sixteens width q d_out alpha slope d_k d_v")


def attend(
    inbox: Inbox, q: Tensor, keys: Tensor, values: Tensor, dropped: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`graphmill.kernels.hgt.edges_torch.attend`."""
    out, (total, top) = torch.empty_like(q), q.new_empty(2, len(q))
    logits, edges = q.new_empty(len(inbox.source)), _edges(inbox, q.shape[1], dropped)
    call = _Forward(edges, *(_flat(t) for t in (q, keys, values, logits, out, total, top)))
    over_ranges(_forward, call, len(edges.pieces) - 1, len(inbox.source) * q.shape[1])
    return out, total, top


def gradients(
    inbox: Inbox, targets: tuple[Tensor, Tensor, Tensor, Tensor], keys: Tensor, values: Tensor, dropped: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`graphmill.kernels.hgt.edges_torch.gradients`."""
    q, d_out, log_total, delta = targets
    width, work = q.shape[1], len(inbox.source) * q.shape[1]
    d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(keys), torch.empty_like(values)
    alpha, slope = q.new_empty(2, len(inbox.source))
    edges = _edges(inbox, width, dropped)
    rows = (q, d_out, keys, values, log_total.contiguous(), delta.contiguous(), alpha, slope, d_q)
    over_ranges(_targets, _Targets(edges, *(_flat(t) for t in rows)), len(edges.pieces) - 1, work)
    index = tuple(t.numpy() for t in inbox.transposed)
    pieces = even_pieces(index[2])
    known = (*index, pieces, _SIXTEENS.get(width, ()), width)
    into = (q, d_out, alpha, slope, d_k, d_v)
    over_ranges(_sources, _Sources(*known, *(_flat(t) for t in into)), len(pieces) - 1, work)
    return d_q, d_k, d_v


def _edges(inbox: Inbox, width: int, dropped: Tensor | None) -> _Edges:
    mask = np.zeros(0, np.bool_) if dropped is None else dropped.numpy()
    indptr = inbox.indptr.numpy()
    return _Edges(inbox.source.numpy(), indptr, mask, even_pieces(indptr, 1), _SIXTEENS.get(width, ()), width)


def _flat(x: Tensor) -> np.ndarray:
    return x.detach().view(-1).numpy()


@jit_fast
def _width(sixteens: Any, width: int) -> int:
    """The head's width: a compile-time constant if ``sixteens``, whose length is one, is not empty."""
    return 16 * len(sixteens) if len(sixteens) > 0 else width


@jit_fast
def _forward(call: Any, first: int, last: int) -> None:
    edges, q, keys, values, logits, out = call.edges, call.q, call.keys, call.values, call.logits, call.out
    source, indptr, dropped, width = edges.source, edges.indptr, edges.dropped, _width(edges.sixteens, edges.width)
    zero, lowest = logits.dtype.type(0), logits.dtype.type(-np.inf)
    for i in range(edges.pieces[first], edges.pieces[last]):
        begin, end, at, top, total = indptr[i], indptr[i + 1], i * width, lowest, zero
        for e in range(begin, end):
            place, x = np.int64(source[e]) * width, zero
            for c in range(width):
                x += q[at + c] * keys[place + c]
            logits[e] = lowest if len(dropped) > 0 and dropped[e] else x
            top = max(top, logits[e])
        if top > lowest:
            for e in range(begin, end):
                p = exp(logits[e] - top)
                logits[e] = p
                total += p
        for c in range(width):
            out[at + c] = zero
        if total > zero:
            for e in range(begin, end):
                place, p = np.int64(source[e]) * width, logits[e] / total
                for c in range(width):
                    out[at + c] += p * values[place + c]
        call.total[i], call.top[i] = total, top


@jit_fast
def _targets(call: Any, first: int, last: int) -> None:
    edges, q, d_out, keys, values, d_q = call.edges, call.q, call.d_out, call.keys, call.values, call.d_q
    source, indptr, dropped, width = edges.source, edges.indptr, edges.dropped, _width(edges.sixteens, edges.width)
    alpha, slope, zero = call.alpha, call.slope, call.alpha.dtype.type(0)
    for i in range(edges.pieces[first], edges.pieces[last]):
        begin, end, at, shift, delta = indptr[i], indptr[i + 1], i * width, call.log_total[i], call.delta[i]
        for e in range(begin, end):
            place, x, y = np.int64(source[e]) * width, zero, zero
            for c in range(width):
                x += q[at + c] * keys[place + c]
                y += d_out[at + c] * values[place + c]
            alpha[e], slope[e] = x, y
        for e in range(begin, end):
            a = exp(alpha[e] - shift)
            alpha[e] = zero if len(dropped) > 0 and dropped[e] else a
            slope[e] = alpha[e] * (slope[e] - delta)
        for c in range(width):
            d_q[at + c] = zero
        for e in range(begin, end):
            place, x = np.int64(source[e]) * width, slope[e]
            for c in range(width):
                d_q[at + c] += x * keys[place + c]


@jit_fast
def _sources(call: Any, first: int, last: int) -> None:
    order, target, bounds, width = call.order, call.target, call.bounds, _width(call.sixteens, call.width)
    q, d_out, alpha, slope, d_k, d_v = call.q, call.d_out, call.alpha, call.slope, call.d_k, call.d_v
    zero = alpha.dtype.type(0)
    for i in range(call.pieces[first], call.pieces[last]):
        at = i * width
        for c in range(width):
            d_k[at + c] = zero
            d_v[at + c] = zero
        for j in range(bounds[i], bounds[i + 1]):
            place, x, y = np.int64(target[j]) * width, slope[order[j]], alpha[order[j]]
            for c in range(width):
                d_k[at + c] += x * q[place + c]
                d_v[at + c] += y * d_out[place + c]
