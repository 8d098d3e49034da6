"""Shared neighbours, against a search over sets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.errors import InputError
from graphmill.graph import co_occurrence
from graphmill.graph.build import build_graph
from graphmill.graph.co_occurrence import row_blocks, shared_neighbour_jaccard
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import TRAIN
from tests.graph.tables import edges_table, nodes_table, random_tables

PAIR = ("disease", "gene/protein")


def as_dict(similarity):
    row = np.repeat(np.arange(len(similarity.indptr) - 1), np.diff(similarity.indptr))
    return {
        (int(i), int(j)): float(value) for i, j, value in zip(row, similarity.indices, similarity.data, strict=True)
    }


def by_sets(graph, anchor, neighbour, threshold):
    sets = [set() for _ in range(graph.node_type(anchor).count)]
    for relation in graph.relations:
        edges = graph.edges(relation)
        for s, d, split in zip(edges.src.tolist(), edges.dst.tolist(), edges.split, strict=True):
            if split != TRAIN:
                continue
            if (relation.source, relation.target) == (anchor, neighbour):
                sets[s].add(d)
            if (relation.target, relation.source) == (anchor, neighbour):
                sets[d].add(s)
    out = {}
    for i, a in enumerate(sets):
        for j, b in enumerate(sets):
            if i != j and a & b and len(a & b) / len(a | b) > threshold:
                out[i, j] = pytest.approx(len(a & b) / len(a | b), rel=1e-6)
    return out


@settings(max_examples=30, deadline=None)
@given(
    ends=st.lists(
        st.tuples(st.sampled_from(["r", "s"]), st.integers(0, 11), st.integers(0, 11)), min_size=1, max_size=60
    ),
    neighbour=st.sampled_from(["gene", "disease"]),
    threshold=st.sampled_from([0.0, 0.1, 0.5]),
    block=st.sampled_from([1, 7, 10**6]),
)
def test_values_equal_those_of_a_search_over_sets(tmp_path_factory, ends, neighbour, threshold, block):
    triples = [*ends, ("r", 0, 6), ("r", 1, 2)]  # both kinds of relation exist
    edges = edges_table(triples, split=[TRAIN if (h + t) % 4 else 2 for _, h, t in ends] + [TRAIN, TRAIN])
    nodes = nodes_table(["disease"] * 6 + ["gene"] * 6)
    graph = build_graph(nodes, edges, GraphSettings(), tmp_path_factory.mktemp("jaccard") / "graph")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(co_occurrence, "BLOCK_PRODUCTS", block)
        result = shared_neighbour_jaccard(graph, "disease", neighbour, threshold)
    assert as_dict(result) == by_sets(graph, "disease", neighbour, threshold)


@pytest.fixture
def graph(build):
    nodes, edges = random_tables(
        0,
        {"disease": 40, "gene/protein": 60},
        {"disease_protein": ("disease", "gene/protein", 500), "up": ("disease", "gene/protein", 200)},
    )
    return build(nodes, edges)


def test_the_matrix_is_a_symmetric_csr_without_diagonal(graph):
    result = shared_neighbour_jaccard(graph, *PAIR)
    assert result.data.dtype == np.float32
    assert len(result.indptr) == 41
    entries = as_dict(result)
    assert len(entries) == len(result.data) == result.indptr[-1] > 100
    assert all(entries[j, i] == value for (i, j), value in entries.items())
    assert all(i != j for i, j in entries)
    for first, end in zip(result.indptr[:-1], result.indptr[1:], strict=True):
        assert (np.diff(result.indices[first:end]) > 0).all()


def test_exactly_the_threshold_is_not_greater(build):
    # Diseases 0 and 1 share 1 of 10 genes; 0.1 is the default threshold.
    edges = [("r", 0, 2), *(("r", 0, 3 + i) for i in range(4)), ("r", 1, 2), *(("r", 1, 7 + i) for i in range(5))]
    nodes = nodes_table(["disease"] * 2 + ["gene/protein"] * 10)
    graph = build(nodes, edges_table(edges), split={"valid": 0.0, "test": 0.0})
    assert as_dict(shared_neighbour_jaccard(graph, *PAIR)) == {}
    assert as_dict(shared_neighbour_jaccard(graph, *PAIR, threshold=0.0999)) == {
        (0, 1): pytest.approx(0.1),
        (1, 0): pytest.approx(0.1),
    }


def test_blocks_hold_as_many_rows_as_their_work_allows_and_every_row_once():
    work = np.array([3, 0, 9, 1, 1, 50, 2, 8])
    assert list(row_blocks(work, 10)) == [(0, 2), (2, 4), (4, 5), (5, 6), (6, 8)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"anchor_type": "symptom"}, "no node type 'symptom'"),
        ({"threshold": 1.0}, "outside 0 ≤ threshold < 1"),
    ],
)
def test_what_the_graph_does_not_have_is_named(graph, arguments, message):
    with pytest.raises(InputError, match=message):
        shared_neighbour_jaccard(graph, **{"anchor_type": PAIR[0], "neighbour_type": PAIR[1], **arguments})


def test_types_without_a_relation_between_them_share_nothing(graph):
    result = shared_neighbour_jaccard(graph, "disease", "disease")
    assert result.indptr.tolist() == [0] * 41
    assert len(result.data) == 0
