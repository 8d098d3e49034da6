"""A model beside its baselines: rows by relation, and the best one."""

import json

import pytest

from graphmill.errors import InputError
from graphmill.evaluation.ranking.comparison import compare_to_baselines
from graphmill.evaluation.ranking.links import LinkRanking, RelationRanking


def ranking(*mrr: float, split: str = "test", queries: int = 40) -> LinkRanking:
    rows = tuple(
        RelationRanking(i, f"r{i}", queries, 100, {"mrr": value, "amri": value}) for i, value in enumerate(mrr)
    )
    mean = {"mrr": sum(mrr) / len(mrr)}
    return LinkRanking(split, (1, 3, 10), rows, mean, mean)


MODEL, DEGREE = ranking(0.5, 0.3, 0.1), ranking(0.2, 0.2, 0.2)


def test_a_row_per_relation_has_every_scorer() -> None:
    result = compare_to_baselines(MODEL, {"degree": DEGREE})
    assert result["relations"][1]["mrr"] == {"model": 0.3, "degree": 0.2}
    assert result["against"]["ratios"]["degree"]["value"] == pytest.approx(1.5)
    json.dumps(result, allow_nan=False)


@pytest.mark.parametrize(
    "other", [ranking(0.2, 0.2), ranking(0.2, 0.2, 0.2, split="valid"), ranking(0.2, 0.2, 0.2, queries=3)]
)
def test_rankings_of_different_queries_are_refused(other: LinkRanking) -> None:
    with pytest.raises(InputError, match="same queries"):
        compare_to_baselines(MODEL, {"degree": other})


def test_the_best_baseline_is_what_the_model_is_held_against() -> None:
    result = compare_to_baselines(MODEL, {"degree": DEGREE, "knn": ranking(0.5, 0.4, 0.3)})
    assert result["against"]["best"] == "knn"
    assert result["against"]["ratios"]["knn"]["value"] == pytest.approx(0.75)
    assert list(result["macro"]) == ["model", "degree", "knn"]
    assert result["against"]["mrr"] == {
        "model": MODEL.macro["mrr"],
        "degree": DEGREE.macro["mrr"],
        "knn": pytest.approx(0.4),
    }
    assert result["against"]["queries"] == 120
