"""Synthetic embeddings of known condition: every failure and several kinds of healthy ones, drawn at random.

The self-test of the validator draws from here; so can anyone who wants to see what a figure does. numpy only.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]
Generator = np.random.Generator


@dataclass(frozen=True)
class Case:
    """A drawn embedding (n × d float32), type codes (n), and links (L × 2 row numbers) of rows made similar, if any."""

    X: Float32
    types: Int64
    links: Int64


@dataclass(frozen=True)
class Size:
    """Rows, dimensions and node types of a draw."""

    rows: int = 1200
    dimensions: int = 128
    types: int = 5


def _types(rng: Generator, size: Size) -> Int64:
    """Codes with uneven shares, each type with at least a twentieth of the rows."""
    shares = rng.dirichlet(np.full(size.types, 3.0)) * (1 - 0.05 * size.types) + 0.05
    codes = np.repeat(np.arange(size.types), np.maximum((shares * size.rows).astype(int), 1))
    codes = np.resize(codes, size.rows)
    return rng.permutation(codes).astype(np.int64)


def _case(X: NDArray[np.floating], types: Int64, links: Int64 | None = None) -> Case:
    return Case(X.astype(np.float32), types, links if links is not None else np.zeros((0, 2), dtype=np.int64))


def _rotation(rng: Generator, d: int) -> NDArray[np.float64]:
    q, r = np.linalg.qr(rng.standard_normal((d, d)))
    return q * np.sign(np.diag(r))


def _clustered(rng: Generator, size: Size, types: Int64, cosine: float) -> NDArray[np.float64]:
    """Rows around a centre per type, so that the mean cosine is about ``cosine`` within a type and 0 between types."""
    centres = rng.standard_normal((size.types, size.dimensions))
    noise = rng.standard_normal((size.rows, size.dimensions))
    return np.sqrt(cosine) * centres[types] + np.sqrt(1 - cosine) * noise


def isotropic(rng: Generator, size: Size) -> Case:
    """Independent normal numbers."""
    return _case(rng.standard_normal((size.rows, size.dimensions)), _types(rng, size))


def clustered(rng: Generator, size: Size) -> Case:
    """Types apart, with real variation inside them."""
    types = _types(rng, size)
    return _case(_clustered(rng, size, types, rng.uniform(0.1, 0.6)), types)


def decaying(rng: Generator, size: Size) -> Case:
    """As trained: a rotated power-law spectrum λ_k ∝ k^−a, a mild common offset, and norms of several sizes."""
    types = _types(rng, size)
    scale = np.arange(1, size.dimensions + 1) ** (-rng.uniform(0.5, 1.1) / 2)
    X = (rng.standard_normal((size.rows, size.dimensions)) * scale) @ _rotation(rng, size.dimensions)
    X /= np.sqrt(np.square(scale).sum())
    offset = rng.standard_normal(size.dimensions)
    X += rng.uniform(0.0, 0.5) * offset / np.linalg.norm(offset)
    return _case(X * rng.lognormal(0.0, rng.uniform(0.0, 0.4), size=(size.rows, 1)), types)


def decaying_clustered(rng: Generator, size: Size) -> Case:
    """Both: types apart, and within them a power-law spectrum."""
    types = _types(rng, size)
    base = decaying(rng, size).X.astype(np.float64)
    centres = rng.standard_normal((size.types, size.dimensions))
    centres *= rng.uniform(0.4, 1.0) / np.linalg.norm(centres, axis=1, keepdims=True)
    return _case(base / np.linalg.norm(base, axis=1, keepdims=True) + centres[types], types)


def linked(rng: Generator, size: Size) -> Case:
    """Decaying spectrum, and rows in pairs that are near each other: the links that a ranking should find."""
    case = decaying(rng, size)
    half = size.rows // 2
    rows = rng.permutation(size.rows)
    links = np.stack([rows[:half], rows[half : 2 * half]], axis=1)
    X = case.X.astype(np.float64)
    X[links[:, 1]] = 0.8 * X[links[:, 0]] + 0.6 * X[links[:, 1]]
    return _case(X, case.types, links.astype(np.int64))


def non_finite(rng: Generator, size: Size) -> Case:
    """NaN or infinity in 5 % of the rows, in one number of each."""
    case = clustered(rng, size)
    rows = rng.choice(size.rows, max(size.rows // 20, 1), replace=False)
    case.X[rows, rng.integers(0, size.dimensions, len(rows))] = rng.choice([np.nan, np.inf, -np.inf])
    return case


def dead_rows(rng: Generator, size: Size) -> Case:
    """Rows that are zero, a few or a tenth."""
    case = clustered(rng, size)
    case.X[rng.choice(size.rows, int(rng.integers(1, size.rows // 10)), replace=False)] = 0
    return case


def complete_collapse(rng: Generator, size: Size) -> Case:
    """One vector plus a trace of noise, or plus a tenth in one or two directions."""
    if rng.random() < 0.5:
        noise = rng.standard_normal((size.rows, size.dimensions)) * rng.uniform(0.001, 0.008)
    else:
        noise = 0.15 * rng.standard_normal((size.rows, 2)) @ rng.standard_normal((2, size.dimensions)) / np.sqrt(2)
    return _case(rng.standard_normal(size.dimensions) + noise, _types(rng, size))


def cone(rng: Generator, size: Size) -> Case:
    """A common offset on a full-rank embedding: mean cosine 0.6 to 0.99."""
    cosine = rng.uniform(0.6, 0.99)
    offset = rng.standard_normal(size.dimensions)
    noise = rng.standard_normal((size.rows, size.dimensions))
    return _case(
        np.sqrt(cosine / (1 - cosine)) * offset * np.sqrt(size.dimensions / (offset @ offset)) + noise,
        _types(rng, size),
    )


def subspace(rng: Generator, size: Size) -> Case:
    """1 to 4 % of the directions, with or without a trace of noise in the others."""
    d, available = size.dimensions, min(size.dimensions, size.rows - 1)
    rank = int(rng.integers(max(2, available // 100), max(3, available // 25) + 1))
    X = rng.standard_normal((size.rows, rank)) @ _rotation(rng, d)[:rank]
    noise = rng.choice([0.0, 0.03]) * np.sqrt(rank / d) * rng.standard_normal((size.rows, d))
    return _case(X + noise, _types(rng, size))


def type_only(rng: Generator, size: Size) -> Case:
    """A point per type and nothing within."""
    types = _types(rng, size)
    return _case(_clustered(rng, size, types, 1 - rng.choice([0.0, 0.001, 0.05])), types)


def collapsed_type(rng: Generator, size: Size) -> Case:
    """Healthy types but for one, which is a point (with or without noise), or varies in one or two directions only."""
    types = _types(rng, size)
    X = _clustered(rng, size, types, rng.uniform(0.1, 0.4))
    rows = np.flatnonzero(types == np.argmax(np.bincount(types) * rng.random(size.types)))
    d = size.dimensions
    if rng.random() < 0.5:
        X[rows] = rng.standard_normal(d) + rng.choice([0.0, 0.01, 0.2]) * rng.standard_normal((len(rows), d))
    else:
        rank = int(rng.integers(1, 3))
        X[rows] = rng.standard_normal((len(rows), rank)) @ rng.standard_normal((rank, d)) / np.sqrt(rank)
    return _case(X, types)


def duplicated_rows(rng: Generator, size: Size) -> Case:
    """5 to 40 % of the rows are copies of others."""
    case = decaying_clustered(rng, size)
    count = int(size.rows * rng.uniform(0.05, 0.4))
    rows = rng.permutation(size.rows)
    case.X[rows[:count]] = case.X[rng.choice(rows[count:], count)]
    return case


def shuffled_ids(rng: Generator, size: Size) -> Case:
    """The linked case with the rows permuted within their types: the geometry is untouched, the links are lost."""
    case = linked(rng, size)
    order = np.arange(size.rows)
    for code in range(size.types):
        rows = np.flatnonzero(case.types == code)
        order[rows] = rng.permutation(rows)
    return Case(case.X[order], case.types, case.links)


Draw = Callable[[Generator, Size], Case]

#: How each failure is drawn.
FAILING: dict[str, Draw] = {
    "non_finite": non_finite,
    "dead_rows": dead_rows,
    "complete_collapse": complete_collapse,
    "cone": cone,
    "subspace": subspace,
    "type_only": type_only,
    "collapsed_type": collapsed_type,
    "duplicated_rows": duplicated_rows,
    "shuffled_ids": shuffled_ids,
}

#: The checks that see each failure: at least one of them fails.
SEEN_BY: dict[str, set[str]] = {
    "non_finite": {"non_finite_rows"},
    "dead_rows": {"dead_rows"},
    "complete_collapse": {"mean_cosine"},
    "cone": {"mean_cosine"},
    "subspace": {"components_90", "effective_rank_share"},
    "type_only": {"type_cosine"},
    "collapsed_type": {"type_cosine", "type_rank_share"},
    "duplicated_rows": {"duplicated_share"},
    "shuffled_ids": {"link_signal"},
}

#: Healthy embeddings of several kinds, which must pass.
HEALTHY: dict[str, Draw] = {
    "isotropic": isotropic,
    "clustered": clustered,
    "decaying": decaying,
    "decaying_clustered": decaying_clustered,
    "linked": linked,
}
