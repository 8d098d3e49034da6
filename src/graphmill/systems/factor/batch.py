"""The data of one step: links, and the candidates for their targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from graphmill.systems.base_system import DividedBatch

SOFTMAX, N3, RELATION, NODES = "softmax", "n3", "relation", "nodes"


@dataclass(frozen=True)
class FactorBatch(DividedBatch):
    """Links ``head``, ``relation``, ``tail`` int64 [B], global node numbers; ``kind`` int64 [B]: number of the tail's type.

    ``nodes`` int64 [n], ascending: all nodes that the step reads, as heads, tails or candidates.
    ``candidates``: for a type number, the global numbers of the candidates for targets of this type, all its nodes or a
    sample. ``target_degree`` float32 [B]: log of the number of training links into the tail, this link included.
    ``degree``: for a type number, the relations int64 [U], ascending, with targets of this type in the step,
    and float32 [U, candidates]: log(1 + training links of the relation into the candidate). ``terms``: names of the
    loss's terms.
    """

    head: np.ndarray
    relation: np.ndarray
    tail: np.ndarray
    kind: np.ndarray
    target_degree: np.ndarray
    nodes: np.ndarray
    candidates: Mapping[int, np.ndarray] = field(default_factory=dict)
    degree: Mapping[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    terms: tuple[str, ...] = (SOFTMAX,)

    ROWS = ("head", "relation", "tail", "kind", "target_degree")

    @property
    def weights(self) -> Mapping[str, float]:
        """The number of links, for each term."""
        return dict.fromkeys(self.terms, float(len(self)))

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays; arrays of the candidates by type number."""
        return super().arrays() | {f"candidates_{kind}": nodes for kind, nodes in self.candidates.items()}
