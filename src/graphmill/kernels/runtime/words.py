"""The hash behind dropout's masks: a 32-bit word for each element, from its position and a key. See ``dropout``."""

from __future__ import annotations

from typing import Any

import numpy as np

_WORDS = 1 << 32
_FIRST, _SECOND, _THIRD = np.uint32(0x9E3779B1), np.uint32(0x7FEB352D), np.uint32(0x846CA68B)
WORD_CONSTANTS = (_FIRST, _SECOND, _THIRD)
Key = tuple[int, int]
"""Two 32-bit numbers that determine a mask."""


def threshold_and_scale(p: float) -> tuple[int, float]:
    """Elements with words of at least ``threshold`` are kept and multiplied by ``scale``."""
    threshold = min(round(p * _WORDS), _WORDS - 1)
    return threshold, _WORDS / (_WORDS - threshold)


def mask_numbers(like: Any, p: float, key: Key) -> tuple[Any, ...]:
    """The arguments of ``vectors.keep``: whether there is dropout, key, threshold and scale, in the types of ``like``."""
    threshold, scale = threshold_and_scale(p) if p > 0.0 else (0, 1.0)
    return p > 0.0, np.uint32(key[0]), np.uint32(key[1]), np.uint32(threshold), like.dtype.type(scale)


def words(start: int, stop: int, key: Key) -> np.ndarray:
    """The words of elements ``start`` to ``stop`` - 1, uint32. ``vectors.keep`` computes the same words in compiled code."""
    x = np.arange(start, stop).astype(np.uint32)
    x *= _FIRST
    x += np.uint32(key[0])
    x ^= x >> np.uint32(16)
    x *= _SECOND
    x ^= np.uint32(key[1])
    x ^= x >> np.uint32(15)
    x *= _THIRD
    x ^= x >> np.uint32(16)
    return x
