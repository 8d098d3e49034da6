"""The training links of a graph with the numbers of their pairs, so that some pairs can be left out."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp

from graphmill.graph.interactions import CsrPattern, largest
from graphmill.graph.splits import TRAIN
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph


class PairedLinks(TrainingLinks):
    """An entry of ``outgoing`` is the link's undirected pair + 1, since an entry of 0 would be none to scipy."""

    @classmethod
    def of_graph(cls, graph: TypedGraph) -> PairedLinks:
        """Those of a graph."""
        links = super().of_graph(graph)
        for relation, matrix in zip(graph.relations, links.outgoing, strict=True):
            edges = graph.edges(relation)
            pair = np.asarray(edges.pair, np.int64)[np.asarray(edges.split) == TRAIN] + 1
            rows = CsrPattern(matrix.indptr, matrix.indices)
            matrix.data = largest(rows, matrix.shape[1], *graph.training_edges(relation), pair)
        return links

    @cached_property
    def incoming(self) -> list[sp.csr_matrix]:
        """:attr:`outgoing` from the other end."""
        return [matrix.T.tocsr() for matrix in self.outgoing]

    def without(self, pairs: np.ndarray) -> PairedLinks:
        """The links without the ``pairs``, bool [pairs]."""
        kept, weights = [], []
        for matrix, strengths in zip(self.outgoing, self.weights, strict=True):
            entries = matrix.tocoo()
            keep = ~pairs[entries.data - 1]
            weights.append(None if strengths is None else strengths[keep])
            kept.append(sp.csr_matrix((entries.data[keep], (entries.row[keep], entries.col[keep])), matrix.shape))
        return PairedLinks(kept, self.offsets, weights)
