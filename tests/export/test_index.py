"""Neighbours by exact search and by an approximate index: the same figures, and how complete the index is."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from graphmill.errors import InputError, SettingsError
from graphmill.evaluation.health.neighbours import nearest
from graphmill.export import index
from graphmill.export.index import Vectors, index_problem, read_index, recall, require_index, write_index


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


def test_an_index_finds_the_neighbours_and_their_cosines_are_exact(vectors: Vectors, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    about = write_index("faiss", vectors, tmp_path)
    assert about["recall_at_10"] >= 0.95
    assert index_problem(about) == ""
    rows, cosines = vectors.proposed(3, 10, read_index("faiss", tmp_path / "index.faiss", vectors, about["breadth"]))
    expected = dict(zip(*vectors.nearest(3, 1500), strict=True))
    assert cosines == pytest.approx([expected[row] for row in rows], abs=1e-6)


def test_an_index_whose_rows_are_not_those_of_the_vectors_is_refused(vectors: Vectors, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    write_index("faiss", vectors, tmp_path)
    path, rng = tmp_path / "index.faiss", np.random.default_rng(0)
    whole, refused = load_file(path), 0
    for number in range(200):
        arrays = {name: values.copy() for name, values in whole.items()}
        name = ("neighbors", "levels")[number % 2]
        odd = rng.choice([-(2**31), -2, -1, 0, 2, 5, 1499, 1500, 2**31 - 1])
        arrays[name][rng.integers(len(arrays[name]))] = odd
        save_file(arrays, path)
        try:
            propose = read_index("faiss", path, vectors, 64)
        except InputError:
            refused += 1
        else:
            found = propose(vectors.unit(np.arange(100, 200)), 20)
            assert found.min() >= -1
            assert found.max() < 1500
    assert refused > 100


def test_an_index_that_misses_neighbours_is_told() -> None:
    values = np.random.default_rng(1).normal(size=(200, 8)).astype(np.float32)
    found = Vectors(values)

    def blind(queries: np.ndarray, k: int) -> np.ndarray:
        return np.broadcast_to(np.arange(k), (len(queries), k))

    assert recall(found, blind) < 0.5
    said = index_problem({"kind": "faiss", "recall_at_10": 0.9, "queries": 200, "breadth": 64})
    assert (
        said
        == "faiss finds 0.900 of the 10 nearest (200 queries, looking at 64); 0.95 are required: set promote.index: exact"
    )


def test_a_missing_package_and_too_few_vectors_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    require_index("exact")
    with pytest.raises(SettingsError, match=r'faiss needs the package faiss-cpu: pip install "graphmill\[index\]"'):
        require_index("faiss")
    monkeypatch.setattr(index, "require_index", lambda kind: None)
    with pytest.raises(InputError, match="3 vectors need no index"):
        write_index("faiss", Vectors(np.eye(3, dtype=np.float32)), tmp_path)
