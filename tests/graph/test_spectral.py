"""Spectral vectors: what a neighbourhood says of a node, in a few numbers."""

import numpy as np
import pyarrow.compute as pc
import pytest
import scipy.sparse as sp
from sklearn.utils.extmath import randomized_svd

from graphmill.graph.spectral import SHRINKAGE, SpectralVectors, factors, neighbourhoods, scaled
from tests.graph.tables import random_tables

SHAPE = ({"drug": 12, "gene": 25}, {"binds": ("drug", "gene", 60), "links": ("gene", "gene", 50)})


def plain(graph):
    """The matrix as its docstring says it, edge by edge."""
    offset = {t.name: t.offset for t in graph.node_types}
    dense = np.zeros((graph.num_nodes, len(graph.relations), graph.num_nodes))
    for relation in graph.relations:
        edges = graph.edges(relation.index)
        for s, d, split in zip(edges.src, edges.dst, edges.split, strict=True):
            if split == 0:
                dense[offset[relation.source] + s, relation.index, offset[relation.target] + d] = 1
    dense = dense.reshape(graph.num_nodes, -1)
    dense /= np.maximum(np.log1p(dense.sum(0)), 0.7)
    return dense / np.sqrt((dense**2).sum(1, keepdims=True) + SHRINKAGE)


def test_the_matrix_holds_training_edges_by_rare_neighbours_first(build):
    graph = build(*random_tables(1, *SHAPE), split={"valid": 0.2, "test": 0.2})
    expected = plain(graph)
    np.testing.assert_allclose(
        scaled(neighbourhoods(graph).matrix).toarray(), expected[:, expected.any(0)].astype(np.float32), rtol=1e-5
    )


def test_products_of_wide_vectors_are_the_similarities_of_neighbourhoods(build):
    graph = build(*random_tables(2, *SHAPE))
    rows = plain(graph)
    vectors = SpectralVectors.of(neighbourhoods(graph), 64, seed=0).all()
    assert vectors.shape == (graph.num_nodes, 64)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors @ vectors.T, rows @ rows.T, atol=1e-4)


def test_the_same_seed_gives_the_same_vectors_and_a_node_without_edges_the_zero_vector(build):
    nodes, edges = random_tables(3, *SHAPE)
    graph = build(nodes, edges.filter(pc.and_(pc.not_equal(edges["head"], 0), pc.not_equal(edges["tail"], 0))))
    first = SpectralVectors.of(neighbourhoods(graph), 8, seed=5).all()
    np.testing.assert_array_equal(first, SpectralVectors.of(neighbourhoods(graph), 8, seed=5).all())
    length = np.linalg.norm(first, axis=1)
    alone = graph.cold_nodes()
    assert alone.any()
    assert np.all(length[alone] == 0)
    assert np.all(length[~alone] > 0)


def test_relations_that_go_one_way_are_read_from_both_ends(build):
    graph = build(*random_tables(4, *SHAPE), add_reverse="never")
    both = build(*random_tables(4, *SHAPE))
    assert (np.diff(scaled(neighbourhoods(graph).matrix).indptr) > 0).tolist() == (~both.cold_nodes()).tolist()


@pytest.mark.parametrize("shape", [(60, 40), (40, 60)])
def test_factors_are_those_of_the_library_to_the_bit(shape):
    matrix = sp.random(*shape, density=0.2, format="csr", dtype=np.float32, random_state=1)
    left, values, _ = randomized_svd(matrix, 12, n_iter=4, random_state=3)
    result = factors(matrix, 12, 3)
    np.testing.assert_array_equal(result[0], left * values)
    np.testing.assert_array_equal(result[1], values)
