"""The verdict on a model: one word that follows from the interval and the health, and a sentence that gives both."""

import math
from typing import Any

import pytest

from graphmill.reports.verdict import model_verdict


def links(value: float, low: float | None, high: float | None) -> dict[str, Any]:
    ratio = {"value": value, "low": low, "high": high}
    against = {"mrr": {"model": 0.2 * value, "knn": 0.2}, "best": "knn", "average": "macro", "queries": 40}
    return {"comparison": {"against": {**against, "ratios": {"knn": ratio}}}}


FAILED = {
    "status": "fail",
    "verdicts": [{"name": "mean_cosine", "status": "fail", "remedy": "Lower the learning rate."}],
}


@pytest.mark.parametrize(
    ("ratio", "word"),
    [
        ((1.2, 1.05, 1.4), "better"),
        ((1.2, 0.95, 1.4), "level"),
        ((0.81, 0.7, 0.95), "worse"),
        ((1.2, None, None), "better"),
        ((1.01, None, None), "level"),
    ],
)
def test_the_word_follows_from_the_interval(ratio: tuple[float, Any, Any], word: str) -> None:
    result = model_verdict(links(*ratio), {}, {})
    assert result.word == word
    assert result.passed is (word == "better")
    assert f"{round(100 * (ratio[0] - 1)):+d} %" in result.sentence
    assert "kNN" in result.short


def test_what_cannot_train_longer_is_not_told_to() -> None:
    for system in ("item_knn", "blend"):
        assert model_verdict(links(1.0, 0.9, 1.1), {}, {}, system=system).sentence.endswith("either.")
        worse = model_verdict(links(0.8, 0.7, 0.9), {}, {}, system=system).sentence
        assert "graphmill train knn" in worse
        assert "longer" not in worse
    assert model_verdict(links(1.0, 0.9, 1.1), {}, {}, system="hgt").sentence.endswith("train longer.")


def test_unsound_vectors_are_broken_whatever_they_rank() -> None:
    result = model_verdict(links(2.0, 1.5, 2.5), FAILED, {})
    assert result.word == "broken"
    assert "mean cosine" in result.sentence
    assert result.sentence.endswith("Lower the learning rate.")


def test_few_used_dimensions_do_not_make_a_better_model_broken() -> None:
    names = ("components_90", "effective_rank_share")
    few = {"verdicts": [{"name": name, "status": "fail", "meaning": "Few have most."} for name in names]}
    better = model_verdict(links(1.2, 1.05, 1.4), few, {})
    assert (better.word, better.short[:6]) == ("better", "better")
    assert "components 90, effective rank share). Few have most." in better.sentence
    assert better.sentence.endswith("look right to you.")
    for ratio in ((1.2, 0.95, 1.4), (0.81, 0.7, 0.95)):
        assert model_verdict(links(*ratio), few, {}).word == "broken"
    assert model_verdict({}, few, {}).word == "broken"
    more = {"verdicts": [*few["verdicts"], *FAILED["verdicts"]]}
    assert model_verdict(links(1.2, 1.05, 1.4), more, {}).word == "broken"


def test_items_are_compared_by_the_metric_that_chose_the_epoch() -> None:
    against = {"best": "ease", "metric": "ndcg@10", "figures": {"model": 0.1, "ease": 0.2}, "queries": 40}
    bad = model_verdict({"against": against | {"low": 0.3, "high": 0.8}}, {}, {})
    assert bad.word == "worse"
    assert all(part in bad.short for part in ("EASE", "ndcg@10", "-50 %"))
    assert "-70 % to -20 %, 40 queries" in bad.sentence
    assert "graphmill train ease" in bad.sentence
    assert model_verdict({"against": against | {"low": 0.3, "high": 1.1}}, {}, {}).word == "level"
    unmeasured = model_verdict({"against": against | {"low": None, "high": None}}, {}, {})
    assert (unmeasured.word, "no interval" in unmeasured.sentence) == ("worse", True)


def test_without_a_ranking_nothing_is_claimed() -> None:
    result = model_verdict({}, {"verdicts": [{"name": "norm_spread", "status": "warn"}]}, {})
    assert (result.word, result.passed) == ("unranked", True)
    assert "norm spread" in result.sentence


def test_a_rival_with_nothing_right_is_beaten() -> None:
    none_right = links(math.nan, None, None)
    none_right["comparison"]["against"]["mrr"] = {"model": 0.1, "knn": 0.0}
    assert model_verdict(none_right, {}, {}).word == "better"
