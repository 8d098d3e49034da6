"""KGAT's collaborative knowledge graph: interactions and facts, each in both directions, with a number per relation.

Relation 0 is "interacts", 1 its inverse; fact relation r is 2 + r, its inverse 2 + R + r. Nodes have the graph's global
numbers. Edges are sorted by (head, tail, relation): parallel edges stay separate; the product adds their weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from graphmill.graph.interactions import Interactions, Knowledge
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.kernels.propagation import SparseMatrix, sparse_matrix
from graphmill.kernels.translation import EdgeGroup, score_edges_, segment_softmax
from graphmill.sampling.keyed import generator
from graphmill.sampling.negatives import corrupt_tails
from graphmill.systems.base_system import DividedBatch
from graphmill.systems.kgat.model import Kgat
from graphmill.systems.recommenders.sharded_product import ShardedMatrix
from graphmill.training.processes import Ranks
from graphmill.training.sharding import Bounds, RowExchange

FACTS, FACT_NORM = "facts", "fact_norm"
TOGETHER = 65_536
"""Projected nodes of several relations that are in memory together, at most; one with more of them goes alone."""


@dataclass(frozen=True)
class FactBatch(DividedBatch):
    """B facts, int64 [B] each, sorted by relation: global node numbers, and relation numbers."""

    heads: np.ndarray
    relations: np.ndarray
    tails: np.ndarray
    wrong_tails: np.ndarray

    replicated = True
    ROWS = ("heads", "relations", "tails", "wrong_tails")

    @property
    def weights(self) -> Mapping[str, float]:
        """Facts."""
        return {FACTS: float(len(self)), FACT_NORM: float(len(self))}


class CollaborativeGraph:
    """``tail`` int32 [E], ``relation`` [E] in the smallest unsigned type; edges of head h are ``indptr[h] : indptr[h + 1]``.

    ``matrix``: the adjacency matrix with the weights of the first epoch.
    """

    def __init__(self, view: Interactions, knowledge: Knowledge, num_nodes: int) -> None:
        user = view.train.row.astype(np.int64) + view.user_offset
        item = view.train.columns.astype(np.int64) + view.item_offset
        names = len(knowledge.names)
        head = np.concatenate((user, item, knowledge.head, knowledge.tail))
        tail = np.concatenate((item, user, knowledge.tail, knowledge.head))
        ones = np.ones(len(user), np.int64)
        relation = np.concatenate((0 * ones, ones, knowledge.relation + 2, knowledge.relation + 2 + names))
        order = np.lexsort((relation, tail, head))
        self.num_nodes, self.num_relations = num_nodes, 2 + 2 * names
        self.indptr = np.concatenate(([0], np.cumsum(np.bincount(head, minlength=num_nodes))))
        self.tail = tail.astype(np.int32)[order]
        # NumPy sorts integers of at most 16 bits by counting, which is fast.
        self.relation = relation.astype(np.min_scalar_type(self.num_relations))[order]
        self.names = ["interacts", "interacts, inverse"]
        self.names += [*knowledge.names, *(f"{name}, inverse" for name in knowledge.names)]
        self.device = torch.device("cpu")

    def __len__(self) -> int:
        return len(self.tail)

    @property
    def head(self) -> np.ndarray:
        """int32 [E], computed at each call: only a few steps need it, and it takes memory."""
        return np.repeat(np.arange(self.num_nodes, dtype=np.int32), np.diff(self.indptr))

    @cached_property
    def first_values(self) -> np.ndarray:
        """float32 [E], the weights of the first epoch (D⁻¹A of each relation, summed over relations): 1 / degree of the
        edge's head in its relation."""
        out = self.relation * np.int64(self.num_nodes) + self.head
        _, place, counts = np.unique(out, return_inverse=True, return_counts=True)
        return (1.0 / counts[place]).astype(np.float32)

    @cached_property
    def matrix(self) -> SparseMatrix:
        """The adjacency matrix of all edges with the weights of the first epoch."""
        return sparse_matrix(self.head, self.tail, self.first_values, (self.num_nodes, self.num_nodes)).to(self.device)

    def to(self, device: torch.device) -> None:
        """Moves the matrix and the edges by relation to the device."""
        if "matrix" in self.__dict__:
            self.matrix = self.matrix.to(device)
        self.device = device
        for made in ("scored", "_places"):
            self.__dict__.pop(made, None)

    def release(self) -> None:
        """Frees the first weights; each rank has those of its own edges."""
        self.__dict__.pop("first_values", None)

    # ---------------------------------------------------------------- without some interactions

    @cached_property
    def _order_keys(self) -> np.ndarray:
        """int64 [E], ascending: a number for each head, tail and relation. Repeated facts have repeated keys."""
        return (self.head * np.int64(self.num_nodes) + self.tail) * self.num_relations + self.relation

    @cached_property
    def _places(self) -> Tensor:
        """int64 [E]: the place of each edge in the matrix's transpose."""
        order = self.matrix.order
        places = torch.empty_like(order)
        places[order] = torch.arange(len(order), device=order.device)
        return places

    def interactions(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """int64, ascending: the edges of the given training pairs in both directions, each once. Nodes have global
        numbers."""
        count, relations = np.int64(self.num_nodes), self.num_relations
        forth, back = (users * count + items) * relations, (items * count + users) * relations + 1
        keys = sorted_unique(np.concatenate((forth, back)))
        places = np.searchsorted(self._order_keys, keys)
        assert np.array_equal(self._order_keys[places], keys), "these are training pairs, which the graph has"
        return places

    def without(self, matrix: SparseMatrix, edges: Tensor) -> SparseMatrix:
        """``matrix``, which has this graph's entries, with weight 0 for ``edges``; other weights are unchanged."""
        value, transposed = matrix.forward.value.clone(), matrix.transpose.value.clone()
        value[edges], transposed[self._places[edges]] = 0.0, 0.0
        return replace(
            matrix, forward=replace(matrix.forward, value=value), transpose=replace(matrix.transpose, value=transposed)
        )

    # ---------------------------------------------------------------- attention

    @cached_property
    def scored(self) -> list[EdgeGroup]:
        """All edges by relation; small relations are grouped, up to some thousand rows."""
        ends = self.head, self.relation, self.tail
        return edges_by_relation(*ends, self.num_nodes, self.num_relations, self.device)

    @torch.no_grad()
    def attention(self, model: Kgat) -> Tensor:
        """[E]: softmax over all edges of each head of ⟨W_r e_t, tanh(W_r e_h + e_r)⟩, in the matrix's order."""
        nodes = model.nodes()
        logits = nodes.new_empty(len(self))
        for part in self.scored:
            score_edges_(logits, nodes, model.projections, model.translations, part)
        return segment_softmax(logits, self.matrix.forward.row, self.matrix.forward.indptr)

    # ---------------------------------------------------------------- facts to train on

    @cached_property
    def heads(self) -> np.ndarray:
        """int64: nodes with at least one edge, from which the knowledge phase draws."""
        return np.flatnonzero(np.diff(self.indptr) > 0)

    @cached_property
    def _keys(self) -> np.ndarray:
        return sorted_unique((self.head * np.int64(self.num_relations) + self.relation) * self.num_nodes + self.tail)

    def draw(self, batch_size: int, *key: int | str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Draws heads, relations, tails and false tails, int64 [B], sorted by relation.

        The head is uniform over nodes with edges (without replacement if there are enough), the fact is uniform over
        the head's edges, and the false tail is uniform over all nodes.
        """
        rng = generator(*key)
        # In the order of the graph: random look-ups of its rows and keys would each miss the cache.
        head = np.sort(rng.choice(self.heads, batch_size, replace=len(self.heads) < batch_size))
        counts = self.indptr[head + 1] - self.indptr[head]
        edge = self.indptr[head] + (rng.random(batch_size) * counts).astype(np.int64)
        relation = self.relation[edge]
        wrong = corrupt_tails(rng, head * np.int64(self.num_relations) + relation, self._keys, self.num_nodes, 1)[:, 0]
        order = np.argsort(relation, kind="stable")
        order = order[wrong[order] >= 0]  # a head with edges to every node in a relation has no false tail
        relation, tail = relation[order].astype(np.int64), self.tail[edge[order]].astype(np.int64)
        return head[order], relation, tail, wrong[order]


def edges_by_relation(
    head: np.ndarray, relation: np.ndarray, tail: np.ndarray, num_nodes: int, num_relations: int, device: torch.device
) -> list[EdgeGroup]:
    """Edges sorted by head, in the form that :func:`graphmill.kernels.translation.score_edges_` requires."""
    order = np.argsort(relation, kind="stable")
    of = relation[order] * np.int64(num_nodes)
    heads, tails = sorted_unique(of + head[order]), sorted_unique(of + tail[order])
    head, tail = np.searchsorted(heads, of + head[order]), np.searchsorted(tails, of + tail[order])
    ends = np.arange(num_relations + 1) * np.int64(num_nodes)
    bounds = [np.searchsorted(keys, ends) for keys in (of, heads, tails)]
    rows, groups, first = bounds[1] + bounds[2], [], 0
    while first < num_relations:
        last = max(int(np.searchsorted(rows, rows[first] + TOGETHER, "right")) - 1, first + 1)
        (e, f), (h, i), (t, u) = ((b[first], b[last]) for b in bounds)
        indptr = np.zeros(i - h + 1, np.int64)
        np.cumsum(np.bincount(head[e:f] - h, minlength=i - h), out=indptr[1:])
        arrays = order[e:f], heads[h:i] % num_nodes, tails[t:u] % num_nodes, indptr, tail[e:f] - t
        tensors = (torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in arrays)
        bounds_here = (bounds[1][first : last + 1] - h).tolist(), (bounds[2][first : last + 1] - t).tolist()
        groups.append(EdgeGroup(first, last, *bounds_here, *tensors))
        first = last
    return groups


def fitted_to_facts(model: Kgat, facts: CollaborativeGraph, new: np.ndarray, first: np.ndarray) -> np.ndarray:
    """float32 [n, d]: for each node v of ``new`` (int64 [n]) the e that minimises Σ ‖W_r e + e_r − W_r e_t‖² + λ ‖e − m‖²
    over its edges (r, t) to known nodes: the training loss of facts, solved in closed form. ``first`` [n, d]: m, the mean
    of the node's type. λ is the mean weight of a fact, so that one fact and m count equally.
    """
    vectors = model.nodes().detach().cpu().double().numpy()
    projections = model.projections.detach().cpu().double().numpy()  # [R, d, k]
    translations = model.translations.detach().cpu().double().numpy()
    grams = np.einsum("rdk,rek->rde", projections, projections)
    weight = float(np.trace(grams, axis1=1, axis2=2).mean()) / vectors.shape[1]
    out = first.astype(np.float64)
    known = np.ones(facts.num_nodes, bool)
    known[new] = False
    for row, node in enumerate(new.tolist()):
        edges = np.arange(facts.indptr[node], facts.indptr[node + 1])
        edges = edges[known[facts.tail[edges]]]
        left, right = weight * np.eye(vectors.shape[1]), weight * out[row]
        for relation in np.unique(facts.relation[edges]):
            tails = vectors[facts.tail[edges[facts.relation[edges] == relation]]]
            projection = projections[relation]
            left = left + len(tails) * grams[relation]
            right = right + ((tails @ projection - translations[relation]) @ projection.T).sum(0)
        out[row] = np.linalg.solve(left, right)
    return out.astype(np.float32)


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
