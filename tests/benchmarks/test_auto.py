"""The rows of the benchmark of the choice, from measurements that are written here."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.parts.auto import over_all, rows_of


def measured(chosen: str, seconds: float | None = 60.0, **test: float) -> dict[str, Any]:
    less = {"chosen minus this": [-0.01, 0.02]}
    systems = {
        name: {"valid": value, "test": value, "seconds": 1.0, "chosen": name == chosen, **less}
        for name, value in test.items()
    }
    return {"metric": "mrr", "seconds": seconds, "commit": "abc", "systems": systems, "without": {"conve": "no time"}}


def test_the_chosen_one_is_compared_with_the_best_by_its_defaults() -> None:
    tuned = "mf (objective.regularisation=0.1)"
    runs = [measured(tuned, **{"mf": 0.4, "ease": 0.5, tuned: 0.6}), measured("ease", 61.0, mf=0.4, ease=0.7)]
    quality, time = rows_of("UMLS", runs, "10min", every=True)
    assert (quality.ours, quality.rival, quality.theirs) == (pytest.approx(0.65), "ease", pytest.approx(0.6))
    assert quality.holds
    assert "conve (no time)" in quality.note
    assert "-0.0100 to 0.0200, -0.0100 to 0.0200" in quality.note
    assert "commits of the seeds: abc, abc" in quality.note
    # Each call must keep its budget, so the longest one counts.
    assert (time.ours, time.theirs, time.holds, time.note) == (61.0, 600.0, True, "of the seeds: 60, 61")
    # A measurement that went on after a kill has no time.
    (alone,) = rows_of("UMLS", [measured("ease", None, mf=0.4, ease=0.39)], "10min", every=True)
    assert (alone.rival, alone.holds) == ("mf", False)


def test_all_graphs_have_one_mean_and_each_counts_by_all_systems_if_it_can() -> None:
    four = rows_of("tiktok", [measured("mf", None, mf=0.5, ease=0.4, item_knn=0.4, popularity=0.1)], "2h", every=False)
    every = rows_of("tiktok", [measured("ease", None, ease=0.45, dragon=0.5)], "2h", every=True)
    links = rows_of("Nations", [measured("complex", None, complex=0.7)], "2h", every=True)
    assert over_all([*four, *links]).ours == pytest.approx(1.0)
    mean = over_all([*four, *every, *links])
    assert (mean.ours, mean.holds) == (pytest.approx(0.95), False)
