"""Compares two rankings of the same queries by a paired bootstrap (Efron & Tibshirani 1993): difference and ratio.

Queries are resampled, not runs: the interval is about other queries of this kind, not about another seed.
"""

import math
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
_VALUES = 1 << 13
"""Queries times draws that are computed at once."""


@dataclass(frozen=True)
class PairedDifference:
    """Means of two scorers on the same queries, ``difference`` = first − second, and its interval at ``level``.

    ``ratio_low``, ``ratio_high``: the interval of first / second; nan if a draw has 0 as the second mean.
    """

    first: float
    second: float
    difference: float
    low: float
    high: float
    ratio_low: float
    ratio_high: float
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
    seed: int = 0,
) -> PairedDifference:
    """The percentile intervals of difference and ratio of the means of two metrics (Q values each) of the same Q queries.

    ``groups`` (Q): the mean is taken within each group, then over groups (macro); None: one group. ``units`` (Q):
    queries with the same unit are drawn together, because they are not independent (both directions of a link); None:
    each alone. The same ``seed`` draws the same queries. Raises :class:`InputError` if there is no query.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} queries: a paired comparison needs the same ones")
    if not len(first):
        raise InputError("there is no query to compare on")
    sides = np.stack([np.asarray(first, np.float64), np.asarray(second, np.float64)])
    group = np.zeros(len(first), np.int64) if groups is None else np.unique(groups, return_inverse=True)[1]
    unit = np.arange(len(first)) if units is None else np.unique(units, return_inverse=True)[1]
    order = np.argsort(group, kind="stable")
    group, unit, sides = group[order], unit[order], sides[:, order]
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    count, rng = int(unit.max()) + 1, generator("paired bootstrap", seed)
    drawn, at_once = np.zeros((DRAWS, 2)), 1 + _VALUES // len(unit)
    for draws in np.split(np.arange(DRAWS), range(at_once, DRAWS, at_once)):
        taken = rng.integers(0, count, (len(draws), count)) + count * np.arange(len(draws))[:, None]
        weight = np.bincount(taken.ravel(), minlength=taken.size).reshape(taken.shape).take(unit, axis=1)
        total = np.add.reduceat(weight, starts, axis=1)
        means = np.add.reduceat(weight[:, None] * sides, starts, axis=2) / np.maximum(total, 1)[:, None]
        present = np.count_nonzero(total, axis=1)  # a small group may have no query in a draw
        drawn[draws] = means.sum(axis=2) / np.maximum(present, 1)[:, None]
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.quantile(drawn[:, 0] - drawn[:, 1], tails)
    ratios = np.quantile(drawn[:, 0] / drawn[:, 1], tails) if drawn[:, 1].min() > 0 else (math.nan, math.nan)
    first_mean, second_mean, difference = (grouped_mean(each, group) for each in (*sides, sides[0] - sides[1]))
    low, high, ratio_low, ratio_high = (float(each) for each in (low, high, *ratios))
    return PairedDifference(first_mean, second_mean, difference, low, high, ratio_low, ratio_high, LEVEL, len(first))


def grouped_mean(values: NDArray[np.float64], groups: Int64) -> float:
    """The mean over groups of the mean within each."""
    inverse = np.unique(groups, return_inverse=True)[1]
    return float((np.bincount(inverse, values) / np.bincount(inverse)).mean())
