"""Finds nodes of a type that share neighbours. They are the positives of the contrastive term (diseases that share
genes)."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from graphmill.errors import InputError
from graphmill.graph.co_occurrence import shared_counts
from graphmill.graph.interactions import to_rows
from graphmill.graph.typed_graph import TypedGraph


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
