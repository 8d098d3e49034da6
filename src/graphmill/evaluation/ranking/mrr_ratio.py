"""The confidence interval of the ratio of two MRRs, by a paired bootstrap over the queries within each relation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.ranking.links import LinkRanking
from graphmill.sampling.keyed import generator

SAMPLES = 1000
LEVEL = 0.95
_BLOCK_NUMBERS = 1 << 22

Average = Literal["macro", "micro"]


@dataclass(frozen=True)
class Ratio:
    """The MRR of one ranking divided by that of another, with its 95 % interval (nan: undefined)."""

    value: float
    low: float
    high: float


def mrr_ratio(
    model: LinkRanking, other: LinkRanking, *, average: Average = "macro", samples: int = SAMPLES, seed: int = 0
) -> Ratio:
    """The ratio of two rankings of the same queries, and its percentile interval (Efron 1979).

    Each of ``samples`` draws resamples the queries of every relation with replacement, with the same queries for both
    rankings. ``average``: macro means over relations, or micro ones over queries.
    """
    below = other.macro["mrr"] if average == "macro" else other.micro["mrr"]
    above = model.macro["mrr"] if average == "macro" else model.micro["mrr"]
    value = above / below if below > 0 else math.nan
    counts = [len(relation.reciprocal) for relation in model.relations]
    if not counts or 0 in counts or counts != [len(relation.reciprocal) for relation in other.relations]:
        return Ratio(value, math.nan, math.nan)
    weights = np.array([1.0 if average == "macro" else float(count) for count in counts])
    ours, theirs = np.zeros(samples), np.zeros(samples)
    for mine, rival, weight in zip(model.relations, other.relations, weights, strict=True):
        pairs = np.stack([mine.reciprocal, rival.reciprocal])
        drawn = _resampled_means(pairs, samples, generator(seed, "bootstrap", mine.relation)) * weight
        ours, theirs = ours + drawn[0], theirs + drawn[1]
    if not theirs.min() > 0:
        return Ratio(value, math.nan, math.nan)
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(ours / theirs, [tail, 100 - tail])
    return Ratio(value, float(low), float(high))


def _resampled_means(values: NDArray[np.float64], samples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """``values`` (k × n) → (k × samples): means over n columns drawn with replacement."""
    count = values.shape[1]
    out = np.empty((len(values), samples))
    block = max(1, _BLOCK_NUMBERS // max(count, 1))
    for start in range(0, samples, block):
        chosen = rng.integers(0, count, (min(block, samples - start), count))
        out[:, start : start + block] = values[:, chosen].mean(axis=2)
    return out
