"""Dot products of per-example gradients from their factors ("ghost" products), without computing a full gradient.

(δ_i a_iᵀ) · (δ_j a_jᵀ) = (δ_i · δ_j)(a_i · a_j); gradients of a table overlap only in rows that both have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from graphmill.training.gradients import Dense, Factor, Outer, RowGradients

Scales = Mapping[str, Tensor]
"""Parameter → what each entry of its gradient is multiplied by (preconditioning), in the order of the factors."""


def pairwise(left: Sequence[Factor], right: Sequence[Factor], scales: Scales | None = None) -> Tensor:
    """[n, m]: the dot product of every gradient of ``left`` with every one of ``right``, over all parameters.

    ``right`` must not have gradients of whole tables. With ``scales`` P: Σ_p P_p · left_p · right_p.
    """
    other = {factor.parameter: factor for factor in right}
    dense = [f for f in left if isinstance(f, Dense)]
    total: Tensor | None = None
    if dense:
        mine = torch.cat([f.values for f in dense], dim=1)
        theirs = torch.cat([_scaled(other[f.parameter], scales) for f in dense], dim=1)
        total = mine @ theirs.T
    for factor in left:
        if isinstance(factor, Outer):
            part = _outer_pairs(factor, _as(Outer, other[factor.parameter]), _of(scales, factor.parameter))
        elif isinstance(factor, RowGradients):
            part = _row_pairs(factor, _as(RowGradients, other[factor.parameter]), _of(scales, factor.parameter))
        else:
            continue
        total = part if total is None else total.add_(part)
    if total is None:
        raise ValueError("no factor is left to take a product of")
    return total


def paired(left: Sequence[Factor], right: Sequence[Factor], scales: Scales | None = None) -> Tensor:
    """[n]: the dot product of each gradient of ``left`` with the one of ``right`` at the same place."""
    other = {factor.parameter: factor for factor in right}
    total: Tensor | None = None
    for factor in left:
        theirs, scale = other[factor.parameter], _of(scales, factor.parameter)
        if isinstance(factor, Dense):
            part = (factor.values * _scaled(theirs, scales)).sum(1)
        elif isinstance(factor, Outer):
            part = _outer_paired(factor, _as(Outer, theirs), scale)
        else:
            part = _row_paired(factor, _as(RowGradients, theirs), scale)
        total = part if total is None else total + part
    if total is None:
        raise ValueError("no factor is left to take a product of")
    return total


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
    if b.spread is not None:
        raise ValueError("the right-hand gradients may not spread over a whole table")
    total: Tensor | None = None
    for keys, values in zip(b.keys, b.values, strict=True):
        weighed = values if scale is None else values * _rows_of(scale, keys)
        parts = [
            (mine @ weighed.T) * (own[:, None] == keys[None, :]) for own, mine in zip(a.keys, a.values, strict=True)
        ]
        if a.spread is not None and a.which is not None:
            coefficients, directions = a.spread
            parts.append(((directions @ weighed.T) * coefficients[:, keys])[a.which])
        for part in parts:
            total = part if total is None else total.add_(part)
    assert total is not None
    return total


def _row_paired(a: RowGradients, b: RowGradients, scale: Tensor | None) -> Tensor:
    """Products of rows with rows, of rows with a whole-table gradient, and (if both have one) of two whole-table
    gradients."""
    terms: list[Tensor] = []
    for own, mine in zip(a.keys, a.values, strict=True):
        weighed = mine if scale is None else mine * _rows_of(scale, own)
        terms += [(weighed * values).sum(1) * (own == keys) for keys, values in zip(b.keys, b.values, strict=True)]
        terms += _against_spread(own, weighed, b)
    for keys, values in zip(b.keys, b.values, strict=True):
        terms += _against_spread(keys, values if scale is None else values * _rows_of(scale, keys), a)
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


def _rows_of(scale: Tensor, keys: Tensor) -> Tensor:
    return scale.view(len(scale), -1)[keys]


def _scaled(factor: Factor, scales: Scales | None) -> Tensor:
    values = _as(Dense, factor).values
    scale = _of(scales, factor.parameter)
    return values if scale is None else values * scale.reshape(-1)


def _of(scales: Scales | None, parameter: str) -> Tensor | None:
    return None if scales is None else scales[parameter]


def _as(kind: type, factor: Factor):  # type: ignore[no-untyped-def]
    if not isinstance(factor, kind):
        raise ValueError(f"gradients of '{factor.parameter}' come in different forms")
    return factor
