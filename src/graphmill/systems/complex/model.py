"""ComplEx (Trouillon et al. 2016) and DistMult (Yang et al. 2015): tables of vectors, and scores by their products."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

Scoring = Literal["complex", "distmult"]

INITIAL_LENGTH = 0.5
"""Root mean square length of the initial vectors: short, so that the first scores are close to each other."""


class ComplEx(nn.Module):
    """score(h, r, t) = Re Σ_k h_k r_k conj(t_k), where a vector's first half is real and its second imaginary. For
    DistMult: Σ_k h_k r_k t_k. With ``popularity`` [R], the score adds its entry for r times log(1 + training links into
    t).

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
        # In a softmax, log(degree) with weight 1 is the best score by popularity alone: training starts there.
        self.popularity = nn.Parameter(torch.ones(num_relations)) if popularity else None

    def forward(self, head: Tensor, relation: Tensor) -> Tensor:
        """Rows of the tables int64 [B] each → [B, d]; the score is the dot product with a tail's vector."""
        return products(self.entities[head], self.relations[relation], self.scoring)

    def cubes(self, vectors: Tensor) -> Tensor:
        """The nuclear 3-norm's Σ |v_k|³ over all of ``vectors`` [B, d] → 0-d (N3, Lacroix et al. 2018)."""
        if self.scoring == "distmult":
            return vectors.abs().pow(3).sum()
        a, b = vectors.chunk(2, dim=1)
        # The square root has no finite slope at 0: add a small constant.
        return (a * a + b * b + 1e-12).pow(1.5).sum()


def products(left: Tensor, right: Tensor, scoring: Scoring) -> Tensor:
    """[B, d] each, or one of them [1, d] → [B, d]: products of entries, or of complex numbers (a row's first half is
    real)."""
    if scoring == "distmult":
        return left * right
    a, b = left.chunk(2, dim=1)
    c, d = right.chunk(2, dim=1)
    return torch.cat([a * c - b * d, a * d + b * c], dim=1)
