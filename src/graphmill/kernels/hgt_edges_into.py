"""The edges of several relations into one type, for operators that cpu, cuda and mps all have (``hgt_torch``).

Which of a type's rows a relation's ends take, where its matrices stand, each edge's product of its two ends, and weighted
sums over a node's edges: index work that is done once per graph, and what one head, or some at once, make of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.hgt_plan import MessageGraph, RelationPlan
from graphmill.kernels.products import add_product_, product

ALL = 0.7
"""From this part of a type's nodes on, all of them are taken: no row is gathered then, and no gradient put back."""
weight_gradients = torch.ops.aten._embedding_bag_per_sample_weights_backward
"""[E]: products of row ``bag[e]`` of the first table [n, D] and row ``of[e]`` of the second, from both tables, ``of``, the
bags' bounds, ``bag`` (int32 all) and a mode."""
_SUM = 0
"""``mode="sum"`` in its arguments."""
_MOST_PRODUCTS = 1 << 26
"""At most so many at once: CUDA's kernel has 32 threads for each, whose numbers are int32."""
_GATHERS = frozenset({"mps"})
"""Devices whose kernel for it adds up in any order, and numbers edges × width in uint32: there both rows are gathered."""
_GATHERED_NUMBERS = 1 << 24

Rows = Sequence[Tensor | None]
Matrices = tuple[Tensor, Tensor, Tensor]
"""``w_k``, ``w_v`` [relations, h, D, D] and ``prior`` [relations, h]."""


@dataclass(frozen=True)
class Heads:
    """Heads ``first:last`` that go together, and the matrices of all; what is computed has their precision."""

    first: int
    last: int
    matrices: Matrices

    @property
    def count(self) -> int:
        """How many they are."""
        return self.last - self.first

    @property
    def width(self) -> int:
        """D, of one head."""
        return int(self.matrices[0].shape[-1])

    def of(self, rows: Tensor) -> Tensor:
        """[h, n, D]: these heads of rows [n, H·D], where they are."""
        columns = rows[:, self.first * self.width : self.last * self.width]
        return columns.unflatten(1, (self.count, self.width)).transpose(0, 1)

    def w_v(self, part: Part, matrices: Matrices | None = None) -> Tensor:
        """[h, D, D]: the relation's W^V, or that of others than :attr:`matrices`."""
        return (matrices or self.matrices)[1][part.relation, self.first : self.last]

    def m_k(self, part: Part) -> Tensor:
        """[h, D, D]: p / √D · W^K, so that logits are q · k m_k."""
        w_k, _, prior = self.matrices
        place = (part.relation, slice(self.first, self.last))
        return w_k[place] * (prior[place] / math.sqrt(self.width))[:, None, None]

    def put_slopes(self, part: Part, d_m_k: Tensor, d_matrices: Matrices) -> None:
        """Fill the gradients of W^K and of the prior from that of :meth:`m_k`."""
        w_k, _, prior = self.matrices
        place = (part.relation, slice(self.first, self.last))
        scale = 1 / math.sqrt(self.width)
        d_matrices[0][place] = d_m_k * (prior[place] * scale)[:, None, None]
        d_matrices[2][place] = torch.linalg.vecdot(d_m_k.flatten(1), w_k[place].flatten(1)) * scale


@dataclass(frozen=True)
class Side:
    """Nodes of a type at one end of a relation's edges: ``nodes`` int64, ascending, or None: all ``count`` of the type."""

    nodes: Tensor | None
    count: int

    @staticmethod
    def of(nodes: Tensor, whole: int) -> Side:
        """Those of a type with ``whole`` nodes of which ``nodes`` occur."""
        return Side(None, whole) if nodes.numel() >= ALL * whole else Side(nodes, nodes.numel())

    def rows(self, table: Tensor | None, heads: Heads) -> Tensor:
        """[h, n, D]: their rows of the type's [N, H·D]; in memory where they were, or [n, h, D]."""
        table = present(table)
        if self.nodes is None:
            return heads.of(table).to(heads.matrices[0].dtype)
        columns = table[:, heads.first * heads.width : heads.last * heads.width].index_select(0, self.nodes)
        return columns.to(heads.matrices[0].dtype).unflatten(1, (heads.count, heads.width)).transpose(0, 1)

    def add_(self, out: Tensor, values: Tensor, dim: int = -2) -> None:
        """Add what is theirs to ``out``, which has a place for each node of the type in ``dim``."""
        if self.nodes is None:
            out.add_(values)
            return
        # index_add_ would sort the nodes on the CPU, and add in any order on CUDA.
        out.index_copy_(dim, self.nodes, out.index_select(dim, self.nodes).add_(values))

    def add_product_(self, out: Tensor, left: Tensor, right: Tensor) -> None:
        """Add ``left`` · ``right``, [h, n, D] times [h, D, D], to their rows of ``out`` [h, N, D]."""
        if self.nodes is not None or len(out) > 1:
            self.add_(out, times(left, right))
        else:
            add_product_(out[0], left[0], right[0])


