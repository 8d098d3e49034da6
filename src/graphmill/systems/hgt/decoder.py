"""Scores of typed links from node embeddings: SimplE's product of halves, and the target's popularity."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphmill.kernels.devices import wide
from graphmill.systems.hgt.link_scores import link_scores, turned
from graphmill.systems.hgt.model import HGT

SCALE, POPULARITY = 4.0, 0.7
"""Initial weights of products and of popularity."""
GAIN = 50.0
"""Adam moves each parameter by about the learning rate in a step. A relation's scale and popularity, which depend on the
graph most, are parameters times this, so that they get there in a few steps."""


class LinkDecoder(nn.Module):
    """score(h, r, t) = s_r (Σ_k a_hk r_k b_tk + Σ_k b_hk r'_k a_tk) + w_r log(1 + deg_r(t)) + c_r.

    a and b are the halves of an embedding: SimplE (Kazemi & Poole 2018), so that the two directions of a relation have
    unlike scores. Where a are spectral vectors and b is made of the neighbours' ones, both products compare one end with the
    neighbours of the other. The popularity term learns what the target's degree alone predicts, so that the vectors need
    not learn it. ``relation`` [relations, d]: r and r' side by side, in the order of a head's halves. s = 4 exp(50 scale),
    and w = 0.7 + 50 popularity.
    """

    def __init__(self, num_relations: int, dim: int) -> None:
        super().__init__()
        self.relation = nn.Parameter(torch.ones(num_relations, dim))
        self.scale = nn.Parameter(torch.zeros(num_relations))
        self.popularity = nn.Parameter(torch.zeros(num_relations))
        self.offset = nn.Parameter(torch.zeros(num_relations))

    @torch.no_grad()
    def start_from(self, signs: Tensor, of_reverses: Tensor) -> None:
        """Undo the signs [relations, width] of :meth:`graphmill.systems.hgt.model.HGTLayer.start_as_mean`.

        The first half of a head meets what the target heard by the relation, the second what the head heard by its reverse.
        """
        half = self.relation.shape[1] // 2
        kept = min(half, signs.shape[1])
        self.relation[:, :kept] *= signs[:, :kept]
        self.relation[:, half : half + kept] *= of_reverses[:, :kept]

    def weights(self) -> Tensor:
        """[relations, d]: s r and s r', what a head's columns are multiplied by."""
        return SCALE * self.relation * (GAIN * self.scale).exp()[:, None]

    def popularities(self) -> Tensor:
        """[relations]: w, the weights of log(1 + degree)."""
        return POPULARITY + GAIN * self.popularity

    def forward(self, nodes: Tensor, heads: Tensor, relations: Tensor, tails: Tensor, log_degree: Tensor) -> Tensor:
        """Score each link with each of its T targets → fp32 [B, T].

        ``nodes`` [N, d]; ``heads`` int64 [B] and ``tails`` int64 [B, T]: its rows; ``relations`` int64 [B]; ``log_degree``
        [B, T]: log(1 + degree) of the targets.
        """
        scores = link_scores(nodes, self.weights(), heads, relations, tails)
        return scores + self._rest(relations.unsqueeze(1), log_degree)

    def against_all(self, heads: Tensor, relation: int, targets: Tensor, log_degree: Tensor) -> Tensor:
        """Score all candidates of one relation: ``heads`` [B, d], ``targets`` [C, d], ``log_degree`` [C] → fp32 [B, C]."""
        which = torch.full_like(log_degree, relation, dtype=torch.int64)
        # Products of half-precision vectors are summed in fp32.
        return turned(wide(heads) * self.weights()[relation]) @ wide(targets).T + self._rest(which, log_degree)

    def right_and_others(
        self, heads: Tensor, targets: Tensor, relation: Tensor, log_degree: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Scores of R relations: [R, B] of each head with the target of its row, and [R, B, C] with the other targets.

        ``heads`` [R, B, d]; ``targets`` [R, B + C, d], the heads' own first; ``relation`` int64 [R]; ``log_degree``
        [R, B + C].
        """
        links = heads.shape[1]
        query = turned(heads * self.weights().index_select(0, relation)[:, None])
        rest = self._rest(relation[:, None], log_degree)
        positive = (query * targets[:, :links]).sum(-1) + rest[:, :links]
        return positive, query @ targets[:, links:].mT + rest[:, None, links:]

    def _rest(self, relations: Tensor, log_degree: Tensor) -> Tensor:
        return self.offset[relations] + self.popularities()[relations] * log_degree


class HgtModule(nn.Module):
    """What a checkpoint stores: encoder, decoder, and the basis of the spectral vectors, so that it stays the same.

    ``left`` [nodes, width] and ``values`` [width]: :class:`graphmill.graph.spectral.SpectralVectors`; width 0: none.
    """

    def __init__(self, encoder: HGT, decoder: LinkDecoder, left: Tensor, values: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.left: Tensor
        self.values: Tensor
        self.register_buffer("left", left)
        self.register_buffer("values", values)
