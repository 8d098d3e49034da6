"""Drift: what the figures are on cases worked out by hand, and that every change is called by its name."""

import numpy as np
import pytest

from graphmill.errors import InputError
from graphmill.evaluation.drift.figures import drift_figures
from graphmill.evaluation.drift.procrustes import fit_rotation, in_blocks
from graphmill.evaluation.drift.verdicts import DriftThresholds, drift_report
from graphmill.evaluation.embedding_files import Embeddings
from graphmill.evaluation.health.neighbours import Vectors
from graphmill.graph.summary import graph_difference
from tests.evaluation.drift.selftest import self_test
from tests.evaluation.drift.synthetic import CASES, edges_of, embed, embeddings, summary, thinned


def embedding(vectors: np.ndarray, first: int = 0, kinds: int = 2) -> Embeddings:
    count = len(vectors)
    ids = np.array([f"n{first + i}" for i in range(count)], dtype=object)
    types = (np.arange(first, first + count) % kinds).astype(np.int32)
    names = tuple(f"kind {i}" for i in range(kinds))
    return Embeddings(ids, ids, types, names, vectors.astype(np.float32), np.arange(count))


def random_rotation(dim: int, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(dim, dim)))[0]


def test_procrustes_finds_the_rotation_and_says_what_is_left() -> None:
    rng = np.random.default_rng(0)
    A, R = rng.normal(size=(500, 12)), random_rotation(12, rng)
    result = fit_rotation(in_blocks(A, A @ R), 12)
    assert result.matrix == pytest.approx(R, abs=1e-9)
    assert result.matrix @ result.matrix.T == pytest.approx(np.eye(12), abs=1e-12)
    assert result.residual == pytest.approx(0, abs=1e-6)
    noise = 0.1 * rng.normal(size=A.shape)
    noisy = fit_rotation(in_blocks(A, A @ R + noise), 12)
    expected = np.linalg.norm(A @ noisy.matrix - A @ R - noise) / np.linalg.norm(A @ R + noise)
    assert noisy.residual == pytest.approx(expected, rel=1e-6)


def test_figures_of_a_rotation_and_of_an_equal_copy() -> None:
    rng = np.random.default_rng(1)
    A = rng.normal(size=(300, 8))
    turned = drift_figures(embedding(A), embedding(A @ random_rotation(8, rng)))
    assert turned.overall.overlap_10 == 1.0
    assert turned.overall.cosine_aligned == pytest.approx(1, abs=1e-5)
    assert abs(turned.overall.cosine_raw) < 0.5
    assert [kind.cosine_aligned for kind in turned.types] == pytest.approx([1] * 2, abs=1e-5)


def test_overlap_is_the_share_of_the_nearest_that_stayed() -> None:
    rng = np.random.default_rng(2)
    A, B = rng.normal(size=(2, 200, 6))
    B = A + 0.5 * B
    rows = np.arange(200)
    before, after = (Vectors(X.astype(np.float32)).nearest(rows, 10).rows for X in (A, B))
    stayed = [len(set(x) & set(y)) / 10 for x, y in zip(before.tolist(), after.tolist(), strict=True)]
    assert drift_figures(embedding(A), embedding(B)).overall.overlap_10 == pytest.approx(np.mean(stayed))


def test_nodes_are_matched_by_type_and_id_and_moved_ones_are_named() -> None:
    rng = np.random.default_rng(3)
    A = rng.normal(size=(200, 6))
    B = A[20:].copy()
    B[5] = -B[5]
    result = drift_figures(embedding(A), embedding(np.concatenate((B, rng.normal(size=(7, 6)))), first=20))
    assert result.types[0].cosine_aligned > 0.99 > result.types[1].cosine_aligned, (
        "the moved node is of the second type"
    )
    assert (result.overall.shared, result.overall.new, result.overall.vanished) == (180, 7, 20)
    assert {kind.name: (kind.new, kind.vanished) for kind in result.types} == {"kind 0": (4, 10), "kind 1": (3, 10)}
    assert (result.moved[0].id, result.moved[0].type) == ("n25", "kind 1")
    assert result.moved[0].cosine < -0.9 < 0.9 < result.moved[1].cosine


def test_another_dimension_can_be_compared_but_not_by_raw_cosine() -> None:
    A = np.random.default_rng(4).normal(size=(150, 6))
    result = drift_figures(embedding(A), embedding(np.pad(A, ((0, 0), (0, 2)))))
    assert result.overall.overlap_10 == 1.0
    assert result.overall.cosine_aligned == pytest.approx(1, abs=1e-5)
    assert np.isnan(result.overall.cosine_raw)


def test_too_few_shared_nodes_are_a_sentence() -> None:
    A = np.random.default_rng(5).normal(size=(100, 4))
    with pytest.raises(InputError, match=r"share 40 nodes .*at least 52"):
        drift_figures(embedding(A), embedding(A, first=60))


def test_every_change_is_called_by_its_name() -> None:
    result = self_test(draws=2, seed=1)
    assert result.mistakes == {}
    assert set(result.confusion) == set(CASES)


def test_the_graphs_own_difference_is_counted() -> None:
    rng = np.random.default_rng(6)
    edges = edges_of(rng)
    fewer = thinned(edges, 0.3, rng)
    result = graph_difference(summary(edges), summary(np.concatenate((fewer, [[0, 449]]))))
    assert result.lost in (len(edges) - len(fewer), len(edges) - len(fewer) - 1)
    assert result.lost_share == pytest.approx(0.3, abs=0.03)
    assert result.added <= 1
    assert result.relations == {"all": (len(edges), len(fewer) + 1)}
    assert result.mean_degree == pytest.approx((2 * len(edges) / 450, 2 * (len(fewer) + 1) / 450))
    counted = [np.bincount(e.ravel()).max() for e in (edges, np.concatenate((fewer, [[0, 449]])))]
    assert result.largest_degree == tuple(counted)


def test_the_share_that_changed_is_held_to_the_bounds() -> None:
    rng = np.random.default_rng(7)
    edges = edges_of(rng)
    figures = drift_figures(embeddings(embed(edges, rng)), embeddings(embed(edges, rng)))
    report = drift_report(figures)
    assert report.changed == pytest.approx(1 - figures.overall.overlap_10)
    assert (report.name, report.status) == ("moved_little", "pass")
    strict = DriftThresholds(changed_warn=report.changed / 2, changed_fail=report.changed * 0.9)
    assert drift_report(figures, thresholds=strict).status == "fail"
