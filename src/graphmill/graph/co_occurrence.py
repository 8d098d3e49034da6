"""Counts what two rows of a pattern share (users their items, nodes their neighbours), without a rows × rows matrix."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import scipy.sparse

from graphmill.errors import InputError
from graphmill.graph.interactions import CsrPattern, to_rows
from graphmill.graph.typed_graph import TypedGraph

BLOCK_PRODUCTS = 4_000_000
"""Largest number of products (shared columns, counted with repetition) in one block of rows: up to 60 bytes each."""


def top_co_occurrence(rows: CsrPattern, by_column: CsrPattern, k: int) -> tuple[CsrPattern, npt.NDArray[np.int64]]:
    """For each row of ``rows`` (a user's items), the ``k`` other rows that share the most columns with it, most first.

    ``by_column`` is the transpose. Ties are broken by the lower row number. A row may have fewer than ``k`` neighbours,
    or none. Returns the neighbours, whose ``columns`` are *not* ascending, and int64 [E]: the number of columns that
    each shares.

    Memory is up to 60 bytes for each of ``BLOCK_PRODUCTS`` products, or for the products of one row if they are more.
    """
    size = len(rows.counts)
    counts, columns, shared = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for first, products in shared_counts(rows, by_column):
        end, block = first + products.shape[0], products.tocoo()
        other = block.col != block.row + first
        row, column, count = block.row[other], block.col[other].astype(np.int64), block.data[other].astype(np.int64)
        # One key that sorts by row, then by most shared, then by number: sorting integers is many times faster than
        # sorting triples.
        most = int(count.max(initial=0)) + 1
        key = np.sort((row.astype(np.int64) * most + (most - 1 - count)) * size + column)
        row = key // (most * size)
        per_row = np.bincount(row, minlength=end - first)
        place = np.arange(len(key)) - np.repeat(np.cumsum(per_row) - per_row, per_row)
        key = key[place < k]
        counts.append(np.minimum(per_row, k))
        columns.append((key % size).astype(np.int32))
        shared.append(most - 1 - key // size % most)
    indptr = np.concatenate(([0], np.cumsum(np.concatenate(counts)))).astype(np.int64)
    return CsrPattern(indptr, np.concatenate(columns)), np.concatenate(shared)


def shared_counts(rows: CsrPattern, by_column: CsrPattern) -> Iterator[tuple[int, scipy.sparse.csr_matrix]]:
    """Blocks of the product R·Rᵀ, int32 [rows of the block, R]: the numbers of columns that two rows share, and the number
    of each block's first row. ``by_column`` is the transpose."""
    shape = len(rows.counts), len(by_column.counts)
    left = scipy.sparse.csr_matrix((np.ones(len(rows), np.int32), rows.columns, rows.indptr), shape)
    right = scipy.sparse.csr_matrix(
        (np.ones(len(by_column), np.int32), by_column.columns, by_column.indptr), shape[::-1]
    )
    for first, end in row_blocks(left @ by_column.counts, BLOCK_PRODUCTS):
        yield first, left[first:end] @ right


def row_blocks(work: npt.NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows, in order, with at most ``most`` of ``work`` in total (or a single row)."""
    total, first = np.concatenate(([0], np.cumsum(work))), 0
    while first < len(work):
        end = max(int(np.searchsorted(total, total[first] + most, side="right")) - 1, first + 1)
        yield first, end
        first = end


def shared_neighbour_jaccard(
    graph: TypedGraph, anchor_type: str, neighbour_type: str, threshold: float = 0.1
) -> scipy.sparse.csr_array:
    """Jaccard similarity of the neighbour sets of all nodes of ``anchor_type``, if it is greater than ``threshold``.

    The set G_i of anchor i holds its neighbours of ``neighbour_type`` over train edges of all relations between the two
    types, in either direction, each once. J_ij = |G_i ∩ G_j| / |G_i ∪ G_j|. Only pairs that share a neighbour are computed.

    Returns a symmetric matrix, float32 [anchors, anchors], with sorted indices and an empty diagonal.

    Raises :class:`InputError` for a node type that the graph does not have, and for a threshold outside 0 ≤ threshold < 1.
    """
    if not 0.0 <= threshold < 1.0:
        raise InputError(f"similarity threshold {threshold} is outside 0 ≤ threshold < 1")
    shape = graph.node_type(anchor_type).count, graph.node_type(neighbour_type).count
    ends = [np.empty((2, 0), np.int32)]
    for relation in graph.relations:
        if {(relation.source, relation.target)} & {(anchor_type, neighbour_type), (neighbour_type, anchor_type)}:
            src, dst = graph.training_edges(relation)
            if relation.source == anchor_type:
                ends.append(np.stack((src, dst)))
            if relation.target == anchor_type:
                ends.append(np.stack((dst, src)))
    row, column = np.concatenate(ends, axis=1)
    sets, by_neighbour = to_rows(row, column, *shape), to_rows(column, row, *shape[::-1])
    blocks = [scipy.sparse.csr_array((0, shape[0]), dtype=np.float32)]
    for first, products in shared_counts(sets, by_neighbour):
        shared = products.tocoo()
        anchor = shared.row.astype(np.int64) + first
        union = sets.counts[anchor] + sets.counts[shared.col] - shared.data
        jaccard = shared.data / union  # float64: compared with the threshold before it is rounded
        keep = (jaccard > threshold) & (anchor != shared.col)
        entries = jaccard[keep].astype(np.float32), (shared.row[keep], shared.col[keep])
        blocks.append(scipy.sparse.csr_array(entries, shape=shared.shape))
    similar = scipy.sparse.vstack(blocks, format="csr")
    similar.sort_indices()
    return similar


def neighbourhood_groups(graph: TypedGraph) -> npt.NDArray[np.int64]:
    """int64 [nodes]: one number for all nodes with the same training neighbours by the same relations, repeated edges
    counted; 0: no training edge.

    A neighbourhood is the sum of random 64-bit numbers, one for each (relation, end, neighbour): two that differ have the
    same sum with a probability of 2⁻⁶⁴.
    """
    rng, total = np.random.default_rng(0), np.zeros(graph.num_nodes, np.uint64)
    for relation in graph.relations:
        ends = graph.training_edges(relation, everywhere=True)
        for node, neighbour in (ends, ends[::-1]):
            numbers = rng.integers(2**64, size=graph.num_nodes, dtype=np.uint64)
            np.add.at(total, node, numbers[neighbour])
    groups = np.unique(total, return_inverse=True)[1].astype(np.int64) + 1
    groups[graph.cold_nodes()] = 0
    return groups
