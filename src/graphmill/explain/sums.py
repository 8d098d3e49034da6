"""Exact shares of the untrained part of the score of HGT with the loss softmax: sums of spectral vectors over neighbours.

A ⟨Σ_t' s_t', s_t⟩, where t' are the head's other targets and s = κ Σ_e x_e c_e is the sum of a node's entries, is a sum
of products of three factors: the link (h, t'), an entry of t', and an entry of t. Each product is divided equally among
the edges of its three factors, so that all shares sum to the score; κ and A are those of the whole graph. The same
applies to the target's heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphmill.systems.hgt.softmax_decoder import SoftmaxDecoder
from graphmill.systems.hgt.spectral import NeighbourSums, SpectralVectors

Shares = tuple[np.ndarray, np.ndarray]
"""int64 numbers of undirected pairs (may repeat), and the float64 share of each."""


@dataclass(frozen=True)
class SpectralShares:
    """``vectors`` float32 [nodes, s]: the spectral vectors of the whole graph.

    ``neighbors``: number of a node's links in the relation (those with the largest contributions) for which the other
    end's entries get separate shares.
    """

    spectral: SpectralVectors
    vectors: np.ndarray
    sums: NeighbourSums
    decoder: SoftmaxDecoder
    neighbors: int

    def of_link(self, relation: int, head: int, tail: int) -> tuple[dict[str, float], list[Shares]]:
        """The parts of the score by name, and the edges' shares of them. ``head``, ``tail``: local numbers."""
        first, second = self.sums.offsets[relation]
        h, t = head + first, tail + second
        strength = float(self.decoder.strength[relation])
        mix = np.ones(2) if self.decoder.mix is None else self.decoder.mix[relation, :2].cpu().double().numpy()
        if self.decoder.sums is None or self.decoder.exponents is None:
            return self._direct(relation, h, t, strength * float(mix[0]))
        weight = self.decoder.sums[relation].detach().cpu().double().numpy() * strength * mix
        exponent = self.decoder.exponents[relation].detach().cpu().double().numpy()
        parts, shares = {}, []
        sides = (("other targets of the head", self.sums.outgoing, head, second, t),
                 ("other heads of the target", self.sums.incoming, tail, first, h))  # fmt: skip
        for side, (name, matrices, row, offset, end) in enumerate(sides):
            matrix = matrices[relation]
            own = slice(matrix.indptr[row], matrix.indptr[row + 1])
            others, pairs = matrix.indices[own] + offset, matrix.data[own].astype(np.int64) - 1
            factor = float(weight[side] * (1.0 + len(others)) ** -exponent[side])
            value, found = self._sum(factor, others, pairs, end)
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

    def _direct(self, relation: int, h: int, t: int, strength: float) -> tuple[dict[str, float], list[Shares]]:
        if self.decoder.direct is None:
            return {}, []
        weight = self.decoder.direct[relation].detach().float().cpu().numpy() * strength
        left, right = self.vectors[h] * weight, self.vectors[t] * weight
        value = float(left.astype(np.float64) @ self.vectors[t])
        return {"the two ends' neighbourhoods": value}, [self._entries(h, right / 2), self._entries(t, left / 2)]

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
