"""Keyed random numbers, so that a batch depends only on (seed, phase, epoch, index).

No sampler has a state to save. Resumed runs, prefetching and several processes draw the same numbers by construction.
"""

import hashlib

import numpy as np

Key = int | str


def key_of(*parts: Key) -> int:
    """A 64-bit key of the parts, stable across processes, machines and Python versions."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def generator(*parts: Key) -> np.random.Generator:
    """A separate counter-based generator (Philox) for these parts."""
    return np.random.Generator(np.random.Philox(key=key_of(*parts)))


def sampled(rows: np.ndarray, most: int, *parts: Key) -> np.ndarray:
    """``rows`` if there are at most ``most``; otherwise a sample of so many, ascending, drawn for these parts."""
    return rows if len(rows) <= most else np.sort(generator(*parts).choice(rows, most, replace=False))
