"""``pair_losses`` for the CPU, compiled.

In the backward pass, each thread has 16 or more columns of all rows, so that no two threads add to one number.
"""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import numpy as np
from torch import Tensor

from graphmill.kernels.runtime.compiled_math import exp
from graphmill.kernels.runtime.jit import jit_fast
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vector_math import total
from graphmill.kernels.runtime.vectors import (
    LANES,
    address,
    fetch,
    hold,
    like,
    load,
    load_first,
    padded,
    spread,
    store,
    store_first,
)

_AHEAD = 8
"""Number of negatives of a pair by which rows are prefetched, because their order is random."""
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
    arrays = (*tables, losses.numpy(), norms.numpy(), pulls.numpy(), together)
    over_ranges(_forward, arrays, count, item_rows.numel() * users.shape[1])
    return losses, norms, pulls


def backward(
    users: Tensor, items: Tensor, user_rows: Tensor, item_rows: Tensor, pulls: Tensor, loss: float, norm: float,
    to_users: Tensor | None, to_items: Tensor | None,
) -> None:  # fmt: skip
    """Add the gradients to ``to_users`` [U, d] and ``to_items`` [I, d], each unless it is None.

    ``loss`` and ``norm`` are the gradients of the two sums.
    """
    width, nothing = users.shape[1], users.new_empty(0, users.shape[1])
    tables = (users.detach().numpy(), items.detach().numpy(), user_rows.numpy(), item_rows.numpy(), pulls.numpy())
    sums = ((nothing if t is None else t).detach().numpy() for t in (to_users, to_items))
    kind = tables[0].dtype.type
    asked = (to_users is not None, to_items is not None)
    arguments = _Backward._make((*tables, kind(loss), kind(norm), *sums, *asked))
    over_ranges(_backward, arguments, -(-width // LANES), item_rows.numel() * width)


@jit_fast
def _forward(
    users: Any, items: Any, user_rows: Any, item_rows: Any, losses: Any, norms: Any, pulls: Any, together: bool,
    first: int, last: int,
) -> None:  # fmt: skip
    # Explicit vectors: whether LLVM vectorises a loop that stores to what it reads depends on the arrays' addresses,
    # and this would change the order of sums.
    width, others = users.shape[1], pulls.shape[1]
    kind = users.dtype.type
    zero, half, nothing = kind(0), kind(0.5), spread(users.dtype.type(0))
    of_user, of_item = address(users), address(items)
    for pair in range(first, last):
        user, own = user_rows[pair] * width, item_rows[pair, 0] * width
        products, squares, theirs = nothing, nothing, nothing
        for c in range(0, width, LANES):
            mine, other = load_first(of_user, user + c, width - c), load_first(of_item, own + c, width - c)
            products += mine * other
            squares += mine * mine + other * other
        score, highest = total(products), zero
        for n in range(others):
            if n + _AHEAD < others:
                fetch(items, item_rows[pair, n + 1 + _AHEAD] * width, width)
            place, products = item_rows[pair, n + 1] * width, nothing
            for c in range(0, width, LANES):
                other = load_first(of_item, place + c, width - c)
                products += load_first(of_user, user + c, width - c) * other
                theirs += other * other
            gap = total(products) - score
            pulls[pair, n] = gap
            highest = max(highest, gap)
        losses[pair] = _shares(pulls[pair], highest) if together else _each(pulls[pair])
        norms[pair] = half * (total(squares) + total(theirs) / kind(others))


@jit_fast
def _shares(gaps: Any, highest: Any) -> Any:
    """log(1 + Σ exp gap); replaces each gap by its exponential's share of the sum. ``highest``: largest gap, or 0."""
    total = exp(-highest)
    for n in range(len(gaps)):
        gaps[n] = exp(gaps[n] - highest)
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
    width, others = call.users.shape[1], pulls.shape[1]
    begin, end = first * LANES, min(last * LANES, width)
    size = end - begin
    # With plain numba loops, output and input might overlap, and the loops would not be vectorised.
    room = np.empty(padded(size), call.users.dtype)
    sums, of_user, of_item = address(room), address(call.users), address(items)
    onto_user, onto_item = address(call.to_users), address(to_items)
    each, own_share = spread(call.norm / like(call.norm, others)), spread(call.norm)
    for pair in range(len(user_rows)):
        user, own = user_rows[pair] * width + begin, item_rows[pair, 0] * width + begin
        for c in range(0, size, LANES):
            store(sums, c, own_share * load_first(of_user, user + c, size - c))
        pulled = like(call.norm, 0)
        for n in range(others):
            if n + _AHEAD < others:
                ahead = item_rows[pair, n + 1 + _AHEAD] * width + begin
                fetch(items, ahead, size)
                if call.of_items:
                    fetch(to_items, ahead, size)
            other, pull = item_rows[pair, n + 1] * width + begin, pulls[pair, n] * call.loss
            pulled += pull
            factor = spread(pull)
            for c in range(0, size, LANES):
                theirs = load_first(of_item, other + c, size - c)
                store(sums, c, load(sums, c) + factor * theirs)
                if call.of_items:
                    more = factor * load_first(of_user, user + c, size - c) + each * theirs
                    store_first(onto_item, other + c, load_first(onto_item, other + c, size - c) + more, size - c)
        factor = spread(pulled)
        for c in range(0, size, LANES):
            mine, theirs = load_first(of_user, user + c, size - c), load_first(of_item, own + c, size - c)
            if call.of_items:
                more = own_share * theirs - factor * mine
                store_first(onto_item, own + c, load_first(onto_item, own + c, size - c) + more, size - c)
            if call.of_users:
                more = load(sums, c) - factor * theirs
                store_first(onto_user, user + c, load_first(onto_user, user + c, size - c) + more, size - c)
    hold(room)
