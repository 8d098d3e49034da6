"""A relation's edges by destination, for the samplers, and the constants of their hash (SplitMix64)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class InEdges(NamedTuple):
    """One relation's edges by destination: those into node v are ``indptr[v] .. indptr[v + 1] − 1``.

    ``src`` int32 [E] local numbers; ``pair`` int32 [E] undirected pairs; ``split`` uint8 [E]; only edges with split 0
    carry messages. Arrays may be mapped from files; only the requested rows are read.
    """

    source_type: int
    target_type: int
    indptr: np.ndarray
    src: np.ndarray
    pair: np.ndarray
    split: np.ndarray
