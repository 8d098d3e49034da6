"""The ways of full ranking that are timed against each other find the same."""

from __future__ import annotations

import pytest

from benchmarks import ranking_step


def test_all_ways_that_can_run_here_have_the_same_recall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking_step, "DISTINCT", 20)
    ours = ranking_step.ours(ranking_step.Task.drawn(40))["recall"]
    for variant in ("dense", "loop"):
        found = ranking_step.by_hand(ranking_step.Task.drawn(40), variant)
        assert found["recall"] == pytest.approx(ours, abs=1e-9)
        assert found["seconds"] > 0.0
    assert 0.0 <= ours < 0.05  # scores are random


def test_the_rivals_interpreter_needs_none_of_what_graphmill_does(repository) -> None:  # type: ignore[no-untyped-def]
    """Its environment has neither pyarrow nor numba: what it imports before it knows its variant is numpy and torch."""
    lines = (repository / "benchmarks" / "ranking_step.py").read_text().splitlines()
    found = {line.split()[1].split(".")[0] for line in lines if line.startswith(("import ", "from "))}
    assert found == {"__future__", "argparse", "json", "sys", "time", "typing", "numpy", "torch"}
