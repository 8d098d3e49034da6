"""Nodes that joined a graph after a training: their edges, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class LaterNodes:
    """``counts``: new nodes by type. ``edges``: by relation, distinct (source, target) int64 local numbers, reverses
    among them; the i-th new node of a type with n known ones has number n + i. ``features``: float32 [new nodes of the type,
    f] by type number and name of the set, rows of zeros where a node has none.
    """

    counts: Sequence[int]
    edges: Sequence[tuple[np.ndarray, np.ndarray]]
    features: Mapping[tuple[int, str], np.ndarray] = field(default_factory=dict)

    @property
    def first(self) -> np.ndarray:
        """int64 [types + 1]: where each type's new nodes begin among all new ones."""
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)
