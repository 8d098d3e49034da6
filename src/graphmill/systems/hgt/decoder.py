"""Scores of typed links from node embeddings: DistMult or dot product, with an optional popularity term."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphmill.kernels.devices import wide
from graphmill.systems.hgt.link_scores import link_scores
from graphmill.systems.hgt.model import HGT


class LinkDecoder(nn.Module):
    """score(h, r, t) = Σ_k z_hk r_k z_tk (DistMult, Yang et al. 2015; r = 1 for ``dot``) + w_r log(1 + deg_r(t)) + b_r.

    The popularity term learns what the target's degree alone predicts, so that the vectors need not learn it.

    Scores for ranking (:meth:`against_all`) multiply the vectors' part by ``strength`` [relations]; training scores do not.
    It is a buffer of ones until :func:`graphmill.systems.hgt.relation_strength.fit_strength` fits it to held-out links.
    These show how far a relation's vectors may overrule popularity; the training loss does not.
    """

    def __init__(self, num_relations: int, dim: int, decoder: str, popularity: bool) -> None:
        super().__init__()
        self.relation = nn.Parameter(torch.ones(num_relations, dim)) if decoder == "distmult" else None
        # With uniform negatives, log(P(link) / P(no link)) is log degree + constant. Weight 1 is then the best for
        # popularity alone. Training starts there, and the vectors learn what popularity does not explain.
        self.popularity = nn.Parameter(torch.ones(num_relations)) if popularity else None
        self.offset = nn.Parameter(torch.zeros(num_relations))
        self.strength: Tensor
        self.register_buffer("strength", torch.ones(num_relations))

    def forward(self, nodes: Tensor, heads: Tensor, relations: Tensor, tails: Tensor, log_degree: Tensor) -> Tensor:
        """Score each link with each of its T targets → fp32 [B, T].

        ``nodes`` [N, d]; ``heads`` int64 [B] and ``tails`` int64 [B, T]: its rows; ``relations`` int64 [B]; ``log_degree``
        [B, T]: log(1 + degree) of the targets.
        """
        scores = link_scores(nodes, self.relation, heads, relations, tails)
        return scores + self._rest(relations.unsqueeze(1), log_degree)

    def against_all(self, heads: Tensor, relation: int, targets: Tensor, log_degree: Tensor) -> Tensor:
        """Score all candidates of one relation: ``heads`` [B, d], ``targets`` [C, d], ``log_degree`` [C] → fp32 [B, C]."""
        left = heads if self.relation is None else heads * self.relation[relation]
        # Products of half-precision vectors are summed in fp32.
        scores = self.strength[relation] * (wide(left) @ wide(targets).T)
        which = torch.full_like(log_degree, relation, dtype=torch.int64)
        return scores + self._rest(which, log_degree)

    def _rest(self, relations: Tensor, log_degree: Tensor) -> Tensor:
        offset = self.offset[relations]
        return offset if self.popularity is None else offset + self.popularity[relations] * log_degree


class HgtModule(nn.Module):
    """Encoder and decoder together: what a checkpoint stores."""

    def __init__(self, encoder: HGT, decoder: LinkDecoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
