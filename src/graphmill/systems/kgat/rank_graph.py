"""One rank's part of KGAT's collaborative knowledge graph: the edges whose heads are its nodes."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from graphmill.graph.sorted_unique import sorted_unique
from graphmill.kernels.translation import EdgeGroup, score_edges_, segment_softmax
from graphmill.systems.kgat.graph import CollaborativeGraph, edges_by_relation
from graphmill.systems.kgat.model import Kgat
from graphmill.training.processes import Ranks
from graphmill.training.sharded_product import ShardedMatrix
from graphmill.training.sharding import Bounds, RowExchange

_EDGE = 110.0
"""Bytes of an edge: its place and weight in both orders, its ends by relation, the buffer."""


def node_bytes(graph: CollaborativeGraph, dim: int) -> np.ndarray:
    """[N] bytes of a node and the edges into it: vector, gradient, the moments of two phases, two results of a layer."""
    return 8.0 * 4.0 * dim + _EDGE * np.diff(graph.indptr)


class RankGraph:
    """Edges of this rank's nodes, whose numbers are in ``bounds``; ``matrix`` has the weights of the first epoch."""

    def __init__(self, whole: CollaborativeGraph, ranks: Ranks, bounds: Bounds, device: torch.device) -> None:
        self.ranks, self.bounds, self.device = ranks, bounds, device
        self.num_relations = whole.num_relations
        self.first, self.last = bounds[ranks.rank], bounds[ranks.rank + 1]
        indptr = whole.indptr[self.first : self.last + 1]
        self.first_edge, self.last_edge = int(indptr[0]), int(indptr[-1])
        mine = slice(self.first_edge, self.last_edge)
        self.relation, self.tail = whole.relation[mine], whole.tail[mine]
        self.head = np.repeat(np.arange(self.first, self.last, dtype=np.int32), np.diff(indptr))
        self.indptr = torch.from_numpy(indptr - indptr[0]).to(device)
        column, value = self.tail, whole.first_values[mine]
        self.matrix = ShardedMatrix(ranks, bounds, indptr - indptr[0], column, value, device)

    def without(self, matrix: ShardedMatrix, edges: Tensor) -> ShardedMatrix:
        """``matrix`` with weight 0 for those of ``edges`` that this rank has; edges have their numbers in the whole
        graph."""
        value = matrix.rows.value.clone()
        value[edges[(edges >= self.first_edge) & (edges < self.last_edge)] - self.first_edge] = 0.0
        return matrix.with_values(value)

    @cached_property
    def _ends(self) -> tuple[RowExchange, list[EdgeGroup], Tensor]:
        """Heads and tails, fetched as one table; the edges by relation, as rows of this table; the head of each edge."""
        nodes = sorted_unique(np.concatenate((self.tail, np.arange(self.first, self.last))))
        head, tail = np.searchsorted(nodes, self.head), np.searchsorted(nodes, self.tail)
        parts = edges_by_relation(head, self.relation, tail, max(len(nodes), 1), self.num_relations, self.device)
        exchange = RowExchange(self.ranks, self.bounds, nodes, self.device)
        return exchange, parts, torch.from_numpy(self.head.astype(np.int64) - self.first).to(self.device)

    @torch.no_grad()
    def attention(self, model: Kgat) -> Tensor:
        """[edges of this rank]: :meth:`CollaborativeGraph.attention`. A head's rank has all its edges."""
        exchange, parts, row = self._ends
        table = exchange.forward(model.nodes())
        logits = table.new_empty(len(self.head))
        for part in parts:
            score_edges_(logits, table, model.projections, model.translations, part)
        return segment_softmax(logits, row, self.indptr)
