"""Probabilities are right on average, by the population and base rate that stand beside them."""

import numpy as np
import pytest

from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions import calibration
from graphmill.predictions.calibration import calibrate, expected_calibration_error, fit, population, reweighted
from graphmill.predictions.settings import LinkSettings
from tests.predictions.conftest import candidates_of, random_scores, relation_called


@pytest.fixture
def candidates(graph: TypedGraph):
    """Scores that know of the validation links."""
    relation = relation_called(graph, "disease_protein", "disease")
    scores = random_scores(graph, relation) / (1 << 20)
    heads, tails = candidates_of(graph, relation, scores).links_of(1)
    scores[heads, tails] += 0.5
    return candidates_of(graph, relation, scores)


def test_the_population_has_every_open_tail_by_weight(candidates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "TOP", 5)
    monkeypatch.setattr(calibration, "DRAWN", 4)
    points = population(candidates, 10**6, seed=0)
    heads, _ = candidates.links_of(1)
    closed = np.concatenate([candidates.links_of(split)[0] for split in (0, 2)])
    assert int(points.positive.sum()) == len(heads)
    for head in np.unique(heads):
        of_head = points.heads == head
        assert points.weights[of_head].sum() == pytest.approx(candidates.count - (closed == head).sum())
        assert sorted(points.ranks[of_head])[:5] == [1, 2, 3, 4, 5]


def test_probabilities_rise_with_scores_and_their_mean_is_the_base_rate(candidates) -> None:
    points = population(candidates, 10**6, seed=0)
    for base_rate in (0.0, 0.2):
        weighted = reweighted(points, base_rate)
        curve = fit(weighted)
        assert (np.diff(curve.y_thresholds_) >= 0).all()
        mean = np.average(curve.predict(weighted.scores), weights=weighted.weights)
        expected = base_rate or points.positive.sum() / points.weights.sum()
        assert mean == pytest.approx(expected, rel=1e-6)


def test_what_a_curve_assumes_stands_beside_it(candidates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "LEAST_LINKS", 5)
    result = calibrate(candidates, LinkSettings(k=3, base_rate=0.1))
    assert result.about["base_rate"] == pytest.approx(0.1)
    assert 0 < result.about["measured_base_rate"] < 0.1
    assert result.about["negatives"].startswith("open tails of heads with validation links")
    assert 0 <= result.about["ece_top"] <= 1
    low, high = result.probabilities(np.array([-9.0, 9.0], np.float32))
    assert 0 <= low < high <= 1, "beyond what was seen it stays"


@pytest.mark.parametrize(
    ("settings", "why"), [({}, "fewer than 20 validation links"), ({"probability_heads": 0}, "probability_heads is 0")]
)
def test_without_a_curve_there_is_a_reason(graph: TypedGraph, settings: dict[str, int], why: str) -> None:
    relation = relation_called(graph, "drug_protein", "drug")
    result = calibrate(candidates_of(graph, relation, random_scores(graph, relation)), LinkSettings(**settings))
    assert why in result.about["why"]
    assert np.isnan(result.probabilities(np.ones(2, np.float32))).all()


def test_the_error_is_that_of_the_formula() -> None:
    """Two bins of ten points: .2 where .4 are, and .8 where all are: (.2 + .2) / 2."""
    probabilities = np.repeat([0.2, 0.8], 10)
    positive = np.r_[np.arange(10) < 4, np.ones(10, bool)]
    assert expected_calibration_error(probabilities, positive, np.ones(20)) == pytest.approx(0.2)
    calibrated = expected_calibration_error(np.full(10, 0.4), np.arange(10) < 4, np.ones(10))
    assert calibrated == pytest.approx(0.0)
