"""Samples negatives: corrupted targets that are never known positives. Exact, vectorised and keyed."""

from __future__ import annotations

import numpy as np

from graphmill.graph.sorted_unique import in_sorted, sorted_unique

_ROUNDS = 8
_MOST_BITS = 1 << 28
"""Up to this many possible pairs, each has a bit (32 MiB)."""


def pair_keys(heads: np.ndarray, tails: np.ndarray, num_tails: int) -> np.ndarray:
    """Sorted unique int64 keys ``head × num_tails + tail``, by which :func:`corrupt_tails` filters."""
    return sorted_unique(heads.astype(np.int64) * num_tails + tails)


class PairSet:
    """A set of sorted unique ``keys`` of pairs (:func:`pair_keys`), for many look-ups.

    If the number of ``possible`` pairs is given and not too large, each has a bit, so that a look-up needs no search.
    """

    def __init__(self, keys: np.ndarray, possible: int = 0) -> None:
        self.keys = keys
        self._bits: np.ndarray | None = None
        if len(keys) and 0 < possible <= _MOST_BITS:
            self._bits = np.zeros(-(-possible // 8), np.uint8)  # key k has bit k % 8 of byte k // 8
            place = keys >> 3
            first = np.flatnonzero(np.diff(place, prepend=-1))
            self._bits[place[first]] = np.bitwise_or.reduceat(np.left_shift(1, keys & 7).astype(np.uint8), first)

    def contain(self, wanted: np.ndarray) -> np.ndarray:
        """bool like ``wanted`` (keys of possible pairs): whether each is in the set."""
        if self._bits is None:
            return in_sorted(wanted, self.keys)
        result: np.ndarray = (self._bits[wanted >> 3] >> (wanted & 7).astype(np.uint8)) & np.uint8(1) != 0
        return result


def corrupt_tails(
    rng: np.random.Generator, heads: np.ndarray, known: np.ndarray | PairSet, num_tails: int, per_positive: int
) -> np.ndarray:
    """``per_positive`` targets for each head that are not its known positives.

    Args:
        rng: draws the targets.
        heads: int64 [B].
        known: positives, as sorted keys (:func:`pair_keys`) or a set of them.
        num_tails: number of targets.
        per_positive: targets drawn for each head.

    Returns:
        int64 [B, per_positive]; −1 if a head is linked to every target, so that there is no negative.
    """
    known = known if isinstance(known, PairSet) else PairSet(known)
    shape = (len(heads), per_positive)
    out = rng.integers(0, num_tails, size=shape)
    base = np.broadcast_to(heads.astype(np.int64)[:, None] * num_tails, shape)
    bad = known.contain(base + out)
    for _ in range(_ROUNDS):
        if not (count := int(bad.sum())):
            return out
        fresh = rng.integers(0, num_tails, size=count)
        out[bad] = fresh
        bad[bad] = known.contain(base[bad] + fresh)
    # A head is linked to nearly all targets: draw from the others.
    for row, column in np.argwhere(bad):
        start = int(base[row, column])
        low, high = np.searchsorted(known.keys, [start, start + num_tails])
        free = np.setdiff1d(np.arange(num_tails), known.keys[low:high] - start, assume_unique=True)
        out[row, column] = rng.choice(free) if len(free) else -1
    return out
