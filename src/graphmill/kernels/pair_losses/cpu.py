"""``pair_losses`` for the CPU, compiled.

In the backward pass, each thread has some columns of all rows, so that no two threads add to one number.
"""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import numpy as np
from torch import Tensor

from graphmill.kernels.runtime.jit import jit_fast
from graphmill.kernels.runtime.threads import over_ranges

_COLUMNS = 16
"""Columns of a thread's unit of work in the backward pass: a cache line of fp32."""
_Forward = namedtuple("_Forward", "users items user_rows item_rows losses norms pulls together")
_Backward = namedtuple(
    "_Backward", "users items user_rows item_rows pulls loss norm to_users to_items of_users of_items"
)


def forward(
    users: Tensor, items: Tensor, user_rows: Tensor, item_rows: Tensor, together: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """For each pair the loss [B] and the norm [B], and for each negative its factor in the gradient [B, k]."""
    count, others = len(user_rows), item_rows.shape[1] - 1
    losses, norms, pulls = users.new_empty(count), users.new_empty(count), users.new_empty(count, others)
    tables = (users.detach().numpy(), items.detach().numpy(), user_rows.numpy(), item_rows.numpy())
    call = _Forward(*tables, losses.numpy(), norms.numpy(), pulls.numpy(), together)
    over_ranges(_forward, call, count, item_rows.numel() * users.shape[1])
    return losses, norms, pulls


def backward(
    users: Tensor, items: Tensor, user_rows: Tensor, item_rows: Tensor, pulls: Tensor, loss: float, norm: float,
    to_users: Tensor | None, to_items: Tensor | None,
) -> None:  # fmt: skip
    """Add the gradients to ``to_users`` [U, d] and ``to_items`` [I, d], each unless it is None.

    ``loss`` and ``norm`` are the gradients of the two sums.
    """
    width, empty = users.shape[1], users.new_empty(0, users.shape[1])
    tables = (users.detach().numpy(), items.detach().numpy(), user_rows.numpy(), item_rows.numpy(), pulls.numpy())
    sums = ((empty if t is None else t).detach().numpy() for t in (to_users, to_items))
    kind = tables[0].dtype.type
    call = _Backward._make((*tables, kind(loss), kind(norm), *sums, to_users is not None, to_items is not None))
    over_ranges(_backward, call, -(-width // _COLUMNS), item_rows.numel() * width)


@jit_fast
def _forward(call: Any, first: int, last: int) -> None:
    users, items, user_rows, item_rows, pulls = call.users, call.items, call.user_rows, call.item_rows, call.pulls
    width, others, kind = users.shape[1], pulls.shape[1], users.dtype.type
    for pair in range(first, last):
        user, positive = users[user_rows[pair]], items[item_rows[pair, 0]]
        score, squares, theirs, highest = kind(0), kind(0), kind(0), kind(0)
        for c in range(width):
            score += user[c] * positive[c]
            squares += user[c] * user[c] + positive[c] * positive[c]
        for n in range(others):
            other, product = items[item_rows[pair, n + 1]], kind(0)
            for c in range(width):
                product += user[c] * other[c]
                theirs += other[c] * other[c]
            pulls[pair, n] = product - score
            highest = max(highest, product - score)
        call.losses[pair] = _shares(pulls[pair], highest) if call.together else _each(pulls[pair])
        call.norms[pair] = kind(0.5) * (squares + theirs / kind(others))


@jit_fast
def _shares(gaps: Any, highest: Any) -> Any:
    """log(1 + Σ exp gap); replaces each gap by its exponential's share of the sum. ``highest``: largest gap, or 0."""
    total = math.exp(-highest)
    for n in range(len(gaps)):
        gaps[n] = math.exp(gaps[n] - highest)
        total += gaps[n]
    for n in range(len(gaps)):
        gaps[n] /= total
    return highest + math.log(total)


@jit_fast
def _each(gaps: Any) -> float:
    """The mean of softplus(gap). Each gap is replaced by its derivative σ in that mean."""
    loss, others = 0.0, len(gaps)
    for n in range(others):
        gap = float(gaps[n])
        # Use the exponential that does not overflow.
        power = math.exp(-abs(gap))
        loss += max(gap, 0.0) + math.log1p(power)
        gaps[n] = (1.0 if gap >= 0.0 else power) / (1.0 + power) / others
    return loss / others


@jit_fast
def _backward(call: Any, first: int, last: int) -> None:
    items, to_items, user_rows, item_rows, pulls = call.items, call.to_items, call.user_rows, call.item_rows, call.pulls
    others, norm, kind = pulls.shape[1], call.norm, call.users.dtype.type
    columns = slice(first * _COLUMNS, min(last * _COLUMNS, call.users.shape[1]))
    each, sums = norm / kind(others), np.empty(columns.stop - columns.start, call.users.dtype)
    for pair in range(len(user_rows)):
        user, positive, pulled = call.users[user_rows[pair], columns], items[item_rows[pair, 0], columns], kind(0)
        for c in range(len(sums)):
            sums[c] = norm * user[c]
        for n in range(others):
            other, pull = items[item_rows[pair, n + 1], columns], pulls[pair, n] * call.loss
            pulled += pull
            for c in range(len(sums)):
                sums[c] += pull * other[c]
            if call.of_items:
                into = to_items[item_rows[pair, n + 1], columns]
                for c in range(len(sums)):
                    into[c] += pull * user[c] + each * other[c]
        if call.of_items:
            into = to_items[item_rows[pair, 0], columns]
            for c in range(len(sums)):
                into[c] += norm * positive[c] - pulled * user[c]
        if call.of_users:
            into = call.to_users[user_rows[pair], columns]
            for c in range(len(sums)):
                into[c] += sums[c] - pulled * positive[c]
