"""A model beside its baselines: ratios, shares, and what to think of them."""

import json

import pytest

from graphmill.errors import InputError
from graphmill.evaluation.ranking.comparison import RankingThresholds, compare_to_baselines
from graphmill.evaluation.ranking.links import LinkRanking, RelationRanking


def ranking(*mrr: float, split: str = "test", queries: int = 40) -> LinkRanking:
    rows = tuple(
        RelationRanking(i, f"r{i}", queries, 100, {"mrr": value, "amri": value}) for i, value in enumerate(mrr)
    )
    mean = {"mrr": sum(mrr) / len(mrr)}
    return LinkRanking(split, (1, 3, 10), rows, mean, mean)


MODEL, DEGREE = ranking(0.5, 0.3, 0.1), ranking(0.2, 0.2, 0.2)


def test_ratios_and_shares() -> None:
    found = compare_to_baselines(MODEL, {"degree": DEGREE})
    assert found.ratios["mrr_over_degree"] == pytest.approx(1.5)
    assert found.ratios["share_above_degree"] == pytest.approx(2 / 3)
    assert {verdict.name: verdict.status for verdict in found.verdicts} == {
        "mrr_over_degree": "pass",
        "share_above_degree": "warn",
        "mrr_over_best_baseline": "pass",
    }
    assert found.relations[1].mrr == {"model": 0.3, "degree": 0.2}
    json.dumps(found.to_dict(), allow_nan=False)


def test_equality_with_the_baseline_is_not_above_it() -> None:
    found = compare_to_baselines(DEGREE, {"degree": DEGREE})
    assert found.ratios["share_above_degree"] == 0


def test_thresholds_are_settings() -> None:
    found = compare_to_baselines(MODEL, {"degree": DEGREE}, thresholds=RankingThresholds(degree_ratio_min=2.0))
    assert {v.name: v.status for v in found.verdicts}["mrr_over_degree"] == "warn"


@pytest.mark.parametrize(
    "other", [ranking(0.2, 0.2), ranking(0.2, 0.2, 0.2, split="valid"), ranking(0.2, 0.2, 0.2, queries=3)]
)
def test_rankings_of_different_queries_are_refused(other: LinkRanking) -> None:
    with pytest.raises(InputError, match="same queries"):
        compare_to_baselines(MODEL, {"degree": other})


def test_the_best_baseline_is_what_the_model_is_held_against() -> None:
    found = compare_to_baselines(MODEL, {"degree": DEGREE, "knn": ranking(0.5, 0.4, 0.3)})
    assert found.against.best == "knn"
    assert found.ratios["mrr_over_best_baseline"] == pytest.approx(0.75)
    verdict = next(v for v in found.verdicts if v.name == "mrr_over_best_baseline")
    assert verdict.status == "warn"
    assert "kNN (0.4000, 33% above) beats the model" in verdict.meaning
    assert list(found.macro) == ["model", "degree", "knn"]
