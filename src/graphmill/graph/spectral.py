"""Vectors of nodes from their neighbourhoods alone: a truncated SVD of the normalised matrix of typed training edges.

Two nodes have similar vectors where they have neighbours in common, by the same relations. No training; what a model may
start from, and what it must beat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from graphmill.graph.splits import TRAIN

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph

#: Added to a row's squared length: a node with few neighbours is like nothing very much.
SHRINKAGE = 3.0
#: Smallest log(1 + degree) that a column is divided by.
_LEAST_LOG = 0.7
_ITERATIONS = 4


def neighbourhood_matrix(graph: TypedGraph, shrinkage: float = SHRINKAGE) -> sp.csr_matrix:
    """float32 [nodes, columns]: row v holds the training neighbours of node v, a column for each (relation, neighbour).

    Edges count once, from their source. An entry is 1 / log(1 + the column's degree), and a row is divided by
    sqrt(its squared length + ``shrinkage``). Columns without an edge are left out.
    """
    offset = {t.name: t.offset for t in graph.node_types}
    rows, columns = [], []
    for place, relation in enumerate(graph.relations):
        edges = graph.edges(relation.index)
        train = np.asarray(edges.split) == TRAIN
        rows.append(np.asarray(edges.src)[train].astype(np.int64) + offset[relation.source])
        columns.append(
            np.asarray(edges.dst)[train].astype(np.int64) + offset[relation.target] + place * graph.num_nodes
        )
    row, column = np.concatenate([np.zeros(0, np.int64), *rows]), np.concatenate([np.zeros(0, np.int64), *columns])
    used, column = np.unique(column, return_inverse=True)
    matrix = sp.csr_matrix((np.ones(len(row), np.float32), (row, column)), (graph.num_nodes, len(used)))
    matrix.data[:] = 1.0  # repeated edges were added up
    degree = np.bincount(matrix.indices, minlength=len(used))
    matrix.data = (1.0 / np.maximum(np.log1p(degree), _LEAST_LOG)).astype(np.float32)[matrix.indices]
    squared = np.asarray(matrix.multiply(matrix).sum(1)).ravel()
    length = np.sqrt(squared + shrinkage)
    length[length == 0.0] = 1.0  # a node without edges, and no shrinkage
    matrix.data /= np.repeat(length, np.diff(matrix.indptr)).astype(np.float32)
    return matrix


def spectral_vectors(graph: TypedGraph, width: int, seed: int) -> np.ndarray:
    """float32 [nodes, ``width``]: left singular vectors times singular values of :func:`neighbourhood_matrix`, rows scaled to 1.

    Their products are the cosine similarities of neighbourhoods, as far as ``width`` keeps them (randomized SVD, Halko et
    al. 2011). A node without training edges has the zero vector; where ``width`` exceeds the matrix's sides, the last
    columns are zero.
    """
    from sklearn.utils.extmath import randomized_svd

    matrix = neighbourhood_matrix(graph)
    vectors = np.zeros((graph.num_nodes, width), np.float32)
    kept = min(width, *matrix.shape)
    if kept:
        left, values, _ = randomized_svd(matrix, kept, n_iter=_ITERATIONS, random_state=seed)
        vectors[:, :kept] = left * values
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    connected = (np.diff(matrix.indptr) > 0)[:, None]
    result: np.ndarray = np.where(connected, vectors / np.maximum(length, 1e-6), 0.0).astype(np.float32)
    return result
