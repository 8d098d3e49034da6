"""Dot products of per-example gradients from their factors ("ghost" products), without computing a full gradient.

(δ_i a_iᵀ) · (δ_j a_jᵀ) = (δ_i · δ_j)(a_i · a_j); gradients of a table overlap only in rows that both have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from graphmill.training.gradients import Dense, Factor, Outer, RowGradients


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
