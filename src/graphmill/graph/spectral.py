"""Computes vectors of nodes from their neighbourhoods: a truncated SVD of the normalised matrix of typed training edges.

Two nodes have similar vectors if they share neighbours by the same relations. There is no training. The basis is kept, so
that nodes without some of their pairs, and new nodes, have vectors, too. Models can start
from these vectors, and are compared with them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy import linalg

from graphmill.graph.sorted_unique import in_sorted, sorted_unique
from graphmill.graph.splits import TRAIN
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph

#: Added to a row's squared length, so that nodes with few neighbours have small similarities.
SHRINKAGE = 3.0
#: Lower bound of log(1 + degree), by which a column is divided.
_LEAST_LOG = 0.7
SHORTENING = 0.3
"""In :func:`shortened`."""
_ALMOST_ZERO = 1e-4
"""Share of the largest singular value below which a direction is rounding error."""
_ITERATIONS = 4
_MORE = 10
"""Directions beyond those that are wanted."""
#: Number of products with dense matrices in :func:`factors`, which take most of its time.
PRODUCTS = 2 * _ITERATIONS + 2


@dataclass(frozen=True)
class Neighbourhoods:
    """Distinct typed training edges: ``matrix`` float32 [nodes, columns] CSR, rows not yet scaled.

    A column stands for a (relation, neighbour); an entry is 1 / log(1 + the column's degree). ``pair`` int32 [entries]:
    the undirected pair of each entry, in the matrix's order. ``columns`` int64 [columns], ascending: relation · nodes +
    neighbour, where relation + R stands for the relation in the other direction. ``weights`` float32 [columns]: the
    value of each column's entries. ``strengths`` float32 [entries]: the edges' relative weights
    (``RelationEdges.relative_weights``), or None. ``weighted``: entries are multiplied by them.
    """

    matrix: sp.csr_matrix
    pair: np.ndarray
    columns: np.ndarray
    weights: np.ndarray
    strengths: np.ndarray | None = None
    weighted: bool = False

    def by(self, weighted: bool) -> Neighbourhoods:
        """These, or with entries that are multiplied by their edges' weights, if there are any."""
        if not weighted or self.strengths is None:
            return self
        matrix = self.matrix.copy()
        matrix.data *= self.strengths
        return replace(self, matrix=matrix, weighted=True)


def neighbourhoods(graph: TypedGraph) -> Neighbourhoods:
    """The training neighbours of each node, with one column per (relation, neighbour).

    Repeated edges count once, and columns without an edge are left out.

    If the graph does not hold a relation's edges in both directions, the relation is read in both.
    """
    edges_of = []
    for place, relation in enumerate(graph.relations):
        edges = graph.edges(relation)
        train, relative = np.asarray(edges.split) == TRAIN, edges.relative_weights()
        ends = graph.training_edges(relation, everywhere=True)
        edges_of.append((place, *ends, np.asarray(edges.pair)[train], None if relative is None else relative[train]))
    return _of_edges(edges_of, graph.num_nodes)


def neighbourhoods_of_links(links: TrainingLinks) -> Neighbourhoods:
    """:func:`neighbourhoods` from training links alone. All pairs are 0, and nodes after the last node with a relation
    have no row.
    """
    sizes = [max(a + m.shape[0], b + m.shape[1]) for m, (a, b) in zip(links.outgoing, links.offsets, strict=True)]
    ends = zip(links.edges(), links.weights, strict=True)
    edges_of = [(n, source, target, np.zeros(len(source), np.int32), w) for (n, source, target), w in ends]
    return _of_edges(edges_of, max(sizes, default=0))


def _of_edges(
    edges_of: list[tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]], count: int
) -> Neighbourhoods:
    """``edges_of``: for every relation its number, the sources and targets of its edges (among ``count`` nodes), their
    pairs, and their relative weights, if it has any."""
    relations = len(edges_of)
    held = sorted_unique(np.concatenate([np.zeros(0, np.int64), *(s * count + t for _, s, t, *_ in edges_of)]))
    for place, source, target, pair, strength in edges_of[:]:
        if len(source) and not in_sorted(target * count + source, held).all():
            edges_of.append((relations + place, target, source, pair, strength))
    none = np.zeros(0, np.int64)
    rows = np.concatenate([none, *(s for _, s, *_ in edges_of)])
    column = np.concatenate([none, *(t + p * count for p, _, t, *_ in edges_of)])
    used = sorted_unique(column)
    column = np.searchsorted(used, column)
    # Sorted by row and column, the order of CSR; repeated edges count once.
    key, first = np.unique(rows * max(len(used), 1) + column, return_index=True)
    row, column = np.divmod(key, max(len(used), 1))
    degree = np.bincount(column, minlength=len(used))
    weights = (1.0 / np.maximum(np.log1p(degree), _LEAST_LOG)).astype(np.float32)
    pairs = np.concatenate([none, *(p for *_, p, _ in edges_of)])[first].astype(np.int32)
    matrix, strengths = sp.csr_matrix((weights[column], (row, column)), (count, len(used))), None
    if any(w is not None for *_, w in edges_of):
        strengths = np.concatenate([np.ones(len(p), np.float32) if w is None else w for *_, p, w in edges_of])[first]
    return Neighbourhoods(matrix, pairs, used, weights, strengths)