class Part:
    """One relation's edges, which are ``first:last`` of those of all.

    ``source``, ``target`` int32 [E]: places among the nodes of :attr:`sources` and :attr:`targets`; ``bounds`` int32
    [targets + 1]: each target's run of edges.
    """

    def __init__(self, relation: int, r: RelationPlan, counts: tuple[int, int], first: int) -> None:
        self.relation, self.on_target, self.source_type = relation, r.on_target, r.source_type
        self.first, self.last, self._plan = first, first + r.num_edges, r
        self.sources = Side.of(r.source_nodes, counts[0])
        self.targets = Side.of(r.target_nodes, counts[1])
        self.source = r.source if self.sources.nodes is not None else r.source_row
        self.target = r.target if self.targets.nodes is not None else r.target_nodes.to(torch.int32)[r.target.long()]
        self.bounds = runs(self.target, self.targets.count)

    @cached_property
    def transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        """The edges by source: their places int64 [E], their targets int32 [E], the sources' runs int32 [sources + 1]."""
        order = self._plan.by_source
        ascending = self.source.index_select(0, order)
        return order, self.target.index_select(0, order), runs(ascending, self.sources.count)

    def ends(self, heads: int) -> Ends:
        """The edges of so many heads."""
        return Ends(self, heads)


class Ends:
    """A relation's edges for one head, or for some at once as if those were a graph beside the other: nodes and edges of a
    head follow those of the one before. ``source`` and ``target`` int32 [h·E]; ``bounds`` int32 [h·n_t + 1]."""

    def __init__(self, part: Part, heads: int) -> None:
        self.heads, self._part = heads, part
        self._sizes = part.sources.count, part.targets.count, part.last - part.first
        self.source = self._repeated(part.source, self._sizes[0])
        self.bounds = self._of_all(part.bounds)

    def dots(self, left: Tensor, right: Tensor) -> Tensor:
        """[h·E]: products of each edge's row of ``left`` (by target) and ``right`` (by source), [h, n, D]."""
        left, right = left.flatten(0, 1), right.flatten(0, 1)
        target = self._repeated(self._part.target, self._sizes[1])
        if left.device.type in _GATHERS:
            size = max(_GATHERED_NUMBERS // left.shape[1], 1)
            ends = zip(target.split(size), self.source.split(size), strict=True)
            found = [(left.index_select(0, t) * right.index_select(0, s)).sum(1) for t, s in ends]
        else:
            ends = zip(target.split(_MOST_PRODUCTS), self.source.split(_MOST_PRODUCTS), strict=True)
            found = [weight_gradients(left, right, s, self.bounds, t, _SUM) for t, s in ends]
        return found[0] if len(found) == 1 else torch.cat(found)

    def totals(self, weights: Tensor) -> Tensor:
        """[h, n_t]: Σ weights over each target's edges. (``index_add_`` adds in any order on CUDA.)"""
        every = torch.arange(len(weights), dtype=torch.int32, device=weights.device)
        found = F.embedding_bag(every, weights[:, None], self.bounds, mode="sum", include_last_offset=True)
        return found.view(self.heads, -1)

    def sums(self, weights: Tensor, rows: Tensor) -> Tensor:
        """[h, n_t, D]: Σ weights · rows of the sources, over each target's edges."""
        found = weighted_sums(self.source, self.bounds, weights, rows.flatten(0, 1))
        return found.view(self.heads, -1, rows.shape[2])

    def sums_by_source(self, weights: Tensor, rows: Tensor) -> Tensor:
        """[h, n_s, D]: Σ weights · rows of the targets, over each source's edges."""
        order, target, bounds = self._part.transposed
        of, turned = self._repeated(target, self._sizes[1]), self._repeated(order, self._sizes[2])
        found = weighted_sums(of, self._of_all(bounds), weights.index_select(0, turned), rows.flatten(0, 1))
        return found.view(self.heads, -1, rows.shape[2])

    def _repeated(self, numbers: Tensor, count: int) -> Tensor:
        """``numbers`` for each head, which has ``count`` of what they name."""
        if self.heads == 1:
            return numbers
        first = torch.arange(self.heads, dtype=numbers.dtype, device=numbers.device).mul_(count)
        return (first[:, None] + numbers).flatten()

    def _of_all(self, bounds: Tensor) -> Tensor:
        return torch.cat([bounds[:1], self._repeated(bounds[1:], self._sizes[2])])


class EdgesInto:
    """The edges of some relations into one type, one relation's after the other's, each in the order of its targets.

    ``target`` int64 [E]: the nodes that they end in.
    """

    def __init__(self, graph: MessageGraph, chosen: tuple[int, ...]) -> None:
        self.parts: list[Part] = []
        self.num_edges = 0
        for number in chosen:
            r = graph.relations[number]
            counts = graph.source_counts[r.source_type], graph.target_counts[r.target_type]
            self.parts.append(Part(number, r, counts, self.num_edges))
            self.num_edges += r.num_edges
            self.num_targets = counts[1]
        relations = [graph.relations[number] for number in chosen]
        self.target = torch.cat([r.target_nodes[r.target.long()] for r in relations])

    def dropped(self, kept: Sequence[Tensor | None]) -> Tensor | None:
        """bool [E]: edges that carry nothing in this step; ``kept`` relation by relation."""
        there = [k for k in kept if k is not None]
        return ~torch.cat(there) if there else None

    def fill_logits(self, out: Tensor, heads: Heads, queries: Tensor, keys: Rows, dropped: Tensor | None) -> None:
        """Set ``out`` [h, E] to the edges' logits, −∞ for those that are ``dropped``."""
        for part in self.parts:
            q, k = part.targets.rows(queries, heads), part.sources.rows(keys[part.source_type], heads)
            m_k = heads.m_k(part)
            near, far = (times(q, m_k.mT), k.contiguous()) if part.on_target else (q.contiguous(), times(k, m_k))
            out[:, part.first : part.last] = part.ends(heads.count).dots(near, far).view(heads.count, -1)
        if dropped is not None:
            out.masked_fill_(dropped, -math.inf)


def edges_into(graph: MessageGraph, chosen: tuple[int, ...]) -> EdgesInto:
    """Made once per graph."""
    key = ("edges into", chosen)
    if key not in graph.compiled:
        graph.compiled[key] = EdgesInto(graph, chosen)
    found: EdgesInto = graph.compiled[key]
    return found


def weighted_sums(of: Tensor, bounds: Tensor, weights: Tensor, rows: Tensor) -> Tensor:
    """[n, D]: Σ weights[e] · rows[of[e]] over each node's edges e, which are ``bounds[i]:bounds[i + 1]``; both int32."""
    return F.embedding_bag(of, rows, bounds, mode="sum", per_sample_weights=weights, include_last_offset=True)


def times(rows: Tensor, matrices: Tensor) -> Tensor:
    """[h, n, D] times [h, D, D], contiguous."""
    out = rows.new_empty(rows.shape)
    if len(rows) == 1:
        product(rows[0], matrices[0], out=out[0])
        return out
    return product(rows, matrices, out=out)


def runs(ascending: Tensor, count: int) -> Tensor:
    """int32 [count + 1]: where the run of each of the numbers 0 … count − 1 begins, and the last one ends."""
    numbers = torch.arange(count + 1, dtype=ascending.dtype, device=ascending.device)
    return torch.searchsorted(ascending, numbers, out_int32=True)


def present(x: Tensor | None) -> Tensor:
    """What is there: types without rows have no edges."""
    assert x is not None
    return x
