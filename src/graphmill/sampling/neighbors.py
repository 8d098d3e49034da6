"""Samples neighbourhoods of seed nodes in a typed graph, hop by hop: with uniform fan-outs, or by HGT's budget sampler.

The functions are keyed. The recipe chooses the seeds and uses the sample. In a sample, the nodes that a layer computes
are the first of those that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphmill.graph.sorted_unique import sorted_unique
from graphmill.sampling.keyed import Key, key_of
from graphmill.sampling.neighbor_picks import ALL, InEdges, open_edges, pick, uniforms


@dataclass(frozen=True)
class NeighborSample:
    """A sample of a typed graph around its seeds.

    ``nodes``: per type int64 local numbers, seeds first, then what each hop added. ``counts`` int64 [layers + 1,
    types]: layer l reads the first ``counts[l]`` nodes of each type and computes the first ``counts[l + 1]``; the last
    row counts the seeds. ``source``, ``target``: per relation int32 positions in ``nodes``, by target.
    """

    nodes: tuple[np.ndarray, ...]
    counts: np.ndarray
    source: tuple[np.ndarray, ...]
    target: tuple[np.ndarray, ...]

    @property
    def num_edges(self) -> int:
        """Number of edges of all relations."""
        return sum(len(t) for t in self.target)

    def layer_edges(self, layer: int, relation: int, target_type: int) -> tuple[np.ndarray, np.ndarray]:
        """(source, target) of the edges into nodes that ``layer`` computes."""
        stop = np.searchsorted(self.target[relation], self.counts[layer + 1, target_type])
        return self.source[relation][:stop], self.target[relation][:stop]


class _Rows:
    """The nodes of a sample: per type the numbers in order, and each number's position (−1: not in the sample)."""

    def __init__(self, type_counts: Sequence[int], seeds: Sequence[np.ndarray]) -> None:
        self.position = [np.full(n, -1, np.int32) for n in type_counts]
        self.nodes = [np.zeros(0, np.int64) for _ in type_counts]
        for t, rows in enumerate(seeds):
            self.add(t, rows)

    def counts(self) -> list[int]:
        return [len(rows) for rows in self.nodes]

    def add(self, node_type: int, rows: np.ndarray) -> None:
        """Append distinct nodes that are not in the sample yet."""
        first = len(self.nodes[node_type])
        self.position[node_type][rows] = np.arange(first, first + len(rows), dtype=np.int32)
        self.nodes[node_type] = np.concatenate([self.nodes[node_type], rows])


def uniform_sample(
    type_counts: Sequence[int],
    relations: Sequence[InEdges],
    seeds: Sequence[np.ndarray],
    fanouts: Sequence[Sequence[int]],
    masked: np.ndarray,
    *key: Key,
) -> NeighborSample:
    """For each node added by hop h − 1, draw at most ``fanouts[h][relation]`` of its in-edges, without replacement.

    ``seeds``: per type ascending int64 local numbers; ``fanouts`` [layers][relations], −1 for all edges; ``masked`` bool
    [pairs]: pairs that carry no message (empty: none). A node's in-edges are drawn once, when it is reached.
    """
    rows = _Rows(type_counts, seeds)
    counts = [[0] * len(type_counts), rows.counts()]
    picked: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in relations]
    for hop, per_relation in enumerate(fanouts):
        before, now = counts[-2], counts[-1]
        reached: list[list[np.ndarray]] = [[] for _ in type_counts]
        for number, (edges, fanout) in enumerate(zip(relations, per_relation, strict=True)):
            t = edges.target_type
            frontier = rows.nodes[t][before[t] : now[t]]
            found, at = pick(edges, frontier, fanout, key_of(*key, "hop", hop, number), masked)
            source = edges.src[found]
            picked[number].append((source, (at + before[t]).astype(np.int32)))
            reached[edges.source_type].append(source)
        for t, sources in enumerate(reached):
            if sources:
                found = np.concatenate(sources)
                rows.add(t, sorted_unique(found[rows.position[t][found] < 0]).astype(np.int64))
        counts.append(rows.counts())
    source = tuple(
        rows.position[edges.source_type][np.concatenate([s for s, _ in parts])] if parts else np.zeros(0, np.int32)
        for edges, parts in zip(relations, picked, strict=True)
    )
    target = tuple(np.concatenate([t for _, t in parts]) if parts else np.zeros(0, np.int32) for parts in picked)
    return NeighborSample(tuple(rows.nodes), np.array(counts[:0:-1], np.int64), source, target)


def budget_sample(
    type_counts: Sequence[int],
    relations: Sequence[InEdges],
    seeds: Sequence[np.ndarray],
    per_type: Sequence[int],
    masked: np.ndarray,
    *key: Key,
) -> NeighborSample:
    """HGT's sampler (Hu et al. 2020, Algorithm 2): ``per_type[h]`` nodes of each type at hop h, −1 for all.

    A node s in the budget has B[s] = Σ 1 / (in-degree of t in the relation) over the edges s → t into nodes t of the
    sample. Nodes are drawn without replacement, with probabilities proportional to B[s]². The sample has all edges
    among its nodes; every layer except the last computes all of the nodes.
    """
    rows = _Rows(type_counts, seeds)
    first = rows.counts()
    budget = [np.zeros(n) for n in type_counts]
    before = [0] * len(type_counts)
    for hop, size in enumerate(per_type):
        now = rows.counts()
        for edges in relations:
            t = edges.target_type
            found, at = open_edges(edges, rows.nodes[t][before[t] : now[t]], masked)
            share = 1.0 / np.bincount(at, minlength=1)[at]
            budget[edges.source_type] += np.bincount(edges.src[found], share, minlength=type_counts[edges.source_type])
        before = now
        for t, weights in enumerate(budget):
            candidates = np.flatnonzero((weights > 0) & (rows.position[t] < 0))
            if size != ALL and len(candidates) > size:
                # The smallest −log(u) / w are a weighted draw without replacement (Efraimidis and Spirakis).
                times = -np.log(uniforms(candidates, key_of(*key, "budget", hop, t))) / weights[candidates] ** 2
                candidates = np.sort(candidates[np.argpartition(times, size)[:size]])
            rows.add(t, candidates)
    counts = [rows.counts()] * len(per_type) + [first]
    source, target = [], []
    for edges in relations:
        found, at = open_edges(edges, rows.nodes[edges.target_type], masked)
        place = rows.position[edges.source_type][edges.src[found]]
        source.append(place[place >= 0])
        target.append(at[place >= 0].astype(np.int32))
    return NeighborSample(tuple(rows.nodes), np.array(counts, np.int64), tuple(source), tuple(target))