def scaled(matrix: sp.csr_matrix, shrinkage: float = SHRINKAGE) -> sp.csr_matrix:
    """``matrix`` with each row divided by sqrt(its squared length + ``shrinkage``)."""
    length = np.sqrt(np.asarray(matrix.multiply(matrix).sum(1)).ravel() + shrinkage)
    length[length == 0.0] = 1.0  # a row without entries and without shrinkage
    out = matrix.copy()
    out.data = (matrix.data / np.repeat(length, np.diff(matrix.indptr))).astype(np.float32)
    return out


def factors(matrix: sp.csr_matrix, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """float32 left singular vectors times singular values [rows, ``width``], and the values [``width``].

    Randomized SVD (Halko et al. 2011); where ``width`` exceeds the matrix's sides, the last columns are zero.
    """
    vectors, values = np.zeros((matrix.shape[0], width), np.float32), np.zeros(width, np.float32)
    kept = min(width, *matrix.shape)
    if kept:
        left, singular = _largest(matrix, kept, seed)
        vectors[:, :kept], values[:kept] = left * singular, singular
    return vectors, values


def _largest(matrix: sp.csr_matrix, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``count`` first left singular vectors and their values. As sklearn's ``randomized_svd``, bit for bit; but every
    training would wait a second for the import of sklearn."""
    is_wide = matrix.shape[0] < matrix.shape[1]
    tall = matrix.T if is_wide else matrix
    basis = np.random.RandomState(seed).normal(size=(tall.shape[1], count + _MORE)).astype(tall.dtype)
    for _ in range(_ITERATIONS):
        basis, _ = linalg.lu(tall @ basis, permute_l=True, check_finite=False)
        basis, _ = linalg.lu(tall.T @ basis, permute_l=True, check_finite=False)
    basis, _ = linalg.qr(tall @ basis, mode="economic", check_finite=False)
    inner, values, right = linalg.svd(basis.T @ tall, full_matrices=False)
    left = (right.T if is_wide else basis @ inner)[:, :count]
    signs = np.sign(left[np.abs(left).argmax(0), np.arange(count)])
    return left * signs, values[:count]


class SpectralVectors:
    """A node's vector is the sum of its neighbours' columns (right singular vectors), short for a small neighbourhood.

    ``left`` float32 [nodes, width]: left singular vectors times ``values`` [width], of the scaled matrix of ``entries``.
    """

    def __init__(self, entries: Neighbourhoods, left: np.ndarray, values: np.ndarray) -> None:
        self.entries, self.left, self.values = entries, left, values
        self.columns = _columns(scaled(entries.matrix), left, values)

    @classmethod
    def of(cls, entries: Neighbourhoods, width: int, seed: int) -> SpectralVectors:
        """Those of a graph's neighbourhoods."""
        return cls(entries, *factors(scaled(entries.matrix), width, seed))

    def all(self, without: np.ndarray | None = None) -> np.ndarray:
        """float32 [nodes, width], shorter than 1 (0 without a neighbour). ``without`` bool [pairs]: pairs to leave out; the
        basis stays the same."""
        matrix = self.entries.matrix
        if without is not None:
            matrix = matrix.copy()
            matrix.data[without[self.entries.pair]] = 0.0
        return np.asarray(scaled(matrix) @ self.columns, dtype=np.float32)

    def projected(self, matrix: sp.csr_matrix) -> np.ndarray:
        """float32 [rows, width]: vectors of nodes outside the basis, from their neighbourhoods [rows, columns].

        A basis keeps more of the rows that it was made from than of other rows. Scores compare the two, so the other rows
        are multiplied by the mean ratio.
        """
        return np.asarray(scaled(matrix) @ self.columns, dtype=np.float32) * self._lost_by_others

    @cached_property
    def _lost_by_others(self) -> np.float32:
        """Ratio of the share of length that rows of a basis keep to that of other rows, by a basis of nine rows in ten."""
        rows = scaled(self.entries.matrix)
        rows = rows[np.diff(rows.indptr) > 0]
        others = np.arange(rows.shape[0]) % 10 == 9
        basis = _columns(rows[~others], *factors(rows[~others], self.columns.shape[1], seed=0))
        kept = [_kept(rows[part], basis) for part in (~others, others)]
        return np.float32(kept[0] / kept[1] if min(kept) > 0 else 1.0)


def _columns(rows: sp.csr_matrix, left: np.ndarray, values: np.ndarray) -> np.ndarray:
    """float32 [columns, width]: right singular vectors, from left ones times ``values``; 0 for rounding errors."""
    kept = values > _ALMOST_ZERO * max(float(values.max(initial=0.0)), 1e-30)
    inverse = np.where(kept, 1.0 / np.where(kept, values, 1.0).astype(np.float64) ** 2, 0.0).astype(np.float32)
    return np.asarray(rows.T.tocsr() @ (left * inverse), dtype=np.float32)


def _kept(rows: sp.csr_matrix, columns: np.ndarray) -> float:
    """Mean share of a row's length that its vector keeps."""
    length = np.sqrt(np.asarray(rows.multiply(rows).sum(1)).ravel())
    return float(np.mean(np.linalg.norm(np.asarray(rows @ columns), axis=1) / length)) if len(length) else 0.0


def shortened(vectors: np.ndarray) -> np.ndarray:
    """Rows of length √(l / (l + :data:`SHORTENING`)) instead of l, which differ less in length."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    rescaled: np.ndarray = vectors / np.maximum(np.sqrt(length * (length + SHORTENING)), 1e-6).astype(np.float32)
    return rescaled
