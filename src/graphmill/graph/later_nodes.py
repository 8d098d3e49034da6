"""Nodes that were added to a graph after a training, with their edges and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class LaterNodes:
    """``counts``: number of new nodes by type. ``edges``: by relation, distinct (source, target), int64 local numbers,
    including reverses; the i-th new node of a type with n known nodes has number n + i. ``features``: float32 [new
    nodes of the type, f] by type number and name of the set; the row of a node without features is zero.
    """

    counts: Sequence[int]
    edges: Sequence[tuple[np.ndarray, np.ndarray]]
    features: Mapping[tuple[int, str], np.ndarray] = field(default_factory=dict)

    @property
    def first(self) -> np.ndarray:
        """int64 [types + 1]: index of each type's first new node among all new nodes."""
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)
