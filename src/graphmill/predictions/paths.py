"""Finds short paths of the training graph between a head and a predicted tail, and ranks them.

Paths use training edges of all relations, in either direction. A path of length 2 has one inner node, a path of length
3 has two. The best paths have the lowest product of the inner nodes' degrees, as in degree-weighted path counts
(Himmelstein and Baranzini 2015), because paths over hubs join everything with everything.

The search from a head takes its neighbours by ascending degree, until it has seen :data:`MOST_EDGES` of their edges.
For a head with many neighbours, it leaves out paths of length 3 over the largest hubs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from graphmill.graph.typed_graph import TypedGraph
from graphmill.sampling.ranges import ranges

Int64 = NDArray[np.int64]

MOST_EDGES = 200_000
"""Largest number of edges of a head's neighbours that a search looks at (a few milliseconds)."""
BEST = 3


class Evidence(Protocol):
    """Additional columns for the best links of a relation.

    ``schema``: the columns. ``most``: number of links of each relation for which it is computed, best scores first.
    """

    schema: pa.Schema
    most: int

    def __call__(self, relation: int, heads: Int64, tails: Int64) -> Mapping[str, Sequence[Any]]:
        """Column → a value for each link. ``heads``, ``tails`` int64 [N]: global node numbers."""


@dataclass(frozen=True)
class Path:
    """``nodes``: global numbers from head to tail. ``weight``: the product of the inner nodes' degrees."""

    nodes: tuple[int, ...]
    weight: float

    @property
    def length(self) -> int:
        """Edges."""
        return len(self.nodes) - 1


