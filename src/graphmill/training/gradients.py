"""Gradients of single training examples in factored form. A system provides them for influence analysis.

A batch's per-example gradients of a d × F matrix would fill n · d · F numbers; as outer products they are n · (d + F).
Influence analysis needs only dot products, which can be computed from the factors. ``parameter`` names the model's
parameter that a factor belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor, nn


@dataclass(frozen=True)
class Dense:
    """n gradients in full: ``values`` [n, k], where k is the parameter's size."""

    parameter: str
    values: Tensor


@dataclass(frozen=True)
class Outer:
    """n gradients of a matrix [k1, k2], each ``left[i]`` ⊗ ``right[which[i]]``; left [n, k1], right [m, k2]."""

    parameter: str
    left: Tensor
    right: Tensor
    which: Tensor


@dataclass(frozen=True)
class RowGradients:
    """n gradients of a table [N, k], each the sum of a few rows and, optionally, a rank-one matrix.

    Gradient i has ``values[j][i]`` [k] in row ``keys[j][i]``, summed over j. If ``spread`` is given,
    ``spread[0][which[i]]`` ⊗ ``spread[1][which[i]]`` is added: ``spread`` holds coefficients of the rows [m, N] and
    directions [m, k].
    """

    parameter: str
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    spread: tuple[Tensor, Tensor] | None = None
    which: Tensor | None = None


Factor = Dense | Outer | RowGradients


class Tracer(Protocol):
    """Per-example gradients of one model, with dropout off and batch norms in eval mode."""

    def label_gradients(self, labels: np.ndarray) -> list[Factor]:
        """``labels`` int64 [n, 3], (head, relation or inverse, tail) → gradient of each label's term of its row's loss."""


class Traceable(Protocol):
    """A system whose training examples are triples and which provides factored gradients."""

    def tracer(self, model: nn.Module, precision: str) -> Tracer:
        """A :class:`Tracer` for the current weights of ``model``."""

    def traced_triples(self, split: str) -> np.ndarray:
        """int64 [T, 3]: the triples of a split in global numbers, without inverses."""

    def traced_labels(self, triples: np.ndarray) -> np.ndarray:
        """int64 [directions, T, 3]: the labels that each triple produces."""
