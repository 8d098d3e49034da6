"""The hash that dropout's masks are made of: a word of 32 bits for each element, of its place and a key. See ``dropout``."""

from __future__ import annotations

import numpy as np

_WORDS = 1 << 32
_FIRST, _SECOND, _THIRD = np.uint32(0x9E3779B1), np.uint32(0x7FEB352D), np.uint32(0x846CA68B)
WORD_CONSTANTS = (_FIRST, _SECOND, _THIRD)
Key = tuple[int, int]
"""Two numbers of 32 bits that make a mask."""


def threshold_and_scale(p: float) -> tuple[int, float]:
    """Words from ``threshold`` on are kept, and what they keep is multiplied by ``scale``."""
    threshold = min(round(p * _WORDS), _WORDS - 1)
    return threshold, _WORDS / (_WORDS - threshold)


def words(count: int, key: Key) -> np.ndarray:
    """The words of elements 0 to ``count`` - 1, uint32. The plain form of ``dropout.cpu.word``."""
    x = np.arange(count, dtype=np.uint32) * _FIRST
    x += np.uint32(key[0])
    x ^= x >> np.uint32(16)
    x *= _SECOND
    x ^= np.uint32(key[1])
    x ^= x >> np.uint32(15)
    x *= _THIRD
    x ^= x >> np.uint32(16)
    return x
