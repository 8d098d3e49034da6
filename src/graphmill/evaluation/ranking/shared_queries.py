"""Divides an evaluation over several processes: assigns blocks of queries and merges the results.

The training engine opens :func:`shared` on every rank at the same time. Ranking code calls :func:`fill_shared`. The
blocks are the same as with a single process and are assigned in turn, so the merged results are equal bit by bit.
Outside of :func:`shared`, there is one process, which does everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import TrainingError


@dataclass
class Share:
    """This process's share of an evaluation. ``add``: elementwise sum over all ranks. ``interrupted`` and ``stop``: a
    stop request, which all ranks must follow together. ``accelerator``: whether scores are computed on one. ``parts``:
    divisor of the block size, above 1 after memory has run out.
    """

    rank: int = 0
    world: int = 1
    add: Callable[[NDArray[np.float64]], NDArray[np.float64]] = lambda values: values
    interrupted: Callable[[], bool] = lambda: False
    stop: Callable[[], None] = lambda: None
    blocks: int = 0
    accelerator: bool = False
    parts: int = 1

    def at_once(self, on_cpu: int, on_accelerator: int) -> int:
        """The block size: ``on_cpu`` fits the cache, and ``on_accelerator`` is larger because of the cost of each call."""
        return max((on_accelerator if self.accelerator else on_cpu) // self.parts, 1)

    def merge(self, arrays: Sequence[NDArray[Any]], error: TrainingError | None = None) -> list[NDArray[Any]]:
        """Merge arrays that are zero for other ranks' rows: returns the complete arrays on every rank, with the same dtypes.

        ``error``: an error of this rank. It is raised on every rank, so that no rank waits for a failed one.
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
        parts = np.split(flat[2:], np.cumsum([array.size for array in arrays])[:-1])
        return [part.reshape(a.shape).astype(a.dtype) for part, a in zip(parts, arrays, strict=True)]


_current: ContextVar[Share | None] = ContextVar("share", default=None)


def current_share() -> Share:
    """The current share; outside of :func:`shared`, that of a single process."""
    return _current.get() or Share()


def fill_shared(
    arrays: Sequence[NDArray[Any]],
    blocks: Iterable[tuple[int, int]],
    fill: Callable[[int, int], None],
    poll: Callable[[], None] = lambda: None,
) -> list[NDArray[Any]]:
    """``arrays``, which begin as zeros, filled block by block: ``fill(start, stop)`` for each block of this process.

    All processes get the complete arrays. ``poll`` is called before each block. A :class:`TrainingError` of one process
    is raised in all of them.
    """
    share, error = current_share(), None
    for start, stop in blocks:
        share.blocks += 1  # every rank counts every block, in the same order
        if (share.blocks - 1) % share.world == share.rank and error is None:
            poll()
            try:
                fill(start, stop)
            except TrainingError as problem:
                error = problem
    return share.merge(arrays, error)


@contextmanager
def shared(share: Share) -> Iterator[None]:
    """Evaluate as one of several ranks inside the block."""
    token = _current.set(share)
    try:
        yield
    finally:
        _current.reset(token)
