"""From scores to probabilities: an isotonic curve for each relation, fitted on validation links.

The population is (head, tail) with a head that has validation links and a tail that is open to it: not linked in training,
nor in the test, nor itself. A tail is positive where validation has the link. Of each head count all its positives, its
:data:`TOP` best other tails, and :data:`DRAWN` drawn from the rest, each weighted for as many as the rest has. So the
probability is that an open tail is a held-out link, and it assumes their share: the base rate. A base rate of one's own
weights all negatives alike.

How far they can be trusted is measured on heads that had no part in the fit, in :data:`FOLDS` folds of heads; the test is
not read. The expected calibration error (Naeini et al. 2015) is of bins with equally many pairs: ``ece`` over the
population, in which almost all are near 0, ``ece_top`` over each head's k best tails, which are what a table shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.splits import TEST, TRAIN, VALID
from graphmill.predictions.settings import LinkSettings
from graphmill.predictions.top_tails import Candidates, top_of_rows
from graphmill.sampling.keyed import generator

Float = NDArray[np.float64]

LEAST_LINKS = 20
"""Validation links below which a relation gets no probabilities."""
TOP, DRAWN, FOLDS, BINS = 64, 64, 5, 10
NEGATIVES = (
    f"open tails of heads with validation links: the {TOP} best scored of each, and {DRAWN} drawn from the rest, "
    "weighted for all of it"
)


@dataclass(frozen=True)
class Pairs:
    """Points of a population: ``scores``, ``weights`` float64 [P], ``positive`` bool, ``heads`` int64 (groups), and
    ``ranks`` int64: the tail's place among the head's open tails, large where it is among the rest."""

    scores: Float
    positive: NDArray[np.bool_]
    weights: Float
    heads: NDArray[np.int64]
    ranks: NDArray[np.int64]


@dataclass(frozen=True)
class Calibration:
    """A relation's curve, or why there is none, and what is to be known beside it.

    ``curve``: scores and probabilities of the isotonic steps, None where there is none. ``about``: ``valid_links``,
    ``heads``, ``negatives``, ``base_rate``, ``ece``, ``ece_top``, ``why``. ``bins``: of each head's k best tails mean
    probability, part that are links, and number of pairs.
    """

    curve: tuple[Float, Float] | None
    about: dict[str, Any]
    bins: tuple[tuple[float, float, int], ...] = ()

    def probabilities(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32 [N]; nan where there is no curve. Beyond the scores that were seen it stays as at the last one."""
        if self.curve is None:
            return np.full(len(scores), np.nan, np.float32)
        return np.interp(scores, *self.curve).astype(np.float32)


def calibrate(candidates: Candidates, settings: LinkSettings) -> Calibration:
    """The curve of one relation by at most ``probability_heads`` heads; the links that the table leaves out have no part."""
    heads, _ = candidates.links_of(VALID)
    about: dict[str, Any] = {"valid_links": len(heads), "negatives": NEGATIVES}
    if not settings.probability_heads:
        return Calibration(None, about | {"why": "probability_heads is 0"})
    if len(heads) < LEAST_LINKS:
        return Calibration(None, about | {"why": f"fewer than {LEAST_LINKS} validation links"})
    points = population(candidates, settings.probability_heads, settings.seed)
    about |= {"heads": len(np.unique(points.heads)), "measured_base_rate": _rate(points)}
    points = reweighted(points, settings.base_rate)
    about["base_rate"] = _rate(points)
    curve = fit(points, np.ones(len(points.scores), bool))
    held_out = _probabilities_of_folds(points)
    ece, _ = expected_calibration_error(held_out, points.positive, points.weights)
    top = points.ranks <= settings.k
    ece_top, bins = expected_calibration_error(held_out[top], points.positive[top], points.weights[top])
    return Calibration(curve, about | {"ece": ece, "ece_top": ece_top}, bins)


def population(candidates: Candidates, most_heads: int, seed: int) -> Pairs:
    """The points of one relation, as the module says; negatives have their own weight, positives 1."""
    open_ones = candidates.but(TRAIN, TEST)
    heads = candidates.drawn_heads(most_heads, "calibration-heads", seed, VALID)
    asked, tails = candidates.links_of(VALID)
    bounds = np.searchsorted(asked, np.stack([heads, heads + 1]))
    positives = {int(head): tails[low:high] for head, low, high in zip(heads, *bounds, strict=True)}
    rng = generator("calibration-negatives", seed, candidates.relation.index)
    parts = []
    for block, scores in open_ones.blocks(heads):
        best, _ = top_of_rows(scores, TOP)
        for head, own, top in zip(block.tolist(), scores, best, strict=True):
            parts.append(_of_head(head, own.numpy(), top, positives[head], rng))
    columns = zip(*parts, strict=True)
    return Pairs(*map(np.concatenate, columns))


