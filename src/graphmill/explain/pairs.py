"""Exact shares of what head and target have in common: neighbourhoods (kNN), and paths from one to the other.

A path's count is a product of its edges, which share it equally, and so is what the logarithm makes of all counts. What
two neighbourhoods have in common is a sum of products of three: a link to a known neighbour, an entry of that neighbour,
an entry of the end; each has a third.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graphmill.evaluation.baselines.neighbours import NeighbourSetting
from graphmill.explain.explanation import Shares
from graphmill.graph.spectral import Neighbourhoods, scaled
from graphmill.graph.typed_paths import NONE
from graphmill.systems.blend.paired_links import PairedLinks
from graphmill.systems.blend.paths import Paths, compressed


@dataclass
class NeighbourhoodShares:
    """``entries``: of the whole graph, with their pairs; ``setting``: of kNN."""

    entries: Neighbourhoods
    links: PairedLinks
    setting: NeighbourSetting

    def __post_init__(self) -> None:
        self.rows = scaled(self.entries.matrix, self.setting.shrinkage)

    def of_link(self, relation: int, head: int, tail: int, weight: float) -> tuple[dict[str, float], list[Shares]]:
        """The part of the score by name, and the edges' shares of it. ``head``, ``tail``: local numbers."""
        sides = [n for n, side in enumerate(("target", "source")) if self.setting.side in (side, "both")]
        shares = [share for side in sides for share in self._alike(relation, head, tail, side, weight)]
        return {"neighbourhoods in common": sum(float(value.sum()) for _, value in shares)}, shares

    def _alike(self, relation: int, head: int, tail: int, side: int, weight: float) -> list[Shares]:
        """``side`` 0: the head's other targets and the target; 1: the target's other heads and the head."""
        first, second = self.links.offsets[relation]
        matrices, row = ((self.links.outgoing, head), (self.links.incoming, tail))[side]
        links = matrices[relation][[row]]
        others = links.indices + (second, first)[side]
        end = (tail + second, head + first)[side]
        factor = weight * (1.0 + len(others)) ** -self.setting.damping
        own = slice(self.rows.indptr[end], self.rows.indptr[end + 1])
        found: list[Shares] = []
        for other, pair in zip(others, links.data - 1, strict=True):
            theirs = slice(self.rows.indptr[other], self.rows.indptr[other + 1])
            _, mine, its = np.intersect1d(self.rows.indices[own], self.rows.indices[theirs], return_indices=True)
            value = self.rows.data[own][mine].astype(np.float64) * self.rows.data[theirs][its] * factor / 3
            pairs = self.entries.pair[own][mine], self.entries.pair[theirs][its]
            found += [(np.array([pair]), np.array([value.sum()])), *((p.astype(np.int64), value) for p in pairs)]
        return found


@dataclass
class PathShares:
    """``links``: of the whole graph, with their pairs."""

    paths: Paths
    links: PairedLinks

    def of_link(self, relation: int, head: int, tail: int, weight: float) -> tuple[dict[str, float], list[Shares]]:
        """The part of the score by name, and the edges' shares of it. ``head``, ``tail``: local numbers."""
        typed, shares, total = self.paths.typed, [], 0.0
        kept = zip(self.paths.channels[relation].tolist(), self.paths.weights[relation].tolist(), strict=True)
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
        return {"paths of one or two edges": total * factor}, [(pairs, values * factor) for pairs, values in shares]

    def _pairs(self, step: int) -> sp.csr_matrix:
        """int64: pair + 1 of a step's edges."""
        relations = self.paths.typed.relations
        return self.links.outgoing[step] if step < relations else self.links.incoming[step - relations]
