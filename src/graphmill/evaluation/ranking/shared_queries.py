"""Divides an evaluation over several processes: assigns blocks of queries and merges the results.

Whoever evaluates (the training engine) opens :func:`shared` on every rank at the same time; what ranks queries asks
:func:`current_share`. Blocks are those of a single process, dealt out in turn, so every score comes from the same
arithmetic and the merged figures are equal to the last bit. Outside :func:`shared` there is one process, and all is its.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import TrainingError


def _alone(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values


@dataclass
class Share:
    """This process's part. ``add``: the elementwise sum over all ranks; ``interrupted`` and ``stop``: a polite request
    to end, which all ranks must follow together. ``accelerator``: whether scores are made on one; ``parts``: how many times
    smaller than usual a block is to be, where memory has run out.
    """

    rank: int = 0
    world: int = 1
    add: Callable[[NDArray[np.float64]], NDArray[np.float64]] = _alone
    interrupted: Callable[[], bool] = lambda: False
    stop: Callable[[], None] = lambda: None
    blocks: int = 0
    accelerator: bool = False
    parts: int = 1

    def at_once(self, on_cpu: int, on_accelerator: int) -> int:
        """How much a block holds: a CPU's cache decides there, the price of a call on an accelerator."""
        return max((on_accelerator if self.accelerator else on_cpu) // self.parts, 1)

    def takes_next(self) -> bool:
        """Whether the next block is ours. Every rank asks once for every block, in the same order."""
        self.blocks += 1
        return (self.blocks - 1) % self.world == self.rank

    def merge(
        self, arrays: Sequence[NDArray[np.generic]], error: TrainingError | None = None
    ) -> list[NDArray[np.generic]]:
        """Arrays that are zero where the rows are not ours → the whole, on every rank, dtypes kept.

        ``error``: what went wrong here. It is raised on every rank, so that none waits for one that has given up.
        """
        if self.world == 1:
            if error is not None:
                raise error
            return list(arrays)
        flags = [float(error is not None), float(self.interrupted())]
        flat = self.add(np.concatenate([flags, *(np.asarray(a, dtype=np.float64).ravel() for a in arrays)]))
        if flat[0]:
            raise error or TrainingError("scores are not finite (found by another process): the model has diverged")
        if flat[1]:
            self.stop()
        out, offset = [], 2
        for array in arrays:
            part = flat[offset : offset + array.size].reshape(array.shape).astype(array.dtype)
            out.append(part)
            offset += array.size
        return out


_current: ContextVar[Share | None] = ContextVar("share", default=None)


def current_share() -> Share:
    """The share in force; a process of its own where there is none."""
    return _current.get() or Share()


@contextmanager
def shared(share: Share) -> Iterator[None]:
    """Evaluate as one of several ranks inside the block."""
    token = _current.set(share)
    try:
        yield
    finally:
        _current.reset(token)
