"""Whether compiled kernels are available, and which work is too small for several threads."""

from __future__ import annotations

import importlib.util
from functools import cache

SMALL = 1 << 14
"""With fewer elements, a second thread costs more than it gains."""


@cache
def has_numba() -> bool:
    """Whether numba is installed; cached, because looking for a module takes longer (0.1 ms) than many kernels."""
    return importlib.util.find_spec("numba") is not None
