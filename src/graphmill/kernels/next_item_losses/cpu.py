"""Scores of chosen items for the CPU, compiled: no item vector is ever copied, forward or back."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from graphmill.kernels.runtime.compiled_math import FAST, exp, owner
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vector_math import total
from graphmill.kernels.runtime.vectors import LANES, address, load_first, spread, store_first

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
_ROWS, _LARGE = 512, 1e300
"""Rows whose losses are one part: 512 factors of at most 2 are a number still; more of them are looked at."""


def scores(states: Tensor, table: Tensor, items: Tensor) -> Tensor:
    """states [N, d], table [I, d], items int64 [N, k], all contiguous, one dtype → state_n · table[items_nk], [N, k]."""
    out = states.new_empty(items.shape)
    arrays = (states.detach().numpy(), table.detach().numpy(), items.numpy(), out.numpy())
    over_ranges(_scores, arrays, len(states), items.numel() * states.shape[1])
    return out


def states_gradient(gradient: Tensor, table: Tensor, items: Tensor) -> Tensor:
    """[N, d]: Σ_k gradient_nk · table[items_nk]."""
    out = table.new_empty(len(items), table.shape[1])
    arrays = (gradient.detach().numpy(), table.detach().numpy(), items.numpy(), out.numpy())
    over_ranges(_states, arrays, len(items), items.numel() * table.shape[1])
    return out


def add_table_gradient_(into: Tensor, gradient: Tensor, states: Tensor, items: Tensor) -> None:
    """``into`` [I, d] at items_nk += gradient_nk · state_n, in the order of n and k. A thread owns some items."""
    threads = max(1, min(torch.get_num_threads(), len(into)))
    arrays = (into.detach().numpy(), gradient.detach().numpy(), states.detach().numpy(), items.numpy(), threads)
    over_ranges(_table, arrays, threads, items.numel() * states.shape[1])


def logistic(
    states: Tensor, table: Tensor, rows: Tensor, items: Tensor, of_positive: float, of_negative: float
) -> tuple[Tensor, Tensor]:
    """Of states [R, d] at ``rows`` int64 [N] and ``items`` int64 [N, 1 + k] the loss, in parts, and slopes [N, 1 + k].

    A negative of −1 is none. An item that is not there raises IndexError.
    """
    asked = (
        ("row", rows, 0, len(states)),
        ("target", items[:, 0], 0, len(table)),
        ("item", items[:, 1:], -1, len(table)),
    )
    for name, numbers, lowest, count in asked:
        if numbers.numel() and not lowest <= int(numbers.min()) <= int(numbers.max()) < count:
            raise IndexError(f"{name}s from {int(numbers.min())} to {int(numbers.max())}, where there are {count}")
    parts = -(-len(rows) // _ROWS)
    losses, slopes = states.new_empty(parts, dtype=torch.float64), states.new_empty(items.shape)
    flat = (states.detach().view(-1).numpy(), table.detach().view(-1).numpy())
    arrays = (*flat, states.shape[1], rows.numpy(), items.numpy(), losses.numpy(), slopes.numpy())
    over_ranges(_logistic, (*arrays, of_positive, of_negative), parts, items.numel() * states.shape[1])
    return losses, slopes


def logistic_states_gradient(slopes: Tensor, table: Tensor, rows: Tensor, items: Tensor, count: int) -> Tensor:
    """[count, d]: at rows_n Σ_k slopes_nk · table[items_nk], zero elsewhere."""
    out = table.new_zeros(count, table.shape[1])
    flat = (table.detach().view(-1).numpy(), out.view(-1).numpy())
    arrays = (*flat, table.shape[1], slopes.detach().numpy(), rows.numpy(), items.numpy())
    over_ranges(_logistic_states, arrays, len(rows), items.numel() * table.shape[1])
    return out


def add_logistic_gradient_(into: Tensor, slopes: Tensor, states: Tensor, rows: Tensor, items: Tensor) -> None:
    """``into`` [I, d] at items_nk += slopes_nk · states[rows_n], in the order of n and k. A thread owns some items."""
    threads = max(1, min(torch.get_num_threads(), len(into)))
    flat = (into.detach().view(-1).numpy(), states.detach().view(-1).numpy())
    arrays = (*flat, states.shape[1], slopes.detach().numpy(), rows.numpy(), items.numpy(), threads)
    over_ranges(_logistic_table, arrays, threads, items.numel() * states.shape[1])


@_jit
def _logistic(arguments: Any, first: int, last: int) -> None:
    states, table, width, rows, items, losses, slopes, of_positive, of_negative = arguments
    ours, theirs, nothing = address(states), address(table), spread(states.dtype.type(0))
    kind = states.dtype.type
    one, zero, weights = kind(1), kind(0), (kind(of_positive), kind(of_negative))
    for part in range(first, last):
        loss = 0.0
        # softplus is max(x, 0) + log(1 + e^-|x|), and the logarithms are one, of a product.
        right, wrong = 1.0, 1.0
        for n in range(part * _ROWS, min((part + 1) * _ROWS, len(rows))):
            at = rows[n] * width
            for k in range(items.shape[1]):
                if items[n, k] < 0:
                    slopes[n, k] = zero
                    continue
                own, added = items[n, k] * width, nothing
                for c in range(0, width, LANES):
                    added += load_first(ours, at + c, width - c) * load_first(theirs, own + c, width - c)
                score, weight = total(added), weights[1]
                if k == 0:
                    score, weight = -score, weights[0]
                power = exp(-abs(score))
                slope = weight * (one if score >= zero else power) / (one + power)
                # Written so that NaN stays NaN.
                loss += weight * (zero if score < zero else score)
                if k == 0:
                    right *= one + power
                    slopes[n, k] = -slope
                else:
                    wrong *= one + power
                    slopes[n, k] = slope
                    if wrong > _LARGE:
                        loss, wrong = loss + of_negative * math.log(wrong), 1.0
        losses[part] = loss + of_positive * math.log(right) + of_negative * math.log(wrong)


@_jit
def _logistic_states(
    table: Any, out: Any, width: int, slopes: Any, rows: Any, items: Any, first: int, last: int
) -> None:
    theirs, to = address(table), address(out)
    for n in range(first, last):
        at = rows[n] * width
        for c in range(0, width, LANES):
            added = spread(slopes.dtype.type(0))
            for k in range(items.shape[1]):
                own = max(items[n, k], 0) * width + c
                added += spread(slopes[n, k]) * load_first(theirs, own, width - c)
            store_first(to, at + c, added, width - c)


@_jit
def _logistic_table(
    into: Any, states: Any, width: int, slopes: Any, rows: Any, items: Any, threads: int, first: int, last: int
) -> None:
    to, ours = address(into), address(states)
    for n in range(len(rows)):
        at = rows[n] * width
        for k in range(items.shape[1]):
            item = items[n, k]
            if item >= 0 and first <= owner(item, threads) < last:
                own, slope = item * width, spread(slopes[n, k])
                for c in range(0, width, LANES):
                    more = slope * load_first(ours, at + c, width - c)
                    store_first(to, own + c, load_first(to, own + c, width - c) + more, width - c)


@_jit
def _scores(states: Any, table: Any, items: Any, out: Any, first: int, last: int) -> None:
    width = states.shape[1]
    nothing = states.dtype.type(0)
    for n in range(first, last):
        for k in range(items.shape[1]):
            item, total = items[n, k], nothing
            for j in range(width):
                total += states[n, j] * table[item, j]
            out[n, k] = total


@_jit
def _states(gradient: Any, table: Any, items: Any, out: Any, first: int, last: int) -> None:
    width = table.shape[1]
    for n in range(first, last):
        for j in range(width):
            out[n, j] = 0
        for k in range(items.shape[1]):
            item, slope = items[n, k], gradient[n, k]
            for j in range(width):
                out[n, j] += slope * table[item, j]


@_jit
def _table(into: Any, gradient: Any, states: Any, items: Any, threads: int, first: int, last: int) -> None:
    width = states.shape[1]
    for n in range(items.shape[0]):
        for k in range(items.shape[1]):
            item = items[n, k]
            if first <= owner(item, threads) < last:
                slope = gradient[n, k]
                for j in range(width):
                    into[item, j] += slope * states[n, j]
