"""Scores of typed links from spectral vectors, their sums over neighbours, learned vectors and popularity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

#: Initial values, by validation on kg_5k (benchmarks/LOG_2026.md): weight of each sum, exponents of the number of
#: links at head and target, weight of popularity, of spectral vectors without sums, and of learned vectors.
SUMS, EXPONENTS, POPULARITY, DIRECT, LEARNED = 9.0, (0.7, 0.5), 0.7, 5.0, 1.0


class Ends(NamedTuple):
    """Heads or targets of one relation: ``vectors`` [n, s] spectral, ``learned`` [n, e] or None.

    ``sums`` [n, s]: the other ends' spectral vectors, summed over a node's links in the relation; ``counts`` [n]: how many.
    """

    vectors: Tensor
    learned: Tensor | None
    sums: Tensor
    counts: Tensor
    factors: Tensor | None = None
    """[n, f] ComplEx's vectors; those of heads are multiplied by the relation's."""


PARTS = ("sum at the head", "sum at the target", "learned", "ComplEx", "popularity", "neighbours", "paths")
"""What a row of :attr:`SoftmaxDecoder.mix` weights. Without sums the first is the product of the two ends' vectors. The last
two are pair features, which the scorer adds."""
PLAIN = (1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0)
"""The weights of the score as it is trained."""


class SoftmaxDecoder(nn.Module):
    """Score of (h, r, t): a (1 + n_h)^−α ⟨Σ s_t', s_t⟩ + b (1 + n_t)^−β ⟨s_h, Σ s_h'⟩ + ⟨y_h d, y_t⟩ + w log(1 + n_t).

    a, α, b, β, d and w are the relation's. t' are the n_h other targets of h in it, h' the n_t other heads of t: the sums
    are linear, unnormalised messages without the link itself. s: spectral vectors, y: learned ones. Without ``sums`` the
    first two terms are ⟨s_h d, s_t⟩.

    With ``mixed``, ranking weights the :data:`PARTS` by the buffer ``mix`` [relations, 7]. Until
    :func:`graphmill.systems.hgt.part_weights.fit_mix` sets it, parts that are not trained here have weight 0.

    ``strength`` [relations] scales all parts but popularity when links are ranked, as in
    :class:`graphmill.systems.hgt.decoder.LinkDecoder`; training does not use it.
    """

    def __init__(
        self,
        num_relations: int,
        spectral: int,
        learned: int,
        *,
        sums: bool,
        weighted: bool,
        popularity: bool,
        mixed: bool = False,
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
        self.mix: Tensor | None
        self.register_buffer("mix", torch.tensor(PLAIN).repeat(num_relations, 1) if mixed else None)

    def forward(self, relation: int | Tensor, heads: Ends, targets: Ends, log_degree: Tensor) -> Tensor:
        """Score every head with every target: [B] and [C] ends, ``log_degree`` [C] → at least fp32 [B, C].

        ``relation`` int64 [R]: several relations; their ends, degrees and scores have R as the first dimension.
        """
        return self._scores(relation, heads, targets, log_degree, crossed=True)

    def pairs(self, relation: int | Tensor, heads: Ends, targets: Ends, log_degree: Tensor) -> Tensor:
        """Score each head with the target of its row: [B] and [B] ends, ``log_degree`` [B] → at least fp32 [B]."""
        return self._scores(relation, heads, targets, log_degree, crossed=False)

    def own_and_others(
        self, relation: int | Tensor, heads: Ends, targets: Ends, log_degree: Tensor
    ) -> tuple[Tensor, Tensor]:
        """:meth:`pairs` [B] with the first B of ``targets`` [B + C], and :meth:`forward` [B, C] with the others."""
        heads, targets, factors = self._factors(relation, heads, targets, log_degree)
        links = heads.counts.shape[-1]
        sizes = [links, targets.counts.shape[-1] - links]

        def apart(x: Tensor | None, dim: int) -> Sequence[Any]:
            return (None, None) if x is None else x.split(sizes, dim)

        fields = [*(apart(x, -2) for x in targets[:3]), apart(targets.counts, -1), apart(targets.factors, -2)]
        of_target, popular = apart(factors.of_target, -1), apart(factors.popular, -1)
        own, others = (
            self._combined(
                heads,
                Ends(*(field[n] for field in fields)),
                factors._replace(of_target=of_target[n], popular=popular[n]),
                crossed=n == 1,
            )
            for n in range(2)
        )
        return own, others

    def _scores(
        self, relation: int | Tensor, heads: Ends, targets: Ends, log_degree: Tensor, *, crossed: bool
    ) -> Tensor:
        heads, targets, factors = self._factors(relation, heads, targets, log_degree)
        return self._combined(heads, targets, factors, crossed)

    def _factors(
        self, relation: int | Tensor, heads: Ends, targets: Ends, log_degree: Tensor
    ) -> tuple[Ends, Ends, _Factors]:
        # Products are summed in fp32, or in fp64 where the parameters are.
        dtype = torch.float64 if self.strength.dtype == torch.float64 else torch.float32
        heads, targets, log_degree = _to(dtype, heads), _to(dtype, targets), log_degree.to(dtype)
        mix = None if self.mix is None or self.training else _of(self.mix, relation)
        # Products whose weight is 0 are left out.
        head_sum, target_sum, learned, complex_part = (
            mix[:4].tolist() if mix is not None and mix.dim() == 1 else [1.0] * 4
        )
        of_head = of_target = popular = strength = None
        if self.sums is not None and self.exponents is not None:
            weight, exponent = _of(self.sums, relation)[..., None], _of(self.exponents, relation)[..., None]
            weight = weight if mix is None else weight * mix[..., :2, None]
            if head_sum:
                of_head = weight[..., 0, :] * (1.0 + heads.counts) ** -exponent[..., 0, :]
            if target_sum:
                of_target = weight[..., 1, :] * (1.0 + targets.counts) ** -exponent[..., 1, :]
        elif self.direct is not None:
            direct = _of(self.direct, relation) if mix is None else _of(self.direct, relation) * mix[..., :1]
            heads = heads._replace(vectors=heads.vectors * direct[..., None, :])
        if self.relation is not None and heads.learned is not None:
            own = _of(self.relation, relation) if mix is None else _of(self.relation, relation) * mix[..., 2:3]
            heads = heads._replace(learned=heads.learned * own[..., None, :] if learned else None)
        if heads.factors is not None:
            own_part = None if mix is None or not complex_part else heads.factors * mix[..., None, 3:4]
            heads = heads._replace(factors=own_part)
        if self.popularity is not None:
            known = _of(self.popularity, relation) if mix is None else _of(self.popularity, relation) * mix[..., 4]
            popular = known[..., None] * log_degree
        if not self.training:
            strength = _of(self.strength, relation)[..., None]
        return heads, targets, _Factors(of_head, of_target, popular, strength)

    def _combined(self, heads: Ends, targets: Ends, factors: _Factors, crossed: bool) -> Tensor:
        parts = []

        def along(x: Tensor, dim: int) -> Tensor:
            return x.unsqueeze(dim) if crossed else x

        if factors.of_head is not None:
            parts.append(_product(heads.sums, targets.vectors, crossed) * along(factors.of_head, -1))
        if factors.of_target is not None:
            parts.append(_product(heads.vectors, targets.sums, crossed) * along(factors.of_target, -2))
        if self.direct is not None:
            parts.append(_product(heads.vectors, targets.vectors, crossed))
        if heads.learned is not None and targets.learned is not None and self.relation is not None:
            parts.append(_product(heads.learned, targets.learned, crossed))
        if heads.factors is not None and targets.factors is not None:
            parts.append(_product(heads.factors, targets.factors, crossed))
        if parts:
            score = sum(parts[1:], parts[0])
        else:
            score = heads.counts.new_zeros([*heads.counts.shape, *(targets.counts.shape[-1:] if crossed else ())])
        if factors.strength is not None:
            score = score * along(factors.strength, -1)
        return score if factors.popular is None else score + along(factors.popular, -2)


class _Factors(NamedTuple):
    """Per relation, for heads [B] and targets [C]: factors of each sum, popularity, strength; None where there is none."""

    of_head: Tensor | None
    of_target: Tensor | None
    popular: Tensor | None
    strength: Tensor | None


def _of(values: Tensor, relation: int | Tensor) -> Tensor:
    return values[relation] if isinstance(relation, int) else values.index_select(0, relation)


def _product(left: Tensor, right: Tensor, crossed: bool) -> Tensor:
    return left @ right.mT if crossed else (left * right).sum(-1)


def _to(dtype: torch.dtype, ends: Ends) -> Ends:
    learned = None if ends.learned is None else ends.learned.to(dtype)
    factors = None if ends.factors is None else ends.factors.to(dtype)
    return Ends(ends.vectors.to(dtype), learned, ends.sums.to(dtype), ends.counts.to(dtype), factors)
