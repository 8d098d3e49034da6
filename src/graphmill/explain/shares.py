"""Exact shares of the edges in a score: of spectral vectors, of neighbourhoods (kNN), and of paths.

A ⟨Σ_t' s_t', s_t⟩, where t' are the head's other targets and s = κ Σ_e x_e c_e is the sum of a node's entries, is a sum
of products of three factors: the link (h, t'), an entry of t', and an entry of t. Each product is divided equally among
the edges of its three factors, so that all shares sum to the score; κ and A are those of the whole graph. The same
applies to the target's heads, and to what two neighbourhoods have in common. A path's count is a product of its edges,
which share it equally, and so is what the logarithm makes of all counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graphmill.evaluation.baselines.neighbours import NeighbourSetting
from graphmill.explain.explanation import Shares
from graphmill.graph.spectral import Neighbourhoods, SpectralVectors, scaled
from graphmill.graph.typed_paths import NONE, Side
from graphmill.systems.blend.paths import PairedLinks, Paths, compressed


@dataclass
class NeighbourhoodShares:
    """``entries``: of the whole graph, with their pairs; ``setting``: of kNN."""

    entries: Neighbourhoods
    links: PairedLinks
    setting: NeighbourSetting

    def __post_init__(self) -> None:
        self.rows = scaled(self.entries.by(self.setting.weighted).matrix, self.setting.shrinkage)

    def of_link(self, relation: int, head: int, tail: int, weight: float) -> tuple[dict[str, float], list[Shares]]:
        """The part of the score by name, and the edges' shares of it. ``head``, ``tail``: local numbers."""
        shares: list[Shares] = []
        for _, others, links, end in _known(self.links, relation, head, tail, self.setting.side):
            factor = weight * (1.0 + len(others)) ** -self.setting.damping
            span = slice(self.rows.indptr[end], self.rows.indptr[end + 1])
            for other, pair in zip(others, links, strict=True):
                theirs = slice(self.rows.indptr[other], self.rows.indptr[other + 1])
                _, mine, its = np.intersect1d(self.rows.indices[span], self.rows.indices[theirs], return_indices=True)
                value = self.rows.data[span][mine].astype(np.float64) * self.rows.data[theirs][its] * factor / 3
                pairs = self.entries.pair[span][mine], self.entries.pair[theirs][its]
                shares += [(np.array([pair]), np.array([value.sum()])), *((p.astype(np.int64), value) for p in pairs)]
        return {"neighbourhoods in common": sum(float(value.sum()) for _, value in shares)}, shares


def _known(
    links: PairedLinks, relation: int, head: int, tail: int, side: Side
) -> Iterator[tuple[str, np.ndarray, np.ndarray, int]]:
    """The head's other targets, for the target, and the target's other heads, for the head, as ``side`` says: what they are
    called, their global numbers, the pairs of the links to them, and the global number of the node that they are for."""
    first, second = links.offsets[relation]
    sides = (("target", "other targets of the head", links.outgoing, head, second, tail + second),
             ("source", "other heads of the target", links.incoming, tail, first, head + first))  # fmt: skip
    for which, name, matrices, row, offset, end in sides:
        if side in (which, "both"):
            matrix = matrices[relation]
            span = slice(matrix.indptr[row], matrix.indptr[row + 1])
            yield name, matrix.indices[span] + offset, matrix.data[span].astype(np.int64) - 1, end


