"""Whether compiled kernels are available, and their ranges on a pool of threads, as many as torch has.

A kernel is a compiled function of its arguments and a range, ``kernel(*arguments, first, last)``, that runs without the
interpreter's lock (``nogil``) and must not raise: its arguments are checked before. A kernel with many arguments takes them
as one named tuple.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import torch

SMALL = 1 << 14
"""With fewer elements, a second thread costs more than it gains."""


@cache
def has_numba() -> bool:
    """Whether numba is installed; cached, because looking for a module takes longer (0.1 ms) than many kernels."""
    return importlib.util.find_spec("numba") is not None


def over_ranges(kernel: Callable[..., Any], arguments: tuple[Any, ...], count: int, size: int) -> None:
    """Call a kernel for contiguous ranges that cover ``0:count``, one per thread.

    ``size`` is the work in elements. The calling thread does little work alone.
    """
    given = (arguments,) if hasattr(arguments, "_fields") else arguments
    threads = max(1, min(torch.get_num_threads(), count)) if size >= SMALL else 1
    bounds = [count * i // threads for i in range(threads + 1)]
    others = [_pool(os.getpid(), threads - 1).submit(kernel, *given, a, b) for a, b in pairwise(bounds[1:])]
    kernel(*given, bounds[0], bounds[1])
    for other in others:
        other.result()


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """The threads, one pool per process and count. After a fork, the parent's threads do not exist in the child."""
    return ThreadPoolExecutor(threads, "graphmill-kernels")
