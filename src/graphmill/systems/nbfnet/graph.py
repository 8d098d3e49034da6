"""The graph that messages run over: the training edges of every relation, in both directions, sorted by source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graphmill.evaluation.baselines.train_edges import TrainEdges
from graphmill.kernels.frontier import Edges, Layer, Queries, frontiers
from graphmill.sampling.ranges import ranges


class MessageGraph:
    """Relations numbered 0 … R − 1: those of the graph, and an inverse for each whose reverse it does not hold.

    ``counts`` int64 [R]: links of each relation; ``source_offset``, ``target_offset`` int64 [R]: the global numbers of its
    first source and target; ``target_type`` int64 [R]: number of the targets' type; ``whole_pairs``: no held-out pair of
    nodes has a training edge, so a training query sees no edge of its pair; otherwise none of its relation. An edge's
    weight is 1 / √(links out of its source · links into its target), both in its relation.
    """

    def __init__(self, edges: TrainEdges, whole_pairs: bool = True) -> None:
        self.edges, self.whole_pairs, count = edges, whole_pairs, len(edges.held_as)
        self.indices = list(edges.relations)
        self._number = {index: number for number, index in enumerate(self.indices)}
        types = {t.name: n for n, t in enumerate(edges.node_types)}
        ends = [edges.ends(index) for index in self.indices]
        self.source_offset = np.array([a.offset for a, _ in ends], np.int64)
        self.target_offset = np.array([b.offset for _, b in ends], np.int64)
        self.target_type = np.array([types[b.name] for _, b in ends], np.int64)
        self._targets = np.array([b.count for _, b in ends], np.int64)
        self.reverse = np.array([self.number_of(i + count if i < count else i - count) for i in self.indices], np.int64)
        pairs = [edges.edges(index) for index in self.indices]
        self.counts = np.array([len(src) for src, _ in pairs], np.int64)
        self.first_link = np.concatenate([[0], np.cumsum(self.counts)])[:-1]
        self._heads = np.concatenate([src for src, _ in pairs])
        self._tails = np.concatenate([dst for _, dst in pairs])
        weights = []
        self.degrees, self.out_degrees = [], []
        for (source, target), (src, dst) in zip(ends, pairs, strict=True):
            out, into = np.bincount(src, minlength=source.count), np.bincount(dst, minlength=target.count)
            weights.append((out[src] * into[dst]) ** -0.5)
            self.degrees.append(into)
            self.out_degrees.append(out)
        relation = np.repeat(np.arange(len(pairs)), self.counts)
        sources, targets = self._heads + self.source_offset[relation], self._tails + self.target_offset[relation]
        order = np.argsort(sources, kind="stable")
        pointer = np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=edges.num_nodes))]).astype(np.int64)
        self.all = Edges(
            pointer,
            targets[order].astype(np.int32),
            relation[order].astype(np.int32),
            np.concatenate([np.zeros(0), *weights])[order].astype(np.float32),
            _kinds(np.minimum(np.arange(len(pairs)), self.reverse), self.whole_pairs),
        )

    @property
    def links(self) -> int:
        """All links, of inverses as well."""
        return len(self._heads)

    def named(self, names: Sequence[str]) -> list[str]:
        """A name for each number, from those of the graph's relations."""
        count = len(names)
        return [names[i] if i < count else f"inverse of {names[i - count]}" for i in self.indices]

    def number_of(self, index: int) -> int:
        """The number of a relation's index, or of an inverse's (M + index), in this graph."""
        return self._number[self.edges.known_as(index)]

    def link_ends(self, link: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Local head and tail int64 [B] of links by their numbers."""
        return self._heads[link], self._tails[link]

    def known(self, relation: np.ndarray, head: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Training targets of queries int64 [B]: for each, the row of its query and the local target."""
        rows, tails = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for number in np.unique(relation).tolist():
            matrix, mine = self.edges.matrix(self.indices[number]), np.flatnonzero(relation == number)
            first, end = matrix.indptr[head[mine]].astype(np.int64), matrix.indptr[head[mine] + 1].astype(np.int64)
            rows.append(np.repeat(mine, end - first))
            tails.append(matrix.indices[ranges(first, end)].astype(np.int64))
        return np.concatenate(rows), np.concatenate(tails)

    def thinned(self, relation: int, drop: float, rng: np.random.Generator) -> np.ndarray:
        """float32 [targets]: links of the relation into each target, as a graph without a share ``drop`` of its edges
        lets one guess them. The exact number would tell which target has lost the query's own link."""
        degree = self.degrees[relation]
        counts, reached = np.zeros(len(degree), np.float32), np.flatnonzero(degree)
        counts[reached] = rng.binomial(degree[reached], 1.0 - drop) / (1.0 - drop)
        return counts

    def log_degree(
        self,
        relation: np.ndarray,
        tail: np.ndarray | None = None,
        degrees: Mapping[int, np.ndarray] | None = None,
    ) -> np.ndarray:
        """float32 [B, targets]: log(1 + links of the relation into the target); in training without the query's own link,
        and from ``degrees``."""
        known = self.degrees if degrees is None else degrees
        counts = np.stack([known[r] for r in relation.tolist()]).astype(np.float32)
        if tail is not None:
            rows = np.arange(len(tail))
            counts[rows, tail] = np.maximum(counts[rows, tail] - 1.0, 0.0)
        return np.log1p(counts)

    def layers(
        self,
        relation: np.ndarray,
        head: np.ndarray,
        tail: np.ndarray | None,
        key: np.ndarray | None,
        depth: int,
        cap: int,
        drop: float,
        reads: np.ndarray | None = None,
    ) -> list[Layer]:
        """The frontiers of queries int64 [B], local numbers; ``tail``: without the edges between head and tail; ``reads``
        bool [nodes]: the nodes of the last layer besides tails."""
        first = self.target_offset[relation]
        _, slot = np.unique(relation, return_inverse=True)
        queries = Queries(
            head=head + self.source_offset[relation],
            tail=np.full(len(head), -1, np.int64) if tail is None else tail + first,
            relation=relation,
            reverse=self.reverse[relation],
            whole_pairs=self.whole_pairs,
            out=_without_one(self.out_degrees, relation, head, tail),
            into=_without_one(self.degrees, relation, tail, tail),
            first=first,
            last=first + self._targets[relation],
            key=np.zeros(len(head), np.uint64) if key is None else key,
            offset=slot * len(self.counts),
            reads=np.ones(self.edges.num_nodes, bool) if reads is None else reads,
        )
        return frontiers(self.all, queries, depth, cap, drop)


def _kinds(unit: np.ndarray, alike: bool) -> np.ndarray:
    """uint64 [relations]: one number for all, or a random one for each relation and its reverse."""
    drawn = np.random.default_rng(0).integers(1, 2**63, len(unit)).astype(np.uint64)
    return np.zeros(len(unit), np.uint64) if alike else drawn[unit]


def _without_one(
    degrees: Sequence[np.ndarray], relation: np.ndarray, node: np.ndarray | None, tail: np.ndarray | None
) -> np.ndarray:
    """float64 [B]: √(degree / (degree − 1)) of each query's node in its relation; 1 where no link is left out."""
    if node is None or tail is None:
        return np.ones(len(relation))
    count = np.array([degrees[r][n] for r, n in zip(relation.tolist(), node.tolist(), strict=True)], np.float64)
    return np.sqrt(count / np.maximum(count - 1.0, 1.0))
