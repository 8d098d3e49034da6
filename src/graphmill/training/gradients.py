"""Gradients of single training examples in factored form: what a recipe offers to influence analysis, and no more.

A batch's per-example gradients of a d × F matrix would fill n · d · F numbers; as outer products they are n · (d + F).
Influence analysis needs dot products alone, and those follow from the factors. ``parameter`` names the model's parameter
that a factor belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn


@dataclass(frozen=True)
class Dense:
    """n gradients written out, ``values`` [n, k], k the parameter's size."""

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
    """n gradients of a table [N, k] that are zero but in a few rows, or have rank one over all rows.

    Gradient i has ``values[j][i]`` [k] in row ``keys[j][i]``, added up over j; and, where ``spread`` is given,
    ``spread[0][which[i]]`` ⊗ ``spread[1][which[i]]`` on top: [m, N] coefficients of the rows and [m, k] directions.
    """

    parameter: str
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    spread: tuple[Tensor, Tensor] | None = None
    which: Tensor | None = None


Factor = Dense | Outer | RowGradients


class Tracer(Protocol):
    """Per-example gradients of one model, dropout off and norms with their running statistics."""

    @property
    def layers(self) -> tuple[str, ...]:
        """First parts of the parameters' names, in the order of the forward pass."""

    @property
    def output_parameters(self) -> tuple[str, ...]:
        """Parameters of the last layer."""

    def label_gradients(self, labels: np.ndarray) -> list[Factor]:
        """``labels`` int64 [n, 3], (head, relation or inverse, tail) → gradient of what each label adds to its row."""

    def row_gradients(self, queries: np.ndarray) -> list[Factor]:
        """``queries`` int64 [n, 2] → gradient of the whole row's loss, all candidates, summed."""

    def scale_of(self, parameter: str, values: Tensor) -> Tensor:
        """A tensor of the parameter's shape [k1, ...] in the order in which the factors have their entries."""


@runtime_checkable
class Traceable(Protocol):
    """A recipe whose training examples are triples and whose gradients come in factors."""

    def tracer(self, model: nn.Module, precision: str) -> Tracer:
        """For the weights that ``model`` has now."""

    def traced_triples(self, split: str) -> np.ndarray:
        """int64 [T, 3]: the triples of a split by global numbers, without inverses."""

    def traced_labels(self, triples: np.ndarray) -> np.ndarray:
        """int64 [directions, T, 3]: the labels that each triple gives rise to."""
