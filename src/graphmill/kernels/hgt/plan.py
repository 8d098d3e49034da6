"""Precomputes the indices of a typed graph for HGT's attention: a :class:`MessageGraph`.

These are the nodes that occur in each relation, the bounds of each destination's edges, and the order by source. This
module has no features, parameters or arithmetic on embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

IndexLike = Tensor | np.ndarray


class TypedEdges(NamedTuple):
    """One relation's edges, sorted by (dst, src): local node numbers, and the undirected pair of each edge."""

    source_type: int
    target_type: int
    src: IndexLike
    dst: IndexLike
    pair: IndexLike


@dataclass(frozen=True)
class RelationPlan:
    """One relation's edges in destination order, in terms of the nodes that occur in it.

    ``source_nodes`` [n_s] and ``target_nodes`` [n_t] are int64 local node numbers, ascending. ``source`` and ``target``
    [E] are int32 positions in these two; ``indptr`` [n_t + 1] int64 bounds each target's run of edges; ``pair`` [E]
    int32.
    """

    source_type: int
    target_type: int
    source_nodes: Tensor
    target_nodes: Tensor
    source: Tensor
    target: Tensor
    indptr: Tensor
    pair: Tensor

    @property
    def num_edges(self) -> int:
        """Number of edges of the relation, including parallel ones."""
        return self.source.numel()

    @cached_property
    def source_row(self) -> Tensor:
        """int32 [E]: local node number of each edge's source."""
        return self.source_nodes.to(torch.int32)[self.source]

    def ends(self, edges: Tensor) -> tuple[Tensor, Tensor]:
        """int64: local numbers of the sources and the targets of some edges, given by position."""
        return self.source_nodes[self.source[edges]], self.target_nodes[self.target[edges]]

    def __getstate__(self) -> dict[str, Any]:
        """The fields only; cached values are recomputed after copying or unpickling."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


_TENSORS = ("source_nodes", "target_nodes", "source", "target", "indptr", "pair")


@dataclass(frozen=True)
class MessageGraph:
    """A typed graph in the form that the attention kernels read.

    ``source_counts`` and ``target_counts`` are the numbers of sending and receiving nodes per type. They are equal
    unless the graph was cut to some receivers (:meth:`target_slice`).
    """

    source_counts: tuple[int, ...]
    target_counts: tuple[int, ...]
    relations: tuple[RelationPlan, ...]
    num_pairs: int = field(default=0)
    place: torch.device | None = None
    """The device that computes the messages; None: the device of the index tensors. See :meth:`on`."""

    @staticmethod
    def build(
        type_counts: Sequence[int], relations: Sequence[TypedEdges], target_counts: Sequence[int] | None = None
    ) -> MessageGraph:
        """Plan the messages of ``relations``. ``type_counts`` are the numbers of nodes per type.

        Raises ValueError if an edge has a node number outside of its type, or if edges are not sorted by ``dst``.
        """
        targets = tuple(type_counts if target_counts is None else target_counts)
        plans = []
        for number, edges in enumerate(relations):
            _check(number, edges.src, edges.dst, type_counts[edges.source_type], targets[edges.target_type])
            plans.append(_plan(edges, type_counts, targets))
        pairs = max((int(edges.pair.max()) + 1 for edges in relations if len(edges.pair)), default=0)
        return MessageGraph(tuple(type_counts), targets, tuple(plans), pairs)

    @property
    def num_types(self) -> int:
        """Number of node types, including those without nodes or relations."""
        return len(self.source_counts)

    @property
    def num_nodes(self) -> int:
        """Number of receivers of all types."""
        return sum(self.target_counts)

    @property
    def num_edges(self) -> int:
        """Number of edges of all relations."""
        return sum(r.num_edges for r in self.relations)

    @property
    def device(self) -> torch.device:
        """The device that computes the messages."""
        return self.place or self._index_device

    @property
    def _index_device(self) -> torch.device:
        return self.relations[0].source.device if self.relations else torch.device("cpu")

    @cached_property
    def source_types(self) -> frozenset[int]:
        """Types that are the source of some relation, with edges or without."""
        return frozenset(r.source_type for r in self.relations)

    @cached_property
    def target_types(self) -> frozenset[int]:
        """Types that are the target of some relation, with edges or without."""
        return frozenset(r.target_type for r in self.relations)

    @cached_property
    def compiled(self) -> dict[Any, Any]:
        """What is made of this graph once, by key."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """See :meth:`RelationPlan.__getstate__`."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def on(self, device: torch.device) -> MessageGraph:
        """The same graph with messages computed on ``device``. Its indices stay on the host, where graphs are cut and
        planned.

        ``flat_graph`` builds from them the indices for an accelerator, in one copy. Index tensors that the methods take
        and return are on the host.
        """
        # The device of a tensor always has an index.
        return self if device.type == "cpu" else replace(self, place=torch.device(device.type, device.index or 0))

    def target_slice(self, node_type: int, start: int, stop: int) -> MessageGraph:
        """The messages into nodes ``start:stop`` of one type, renumbered from 0. No other type receives messages.

        The time is proportional to the number of edges in the slice.
        """
        counts = [0] * self.num_types
        counts[node_type] = stop - start
        ends = torch.tensor([start, stop], device=self._index_device)
        plans = []
        for r in self.relations:
            if r.target_type != node_type:
                plans.append(_empty(r))
                continue
            first, last = torch.searchsorted(r.target_nodes, ends).tolist()
            edges = slice(int(r.indptr[first]), int(r.indptr[last]))
            src, dst = r.source_row[edges], r.target_nodes[r.target[edges]] - start
            edges_of = TypedEdges(r.source_type, r.target_type, src, dst, r.pair[edges])
            plans.append(_plan(edges_of, self.source_counts, counts))
        return replace(self, target_counts=tuple(counts), relations=tuple(plans))

    def touched(self, edges: Sequence[Tensor], node_type: int) -> Tensor:
        """Ascending int64 local numbers of the nodes of one type at the ends of ``edges`` (see :meth:`edge_subgraph`)."""
        marks = torch.zeros(self.source_counts[node_type], dtype=torch.bool, device=self._index_device)
        for r, chosen in zip(self.relations, edges, strict=True):
            if r.source_type == node_type:
                marks[r.source_nodes[r.source[chosen]]] = True
            if r.target_type == node_type:
                marks[r.target_nodes[r.target[chosen]]] = True
        return marks.nonzero().squeeze(1)

    def edges_within_reach(self, edges: Sequence[Tensor], nodes: Sequence[Tensor], layers: int) -> list[Tensor]:
        """The ``edges`` (positions as in :meth:`edge_subgraph`) whose messages reach ``nodes`` within these layers.

        Messages of the other edges have no effect on ``nodes``. ``nodes``: per type local numbers.
        """
        if layers < 1:
            return [chosen[:0] for chosen in edges]
        ends = [r.ends(chosen) for r, chosen in zip(self.relations, edges, strict=True)]
        wanted = [torch.zeros(n, dtype=torch.bool, device=self._index_device) for n in self.source_counts]
        for marks, some in zip(wanted, nodes, strict=True):
            marks[some] = True
        for _ in range(layers - 1):
            before = [marks.clone() for marks in wanted]
            for r, (src, dst) in zip(self.relations, ends, strict=True):
                wanted[r.source_type][src[before[r.target_type][dst]]] = True
        return [
            chosen[wanted[r.target_type][dst]] for r, chosen, (_, dst) in zip(self.relations, edges, ends, strict=True)
        ]

    def edge_subgraph(
        self, edges: Sequence[Tensor], nodes: Sequence[Tensor | None] | None = None
    ) -> tuple[MessageGraph, list[Tensor]]:
        """The graph of some edges, over their end nodes (and those in ``nodes``), renumbered.

        ``edges``: per relation ascending int64 positions in its edge order (by dst, src). ``nodes``: per type local
        numbers of nodes to include even without an edge. Returns the graph, whose pairs keep their numbers, and per
        type the int64 local numbers of its nodes, ascending.
        """
        touched = [torch.zeros(n, dtype=torch.bool, device=self._index_device) for n in self.source_counts]
        ends = [r.ends(chosen) for r, chosen in zip(self.relations, edges, strict=True)]
        for r, (src, dst) in zip(self.relations, ends, strict=True):
            touched[r.source_type][src] = True
            touched[r.target_type][dst] = True
        for marks, extra in zip(touched, nodes or [], strict=False):
            if extra is not None:
                marks[extra] = True
        rows = [marks.nonzero().squeeze(1) for marks in touched]
        lookups = [_lookup(kept, marks.numel()) for kept, marks in zip(rows, touched, strict=True)]
        counts = [kept.numel() for kept in rows]
        plans = []
        for r, chosen, (src, dst) in zip(self.relations, edges, ends, strict=True):
            s, t = r.source_type, r.target_type
            plans.append(_plan(TypedEdges(s, t, lookups[s][src], lookups[t][dst], r.pair[chosen]), counts, counts))
        return MessageGraph(tuple(counts), tuple(counts), tuple(plans), self.num_pairs, self.place), rows


