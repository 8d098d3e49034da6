"""Figures of a spectrum have the values that can be worked out by hand."""

import numpy as np
import pytest

from graphmill.evaluation.health.geometry import (
    components_for,
    effective_rank,
    participation_ratio,
    spectrum_of,
)


def test_k_equal_directions_count_as_k() -> None:
    flat = np.array([2.0] * 7 + [0.0] * 3)
    assert participation_ratio(flat) == pytest.approx(7)
    assert effective_rank(flat) == pytest.approx(7)
    assert components_for(flat, 0.9) == 7


def test_figures_of_a_spectrum_worked_by_hand() -> None:
    spectrum = np.array([4.0, 1.0])  # singular values 2 and 1
    assert participation_ratio(spectrum) == pytest.approx(25 / 17)
    assert effective_rank(spectrum) == pytest.approx(np.exp(-(2 / 3) * np.log(2 / 3) - (1 / 3) * np.log(1 / 3)))
    assert components_for(spectrum, 0.8) == 1  # exactly 80 % is enough
    assert components_for(spectrum, 0.81) == 2


def test_no_variance_is_zero_everywhere() -> None:
    for spectrum in (np.zeros(0), np.zeros(4)):
        assert (participation_ratio(spectrum), effective_rank(spectrum)) == (0.0, 0.0)
        assert components_for(spectrum, 0.9) == 0


def test_rounding_does_not_add_directions() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 3)) @ rng.standard_normal((3, 64))
    assert np.count_nonzero(spectrum_of(X.T @ X)) == 3
