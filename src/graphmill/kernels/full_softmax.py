"""Softmax and logistic loss of states against all rows of a table: a block of states at a time, no [states, rows] matrix.

The loss is a scalar, so its gradients can be computed from a block of scores at once, up to a factor that arrives later.
One pass gives the loss and all gradients, and no score is computed twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.devices import part_bytes, wide
from graphmill.kernels.products import add_product_, product

_CPU = torch.device("cpu")

BLOCK_BYTES = 16 << 20
"""Bytes of fp32 scores, or of vectors, in a block on a CPU. Smaller blocks make the products slower; larger ones are not
faster (measured at 2 to 16 MiB)."""


@dataclass(frozen=True)
class Ragged:
    """Any number of targets for each state, in the order of states: ``rows`` int64 [P], beside the targets; ``first`` int64
    [B + 1], on the host: the place of each state's first target, and P."""

    rows: Tensor
    first: np.ndarray


def full_softmax_sum(
    states: Tensor, table: Tensor, target: Tensor, ragged: Ragged | None = None, bias: Tensor | None = None, *,
    smoothing: float = 0.0, parts: int = 1,
) -> Tensor:  # fmt: skip
    """Σ_p −log softmax(states[row of p] · tableᵀ + bias)[target[p]]: [B, d], [I, d], int64 [P], ..., [I] → 0-d.

    ``ragged``: the rows of the targets, where states do not have one target each; no pair of row and target comes twice.
    ``smoothing`` ε: 1 − ε of each term is as above, and ε is the mean of −log softmax over all I rows. ``parts``: about the
    least number of blocks. The sum is at least fp32. Backward may be called once.
    """
    block = states_per_block(len(states), len(table), parts, states.device)
    return _AgainstAll.apply(states, table, target, ragged, bias, partial(_softmax, smoothing=smoothing), block)


def full_logistic_sum(
    states: Tensor, table: Tensor, target: Tensor, ragged: Ragged | None = None, bias: Tensor | None = None, *,
    one: float, zero: float, parts: int = 1,
) -> Tensor:  # fmt: skip
    """Σ_b Σ_i BCE(σ(states[b] · table[i] + bias[i]), y_bi), the 1-N loss of ConvE (Dettmers et al. 2018).

    y is ``one`` for a state and its targets, ``zero`` elsewhere. Arguments and result are as in :func:`full_softmax_sum`.
    """
    block = states_per_block(len(states), len(table), parts, states.device)
    return _AgainstAll.apply(states, table, target, ragged, bias, partial(_logistic, one=one, zero=zero), block)


def states_per_block(states: int, table: int, parts: int = 1, device: torch.device = _CPU) -> int:
    """States whose scores are in memory at a time: as many as fit :data:`BLOCK_BYTES`, more on an accelerator, and at least
    16 where ``parts`` allows it."""
    fit = max(part_bytes(device, BLOCK_BYTES) // (4 * max(table, 1)), 16)
    return max(1, min(fit, -(-states // max(parts, 1))))


def _softmax(scores: Tensor, row: Tensor, place: Tensor, *, smoothing: float) -> Tensor:
    """The loss of a block; its ``scores`` [b, I] become their gradient.

    ``row``, ``place`` int64 [p]: of each target, its row and its place in the flat scores.
    """
    # In place: one exp for the value and the gradient.
    flat = scores.sub_(scores.amax(dim=1, keepdim=True)).view(-1)
    total = (smoothing - 1.0) * flat[place].sum()
    count = scores.new_zeros(len(scores)).index_add_(0, row, scores.new_ones(len(row)))[:, None]
    if smoothing:
        total -= smoothing * (count * scores.mean(1, keepdim=True)).sum()
    norm = scores.exp_().sum(dim=1, keepdim=True)
    total += (count * norm.log()).sum()
    scores.mul_(count / norm)
    flat.index_add_(0, place, flat.new_full(place.shape, smoothing - 1.0))
    if smoothing:
        scores -= count * (smoothing / scores.shape[1])
    return total


def _logistic(scores: Tensor, row: Tensor, place: Tensor, *, one: float, zero: float) -> Tensor:
    """As :func:`_softmax`, of Σ softplus(s) − y s, whose gradient is σ(s) − y."""
    flat = scores.view(-1)
    total = F.softplus(scores).sum() - (one - zero) * flat[place].sum()
    if zero:
        total -= zero * scores.sum()
    scores.sigmoid_().sub_(zero)
    flat.index_add_(0, place, flat.new_full(place.shape, zero - one))
    return total


class _AgainstAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        states, table, target, ragged, bias, loss, block = given
        kind = states.device.type
        low = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype
        sums = wide(states[:0]).dtype
        needs_states, needs_table, _, _, needs_bias, *_ = ctx.needs_input_grad
        first = np.arange(len(states) + 1) if ragged is None else ragged.first
        with torch.autocast(kind, enabled=False):
            items = table.to(low)
            total = torch.zeros((), dtype=sums, device=states.device)
            grad_states = torch.empty_like(states) if needs_states else None
            grad_table = torch.zeros(table.shape, dtype=sums, device=table.device) if needs_table else None
            grad_bias = torch.zeros(len(table), dtype=sums, device=table.device) if needs_bias else None
            for start in range(0, len(states), block):
                end = min(start + block, len(states))
                part, pairs = slice(start, end), slice(int(first[start]), int(first[end]))
                mine = states[part].to(low)
                scores = product(mine, items.T).to(sums)
                if bias is not None:
                    scores += bias
                every = torch.arange(len(mine), device=target.device)
                row = every if ragged is None else ragged.rows[pairs] - start
                total += loss(scores, row, row * len(table) + target[pairs])
                if grad_bias is not None:
                    grad_bias += scores.sum(0)
                slope = scores.to(low)
                if grad_states is not None:
                    grad_states[part] = product(slope, items).to(states.dtype)
                if grad_table is not None:
                    if low == sums:
                        add_product_(grad_table, slope.T, mine)
                    else:
                        grad_table += product(slope.T, mine)
        ctx.gradients = grad_states, grad_table, grad_bias
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("the gradients are scaled in place: backward can be called once only")
        scaled = (None if g is None else g.mul_(gradients[0].to(g.dtype)) for g in ctx.gradients)
        (states, table, bias), ctx.gradients = scaled, None
        return states, table, None, None, bias, None, None
