"""Whether there are compiled kernels, and running them over ranges on as many threads as torch uses. No arithmetic here."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import torch

_SMALL = 1 << 15  # elements under which a second thread costs more than it gives
_pool: ThreadPoolExecutor | None = None
_pool_key: tuple[int, int] = (0, 0)


@cache
def has_numba() -> bool:
    """Whether numba is installed. (Looking for a module takes a tenth of a millisecond, a kernel often less.)"""
    return importlib.util.find_spec("numba") is not None


def over_ranges(count: int, work: Callable[[int, int], object], size: int = _SMALL) -> None:
    """Call ``work(first, last)`` for contiguous ranges that cover ``0:count``, one per thread; ``size`` is the work."""
    threads = min(torch.get_num_threads(), count) if size >= _SMALL else 1
    bounds = [count * i // max(threads, 1) for i in range(max(threads, 1) + 1)]
    others = [_executor(threads).submit(work, a, b) for a, b in pairwise(bounds[1:])]
    work(bounds[0], bounds[1])
    for other in others:
        other.result()


def _executor(threads: int) -> ThreadPoolExecutor:
    """One pool per process (a fork must not inherit threads that do not exist there) and thread count."""
    global _pool, _pool_key
    if _pool is None or _pool_key[0] != os.getpid() or _pool_key[1] < threads - 1:
        _pool, _pool_key = ThreadPoolExecutor(threads - 1, "graphmill-kernels"), (os.getpid(), threads - 1)
    return _pool
