"""``pair_losses`` for the CPU, compiled."""

from __future__ import annotations

import math
from typing import Any

import numba
import torch
from torch import Tensor

from graphmill.kernels.compiled_math import FAST
from graphmill.kernels.team import in_ranges, over_ranges

_jit = numba.njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)


def forward(users: Tensor, items: Tensor, together: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Of each pair the loss [B] and the norm [B], and [B, k]: how much each negative counts in the gradient."""
    count, others = len(users), items.shape[1] - 1
    losses, norms, pulls = users.new_empty(count), users.new_empty(count), users.new_empty(count, others)
    arrays = (users.detach().numpy(), items.detach().numpy(), losses.numpy(), norms.numpy(), pulls.numpy())
    over_ranges(_forward_ranges, (*arrays, together), count, items.numel())
    return losses, norms, pulls


def backward(users: Tensor, items: Tensor, pulls: Tensor, loss: float, norm: float) -> tuple[Tensor, Tensor]:
    """Gradients of both, ``loss`` and ``norm`` being those of the sums."""
    to_users, to_items = torch.empty_like(users), torch.empty_like(items)
    arrays = (users.detach().numpy(), items.detach().numpy(), pulls.numpy(), to_users.numpy(), to_items.numpy())
    kind = arrays[0].dtype.type
    over_ranges(_backward_ranges, (*arrays, kind(loss), kind(norm)), len(users), items.numel())
    return to_users, to_items


@_jit
def _forward(
    users: Any, items: Any, losses: Any, norms: Any, pulls: Any, together: bool, first: int, last: int
) -> None:
    width, others = users.shape[1], pulls.shape[1]
    kind = users.dtype.type
    zero, half = kind(0), kind(0.5)
    for pair in range(first, last):
        u, own = users[pair], items[pair, 0]
        score, squares = zero, zero
        for j in range(width):
            score += u[j] * own[j]
            squares += u[j] * u[j] + own[j] * own[j]
        loss, theirs, highest = 0.0, zero, 0.0
        for n in range(others):
            other = items[pair, n + 1]
            against = zero
            for j in range(width):
                against += u[j] * other[j]
                theirs += other[j] * other[j]
            gap = float(against - score)
            if together:
                pulls[pair, n] = gap
                highest = max(highest, gap)
                continue
            # softplus and its slope σ, from the exponential that does not overflow
            power = math.exp(-abs(gap))
            loss += max(gap, 0.0) + math.log1p(power)
            pulls[pair, n] = (1.0 if gap >= 0.0 else power) / (1.0 + power) / others
        losses[pair] = _shares(pulls[pair], highest) if together else loss / others
        norms[pair] = half * (squares + theirs / kind(others))


@_jit
def _shares(gaps: Any, highest: float) -> float:
    """log(1 + Σ exp gap); each gap becomes its exponential's share in that sum. ``highest``: the largest of them and 0."""
    total = math.exp(-highest)
    for n in range(len(gaps)):
        gaps[n] = math.exp(gaps[n] - highest)
        total += gaps[n]
    for n in range(len(gaps)):
        gaps[n] /= total
    return highest + math.log(total)


@_jit
def _backward(
    users: Any,
    items: Any,
    pulls: Any,
    to_users: Any,
    to_items: Any,
    loss: Any,
    norm: Any,
    first: int,
    last: int,
) -> None:
    width, others = users.shape[1], pulls.shape[1]
    kind = users.dtype.type
    share = norm / kind(others)
    for pair in range(first, last):
        u, own, to_user, to_own = users[pair], items[pair, 0], to_users[pair], to_items[pair, 0]
        total = kind(0)
        for n in range(others):
            total += pulls[pair, n]
        total *= loss
        for j in range(width):
            to_user[j] = norm * u[j] - total * own[j]
            to_own[j] = norm * own[j] - total * u[j]
        for n in range(others):
            other, to_other, pull = items[pair, n + 1], to_items[pair, n + 1], pulls[pair, n] * loss
            for j in range(width):
                to_user[j] += pull * other[j]
                to_other[j] = pull * u[j] + share * other[j]


@_jit
def _forward_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_forward, arguments, first, last, team)


@_jit
def _backward_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_backward, arguments, first, last, team)
