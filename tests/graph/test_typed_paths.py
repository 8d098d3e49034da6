"""Paths of one or two typed edges: which channels there are, and how their edges count."""

import numpy as np
import pytest
import scipy.sparse as sp

from graphmill.graph import typed_paths
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_paths import NONE, TypedPaths

DRUG, GENE = (0, 3), (3, 4)


def links(*relations: tuple[tuple[int, int], tuple[int, int], list[tuple[int, int]]]) -> TrainingLinks:
    """Of (source type, target type, edges by local numbers) each."""
    matrices, offsets = [], []
    for source, target, edges in relations:
        rows, columns = zip(*edges, strict=True)
        matrices.append(sp.csr_matrix((np.ones(len(edges), np.int64), (rows, columns)), (source[1], target[1])))
        offsets.append((source[0], target[0]))
    return TrainingLinks(matrices, offsets)


BINDS = (DRUG, GENE, [(0, 0), (0, 1), (1, 1), (2, 3)])
BOUND = (GENE, DRUG, [(b, a) for a, b in BINDS[2]])
ACTS = (GENE, GENE, [(0, 1), (1, 2), (2, 3)])
RAISES = (DRUG, GENE, [(0, 2)])


def test_channels_lead_from_the_sources_type_to_the_targets() -> None:
    paths = TypedPaths(links(BINDS, BOUND, ACTS, RAISES))
    # Relation 2 has no reverse in the graph, so that 4 + 2 stands for it, and 4 + 3 for that of the last.
    assert set(paths.kinds) == {0, 1, 2, 3, 6, 7}
    assert set(paths.between(0)) == {(3, NONE), (0, 2), (0, 6), (3, 2), (3, 6)}
    assert set(paths.between(2)) == {(6, NONE), (2, 2), (2, 6), (6, 2), (6, 6), (1, 0), (1, 3), (7, 0), (7, 3)}


def test_a_relation_that_holds_the_same_edges_is_no_evidence() -> None:
    paths = TypedPaths(links(BINDS, BINDS, RAISES))
    assert (1, NONE) not in set(paths.between(0))
    assert (2, NONE) in set(paths.between(0))


def test_an_edge_counts_less_the_more_edges_its_ends_have() -> None:
    step = TypedPaths(links(BINDS)).step(0).toarray()
    expected = np.array([[2**-0.5, 0.5, 0, 0], [0, 2**-0.5, 0, 0], [0, 0, 0, 1]])
    np.testing.assert_allclose(step, expected, rtol=1e-6)


def test_common_channels_are_those_that_join_the_links_and_not_others() -> None:
    rng = np.random.default_rng(0)
    ring = [(n, (n + 1) % 40) for n in range(40)]
    noise = [(int(a), int(b)) for a, b in rng.integers(0, 40, (120, 2))]
    kind, heads = (0, 40), np.arange(40)
    paths = TypedPaths(links((kind, kind, ring), (kind, kind, noise)))
    assert paths.common(1, heads, (heads + 2) % 40, 3)[0] == (0, 0), "two steps along the ring"
    assert paths.common(1, heads, (heads + 1) % 40, 3)[0] == (0, NONE)


def test_paths_that_lead_everywhere_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = TypedPaths(links(BINDS, BOUND, ACTS))
    monkeypatch.setattr(typed_paths, "MOST_PATHS", 1.1)
    assert (0, 2) in set(paths.between(0))
    monkeypatch.setattr(typed_paths, "MOST_PATHS", 0.5)
    assert not any(second != NONE for _, second in paths.between(0))
