"""Neighbours by exact search: those of the health report, of some rows only, never a row without a direction."""

import numpy as np
import pytest

from graphmill.evaluation.health.neighbours import nearest
from graphmill.export.nearest import Vectors


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(20, 24))[rng.integers(20, size=1500)] + 0.6 * rng.normal(size=(1500, 24))).astype(
        np.float32
    )
    values[5] = 0
    values[7, 3] = np.nan
    values[9] = values[8]
    return Vectors(values)


def test_exact_search_is_that_of_the_health_report(vectors: Vectors) -> None:
    expected = nearest(vectors.values, np.array([3, 8]), 12)
    for place, row in enumerate((3, 8)):
        rows, cosines = vectors.nearest(row, 12)
        assert rows.tolist() == expected.rows[place].tolist()
        assert cosines == pytest.approx(expected.similarities[place], abs=1e-5)


def test_a_row_without_a_direction_is_nobodys_neighbour(vectors: Vectors) -> None:
    rows, cosines = vectors.nearest(3, 1500)
    assert len(rows) == 1500 - 3  # itself, a row of zeros, a row that is not finite
    assert not {3, 5, 7} & set(rows.tolist())
    assert np.isfinite(cosines).all()


def test_neighbours_of_some_rows_only(vectors: Vectors) -> None:
    among = np.arange(1500) % 2 == 0
    rows, _ = vectors.nearest(3, 40, among)
    everything = vectors.nearest(3, 1500)[0]
    assert rows.tolist() == everything[everything % 2 == 0][:40].tolist()