class TrainingPaths:
    """The undirected training graph as sorted neighbour lists, for searches of paths between two nodes."""

    def __init__(self, nodes: int, edges: Iterable[tuple[int, Int64, Int64]]) -> None:
        """``edges``: for each relation its number, and its heads and tails int64 [E], which are below ``nodes``."""
        parts = [(number, heads.astype(np.int64), tails.astype(np.int64)) for number, heads, tails in edges]
        codes = 2 * (1 + max((number for number, _, _ in parts), default=0))
        keys = []
        for number, heads, tails in parts:
            apart = heads != tails
            heads, tails = heads[apart], tails[apart]
            keys += [(heads * nodes + tails) * codes + 2 * number, (tails * nodes + heads) * codes + 2 * number + 1]
        all_keys = np.concatenate(keys) if keys else np.zeros(0, np.int64)
        del keys, parts
        all_keys.sort()
        pair = all_keys // codes
        first = np.diff(pair, prepend=-1) > 0
        pair, self.code = pair[first], (all_keys[first] % codes).astype(np.int32)
        del all_keys
        self.neighbours = (pair % nodes).astype(np.int32)
        self.indptr = np.searchsorted(pair, np.arange(nodes + 1, dtype=np.int64) * nodes)
        self.degree = np.diff(self.indptr)

    @classmethod
    def of_graph(cls, graph: TypedGraph) -> TrainingPaths:
        """The training edges of a graph, by global node numbers."""
        edges = ((each.index, *graph.training_edges(each, everywhere=True)) for each in graph.relations)
        return cls(graph.num_nodes, edges)

    def of(self, node: int) -> NDArray[np.int32]:
        """A node's neighbours, ascending."""
        return self.neighbours[self.indptr[node] : self.indptr[node + 1]]

    def relation_between(self, a: int, b: int) -> tuple[int, bool]:
        """The number of the first relation with an edge between the two, and whether it goes from ``a`` to ``b``."""
        number, backward = divmod(int(self.code[self.indptr[a] + np.searchsorted(self.of(a), b)]), 2)
        return number, not backward

    def best(self, head: int, tails: Int64, most: int = BEST) -> list[list[Path]]:
        """For each tail the ``most`` best paths from ``head``, best first. Ties are broken by length, then by node
        numbers."""
        near = self.of(head)
        middle, reached = self._steps(head, near)
        return [self._between(head, int(tail), near, middle, reached, most) for tail in tails]

    def _steps(self, head: int, near: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The edges from the nodes ``near``, as (node of ``near``, reached node), ordered by the latter."""
        order = near[np.argsort(self.degree[near], kind="stable")]
        kept = order[: int(np.searchsorted(np.cumsum(self.degree[order]), MOST_EDGES, side="right"))]
        place = ranges(self.indptr[kept], self.indptr[kept + 1])
        middle, reached = np.repeat(kept, self.degree[kept]), self.neighbours[place]
        onwards = reached != head
        middle, reached = middle[onwards], reached[onwards]
        by_reached = np.argsort(reached, kind="stable")
        return middle[by_reached], reached[by_reached]

    def _between(
        self,
        head: int,
        tail: int,
        near: NDArray[np.int32],
        middle: NDArray[np.int32],
        reached: NDArray[np.int32],
        most: int,
    ) -> list[Path]:
        last = self.of(tail)
        shared = np.intersect1d(near, last, assume_unique=True)
        shared = shared[(shared != head) & (shared != tail)]
        paths = [Path((head, int(m), tail), float(self.degree[m])) for m in _lowest(self.degree[shared], shared, most)]
        low, high = np.searchsorted(reached, last), np.searchsorted(reached, last, side="right")
        place = ranges(low, high)
        a, b = middle[place], reached[place]
        fits = (a != tail) & (b != head)
        a, b = a[fits], b[fits]
        weights = self.degree[a].astype(float) * self.degree[b]
        paths += [
            Path((head, int(a[at]), int(b[at]), tail), float(weights[at]))
            for at in _lowest(weights, np.arange(len(a)), most, (b, a))
        ]
        return sorted(paths, key=lambda path: (path.weight, path.length, path.nodes))[:most]


def _lowest(weights: NDArray[Any], items: NDArray[Any], most: int, ties: Sequence[NDArray[Any]] = ()) -> NDArray[Any]:
    """The ``most`` items with the lowest weights. Ties are broken by ``ties`` (the last is the primary key), or by the
    items if it is empty."""
    if len(weights) > most:
        bound = np.partition(weights, most - 1)[most - 1]
        kept = np.flatnonzero(weights <= bound)
        weights, items = weights[kept], items[kept]
        ties = [each[kept] for each in ties]
    return items[np.lexsort((*(ties or (items,)), weights))][:most]


class PathEvidence:
    """Columns on the paths that support a link: ``path_length`` (2 or 3, 0 for none), and the best paths by name.

    The training edges are read at the first use.
    """

    schema = pa.schema([("path_length", pa.int8()), ("paths", pa.string())])

    def __init__(self, graph: TypedGraph, most: int = 1000) -> None:
        self.most, self._graph, self._names = most, graph, graph.node_table()["name"]
        self._relations = [relation.name for relation in graph.relations]

    @cached_property
    def _paths(self) -> TrainingPaths:
        return TrainingPaths.of_graph(self._graph)

    def __call__(self, relation: int, heads: Int64, tails: Int64) -> dict[str, list[Any]]:
        """The columns for each link. ``paths`` has the form "head –relation– node –relation– tail", joined by " ; "."""
        length, named = np.zeros(len(heads), int), [""] * len(heads)
        for head in np.unique(heads):
            rows = np.flatnonzero(heads == head)
            for row, paths in zip(rows, self._paths.best(int(head), tails[rows]), strict=True):
                if paths:
                    length[row] = min(path.length for path in paths)
                    named[row] = " ; ".join(map(self._named, paths))
        return {"path_length": length.tolist(), "paths": named}

    def _named(self, path: Path) -> str:
        text = str(self._names[path.nodes[0]].as_py())
        for a, b in pairwise(path.nodes):
            text += f" –{self._relations[self._paths.relation_between(a, b)[0]]}– {self._names[b].as_py()}"
        return text
