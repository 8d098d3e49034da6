"""Scores of typed links from spectral vectors, their sums over neighbours, learned vectors and popularity."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

#: Where training starts, chosen on validation links of kg_5k (benchmarks/LOG.md): weight of either sum, exponent of the
#: number of links at the head and at the target, popularity; weight of spectral vectors alone, and of learned ones.
SUMS, EXPONENTS, POPULARITY, DIRECT, LEARNED = 9.0, (0.7, 0.5), 0.7, 5.0, 1.0


class Ends(NamedTuple):
    """Heads or targets of one relation: ``vectors`` [n, s] spectral, ``learned`` [n, e] or None.

    ``sums`` [n, s]: of the other ends' spectral vectors over a node's links in the relation; ``counts`` [n]: how many.
    """

    vectors: Tensor
    learned: Tensor | None
    sums: Tensor
    counts: Tensor


class SoftmaxDecoder(nn.Module):
    """Score of (h, r, t): a (1 + n_h)^−α ⟨Σ s_t', s_t⟩ + b (1 + n_t)^−β ⟨s_h, Σ s_h'⟩ + ⟨y_h d, y_t⟩ + w log(1 + n_t).

    a, α, b, β, d and w are the relation's; t' are the n_h other targets of h in it, h' the n_t other heads of t: a linear,
    unnormalised message path, in which the link itself has no part. s: spectral vectors, y: learned ones. Without ``sums``
    the first two terms are ⟨s_h d, s_t⟩.

    ``strength`` [relations] scales all but popularity when links are ranked, as in
    :class:`graphmill.systems.hgt.decoder.LinkDecoder`; training leaves it at 1.
    """

    def __init__(
        self, num_relations: int, spectral: int, learned: int, *, sums: bool, weighted: bool, popularity: bool
    ) -> None:
        super().__init__()
        ones = torch.ones(num_relations)
        self.sums = nn.Parameter(ones.new_full((num_relations, 2), SUMS)) if sums and spectral else None
        self.exponents = nn.Parameter(torch.tensor(EXPONENTS).repeat(num_relations, 1)) if sums and spectral else None
        self.direct = nn.Parameter(ones.new_full((num_relations, spectral), DIRECT)) if spectral and not sums else None
        start = ones.new_full((num_relations, learned), LEARNED)
        self.relation = nn.Parameter(start, requires_grad=weighted) if learned else None
        self.popularity = nn.Parameter(POPULARITY * ones) if popularity else None
        self.strength: Tensor
        self.register_buffer("strength", torch.ones(num_relations))

    def forward(self, relation: int | Tensor, heads: Ends, targets: Ends, log_degree: Tensor) -> Tensor:
        """Every head with every target: [B] and [C] ends, ``log_degree`` [C] → at least fp32 [B, C].

        ``relation`` int64 [R]: of several relations, whose ends and degrees stand in one more dimension before these.
        """
        return self._scores(relation, heads, targets, log_degree, crossed=True)

    def pairs(self, relation: int | Tensor, heads: Ends, targets: Ends, log_degree: Tensor) -> Tensor:
        """Each head with the target of its row: [B] and [B] ends, ``log_degree`` [B] → at least fp32 [B]."""
        return self._scores(relation, heads, targets, log_degree, crossed=False)

    def _scores(
        self, relation: int | Tensor, heads: Ends, targets: Ends, log_degree: Tensor, *, crossed: bool
    ) -> Tensor:
        # Products are summed in fp32, or in fp64 where the parameters are.
        dtype = torch.float64 if self.strength.dtype == torch.float64 else torch.float32
        heads, targets, log_degree = _to(dtype, heads), _to(dtype, targets), log_degree.to(dtype)
        score = log_degree.new_zeros(())
        if self.sums is not None and self.exponents is not None:
            weight, exponent = _of(self.sums, relation)[..., None], _of(self.exponents, relation)[..., None]
            of_head = weight[..., 0, :] * (1.0 + heads.counts) ** -exponent[..., 0, :]
            of_target = weight[..., 1, :] * (1.0 + targets.counts) ** -exponent[..., 1, :]
            score = _product(heads.sums, targets.vectors, crossed) * (of_head[..., None] if crossed else of_head)
            score = score + _product(heads.vectors, targets.sums, crossed) * (
                of_target[..., None, :] if crossed else of_target
            )
        elif self.direct is not None:
            score = _product(heads.vectors * _of(self.direct, relation)[..., None, :], targets.vectors, crossed)
        if self.relation is not None and heads.learned is not None and targets.learned is not None:
            weighted = heads.learned * _of(self.relation, relation)[..., None, :]
            score = score + _product(weighted, targets.learned, crossed)
        if not self.training:
            strength = _of(self.strength, relation)[..., None]
            score = score * (strength[..., None] if crossed else strength)
        if self.popularity is None:
            return score
        popular = _of(self.popularity, relation)[..., None] * log_degree
        return score + (popular[..., None, :] if crossed else popular)


def _of(values: Tensor, relation: int | Tensor) -> Tensor:
    return values[relation] if isinstance(relation, int) else values.index_select(0, relation)


def _product(left: Tensor, right: Tensor, crossed: bool) -> Tensor:
    return left @ right.mT if crossed else (left * right).sum(-1)


def _to(dtype: torch.dtype, ends: Ends) -> Ends:
    learned = None if ends.learned is None else ends.learned.to(dtype)
    return Ends(ends.vectors.to(dtype), learned, ends.sums.to(dtype), ends.counts.to(dtype))
