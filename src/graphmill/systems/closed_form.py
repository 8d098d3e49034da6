"""The base of systems without gradient steps: one step of one epoch computes all arrays of the model."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.errors import TrainingError
from graphmill.systems.base_system import BaseSystem
from graphmill.training.contract import EmbeddingBlock, Encoded, ParameterGroup, Phase, StepBatch, StepSizes, Term
from graphmill.training.solved import SolvedArrays

SOLVE = "solve"
"""The name of the only phase."""


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

    def seconds_to_solve(self) -> float:
        """An estimate of the seconds of :meth:`fitted`. By default it is measured, for systems that take seconds."""
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

    # ---------------------------------------------------------------- the contract with the engine

    def build(self, step_sizes: StepSizes) -> SolvedArrays:
        """The model before it is computed: empty arrays."""
        return SolvedArrays(*self.ARRAYS)

    def parameter_groups(self, model: nn.Module, phase: Phase) -> list[ParameterGroup]:
        """Nothing has a gradient."""
        return []

    def row_keys(self, model: nn.Module) -> dict[str, tuple[str, list[str]]]:
        """Nothing is taken over by node id (``init_from``): all of it is computed anew in one step."""
        return {}

    def step(self, phase: Phase, epoch: int, index: int) -> StepBatch:
        """There is no batch; the engine calls :meth:`solve`."""
        raise NotImplementedError  # never called: the phase is in closed form

    def encode(self, model: nn.Module, batch: Any) -> Encoded | None:
        """There is no batch."""
        raise NotImplementedError  # never called, as above

    def terms(self, model: nn.Module, chunk: Any, encoded: Encoded | None) -> list[Term]:
        """There is no loss."""
        raise NotImplementedError  # never called, as above

    def health(self, model: SolvedArrays) -> dict[str, float]:
        """Nothing: by default there are no vectors that could collapse."""
        return {}

    def embeddings(self, model: SolvedArrays) -> Iterator[EmbeddingBlock]:
        """None by default: a system with vectors yields them."""
        return iter(())


def scores_of(rows: Any, weights: Any) -> Tensor:
    """``rows`` [B, n] sparse times ``weights`` [n, m], dense or sparse: fp32 [B, m]."""
    found = rows @ weights
    return torch.from_numpy(np.asarray(found if isinstance(found, np.ndarray) else found.toarray(), np.float32))


def _blocks(array: np.ndarray, numbers: int = 1 << 22) -> Iterator[np.ndarray]:
    """Blocks of rows, so that a test of a large array needs little memory."""
    step = max(numbers // max(array[:1].size, 1), 1)
    return (array[start : start + step] for start in range(0, len(array), step))
