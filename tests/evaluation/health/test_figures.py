"""Every figure equals what a short, slow computation over all pairs gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import entr

from graphmill.evaluation.health.checks import HealthThresholds
from graphmill.evaluation.health.figures import Figures, figures_of
from graphmill.evaluation.health.geometry import moments_of


def unit(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def effective_rank(s: np.ndarray) -> float:
    """exp of the entropy of the singular values; a value of exactly 0 (fewer rows than dimensions) adds nothing."""
    return float(np.exp(entr(s / s.sum()).sum()))


def draw(seed: int, n: int = 90, d: int = 12, types: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * rng.lognormal(size=d) + rng.standard_normal(d) * rng.integers(0, 3)
    return X.astype(np.float32), rng.integers(0, types, n)


def measure(X: np.ndarray, types: np.ndarray, block_rows: int = 4096, count: int = 4) -> Figures:
    return figures_of(X, types, tuple("abcdefgh"[:count]), HealthThresholds(), block_rows)


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_cosines_equal_the_mean_over_all_pairs(seed: int) -> None:
    X, types = draw(seed)
    wide = X.astype(np.float64)
    result = moments_of(X, types, 4, np.linalg.norm(wide, axis=1), 4096)
    cosine = unit(wide) @ unit(wide).T
    pair = ~np.eye(len(X), dtype=bool)
    assert result.cosine == pytest.approx(cosine[pair].mean(), abs=1e-12)
    for code, of_type in enumerate(result.types):
        inside = pair & np.outer(types == code, types == code)
        assert of_type.cosine == pytest.approx(cosine[inside].mean(), abs=1e-12)


@given(st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_spectral_figures_equal_those_of_a_singular_value_decomposition(seed: int) -> None:
    X, types = draw(seed)
    wide = X.astype(np.float64)
    figures = measure(X, types)
    s = np.linalg.svd(wide - wide.mean(0), compute_uv=False)
    variance = s**2
    assert figures.components_90 == int(np.argmax(np.cumsum(variance) / variance.sum() >= 0.9)) + 1
    assert figures.effective_rank == pytest.approx(effective_rank(s))
    for t, kind in enumerate(figures.types):
        rows = wide[types == t]
        s = np.linalg.svd(rows - rows.mean(0), compute_uv=False)
        assert kind.effective_rank == pytest.approx(effective_rank(s))


@pytest.mark.parametrize("block_rows", [1, 7, 1000])
def test_the_block_size_changes_no_figure(block_rows: int) -> None:
    X, types = draw(5, n=211)
    X[17] = 0
    X[100] = X[101]
    whole, blocked = measure(X, types, len(X)), measure(X, types, block_rows)
    assert (whole.dead, whole.duplicated, whole.components_90) == (
        blocked.dead,
        blocked.duplicated,
        blocked.components_90,
    )
    np.testing.assert_allclose(blocked.spectrum, whole.spectrum, rtol=1e-9, atol=1e-12)
    assert blocked.mean_cosine == pytest.approx(whole.mean_cosine, abs=1e-12)
    for a, b in zip(whole.types, blocked.types, strict=True):
        assert b.effective_rank == pytest.approx(a.effective_rank, rel=1e-9)


def test_figures_do_not_depend_on_scale_or_rotation() -> None:
    X, types = draw(6)
    base = measure(X, types)
    q, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((X.shape[1], X.shape[1])))
    for other in (measure(X * np.float32(1e12), types), measure((X @ q).astype(np.float32), types)):
        assert other.effective_rank == pytest.approx(base.effective_rank, rel=1e-5)
        assert other.mean_cosine == pytest.approx(base.mean_cosine, abs=1e-6)


def test_small_variation_about_a_large_offset_is_measured_exactly() -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((400, 16)).astype(np.float32)
    offset = np.float32(2**12)  # exactly representable together with noise of 12 bits
    noise = np.round(noise * 2**8) / np.float32(2**8)
    figures = measure(noise + offset, np.zeros(400, dtype=int), count=1)
    assert figures.effective_rank == pytest.approx(
        measure(noise, np.zeros(400, dtype=int), count=1).effective_rank, rel=1e-9
    )


def test_a_type_without_rows_is_shown_and_not_judged() -> None:
    X, types = draw(8, types=3)
    empty = measure(X, types).types[3]
    assert (empty.rows, empty.live, empty.judged) == (0, 0, False)
    assert np.isnan(empty.cosine)
