"""The training data of ConvE: the training triples of a typed graph and their inverses, grouped into queries; and the
data of one step.

Entities are the graph's nodes by global number. Relation r of the graph has the number r; its inverse has r + M.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from graphmill.errors import InputError
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.splits import SPLIT_NAMES
from graphmill.graph.typed_graph import TypedGraph
from graphmill.sampling.ranges import ranges
from graphmill.systems.base_system import RowBatch


class ConveData:
    """Training triples in both directions, as labels grouped by query.

    ``triples`` int64 [T, 3]: (head, relation, tail) in graph order, without inverses. Query q asks for the tails of
    (``query_head[q]``, ``query_relation[q]``); its known tails are ``tails[indptr[q] : indptr[q + 1]]``, ascending.
    """

    def __init__(self, graph: TypedGraph) -> None:
        self.graph = graph
        self.num_entities = graph.num_nodes
        self.num_relations = len(graph.relations)
        self.triples = triples_of(graph, "train")
        if not len(self.triples):
            raise InputError(f"{graph.path} has no training edges; reduce graph.split.valid and graph.split.test")
        head, relation, tail = both_directions(self.triples, self.num_relations).T
        query = head * (2 * self.num_relations) + relation
        keys = sorted_unique(query * self.num_entities + tail)
        queries, start = np.unique(keys // self.num_entities, return_index=True)
        self.query_head = queries // (2 * self.num_relations)
        self.query_relation = queries % (2 * self.num_relations)
        self.indptr = np.append(start, len(keys)).astype(np.int64)
        self.tails = keys % self.num_entities

    @property
    def num_queries(self) -> int:
        """The number of distinct (head, relation) with a known tail, inverses included."""
        return len(self.query_head)

    @cached_property
    def label_query(self) -> np.ndarray:
        """int64 [labels]: the query of each entry of ``tails``."""
        return np.repeat(np.arange(self.num_queries), np.diff(self.indptr))

    @cached_property
    def label_keys(self) -> np.ndarray:
        """Sorted int64 keys ``query × entities + tail``: random tails that are in them are dropped."""
        return self.label_query * self.num_entities + self.tails

    def positives(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Known tails of ``queries`` int64 [B], as (row, tail) int64 [P] each; row counts within ``queries``."""
        start, end = self.indptr[queries], self.indptr[queries + 1]
        return np.repeat(np.arange(len(queries)), end - start), self.tails[ranges(start, end)]


def triples_of(graph: TypedGraph, split: str) -> np.ndarray:
    """int64 [T, 3] of (head, relation, tail), global node numbers, distinct, in graph order.

    ``split``: "train", "valid", "test".
    """
    parts = [np.zeros((0, 3), dtype=np.int64)]
    for relation in graph.relations:
        keep = np.asarray(graph.edges(relation).split) == SPLIT_NAMES.index(split)
        src, dst = graph.ends(relation)
        keys = sorted_unique((src * graph.num_nodes + dst)[keep])
        src, dst = keys // graph.num_nodes, keys % graph.num_nodes
        parts.append(np.stack([src, np.full_like(src, relation.index), dst], axis=1))
    return np.concatenate(parts)


def smoothed_targets(epsilon: float, entities: int) -> tuple[float, float]:
    """(target of a known tail, target of another entity): 1 − ε and ε/(N − 1), as in PyKEEN."""
    return 1.0 - epsilon, epsilon / max(entities - 1, 1)


def both_directions(triples: np.ndarray, num_relations: int) -> np.ndarray:
    """[2T, 3]: the triples, then their inverses (tail, relation + M, head)."""
    inverse = np.stack([triples[:, 2], triples[:, 1] + num_relations, triples[:, 0]], axis=1)
    return np.concatenate([triples, inverse])


@dataclass(frozen=True)
class ConveBatch(RowBatch):
    """Queries ``head``, ``relation`` int64 [B], and their candidates.

    all: every one of ``entities``, with known tails at (``row``, ``column``) int64 [P]. sampled: ``candidates`` int64
    [B, 1 + k], the true tail first, −1 for none. ``loss``: "bce" or "softmax". ``parts``: the number of blocks of the loss.
    """

    head: np.ndarray
    relation: np.ndarray
    row: np.ndarray
    column: np.ndarray
    entities: int
    loss: str
    candidates: np.ndarray | None = None
    parts: int = 1

    @property
    def weights(self) -> Mapping[str, float]:
        """The number of terms in the loss, which is their mean: scores (bce) or known tails (softmax)."""
        if self.loss == "softmax":
            return {self.loss: float(len(self.row if self.candidates is None else self.head))}
        if self.candidates is not None:
            return {self.loss: float((self.candidates >= 0).sum())}
        return {self.loss: float(len(self.head)) * self.entities}

    def split(self, parts: int) -> Sequence[ConveBatch]:
        """One chunk whose loss is computed in blocks; rows stay together, because the batch norms need all of them."""
        return (replace(self, parts=parts),)

    def shard(self, rank: int, world: int) -> ConveBatch:
        """Every ``world``-th row."""
        mine = self.row % world == rank
        return replace(
            self,
            head=self.head[rank::world],
            relation=self.relation[rank::world],
            row=self.row[mine] // world,
            column=self.column[mine],
            candidates=None if self.candidates is None else self.candidates[rank::world],
        )
