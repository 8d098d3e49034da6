"""Turns scores into probabilities, by an isotonic curve for each relation, fitted on validation links.

The population is all pairs (head, tail) where the head has validation links and the tail is open: not linked to the
head in training or in the test, and not the head itself. A pair is positive if validation has the link or people judged
it true, unless they judged it false; judged pairs that are left out are not in the population. The sample has,
for each head, all positives, the :data:`TOP` best other tails, and :data:`DRAWN` drawn from the rest, which are
weighted to represent the rest. So the probability is that an open tail is a held-out link. It assumes the share of
positives in this population, the base rate. If the user sets another base rate, all negatives get the same weight.

The error is measured on heads that were not used in the fit, in :data:`FOLDS` folds of heads; the test split is not
read. The expected calibration error (Naeini et al. 2015) uses bins with equally many pairs. It is over the k best tails
of each head, which a table shows: in the population almost all probabilities are near 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.splits import TEST, TRAIN, VALID
from graphmill.predictions.settings import LinkSettings
from graphmill.predictions.top_tails import Candidates, top_of_rows
from graphmill.sampling.keyed import generator

if TYPE_CHECKING:
    from sklearn.isotonic import IsotonicRegression

Float = NDArray[np.float64]

LEAST_LINKS = 20
"""A relation with fewer validation links gets no probabilities."""
TOP, DRAWN, FOLDS, BINS = 64, 64, 5, 10
NEGATIVES = (
    f"open tails of heads with validation links: the {TOP} best scored of each, and {DRAWN} drawn from the rest, "
    "weighted for all of it"
)


@dataclass(frozen=True)
class Pairs:
    """Points of the population: ``scores``, ``weights`` float64 [P], ``positive`` bool, ``heads`` int64 (groups), and
    ``ranks`` int64: the tail's rank among the head's open tails, or a large number if it was drawn from the rest."""

    scores: Float
    positive: NDArray[np.bool_]
    weights: Float
    heads: NDArray[np.int64]
    ranks: NDArray[np.int64]


@dataclass(frozen=True)
class Calibration:
    """A relation's curve, or the reason why there is none, with its quality.

    ``curve``: scores and probabilities of the isotonic steps, or None. ``about``: ``valid_links``, ``heads``,
    ``negatives``, ``base_rate``, ``ece_top``, ``why``.
    """

    curve: tuple[Float, Float] | None
    about: dict[str, Any]

    def probabilities(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32 [N]; nan without a curve. Beyond the fitted scores the curve is constant."""
        if self.curve is None:
            return np.full(len(scores), np.nan, np.float32)
        return np.interp(scores, *self.curve).astype(np.float32)


def calibrate(candidates: Candidates, settings: LinkSettings) -> Calibration:
    """Fit the curve of one relation on at most ``probability_heads`` heads. Links that the table leaves out are not used."""
    heads, _ = candidates.links_of(VALID)
    about: dict[str, Any] = {"valid_links": len(heads), "negatives": NEGATIVES}
    if not settings.probability_heads:
        return Calibration(None, about | {"why": "probability_heads is 0"})
    if len(heads) < LEAST_LINKS:
        return Calibration(None, about | {"why": f"fewer than {LEAST_LINKS} validation links"})
    points = population(candidates, settings.probability_heads, settings.seed)
    if not points.positive.any():
        return Calibration(None, about | {"why": "no validation link is among the candidates"})
    about |= {"heads": len(np.unique(points.heads)), "measured_base_rate": _rate(points)}
    points = reweighted(points, settings.base_rate)
    about["base_rate"] = _rate(points)
    top, held_out = points.ranks <= settings.k, _probabilities_of_folds(points)
    ece = expected_calibration_error(held_out[top], points.positive[top], points.weights[top])
    fitted = fit(points)
    return Calibration((fitted.X_thresholds_, fitted.y_thresholds_), about | {"ece_top": ece})


def population(candidates: Candidates, most_heads: int, seed: int) -> Pairs:
    """The points of one relation, as the module describes. Positives have weight 1, negatives their sampling weight."""
    open_ones = replace(candidates, leave_out=(TRAIN, TEST))
    heads = candidates.drawn_heads(most_heads, "calibration-heads", seed, VALID)
    positives = dict(zip(heads.tolist(), candidates.true_tails(heads, VALID), strict=True))
    rng = generator("calibration-negatives", seed, candidates.relation.index)
    parts = []
    for block, scores in open_ones.blocks(heads):
        best, _ = top_of_rows(scores, TOP)
        for head, row, top in zip(block.tolist(), scores, best, strict=True):
            parts.append(_of_head(head, row.numpy(), top, positives[head], rng))
    columns = zip(*parts, strict=True)
    return Pairs(*map(np.concatenate, columns))


def _of_head(
    head: int,
    scores: NDArray[np.float32],
    top: NDArray[np.int64],
    positive: NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[Float, NDArray[np.bool_], Float, NDArray[np.int64], NDArray[np.int64]]:
    candidates = np.isfinite(scores)
    top, positive = top[candidates[top]], positive[candidates[positive]]
    rest = candidates.copy()
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
    """Weight negatives so that positives are the fraction ``base_rate`` of all; 0 keeps the measured base rate."""
    if not base_rate:
        return points
    positives, negatives = (float(points.weights[points.positive == kind].sum()) for kind in (True, False))
    factor = positives * (1 - base_rate) / (base_rate * max(negatives, 1e-300))
    return replace(points, weights=np.where(points.positive, points.weights, points.weights * factor))


def _curve() -> IsotonicRegression:
    from sklearn.isotonic import IsotonicRegression

    return IsotonicRegression(y_min=0.0, y_max=1.0, increasing=True, out_of_bounds="clip")


def fit(points: Pairs) -> IsotonicRegression:
    """The isotonic curve of the points."""
    return _curve().fit(points.scores, points.positive.astype(float), points.weights)


def _probabilities_of_folds(points: Pairs) -> Float:
    """The probability of each point by the curve of the other folds' heads. With a single head, by its own curve."""
    from sklearn.model_selection import GroupKFold, cross_val_predict

    folds = min(FOLDS, len(np.unique(points.heads)))
    if folds < 2:
        return np.asarray(fit(points).predict(points.scores))
    every = points.scores, points.positive.astype(float), points.heads
    more = {"cv": GroupKFold(folds), "params": {"sample_weight": points.weights}}
    return np.asarray(cross_val_predict(_curve(), every[0], every[1], groups=every[2], **more))


def expected_calibration_error(probabilities: Float, positive: NDArray[np.bool_], weights: Float) -> float:
    """Σ over bins of weight · |mean probability − fraction positive| / total weight.

    Points are ordered by probability and cut into :data:`BINS` bins of equal weight. Points with equal probability stay
    in one bin.
    """
    if not len(probabilities):
        return float("nan")
    _, place = np.unique(probabilities, return_inverse=True)
    weight = np.bincount(place, weights)
    middle = np.cumsum(weight) - weight / 2
    bin_of = np.minimum((middle / weight.sum() * BINS).astype(int), BINS - 1)[place]
    gaps = np.bincount(bin_of, weights * (probabilities - positive))
    return float(np.abs(gaps).sum() / weights.sum())


def _rate(points: Pairs) -> float:
    return float(points.weights[points.positive].sum() / points.weights.sum())
