"""Cuts out of a typed graph the bounded neighbourhood that the layers read for two nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.splits import TRAIN
from graphmill.graph.typed_graph import RelationEdges, TypedGraph
from graphmill.sampling.keyed import generator
from graphmill.sampling.ranges import ranges


@dataclass(frozen=True)
class Neighbourhood:
    """A part of a typed graph around its seeds. The nodes that a layer computes are the first of those that it reads.

    ``nodes``: per type int64 local numbers, seeds first. ``counts`` int64 [layers + 1, types]: layer l reads the first
    ``counts[l]`` nodes of each type and computes the first ``counts[l + 1]``. ``source``, ``target``: per relation
    int64 positions in ``nodes``, by target; ``pair``: per relation int64 positions in ``pairs``, which are int64
    numbers of undirected node pairs, ascending. ``whole``: nothing that a layer reads was left out.
    """

    nodes: tuple[np.ndarray, ...]
    counts: np.ndarray
    source: tuple[np.ndarray, ...]
    target: tuple[np.ndarray, ...]
    pair: tuple[np.ndarray, ...]
    pairs: np.ndarray
    whole: bool

    def layer_edges(self, layer: int, relation: int, target_type: int) -> slice:
        """The edges of a relation into nodes that ``layer`` computes."""
        return slice(0, int(np.searchsorted(self.target[relation], self.counts[layer + 1, target_type])))


def neighbourhood(
    graph: TypedGraph, seeds: Sequence[np.ndarray], layers: int, *, neighbors: int, max_edges: int
) -> Neighbourhood:
    """Take at most ``neighbors`` training edges into each node and relation, and at most ``max_edges`` in total;
    deterministic.

    ``seeds``: per type ascending int64 local numbers. If ``max_edges`` is too small for all nodes of a hop, each gets
    fewer edges, and the last ones get none.
    """
    place = [np.full(kind.count, -1, np.int64) for kind in graph.node_types]
    nodes = [np.zeros(0, np.int64) for _ in place]

    def add(t: int, rows: np.ndarray) -> None:
        place[t][rows] = np.arange(len(nodes[t]), len(nodes[t]) + len(rows))
        nodes[t] = np.concatenate([nodes[t], rows])

    for t, rows in enumerate(seeds):
        add(t, rows)
    counts = [[0] * len(nodes), [len(rows) for rows in nodes]]
    types = {kind.name: number for number, kind in enumerate(graph.node_types)}
    ends = [(types[relation.source], types[relation.target]) for relation in graph.relations]
    parts: list[list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = [[] for _ in ends]
    left, whole = max_edges, True
    for hop in range(layers):
        before, now = counts[-2], counts[-1]
        frontier = [nodes[t][before[t] : now[t]] for t in range(len(nodes))]
        asking = sum(len(frontier[target]) for _, target in ends)
        fanout = max(1, min(neighbors, left // max(asking, 1)))
        reached: list[list[np.ndarray]] = [[] for _ in nodes]
        for number, (source_type, target_type) in enumerate(ends):
            edges = graph.edges(number)
            result, at, every = _picked(edges, frontier[target_type], fanout, generator("explain", hop, number))
            whole &= every and len(result) <= left
            result, at = result[:left], at[:left]
            left -= len(result)
            source = np.asarray(edges.src[result], dtype=np.int64)
            parts[number].append((source, at + before[target_type], np.asarray(edges.pair[result], dtype=np.int64)))
            reached[source_type].append(source)
        for t, rows_of_type in enumerate(reached):
            if rows_of_type:
                rows = np.concatenate(rows_of_type)
                add(t, sorted_unique(rows[place[t][rows] < 0]))
        counts.append([len(rows) for rows in nodes])
    joined = [
        [np.concatenate([part[i] for part in each] or [np.zeros(0, np.int64)]) for i in range(3)] for each in parts
    ]
    pairs = sorted_unique(np.concatenate([np.zeros(0, np.int64), *(each[2] for each in joined)]))
    return Neighbourhood(
        tuple(nodes),
        np.array(counts[:0:-1], np.int64),
        tuple(place[source_type][each[0]] for (source_type, _), each in zip(ends, joined, strict=True)),
        tuple(each[1] for each in joined),
        tuple(np.searchsorted(pairs, each[2]) for each in joined),
        pairs,
        whole,
    )


def _picked(
    edges: RelationEdges, nodes: np.ndarray, fanout: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, bool]:
    """At most ``fanout`` training edges into each of ``nodes``, drawn without replacement: their positions and the index of
    each one's node (int64, both ascending), and whether these are all."""
    starts, stops = edges.indptr[nodes], edges.indptr[nodes + 1]
    result, rows = ranges(starts, stops), np.repeat(np.arange(len(nodes)), stops - starts)
    training = edges.split[result] == TRAIN
    result, rows = result[training], rows[training]
    counts = np.bincount(rows, minlength=len(nodes))
    if counts.max(initial=0) <= fanout:
        return result, rows, True
    order = np.lexsort((rng.random(len(rows)), rows))
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = np.sort(order[rank < fanout])
    return result[chosen], rows[chosen], False