def _plan(edges: TypedEdges, source_counts: Sequence[int], target_counts: Sequence[int]) -> RelationPlan:
    src, dst, pair = (_integers(a) for a in edges[2:])
    source_nodes, source = _occurring(src, source_counts[edges.source_type])
    target_nodes, target = _occurring(dst, target_counts[edges.target_type])
    degrees = torch.bincount(target, minlength=target_nodes.numel())
    indptr = torch.zeros(target_nodes.numel() + 1, dtype=torch.int64, device=src.device)
    torch.cumsum(degrees, 0, out=indptr[1:])
    return RelationPlan(*edges[:2], source_nodes, target_nodes, source, target, indptr, pair.to(torch.int32))


def _occurring(index: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The distinct values of ``index`` ascending (int64), and each entry's position among them (int32)."""
    marks = torch.zeros(size, dtype=torch.bool, device=index.device)
    marks[index.long()] = True
    nodes = marks.nonzero().squeeze(1)
    return nodes, _lookup(nodes, size)[index.long()]


def _lookup(nodes: Tensor, size: int) -> Tensor:
    """int32 [size]: position of each number in ``nodes``, −1 if it is not in them."""
    lookup = torch.full((size,), -1, dtype=torch.int32, device=nodes.device)
    lookup[nodes] = torch.arange(nodes.numel(), dtype=torch.int32, device=nodes.device)
    return lookup


def _empty(r: RelationPlan) -> RelationPlan:
    cut = {name: getattr(r, name)[:0] for name in _TENSORS}
    return replace(r, **cut | {"indptr": r.indptr[:1]})


def _integers(values: IndexLike) -> Tensor:
    if isinstance(values, Tensor):
        return values
    array = np.ascontiguousarray(values)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _check(number: int, src: IndexLike, dst: IndexLike, num_sources: int, num_targets: int) -> None:
    if len(src) != len(dst):
        raise ValueError(f"relation {number}: {len(src)} sources but {len(dst)} targets")
    if not len(src):
        return
    for name, index, size in (("source", src, num_sources), ("target", dst, num_targets)):
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= size:
            raise ValueError(f"relation {number}: {name} {low if low < 0 else high} is outside 0..{size - 1}")
    if bool((dst[1:] < dst[:-1]).any()):
        raise ValueError(f"relation {number}: edges must be sorted by dst; sort them by (dst, src) first")
