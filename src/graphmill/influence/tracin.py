"""TracInCP: Σ over checkpoints of learning rate × ∇ℓ(training triple) · ∇ℓ(explained triple), signed.

Positive: a step on the training triple lowered the loss of the explained one (a proponent); negative: it raised it (an
opponent). A triple's gradient is the sum over its labels: one for its tail and one for its head. The system defines the
loss of a label (``training.contract``).

Dot products are of factors ("ghost" products), without a full gradient: (δ_i a_iᵀ) · (δ_j a_jᵀ) = (δ_i · δ_j)(a_i · a_j);
gradients of a table overlap only in rows that both have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.errors import SettingsError
from graphmill.training.contract import Dense, Factor, Outer, RowGradients, Traceable, Tracer


@dataclass(frozen=True)
class TracedCheckpoint:
    """One checkpoint of a training: ``open`` gives the tracer of its weights.

    ``learning_rate`` is that of the next step.
    """

    epoch: int
    learning_rate: float
    open: Callable[[], Tracer]


def influence(
    system: Traceable,
    checkpoints: Sequence[TracedCheckpoint],
    train: np.ndarray,
    explained: np.ndarray,
    batch_size: int = 1024,
    *,
    poll: Callable[[], None] = lambda: None,
) -> np.ndarray:
    """[explained, train] influences: of each of ``train`` int64 [T, 3] on each of ``explained`` int64 [m, 3].

    ``batch_size``: labels differentiated at once. Sums are in the model's dtype.
    """
    total: np.ndarray | None = None
    for checkpoint in checkpoints:
        result = _one_checkpoint(system, checkpoint.open(), train, explained, batch_size, poll)
        result *= checkpoint.learning_rate
        total = result if total is None else total + result
    if total is None:
        raise SettingsError("influence needs at least one checkpoint; train with acceleration.keep_influence: 5")
    return total


def _one_checkpoint(
    system: Traceable,
    tracer: Tracer,
    train: np.ndarray,
    explained: np.ndarray,
    batch_size: int,
    poll: Callable[[], None],
) -> np.ndarray:
    labels = system.traced_labels(explained)
    directions = len(labels)
    right = tracer.label_gradients(labels.reshape(-1, 3))
    mine = system.traced_labels(train).reshape(-1, 3)
    # Labels of one query are adjacent, so that a block computes few queries.
    width = int(mine[:, 1].max()) + 1
    out: np.ndarray | None = None
    order = np.argsort(mine[:, 0] * width + mine[:, 1], kind="stable")
    for start in range(0, len(order), batch_size):
        poll()
        chosen = order[start : start + batch_size]
        left = tracer.label_gradients(mine[chosen])
        # The sum over an explained triple's labels.
        block = pairwise(left, right).view(len(chosen), directions, -1).sum(1).cpu().numpy()
        if out is None:
            out = np.zeros((len(explained), len(train)), dtype=block.dtype)
        owner = chosen % len(train)
        # A block may have both labels of one triple (a self loop of a symmetric relation): add, never overwrite.
        for first in range(directions):
            side = chosen // len(train) == first
            out[:, owner[side]] += block[side].T
    assert out is not None
    return out


def top(influences: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions in [T] of the k strongest proponents (positive, descending) and opponents (negative, ascending).

    Ties are in order of position, so that the order does not depend on the computation.
    """
    order = np.argsort(-influences, kind="stable")
    first, last = order[:k], np.argsort(influences, kind="stable")[:k]
    return first[influences[first] > 0], last[influences[last] < 0]


def pairwise(left: Sequence[Factor], right: Sequence[Factor]) -> Tensor:
    """[n, m]: the dot product of every gradient of ``left`` with every one of ``right``, over all parameters."""
    matched = _matched(left, right)
    dense = [(mine.values, theirs.values) for mine, theirs in matched if isinstance(mine, Dense)]
    sides = [torch.cat(side, dim=1) for side in zip(*dense, strict=True)]
    others = (
        (_outer_pairs if isinstance(mine, Outer) else _row_pairs)(mine, theirs)
        for mine, theirs in matched
        if not isinstance(mine, Dense)
    )
    return reduce(Tensor.add_, chain([sides[0] @ sides[1].T] if dense else [], others))


def _matched(left: Sequence[Factor], right: Sequence[Factor]) -> list[tuple[Any, Any]]:
    """The factors of each parameter of ``left``, which have the same form."""
    if not left:
        raise ValueError("no factor is left to take a product of")
    other = {factor.parameter: factor for factor in right}
    for mine in left:
        if type(other[mine.parameter]) is not type(mine):
            raise ValueError(f"gradients of '{mine.parameter}' come in different forms")
    return [(mine, other[mine.parameter]) for mine in left]


def _outer_pairs(a: Outer, b: Outer) -> Tensor:
    return (a.left @ b.left.T).mul_((a.right @ b.right.T)[:, b.which][a.which])


def _row_pairs(a: RowGradients, b: RowGradients) -> Tensor:
    def parts() -> Iterator[Tensor]:
        for keys, values in zip(b.keys, b.values, strict=True):
            for each, mine in zip(a.keys, a.values, strict=True):
                yield (mine @ values.T) * (each[:, None] == keys[None, :])
            if a.spread is not None and a.which is not None:
                coefficients, directions = a.spread
                yield ((directions @ values.T) * coefficients[:, keys])[a.which]
        if b.spread is None or b.which is None:
            return
        coefficients, directions = b.spread
        for each, mine in zip(a.keys, a.values, strict=True):
            yield ((mine @ directions.T) * coefficients[:, each].T)[:, b.which]
        if a.spread is not None and a.which is not None:
            products = (a.spread[0] @ b.spread[0].T) * (a.spread[1] @ b.spread[1].T)
            yield products[a.which][:, b.which]

    return reduce(Tensor.add_, parts())
