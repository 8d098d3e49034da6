"""The rows of KGAT's quality: beside which baseline they stand, and what they replace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from benchmarks.parts.card import row

from benchmarks import recommenders

BASELINES = {
    "popularity": {"recall@20": 0.2, "ndcg@20": 0.1},
    "item_knn": {"recall@20": 0.38, "ndcg@20": 0.25},
    "mf": {"recall@20": 0.40, "ndcg@20": 0.24},
}


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Measurements are given, since real ones take hours; which were asked for is kept."""
    kept: list[Sequence[str]] = []

    def of_seeds(arguments: Sequence[str], seeds: Sequence[int]) -> list[dict[str, Any]]:
        kept.append(arguments)
        if "baselines" in arguments:
            # Different seeds, one mean.
            return [
                {name: {m: v + (seed - 1) * 0.01 for m, v in result.items()} for name, result in BASELINES.items()}
                for seed in seeds
            ]
        return [{"recall": 0.39, "ndcg": 0.24, "epoch": 5, "start": 0.37} for _ in seeds]

    monkeypatch.setattr(recommenders, "of_seeds", of_seeds)
    recommenders.baselines_of.cache_clear()
    yield kept  # type: ignore[misc]
    recommenders.baselines_of.cache_clear()


def test_recall_and_ndcg_stand_beside_the_products_best_baseline_of_each(requests: list[Sequence[str]]) -> None:
    recall, ndcg = recommenders.kgat_rows(("last-fm",))
    assert (recall.metric, recall.rival, recall.theirs) == ("test recall@20", "baseline mf", pytest.approx(0.40))
    assert recall.holds
    assert "BELOW the best baseline" in recall.note
    assert (ndcg.metric, ndcg.rival, ndcg.theirs) == ("test ndcg@20", "baseline item_knn", pytest.approx(0.25))
    assert ndcg.holds
    assert ndcg.ratio == pytest.approx(0.96)


def test_baselines_are_measured_once_for_a_data_set(requests: list[Sequence[str]]) -> None:
    rows = list(recommenders.kgat_rows(("last-fm", "last-fm, tuned, masked", "baby")))
    assert len(rows) == 6
    assert [a[-1] for a in requests if "baselines" in a] == ["last-fm", "baby"]
    assert [r.target for r in rows if r.workload == "kgat baby"] == ["ratio >= 1", "ratio >= 1"]


def test_a_row_replaces_that_beside_the_baseline_that_was_best_before() -> None:
    def figure(workload: str, metric: str, rival: str) -> Any:
        return row(workload, metric, "", 0.1, rival=rival, theirs=0.2)

    new = figure("kgat baby", "test recall@20", "baseline mf")
    assert recommenders.same_figure(new, figure("kgat baby", "test recall@20", "baseline item_knn"))
    assert not recommenders.same_figure(new, figure("kgat baby", "test ndcg@20", "baseline item_knn"))
    assert not recommenders.same_figure(new, figure("kgat last-fm", "test recall@20", "baseline mf"))
    loop = figure("full ranking", "seconds", "a loop")
    assert recommenders.same_figure(loop, loop)
    assert not recommenders.same_figure(loop, figure("full ranking", "seconds", "a dense matrix"))
