"""Tables of vectors and the scores of their links: ComplEx (Trouillon et al. 2016), DistMult (Yang et al. 2015), RotatE
(Sun et al. 2019) and TransE (Bordes et al. 2013)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from graphmill.kernels.devices import wide

Score = Literal["complex", "distmult", "rotate", "transe"]
SCORES: tuple[Score, ...] = ("complex", "distmult", "rotate", "transe")
"""The scores; an export has the place of its model's."""
PRODUCTS: tuple[Score, ...] = ("complex", "distmult")
"""Those that are sums of products."""

INITIAL_LENGTH = 0.5
"""Root mean square length of the initial vectors: short, so that the first scores are close to each other."""
SHORTEST = 1e-12
"""Smallest squared distance: the square root has no finite slope at 0."""


class FactorTables(nn.Module):
    """score(h, r, t) of one of :data:`SCORES`; a complex vector's first half is real and its second imaginary.

    complex: Re Σ_k h_k r_k conj(t_k). distmult: Σ_k h_k r_k t_k. rotate: −‖h ∘ r − t‖ with |r_k| = 1. transe:
    −‖h + r − t‖. To each is added the entry of ``popularity`` [R] for r times log(1 + training links into t).
    ``entities`` [N, d]; ``relations`` [R, d], for rotate [R, d/2] angles.
    """

    def __init__(self, num_entities: int, num_relations: int, dim: int, score: Score) -> None:
        super().__init__()
        self.score = score
        scale = INITIAL_LENGTH * dim**-0.5
        self.entities = nn.Parameter(torch.randn(num_entities, dim) * scale)
        if score == "rotate":
            self.relations = nn.Parameter((2 * torch.rand(num_relations, dim // 2) - 1) * math.pi)
        else:
            self.relations = nn.Parameter(torch.randn(num_relations, dim) * scale)
        # In a softmax, log(degree) with weight 1 is the best score by popularity alone: training starts there.
        self.popularity = nn.Parameter(torch.ones(num_relations))

    def relation_vectors(self, rows: Tensor | slice | list[int] = slice(None)) -> Tensor:
        """The vectors [B, d] of relations; for rotate of numbers of modulus 1."""
        chosen = self.relations[rows]
        return torch.cat([chosen.cos(), chosen.sin()], dim=1) if self.score == "rotate" else chosen

    def cubes(self, vectors: Tensor) -> Tensor:
        """The nuclear 3-norm's Σ |v_k|³ over all of ``vectors`` [B, d] → 0-d (N3, Lacroix et al. 2018)."""
        if self.score == "distmult":
            return vectors.abs().pow(3).sum()
        a, b = vectors.chunk(2, dim=1)
        return (a * a + b * b + SHORTEST).pow(1.5).sum()


def joined(heads: Tensor, relations: Tensor, score: Score) -> Tensor:
    """Vectors of heads [B, d] and of relations [B or 1, d] → [B, d], which a target's vector is compared with."""
    if score == "transe":
        return heads + relations
    return products(heads, relations, score)


def scores_of_all(x: Tensor, targets: Tensor, score: Score) -> Tensor:
    """Scores [B, C] of :func:`joined` vectors [B, d] and targets [C, d]; distances in at least fp32."""
    if score in PRODUCTS:
        return x @ targets.T
    with torch.autocast(x.device.type, enabled=False):
        x, targets = wide(x), wide(targets)
        squares = x.square().sum(1)[:, None] + targets.square().sum(1) - 2 * x @ targets.T
        return -squares.clamp(min=SHORTEST).sqrt()


def scores_of_pairs(x: Tensor, targets: Tensor, score: Score) -> Tensor:
    """Scores [B] of :func:`joined` vectors and targets [B, d], row by row."""
    if score in PRODUCTS:
        return wide((x * targets).sum(1))
    difference = wide(x) - wide(targets)
    return -difference.square().sum(1).clamp(min=SHORTEST).sqrt()


def scores_of_relations(heads: Tensor, targets: Tensor, relations: Tensor, score: Score) -> Tensor:
    """Scores [B, R], one of :data:`PRODUCTS`, of all ``relations`` [R, d] with heads and targets [B, d]."""
    if score == "complex":
        real, imaginary = heads.chunk(2, dim=1)
        heads = torch.cat([real, -imaginary], dim=1)
    return products(heads, targets, score) @ relations.T


def products(left: Tensor, right: Tensor, score: Score) -> Tensor:
    """[B, d] each, or one of them [1, d] → [B, d]: products of entries for distmult, else of complex numbers (a row's first
    half is real)."""
    if score == "distmult":
        return left * right
    a, b = left.chunk(2, dim=1)
    c, d = right.chunk(2, dim=1)
    return torch.cat([a * c - b * d, a * d + b * c], dim=1)
