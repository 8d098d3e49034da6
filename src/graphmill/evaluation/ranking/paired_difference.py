"""Tests whether one ranking is better than another on the same queries: paired bootstrap (Efron & Tibshirani 1993).

Queries are resampled, not runs: the interval is about other queries of this kind, not about another seed.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import InputError
from graphmill.evaluation.json_values import plain
from graphmill.sampling.keyed import generator

Int64 = NDArray[np.int64]
DRAWS = 1000
LEVEL = 0.95


@dataclass(frozen=True)
class PairedDifference:
    """Means of two scorers on the same queries, ``difference`` = first − second, and its interval at ``level``."""

    first: float
    second: float
    difference: float
    low: float
    high: float
    level: float
    queries: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return plain(asdict(self))


def paired_bootstrap(
    first: NDArray[np.floating],
    second: NDArray[np.floating],
    *,
    groups: Int64 | None = None,
    units: Int64 | None = None,
    draws: int = DRAWS,
    level: float = LEVEL,
    seed: int = 0,
) -> PairedDifference:
    """The percentile interval of the mean difference between two metrics (Q values each) of the same Q queries.

    ``groups`` (Q): the mean is taken within each group, then over groups (macro); None: one group. ``units`` (Q):
    queries with the same unit are drawn together, because they are not independent (both directions of a link); None:
    each alone. The same ``seed`` draws the same queries. Raises :class:`InputError` if there is no query.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} queries: a paired comparison needs the same ones")
    if not len(first):
        raise InputError("there is no query to compare on")
    difference = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    group = np.zeros(len(difference), np.int64) if groups is None else np.unique(groups, return_inverse=True)[1]
    unit = np.arange(len(difference)) if units is None else np.unique(units, return_inverse=True)[1]
    order = np.argsort(group, kind="stable")
    group, unit, difference = group[order], unit[order], difference[order]
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    count, rng = int(unit.max()) + 1, generator("paired bootstrap", seed)
    found = np.empty(draws)
    for draw in range(draws):
        weight = np.bincount(rng.integers(0, count, count), minlength=count)[unit]
        total = np.add.reduceat(weight, starts)
        there = total > 0  # a small group may have no query in a draw
        sums = np.add.reduceat(weight * difference, starts)
        found[draw] = (sums[there] / total[there]).mean() if there.any() else 0.0
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    means = [grouped_mean(np.asarray(side, np.float64)[order], group) for side in (first, second)]
    return PairedDifference(
        means[0], means[1], grouped_mean(difference, group), float(low), float(high), level, len(first)
    )


def grouped_mean(values: NDArray[np.float64], groups: Int64) -> float:
    """The mean over groups of the mean within each."""
    inverse = np.unique(groups, return_inverse=True)[1]
    return float((np.bincount(inverse, values) / np.bincount(inverse)).mean())
