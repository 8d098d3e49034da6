"""A model against one baseline: the ratio and its interval by the paired bootstrap."""

import math

import numpy as np
import pytest

from graphmill.evaluation.ranking.comparison import mrr_ratio
from graphmill.evaluation.ranking.links import LinkRanking, RelationRanking


def ranking(*relations: list[float]) -> LinkRanking:
    """Of queries with these reciprocal ranks, relation by relation."""
    rows = tuple(
        RelationRanking(i, f"r{i}", len(each), 9, {"mrr": float(np.mean(each))}, np.array(each))
        for i, each in enumerate(relations)
    )
    macro = float(np.mean([row.metrics["mrr"] for row in rows]))
    micro = float(np.mean(np.concatenate([row.reciprocal for row in rows])))
    return LinkRanking("test", (1,), rows, {"mrr": macro}, {"mrr": micro})


def test_the_ratio_of_a_ranking_to_itself_is_one_in_every_draw() -> None:
    one = ranking([1.0, 0.5, 0.1], [0.25])
    result = mrr_ratio(one, one)
    assert (result.value, result.low, result.high) == pytest.approx((1, 1, 1))


@pytest.mark.parametrize(
    ("average", "value"), [("macro", 0.6 / 0.4), ("micro", (0.9 * 30 + 0.3 * 10) / (0.6 * 30 + 0.2 * 10))]
)
def test_the_ratio_is_of_macro_or_micro_means(average, value: float) -> None:
    result = mrr_ratio(ranking([0.9] * 30, [0.3] * 10), ranking([0.6] * 30, [0.2] * 10), average=average)
    assert (result.value, result.low, result.high) == pytest.approx((value,) * 3)


def test_the_interval_is_that_of_draws_of_queries() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.random(200), rng.random(200)
    result = mrr_ratio(ranking(list(ours)), ranking(list(theirs)), seed=1)
    draws = [(ours[i].mean() / theirs[i].mean()) for i in rng.integers(0, 200, (2000, 200))]
    assert (result.low, result.high) == pytest.approx(tuple(np.percentile(draws, [2.5, 97.5])), abs=0.02)
    assert result == mrr_ratio(ranking(list(ours)), ranking(list(theirs)), seed=1)
    # Pairs that go together leave less doubt than queries drawn apart for either.
    close = mrr_ratio(ranking(list(ours * 1.1)), ranking(list(ours)))
    assert close.high - close.low == pytest.approx(0, abs=1e-9)


def test_a_baseline_without_a_right_answer_has_no_ratio() -> None:
    result = mrr_ratio(ranking([0.5]), ranking([0.0]))
    assert math.isnan(result.value)
    assert math.isnan(result.low)
