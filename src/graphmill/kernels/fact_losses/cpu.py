"""``fact_losses`` for the CPU, compiled."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from graphmill.kernels.runtime.jit import jit_fast
from graphmill.kernels.runtime.team import over_ranges


def forward(rows: Tensor, translations: Tensor, relations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each fact the loss, the norm, and its factor in the gradient, [B] each."""
    losses, norms, pulls = rows.new_empty(3, len(rows))
    arrays = [t.detach().numpy() for t in (rows, translations, relations, losses, norms, pulls)]
    over_ranges(_forward, tuple(arrays), len(rows), rows.numel())
    return losses, norms, pulls


def backward(
    rows: Tensor, translations: Tensor, relations: Tensor, pulls: Tensor, loss: float, norm: float
) -> tuple[Tensor, Tensor]:
    """Gradients of both tables. ``loss`` and ``norm`` are the gradients of the two sums."""
    to_rows, to_translations = torch.empty_like(rows), torch.zeros_like(translations)
    given = [t.detach().numpy() for t in (rows, translations, relations, pulls)]
    kind = given[0].dtype.type
    over_ranges(_backward, (*given, to_rows.numpy(), kind(loss), kind(norm)), len(rows), rows.numel())
    _to_translations(*given, to_translations.numpy(), kind(loss), kind(norm))
    return to_rows, to_translations


@jit_fast
def _forward(
    rows: Any, translations: Any, relations: Any, losses: Any, norms: Any, pulls: Any, first: int, last: int
) -> None:
    width, kind = rows.shape[2], rows.dtype.type
    for fact in range(first, last):
        head, tail, wrong = rows[fact, 0], rows[fact, 1], rows[fact, 2]
        move = translations[relations[fact]]
        gap, squares = kind(0), kind(0)
        for j in range(width):
            moved = head[j] + move[j]
            right, false = moved - tail[j], moved - wrong[j]
            gap += right * right - false * false
            squares += head[j] * head[j] + tail[j] * tail[j] + wrong[j] * wrong[j] + move[j] * move[j]
        # softplus and its slope σ, from the exponential that does not overflow
        wide = float(gap)
        power = math.exp(-abs(wide))
        losses[fact] = max(wide, 0.0) + math.log1p(power)
        pulls[fact] = (1.0 if wide >= 0.0 else power) / (1.0 + power)
        norms[fact] = kind(0.5) * squares


@jit_fast
def _backward(
    rows: Any, translations: Any, relations: Any, pulls: Any, to_rows: Any, loss: Any, norm: Any, first: int, last: int
) -> None:
    width, two = rows.shape[2], rows.dtype.type(2)
    for fact in range(first, last):
        head, tail, wrong = rows[fact, 0], rows[fact, 1], rows[fact, 2]
        to_head, to_tail, to_wrong = to_rows[fact, 0], to_rows[fact, 1], to_rows[fact, 2]
        move, pull = translations[relations[fact]], two * loss * pulls[fact]
        for j in range(width):
            moved = head[j] + move[j]
            to_head[j] = norm * head[j] + pull * (wrong[j] - tail[j])
            to_tail[j] = norm * tail[j] - pull * (moved - tail[j])
            to_wrong[j] = norm * wrong[j] + pull * (moved - wrong[j])


@jit_fast
def _to_translations(
    rows: Any, translations: Any, relations: Any, pulls: Any, to_translations: Any, loss: Any, norm: Any
) -> None:
    width, two = rows.shape[2], rows.dtype.type(2)
    for fact in range(len(rows)):
        tail, wrong, relation = rows[fact, 1], rows[fact, 2], relations[fact]
        move, to_move, pull = translations[relation], to_translations[relation], two * loss * pulls[fact]
        for j in range(width):
            to_move[j] += norm * move[j] + pull * (wrong[j] - tail[j])