@dataclass
class PathShares:
    """``links``: of the whole graph, with their pairs."""

    paths: Paths
    links: PairedLinks

    def of_link(self, relation: int, head: int, tail: int, weight: float) -> tuple[dict[str, float], list[Shares]]:
        """The part of the score by name, and the edges' shares of it. ``head``, ``tail``: local numbers."""
        typed, shares, total = self.paths.typed, [], 0.0
        kept = zip(self.paths.channels[relation].tolist(), self.paths.weights[relation].tolist(), strict=True)
        for (first, second), each in kept:
            if not each:
                continue
            ahead, by_first = typed.step(first)[[head]], self._pairs(first)[[head]]
            if second == NONE:
                back = sp.csr_matrix(([1.0], ([0], [tail])), (1, ahead.shape[1]))
                by_second = None
            else:
                back, by_second = typed.step(second)[:, [tail]].T.tocsr(), self._pairs(second)[:, [tail]].T.tocsr()
            between = np.intersect1d(ahead.indices, back.indices)
            ways = np.asarray(ahead[:, between].multiply(back[:, between]).todense(), np.float64).ravel() * each
            total += float(ways.sum())
            edges = [by_first, *([] if by_second is None else [by_second])]
            shares += [(np.asarray(e[:, between].todense()).ravel() - 1, ways / len(edges)) for e in edges]
        factor = weight * float(compressed(np.array(total))) / total if total else 0.0
        return {"paths of one or two edges": total * factor}, [(pairs, values * factor) for pairs, values in shares]

    def _pairs(self, step: int) -> sp.csr_matrix:
        """int64: pair + 1 of a step's edges."""
        relations = self.paths.typed.relations
        return self.links.outgoing[step] if step < relations else self.links.incoming[step - relations]


@dataclass(frozen=True)
class SpectralShares:
    """``vectors`` float32 [nodes, s]: those that are scored. ``setting``: the side and the damping of the sums.

    ``neighbors``: number of a node's links in the relation (those with the largest contributions) for which the other
    end's entries get separate shares.
    """

    spectral: SpectralVectors
    vectors: np.ndarray
    links: PairedLinks
    setting: NeighbourSetting
    neighbors: int

    def of_link(self, relation: int, head: int, tail: int, amount: float) -> tuple[dict[str, float], list[Shares]]:
        """The parts of the score by name, and the edges' shares of them. ``head``, ``tail``: local numbers."""
        parts, shares = {}, []
        for name, others, pairs, end in _known(self.links, relation, head, tail, self.setting.side):
            factor = amount * (1.0 + len(others)) ** -self.setting.damping
            parts[name], result = self._sum(factor, others, pairs, end)
            shares += result
        return parts, shares

    def _sum(self, factor: float, others: np.ndarray, pairs: np.ndarray, end: int) -> tuple[float, list[Shares]]:
        """``factor`` · ⟨Σ s of ``others``, s of ``end``⟩. ``pairs``: the pairs of the links to ``others``."""
        if not len(others):
            return 0.0, []
        each = factor * (self.vectors[others].astype(np.float64) @ self.vectors[end].astype(np.float64))
        of_link = each / 3
        # Entries get shares only for the others with the largest contributions. For the rest, the link gets their
        # share.
        chosen = np.argsort(-np.abs(each), kind="stable")[: self.neighbors]
        shares = [self._entries(int(others[i]), factor / 3 * self.vectors[end]) for i in chosen]
        rest = np.ones(len(others), bool)
        rest[chosen] = False
        of_link[rest] *= 2
        shares.append(self._entries(end, factor / 3 * self.vectors[others].sum(0)))
        return float(each.sum()), [(pairs, of_link), *shares]

    def _entries(self, node: int, direction: np.ndarray) -> Shares:
        """The contribution of each of the node's entries to ⟨s of ``node``, ``direction``⟩."""
        matrix = self.spectral.entries.matrix
        span = slice(matrix.indptr[node], matrix.indptr[node + 1])
        columns = self.spectral.columns[matrix.indices[span]].astype(np.float64)
        weighted = columns * matrix.data[span].astype(np.float64)[:, None]
        raw = weighted.sum(0)
        length = float(raw @ raw)
        scale = float(raw @ self.vectors[node]) / length if length > 0 else 0.0
        return self.spectral.entries.pair[span].astype(np.int64), scale * (weighted @ direction.astype(np.float64))
