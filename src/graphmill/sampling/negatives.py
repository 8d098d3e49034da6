"""Negatives: corrupted targets that are known not to be positives. Exact, vectorised, keyed."""

from __future__ import annotations

import numpy as np

_ROUNDS = 8


def pair_keys(heads: np.ndarray, tails: np.ndarray, num_tails: int) -> np.ndarray:
    """Sorted unique int64 keys ``head × num_tails + tail``: what :func:`corrupt_tails` filters against."""
    return np.unique(heads.astype(np.int64) * num_tails + tails)


def contains(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """bool like ``wanted``: whether each is among the sorted ``keys``."""
    if not len(keys):
        return np.zeros(wanted.shape, dtype=bool)
    at = np.searchsorted(keys, wanted)
    at[at == len(keys)] = 0
    return keys[at] == wanted


def corrupt_tails(
    rng: np.random.Generator,
    heads: np.ndarray,
    keys: np.ndarray,
    num_tails: int,
    per_positive: int,
    *,
    popular: np.ndarray | None = None,
) -> np.ndarray:
    """``per_positive`` targets for each head that are not its known positives.

    Args:
        heads: int64 [B].
        keys: sorted known positives (:func:`pair_keys`).
        popular: draw from these targets (one entry per edge, so in proportion to degree) instead of uniformly.

    Returns:
        int64 [B, per_positive]; −1 where a head is joined to every target, so that there is no negative.
    """
    shape = (len(heads), per_positive)
    out = _draw(rng, shape, num_tails, popular)
    base = np.broadcast_to(heads.astype(np.int64)[:, None] * num_tails, shape)
    bad = contains(keys, base + out)
    for _ in range(_ROUNDS):
        count = int(bad.sum())
        if not count:
            return out
        fresh = _draw(rng, (count,), num_tails, popular)
        out[bad] = fresh
        still = contains(keys, base[bad] + fresh)
        bad[bad] = still
    # A head with nearly all targets: draw from what is left of them.
    for row, column in np.argwhere(bad):
        start = int(base[row, column])
        low, high = np.searchsorted(keys, [start, start + num_tails])
        free = np.setdiff1d(np.arange(num_tails), keys[low:high] - start, assume_unique=True)
        out[row, column] = rng.choice(free) if len(free) else -1
    return out


def _draw(rng: np.random.Generator, shape: tuple[int, ...], num_tails: int, popular: np.ndarray | None) -> np.ndarray:
    if popular is None:
        return rng.integers(0, num_tails, size=shape)
    return popular[rng.integers(0, len(popular), size=shape)].astype(np.int64)
