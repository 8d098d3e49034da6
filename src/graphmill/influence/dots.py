"""Dot products of per-example gradients from their factors ("ghost" products), without computing a full gradient.

(δ_i a_iᵀ) · (δ_j a_jᵀ) = (δ_i · δ_j)(a_i · a_j); gradients of a table overlap only in rows that both have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from graphmill.training.gradients import Dense, Factor, Outer, RowGradients

Scales = Mapping[str, Tensor]
"""Parameter → what each entry of its gradient is multiplied by (preconditioning), in the order of the factors."""


def pairwise(left: Sequence[Factor], right: Sequence[Factor], scales: Scales | None = None) -> Tensor:
    """[n, m]: the dot product of every gradient of ``left`` with every one of ``right``, over all parameters.

    With ``scales`` P: Σ_p P_p · left_p · right_p.
    """
    matched = _matched(left, right, scales)
    dense = [(mine.values, _scaled(theirs, scale)) for mine, theirs, scale in matched if isinstance(mine, Dense)]
    sides = [torch.cat(side, dim=1) for side in zip(*dense, strict=True)]
    others = (
        (_outer_pairs if isinstance(mine, Outer) else _row_pairs)(mine, theirs, scale)
        for mine, theirs, scale in matched
        if not isinstance(mine, Dense)
    )
    return reduce(Tensor.add_, chain([sides[0] @ sides[1].T] if dense else [], others))


def paired(left: Sequence[Factor], right: Sequence[Factor], scales: Scales | None = None) -> Tensor:
    """[n]: the dot product of each gradient of ``left`` with the one of ``right`` at the same place."""
    ways: dict[type, Callable[..., Tensor]] = {Dense: _dense_paired, Outer: _outer_paired, RowGradients: _row_paired}
    return reduce(Tensor.add_, (ways[type(mine)](mine, *other) for mine, *other in _matched(left, right, scales)))


def _matched(
    left: Sequence[Factor], right: Sequence[Factor], scales: Scales | None
) -> list[tuple[Any, Any, Tensor | None]]:
    """The factors of each parameter of ``left``, which have the same form, and the parameter's scales."""
    if not left:
        raise ValueError("no factor is left to take a product of")
    other = {factor.parameter: factor for factor in right}
    for mine in left:
        if type(other[mine.parameter]) is not type(mine):
            raise ValueError(f"gradients of '{mine.parameter}' come in different forms")
    return [(mine, other[mine.parameter], None if scales is None else scales[mine.parameter]) for mine in left]


def _dense_paired(a: Dense, b: Dense, scale: Tensor | None) -> Tensor:
    return (a.values * _scaled(b, scale)).sum(1)


def _outer_pairs(a: Outer, b: Outer, scale: Tensor | None) -> Tensor:
    if scale is None:
        return (a.left @ b.left.T).mul_((a.right @ b.right.T)[:, b.which][a.which])
    # With a weight per entry the product does not factorise: take one right-hand matrix at a time.
    out = a.left.new_empty(len(a.left), len(b.left))
    for column, (left, which) in enumerate(zip(b.left, b.which.tolist(), strict=True)):
        matrix = scale * torch.outer(left, b.right[which])
        out[:, column] = ((a.right @ matrix.T)[a.which] * a.left).sum(1)
    return out


def _outer_paired(a: Outer, b: Outer, scale: Tensor | None) -> Tensor:
    right = a.right[a.which] * b.right[b.which]
    if scale is None:
        return (a.left * b.left).sum(1) * right.sum(1)
    return (((a.left * b.left) @ scale) * right).sum(1)


def _row_pairs(a: RowGradients, b: RowGradients, scale: Tensor | None) -> Tensor:
    def parts() -> Iterator[Tensor]:
        for keys, values in zip(b.keys, b.values, strict=True):
            weighed = _weighed(values, keys, scale)
            for each, mine in zip(a.keys, a.values, strict=True):
                yield (mine @ weighed.T) * (each[:, None] == keys[None, :])
            if a.spread is not None and a.which is not None:
                coefficients, directions = a.spread
                yield ((directions @ weighed.T) * coefficients[:, keys])[a.which]
        if b.spread is None or b.which is None:
            return
        coefficients, directions = b.spread
        for each, mine in zip(a.keys, a.values, strict=True):
            yield ((_weighed(mine, each, scale) @ directions.T) * coefficients[:, each].T)[:, b.which]
        if a.spread is not None and a.which is not None:
            yield _spread_pairs(a.spread, b.spread, scale)[a.which][:, b.which]

    return reduce(Tensor.add_, parts())


def _spread_pairs(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], scale: Tensor | None) -> Tensor:
    if scale is None:
        return (a[0] @ b[0].T) * (a[1] @ b[1].T)
    weights = scale.view(len(scale), -1)
    columns = [((a[0] * rows) @ weights * a[1]) @ along for rows, along in zip(*b, strict=True)]
    return torch.stack(columns, dim=1)


def _row_paired(a: RowGradients, b: RowGradients, scale: Tensor | None) -> Tensor:
    """Products of rows with rows, of rows with a whole-table gradient, and (if both have one) of two whole-table
    gradients."""
    terms: list[Tensor] = []
    for each, mine in zip(a.keys, a.values, strict=True):
        weighed = _weighed(mine, each, scale)
        terms += [(weighed * values).sum(1) * (each == keys) for keys, values in zip(b.keys, b.values, strict=True)]
        terms += _against_spread(each, weighed, b)
    for keys, values in zip(b.keys, b.values, strict=True):
        terms += _against_spread(keys, _weighed(values, keys, scale), a)
    if a.spread is not None and b.spread is not None and a.which is not None and b.which is not None:
        rows = a.spread[0][a.which] * b.spread[0][b.which]
        along = a.spread[1][a.which] * b.spread[1][b.which]
        if scale is None:
            terms.append(rows.sum(1) * along.sum(1))
        else:
            terms.append(((rows @ scale.view(len(scale), -1)) * along).sum(1))
    return torch.stack(terms).sum(0)


def _against_spread(keys: Tensor, values: Tensor, other: RowGradients) -> list[Tensor]:
    if other.spread is None or other.which is None:
        return []
    coefficients = other.spread[0][other.which, keys]
    return [coefficients * (values * other.spread[1][other.which]).sum(1)]


def _weighed(values: Tensor, keys: Tensor, scale: Tensor | None) -> Tensor:
    return values if scale is None else values * scale.view(len(scale), -1)[keys]


def _scaled(factor: Dense, scale: Tensor | None) -> Tensor:
    return factor.values if scale is None else factor.values * scale.reshape(-1)
