"""Whether there are compiled kernels, and what is too small for a second thread. No arithmetic here."""

from __future__ import annotations

import importlib.util
from functools import cache

SMALL = 1 << 14
"""Elements under which a second thread costs more than it gives."""


@cache
def has_numba() -> bool:
    """Whether numba is installed. (Looking for a module takes a tenth of a millisecond, a kernel often less.)"""
    return importlib.util.find_spec("numba") is not None