def _of_head(
    head: int,
    scores: NDArray[np.float32],
    top: NDArray[np.int64],
    positive: NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[Float, NDArray[np.bool_], Float, NDArray[np.int64], NDArray[np.int64]]:
    there = np.isfinite(scores)
    top, positive = top[there[top]], positive[there[positive]]
    rest = there.copy()
    rest[top] = rest[positive] = False
    others = np.flatnonzero(rest)
    drawn = rng.choice(others, DRAWN, replace=False) if len(others) > DRAWN else others
    below = np.setdiff1d(positive, top)
    chosen = np.concatenate([top, below, drawn])
    weights = np.ones(len(chosen))
    weights[len(top) + len(below) :] = len(others) / max(len(drawn), 1)
    ranks = np.full(len(chosen), len(scores) + 1, np.int64)
    ranks[: len(top)] = np.arange(1, len(top) + 1)
    return scores[chosen].astype(float), np.isin(chosen, positive), weights, np.full(len(chosen), head), ranks


def reweighted(points: Pairs, base_rate: float) -> Pairs:
    """Negatives weighted so that positives are ``base_rate`` of all; 0 leaves the measured one."""
    if not base_rate:
        return points
    positives, negatives = (float(points.weights[points.positive == kind].sum()) for kind in (True, False))
    factor = positives * (1 - base_rate) / (base_rate * max(negatives, 1e-300))
    weights = np.where(points.positive, points.weights, points.weights * factor)
    return Pairs(points.scores, points.positive, weights, points.heads, points.ranks)


def fit(points: Pairs, rows: NDArray[np.bool_]) -> tuple[Float, Float]:
    """Scores and probabilities at the steps of the isotonic curve of ``rows``."""
    from sklearn.isotonic import IsotonicRegression

    curve = IsotonicRegression(y_min=0.0, y_max=1.0, increasing=True, out_of_bounds="clip")
    curve.fit(points.scores[rows], points.positive[rows].astype(float), points.weights[rows])
    return np.asarray(curve.X_thresholds_, float), np.asarray(curve.y_thresholds_, float)


def _probabilities_of_folds(points: Pairs) -> Float:
    """Of each point by the curve of the other folds' heads; of a single head by its own."""
    from sklearn.model_selection import GroupKFold

    folds = min(FOLDS, len(np.unique(points.heads)))
    if folds < 2:
        return np.interp(points.scores, *fit(points, np.ones(len(points.scores), bool)))
    out = np.zeros(len(points.scores))
    for _, held in GroupKFold(folds).split(points.scores, groups=points.heads):
        rows = np.ones(len(out), bool)
        rows[held] = False
        out[held] = np.interp(points.scores[held], *fit(points, rows))
    return out


def expected_calibration_error(
    probabilities: Float, positive: NDArray[np.bool_], weights: Float
) -> tuple[float, tuple[tuple[float, float, int], ...]]:
    """Σ over bins of their weight · |mean probability − part positive| / all weight, and the bins.

    Points are ordered by probability and cut into :data:`BINS` parts of equal weight; points of one probability stay in one.
    """
    if not len(probabilities):
        return float("nan"), ()
    _, place = np.unique(probabilities, return_inverse=True)
    weight = np.bincount(place, weights)
    middle = np.cumsum(weight) - weight / 2
    bin_of = np.minimum((middle / weight.sum() * BINS).astype(int), BINS - 1)[place]
    error, bins = 0.0, []
    for number in np.unique(bin_of):
        own = bin_of == number
        total = weights[own].sum()
        mean, part = (float((column[own] * weights[own]).sum() / total) for column in (probabilities, positive))
        error += total * abs(mean - part)
        bins.append((mean, part, int(own.sum())))
    return float(error / weights.sum()), tuple(bins)


def _rate(points: Pairs) -> float:
    return float(points.weights[points.positive].sum() / points.weights.sum())
