"""Finds nodes of a type that share neighbours. They are the positives of the contrastive term (diseases that share
genes)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse

from graphmill.errors import InputError
from graphmill.graph.co_occurrence import row_blocks
from graphmill.graph.interactions import to_rows
from graphmill.graph.splits import TRAIN
from graphmill.graph.typed_graph import TypedGraph

BLOCK_PRODUCTS = 4_000_000
"""Largest number of products (shared neighbours, with repetition) in one block. Each needs up to 12 bytes."""


@dataclass(frozen=True)
class Similarity:
    """A sparse symmetric matrix over the nodes of one type.

    Row i has the columns ``indices[indptr[i] : indptr[i + 1]]``, ascending, never i itself.

    ``indptr`` (n + 1,) int64; ``indices`` (nnz,) int32, local node numbers; ``values`` (nnz,) float32.
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]


def shared_neighbour_jaccard(
    graph: TypedGraph,
    anchor_type: str = "disease",
    neighbour_type: str = "gene/protein",
    relations: Sequence[str] = (),
    threshold: float = 0.1,
) -> Similarity:
    """Jaccard similarity of the neighbour sets of all nodes of ``anchor_type``, if it is greater than ``threshold``.

    The set G_i of anchor i holds its neighbours of ``neighbour_type`` over train edges of ``relations`` (names; empty =
    all between the two types), in either direction, each once. J_ij = |G_i ∩ G_j| / |G_i ∪ G_j|, from the sparse
    product B·Bᵀ of the incidence matrix, in blocks of rows. Only pairs that share a neighbour are computed, and there
    is no n × n matrix.

    Raises :class:`InputError` for a node type or relation that the graph does not have between the two types, and for
    a threshold outside 0 ≤ threshold < 1.
    """
    if not 0.0 <= threshold < 1.0:
        raise InputError(f"similarity threshold {threshold} is outside 0 ≤ threshold < 1")
    incidence = _incidence(graph, anchor_type, neighbour_type, relations)
    size = np.diff(incidence.indptr).astype(np.int64)
    transposed = incidence.T.tocsr()
    # Row i of the product looks at the neighbours' degrees, summed over G_i.
    work = incidence @ np.diff(transposed.indptr).astype(np.int64)
    blocks = []
    for first, end in row_blocks(work, BLOCK_PRODUCTS):
        shared = (incidence[first:end] @ transposed).tocoo()
        row = shared.row.astype(np.int64) + first
        union = size[row] + size[shared.col] - shared.data
        jaccard = shared.data / union  # float64: compared with the threshold before it is rounded
        keep = (jaccard > threshold) & (row != shared.col)
        entries = jaccard[keep].astype(np.float32), (shared.row[keep], shared.col[keep])
        blocks.append(scipy.sparse.csr_array(entries, shape=shared.shape))
    found = scipy.sparse.vstack(blocks, format="csr")
    found.sort_indices()
    return Similarity(found.indptr.astype(np.int64), found.indices.astype(np.int32), found.data)


def _incidence(graph: TypedGraph, anchor: str, neighbour: str, names: Sequence[str]) -> scipy.sparse.csr_array:
    """The incidence matrix (anchors, neighbours), int32: 1 for a neighbour."""
    shape = (graph.node_type(anchor).count, graph.node_type(neighbour).count)
    between = [r for r in graph.relations if (r.source, r.target) in ((anchor, neighbour), (neighbour, anchor))]
    known = sorted({r.name for r in between})
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(
            f"the graph has no relation {', '.join(map(repr, unknown))} between {anchor!r} and {neighbour!r}; "
            f"it has {', '.join(map(repr, known)) or 'none'}"
        )
    ends = [np.empty((2, 0), np.int32)]
    for relation in between:
        if names and relation.name not in names:
            continue
        edges = graph.edges(relation)
        train = edges.split == TRAIN
        src, dst = edges.src[train], edges.dst[train]
        if relation.source == anchor:
            ends.append(np.stack((src, dst)))
        if relation.target == anchor:
            ends.append(np.stack((dst, src)))
    row, column = np.concatenate(ends, axis=1)
    found = to_rows(row, column, *shape)
    return scipy.sparse.csr_array((np.ones(len(found), np.int32), found.columns, found.indptr), shape=shape)
