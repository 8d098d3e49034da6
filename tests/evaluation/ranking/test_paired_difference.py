"""The paired bootstrap: what its interval covers, and what it takes as one draw."""

import numpy as np
import pytest

from graphmill.errors import InputError
from graphmill.evaluation.ranking.paired_difference import paired_bootstrap


def test_the_difference_and_its_interval_are_those_of_theory() -> None:
    rng = np.random.default_rng(0)
    base, gain = rng.normal(size=4000), rng.normal(0.1, 1.0, 4000)
    result = paired_bootstrap(base + gain, base)
    assert result.difference == pytest.approx(gain.mean())
    assert result.difference == pytest.approx(result.first - result.second)
    half = 1.96 * gain.std() / np.sqrt(4000)
    assert result.high - result.difference == pytest.approx(half, rel=0.15)
    assert result.difference - result.low == pytest.approx(half, rel=0.15)


def test_equal_scorers_have_an_interval_of_zero_and_order_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    a, b, groups = rng.random(300), rng.random(300), rng.integers(0, 5, 300)
    assert (paired_bootstrap(a, a).low, paired_bootstrap(a, a).high) == (0.0, 0.0)
    forward, back = paired_bootstrap(a, b, groups=groups), paired_bootstrap(b, a, groups=groups)
    assert forward.low == pytest.approx(-back.high)
    assert forward == paired_bootstrap(a, b, groups=groups)


def test_groups_weigh_the_same_however_many_queries_they_have() -> None:
    first, groups = np.array([1.0] * 90 + [0.0] * 10), np.array([7] * 90 + [3] * 10)
    result = paired_bootstrap(first, np.zeros(100), groups=groups)
    assert result.first == result.difference == 0.5


def test_queries_that_belong_together_are_drawn_together() -> None:
    """The same link asked twice is no more evidence than once."""
    gain = np.random.default_rng(2).normal(size=500)
    twice = np.tile(gain, 2)
    once = paired_bootstrap(gain, np.zeros(500))
    naive = paired_bootstrap(twice, np.zeros(1000))
    right = paired_bootstrap(twice, np.zeros(1000), units=np.tile(np.arange(500), 2))
    width = {name: each.high - each.low for name, each in (("once", once), ("naive", naive), ("right", right))}
    assert width["right"] == pytest.approx(width["once"], rel=0.1)
    assert width["naive"] < 0.8 * width["once"]


def test_no_query_is_a_mistake() -> None:
    with pytest.raises(InputError, match="no query"):
        paired_bootstrap(np.zeros(0), np.zeros(0))
