"""ComplEx (Trouillon et al. 2016) and DistMult (Yang et al. 2015): tables of vectors, and the products that score."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

Scoring = Literal["complex", "distmult"]

INITIAL_LENGTH = 0.5
"""Root mean square length of a vector at the start: short, so that the first scores are close to each other."""


class ComplEx(nn.Module):
    """score(h, r, t) = Re Σ_k h_k r_k conj(t_k), a vector's first half real and its second imaginary; of DistMult
    Σ_k h_k r_k t_k. With ``popularity`` [R] its entry of r times log(1 + training links into t) is added.

    ``entities`` [N, d], ``relations`` [R, d].
    """

    def __init__(
        self, num_entities: int, num_relations: int, dim: int, scoring: Scoring, popularity: bool = False
    ) -> None:
        super().__init__()
        self.scoring = scoring
        scale = INITIAL_LENGTH * dim**-0.5
        self.entities = nn.Parameter(torch.randn(num_entities, dim) * scale)
        self.relations = nn.Parameter(torch.randn(num_relations, dim) * scale)
        # In a softmax log(degree) with weight 1 is the best that popularity alone can do: training starts there.
        self.popularity = nn.Parameter(torch.ones(num_relations)) if popularity else None

    def forward(self, head: Tensor, relation: Tensor) -> Tensor:
        """Rows of the tables int64 [B] each → [B, d]: what a tail's vector is multiplied with."""
        return products(self.entities[head], self.relations[relation], self.scoring)

    def cubes(self, vectors: Tensor) -> Tensor:
        """The nuclear 3-norm's Σ |v_k|³ over all of ``vectors`` [B, d] → 0-d (N3, Lacroix et al. 2018)."""
        if self.scoring == "distmult":
            return vectors.abs().pow(3).sum()
        a, b = vectors.chunk(2, dim=1)
        # The square root has no slope at 0: a little under it.
        return (a * a + b * b + 1e-12).pow(1.5).sum()


def products(left: Tensor, right: Tensor, scoring: Scoring) -> Tensor:
    """[B, d] each, or one of them [1, d] → [B, d]: entry by entry, or of complex numbers, a row's first half real."""
    if scoring == "distmult":
        return left * right
    a, b = left.chunk(2, dim=1)
    c, d = right.chunk(2, dim=1)
    return torch.cat([a * c - b * d, a * d + b * c], dim=1)
