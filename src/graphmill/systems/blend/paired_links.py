"""The training links of a graph with the numbers of their pairs, so that some pairs can be left out."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp

from graphmill.graph.splits import TRAIN
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph


class PairedLinks(TrainingLinks):
    """An entry of ``outgoing`` is the link's undirected pair + 1, since an entry of 0 would be none to scipy."""

    @classmethod
    def of_graph(cls, graph: TypedGraph) -> PairedLinks:
        """Those of a graph."""
        outgoing, offsets, weights = [], [], []
        for relation in graph.relations:
            source, target = graph.node_type(relation.source), graph.node_type(relation.target)
            edges = graph.edges(relation.index)
            train = np.asarray(edges.split) == TRAIN
            src, dst, pair = (np.asarray(each, np.int64)[train] for each in (edges.src, edges.dst, edges.pair))
            relative = edges.relative_weights()
            keys, first = np.unique(src * target.count + dst, return_index=True)
            ends = keys // max(target.count, 1), keys % max(target.count, 1)
            outgoing.append(sp.csr_matrix((pair[first] + 1, ends), (source.count, target.count)))
            offsets.append((source.offset, target.offset))
            weights.append(None if relative is None else relative[train][first])
        return cls(outgoing, offsets, weights)

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
