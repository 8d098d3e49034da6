"""Figures recorded on another machine, brought to this one's rates, and what stands beside them."""

from __future__ import annotations

import pytest

from benchmarks import rates

THERE = {"products": rates.PRODUCTS, "copy": rates.COPY}


@pytest.mark.parametrize("recorded", rates.RECORDED.values(), ids=list(rates.RECORDED))
def test_a_machine_of_the_same_rates_takes_the_time_that_was_recorded(recorded: rates.Recorded) -> None:
    assert recorded.scaled(THERE) == pytest.approx(recorded.seconds)


def test_each_share_follows_its_own_rate_and_the_interpreters_none() -> None:
    recorded = rates.Recorded(10.0, products=0.2, python=0.3)
    assert recorded.scaled(THERE | {"products": rates.PRODUCTS / 2}) == pytest.approx(12.0)
    assert recorded.scaled(THERE | {"copy": 2 * rates.COPY}) == pytest.approx(7.5)
    assert recorded.scaled({"products": 1e30, "copy": 1e30}) == pytest.approx(3.0)


def test_a_stand_in_counts_where_it_is_not_slower_than_the_scaled_figure_by_a_fifth() -> None:
    """On a machine that copies at half the rate."""
    slower = THERE | {"copy": rates.COPY / 2}
    expected = rates.RECORDED["kgat book"].scaled(slower)
    forms = {
        "plain": ("kgat book, plain", [1.1 * expected, 1.3 * expected, 1.15 * expected], "ratio <= 1.2"),
        "ours": ("kgat book", [expected / 2] * 3, "ratio <= 0.3333"),
    }
    plain, ours = rates.recorded_rows("epoch", "kgat book", forms, [slower] * 3)
    assert expected > 41.7
    assert plain.ratio == pytest.approx(1.15)
    assert (plain.holds, ours.holds) == (True, False)
    assert "; within ± 20 %" in plain.note
    assert "41.7 s" in plain.note
    assert "copies 16, 16, 16 GB/s (there 32)" in ours.note


def test_rates_are_measured() -> None:
    assert rates.product_rate(1000, 16) > 1e6
    assert rates.read_rate(1 << 16) > 1e6
    assert rates.cache_bytes(2) >= 0
    assert rates.cache_bytes(9) == 0
