"""Exact shares of a softmax HGT's pair features: neighbourhoods in common, and paths from head to target.

A path's count is a product of its edges, which share it equally, and so is what the logarithm makes of all counts. What
two neighbourhoods have in common is a sum of products of three: a link to a known neighbour, an entry of that neighbour,
an entry of the end; each has a third.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graphmill.explain.sums import Shares
from graphmill.graph.spectral import Neighbourhoods, scaled
from graphmill.graph.typed_paths import NONE
from graphmill.systems.hgt.pair_features import DAMPING, PairFeatures, compressed
from graphmill.systems.hgt.softmax_decoder import PARTS
from graphmill.systems.hgt.spectral import NeighbourSums


@dataclass
class PairShares:
    """``entries``: of the whole graph, with their pairs; ``mix`` [relations, parts]: what each part weighs."""

    features: PairFeatures
    entries: Neighbourhoods
    sums: NeighbourSums
    mix: np.ndarray

    def __post_init__(self) -> None:
        self.rows = scaled(self.entries.matrix)

    def of_link(self, relation: int, head: int, tail: int) -> tuple[dict[str, float], list[Shares]]:
        """The two parts of the score by name, and the shares of the edges in them. ``head``, ``tail``: local numbers."""
        weight = dict(zip(PARTS, self.mix[relation].tolist(), strict=True))
        parts, shares = {}, []
        if weight["neighbours"]:
            found = [self._alike(relation, head, tail, side, weight["neighbours"]) for side in (0, 1)]
            parts["neighbourhoods in common"] = sum(float(v.sum()) for each in found for _, v in each)
            shares += [share for each in found for share in each]
        if weight["paths"]:
            found = [self._paths(relation, head, tail, weight["paths"])]
            parts["paths of one or two edges"] = sum(float(v.sum()) for each in found for _, v in each)
            shares += found[0]
        return parts, shares

    def _paths(self, relation: int, head: int, tail: int, weight: float) -> list[Shares]:
        typed, shares, total = self.features.typed, [], 0.0
        kept = zip(self.features.channels[relation].tolist(), self.features.weights[relation].tolist(), strict=True)
        for (first, second), own in kept:
            if not own:
                continue
            ahead, by_first = typed.step(first)[[head]], self._pairs(first)[[head]]
            if second == NONE:
                back = sp.csr_matrix(([1.0], ([0], [tail])), (1, ahead.shape[1]))
                by_second = None
            else:
                back, by_second = typed.step(second)[:, [tail]].T.tocsr(), self._pairs(second)[:, [tail]].T.tocsr()
            between = np.intersect1d(ahead.indices, back.indices)
            ways = np.asarray(ahead[:, between].multiply(back[:, between]).todense(), np.float64).ravel() * own
            total += float(ways.sum())
            edges = [by_first, *([] if by_second is None else [by_second])]
            shares += [(np.asarray(e[:, between].todense()).ravel() - 1, ways / len(edges)) for e in edges]
        factor = weight * float(compressed(np.array(total))) / total if total else 0.0
        return [(pairs, values * factor) for pairs, values in shares]

    def _pairs(self, step: int) -> sp.csr_matrix:
        """int64: pair + 1 of a step's edges."""
        relations = self.features.typed.relations
        return self.sums.outgoing[step] if step < relations else self.sums.incoming[step - relations]

    def _alike(self, relation: int, head: int, tail: int, side: int, weight: float) -> list[Shares]:
        """``side`` 0: the head's other targets and the target; 1: the target's other heads and the head."""
        first, second = self.sums.offsets[relation]
        matrices, row = ((self.sums.outgoing, head), (self.sums.incoming, tail))[side]
        links = matrices[relation][[row]]
        others = links.indices + (second, first)[side]
        end = (tail + second, head + first)[side]
        factor = weight * (1.0 + len(others)) ** -DAMPING
        own = slice(self.rows.indptr[end], self.rows.indptr[end + 1])
        found: list[Shares] = []
        for other, pair in zip(others, links.data - 1, strict=True):
            theirs = slice(self.rows.indptr[other], self.rows.indptr[other + 1])
            _, mine, its = np.intersect1d(self.rows.indices[own], self.rows.indices[theirs], return_indices=True)
            value = self.rows.data[own][mine].astype(np.float64) * self.rows.data[theirs][its] * factor / 3
            pairs = self.entries.pair[own][mine], self.entries.pair[theirs][its]
            found += [(np.array([pair]), np.array([value.sum()])), *((p.astype(np.int64), value) for p in pairs)]
        return found
