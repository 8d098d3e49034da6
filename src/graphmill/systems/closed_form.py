"""The base of systems without gradient steps: one step of one epoch computes all arrays of the model."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from graphmill.errors import InputError, TrainingError
from graphmill.systems.base_system import BaseSystem
from graphmill.training.contract import (
    OldRows,
    ParameterGroup,
    Phase,
    StepSizes,
)
from graphmill.training.solved import SolvedArrays

SOLVE = "solve"
"""The name of the only phase."""
_TIE_BREAK = 1e-12


class ClosedFormSystem(BaseSystem[SolvedArrays], ABC):
    """A subclass computes the arrays ``ARRAYS`` in :meth:`fitted`, and adds its scores and metrics.

    The arrays are the model: checkpoints, exports and versions hold them like the weights of other systems. They stay on
    the CPU. Settings that are 0 are chosen on the validation split within :meth:`fitted`; the chosen values are arrays,
    too, so that an export says them.
    """

    ARRAYS: ClassVar[tuple[str, ...]]
    algorithm_version = 1
    can_checkpoint = False
    phases = (Phase(SOLVE, 1, closed_form=True),)

    @abstractmethod
    def fitted(self, poll: Callable[[], None]) -> Mapping[str, np.ndarray]:
        """Compute the arrays ``ARRAYS``. It calls ``poll`` between parts of the work; ``poll`` may raise to stop."""

    def sampled_seconds(self) -> float:
        """An estimate of the seconds of :meth:`fitted`, from a small part of the work; 0 where the whole takes seconds."""
        return 0.0

    def seconds_to_solve(self) -> float:
        """An estimate of the seconds of :meth:`fitted`: :meth:`sampled_seconds`, or the time of the whole."""
        if seconds := self.sampled_seconds():
            return seconds
        started = time.perf_counter()
        self.fitted(lambda: None)
        return time.perf_counter() - started

    def solve(self, model: SolvedArrays, poll: Callable[[], None]) -> None:
        """Compute the arrays of ``model``.

        Raises:
            TrainingError: a number of an array is not finite; nothing is put into the model.
        """
        arrays = self.fitted(poll)
        for name, array in arrays.items():
            if array.dtype.kind == "f" and not all(np.isfinite(rows).all() for rows in _blocks(array)):
                raise TrainingError(
                    f"{self.name}: '{name}' is not finite; a larger regularisation (settings.model) makes it so"
                )
        model.put(arrays)

    def carry_over(self, model: SolvedArrays, tensors: Mapping[str, Tensor], old: OldRows) -> int:
        """Put :meth:`carried_over` of a model of another graph into ``model``; returns the number of rows that it lacks."""
        arrays, new = self.carried_over({name: tensor.numpy() for name, tensor in tensors.items()}, old)
        model.put(arrays)
        return new

    def carried_over(self, arrays: Mapping[str, np.ndarray], old: OldRows) -> tuple[dict[str, np.ndarray], int]:
        """The ``arrays`` of a model of another graph, as they answer on this one, and the number of rows that they lack.

        Raises:
            InputError: the answers are those of the graph's own links.
        """
        raise InputError(
            f"{self.name} answers by the links of its own graph, so a version of another graph cannot be ranked on this "
            "one: take promote.when: checks_pass"
        )

    # ---------------------------------------------------------------- the contract with the engine, which calls no ``step``

    def build(self, step_sizes: StepSizes) -> SolvedArrays:
        """The model before it is computed: empty arrays."""
        return SolvedArrays(*self.ARRAYS)

    def parameter_groups(self, model: nn.Module, phase: Phase) -> list[ParameterGroup]:
        """Nothing has a gradient."""
        return []

    def row_keys(self, model: nn.Module) -> dict[str, tuple[str, list[str]]]:
        """Nothing is taken over by node id (``init_from``): all of it is computed anew in one step."""
        return {}


def of_items(arrays: Mapping[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    """``arrays`` with other items: ``rows`` int64 [items], the row of each in the arrays; 0 where it is −1.

    Weights between items are square, or the rows of :func:`arrays_of`; ``counts``, ``popularity`` and ``item`` have a row
    for each item.
    """
    here, out = np.flatnonzero(rows >= 0), dict(arrays)
    kept = rows[here]
    if "indptr" in arrays:
        pick = sp.csr_matrix((np.ones(len(here), np.float32), (here, kept)), (len(rows), len(arrays["indptr"]) - 1))
        out |= arrays_of(sp.csr_matrix(pick @ matrix_of(arrays) @ pick.T))
    elif "weights" in arrays:
        out["weights"] = np.zeros((len(rows), len(rows)), np.float32)
        out["weights"][np.ix_(here, here)] = arrays["weights"][np.ix_(kept, kept)]
    for name in out.keys() & {"counts", "popularity", "item"}:
        out[name] = np.zeros((len(rows), *arrays[name].shape[1:]), np.float32)
        out[name][here] = arrays[name][kept]
    return out


def arrays_of(weights: sp.csr_matrix) -> dict[str, np.ndarray]:
    """The rows of weights [I, I]: ``indptr`` int64 [I + 1], ``items`` int32 and ``weights`` float32 [nnz]."""
    return {
        "indptr": weights.indptr.astype(np.int64),
        "items": weights.indices.astype(np.int32),
        "weights": weights.data.astype(np.float32),
    }


def matrix_of(arrays: Mapping[str, np.ndarray]) -> sp.csr_matrix:
    """The inverse of :func:`arrays_of`."""
    indptr = arrays["indptr"]
    return sp.csr_matrix((arrays["weights"], arrays["items"], indptr), (len(indptr) - 1,) * 2)


def with_popularity(scores: Tensor, counts: np.ndarray) -> Tensor:
    """Scores fp32 [B, I] in whose lists items without a score, which have nothing in common with a user, come by their
    ``counts`` [I] of interactions."""
    return scores + torch.from_numpy((_TIE_BREAK * counts).astype(np.float32))


def _blocks(array: np.ndarray, numbers: int = 1 << 22) -> Iterator[np.ndarray]:
    """Blocks of rows, so that a test of a large array needs little memory."""
    step = max(numbers // max(array[:1].size, 1), 1)
    return (array[start : start + step] for start in range(0, len(array), step))
