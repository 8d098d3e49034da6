"""Exact shares of the sums over a relation's neighbours of spectral vectors.

A ⟨Σ_t' s_t', s_t⟩, where t' are the head's other targets and s = κ Σ_e x_e c_e is the sum of a node's entries, is a sum
of products of three factors: the link (h, t'), an entry of t', and an entry of t. Each product is divided equally among
the edges of its three factors, so that all shares sum to the score; κ and A are those of the whole graph. The same
applies to the target's heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphmill.evaluation.baselines.neighbours import NeighbourSetting
from graphmill.explain.explanation import Shares
from graphmill.graph.spectral_vectors import SpectralVectors
from graphmill.systems.blend.paired_links import PairedLinks


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
        first, second = self.links.offsets[relation]
        h, t = head + first, tail + second
        parts, shares = {}, []
        sides = (("target", "other targets of the head", self.links.outgoing, head, second, t),
                 ("source", "other heads of the target", self.links.incoming, tail, first, h))  # fmt: skip
        for side, name, matrices, row, offset, end in sides:
            if self.setting.side not in (side, "both"):
                continue
            matrix = matrices[relation]
            own = slice(matrix.indptr[row], matrix.indptr[row + 1])
            others, pairs = matrix.indices[own] + offset, matrix.data[own].astype(np.int64) - 1
            value, found = self._sum(amount * (1.0 + len(others)) ** -self.setting.damping, others, pairs, end)
            parts[name] = value
            shares += found
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
        own = slice(matrix.indptr[node], matrix.indptr[node + 1])
        columns = self.spectral.columns[matrix.indices[own]].astype(np.float64)
        weighted = columns * matrix.data[own].astype(np.float64)[:, None]
        raw = weighted.sum(0)
        length = float(raw @ raw)
        scale = float(raw @ self.vectors[node]) / length if length > 0 else 0.0
        return self.spectral.entries.pair[own].astype(np.int64), scale * (weighted @ direction.astype(np.float64))
