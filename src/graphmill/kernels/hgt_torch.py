"""The edges of HGT's attention in operators that cpu, cuda and mps all have, over all relations into a type.

Each relation's edges stay together, and its matrices are applied on the cheaper side (``RelationPlan.on_target``); the
softmax goes over the edges of all of them. Weighted sums over a node's edges are ``torch.nn.functional.embedding_bag``,
which writes no row an edge and adds in the order of the edges; products of an edge's two ends are what torch has for the
gradients of its weights. Those cost most, a call of BLAS for each on the CPU: so that the backward pass need not repeat the
logits, a number an edge and head is kept for it, unless the layer is recomputed anyway. On the CPU heads go one after the
other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.hgt_plan import MessageGraph, RelationPlan
from graphmill.kernels.products import add_product_, product

_WIDE = 4
"""Bytes of fp32."""
_MOST = (1 << 31) - 1
"""Edges, or nodes, that int32 can number."""
_ALL = 0.7
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
_ONE_BY_ONE = frozenset({"cpu"})
"""Devices on which heads go one after the other."""

Rows = Sequence[Tensor | None]
Matrices = tuple[Tensor, Tensor, Tensor]
"""``w_k``, ``w_v`` [relations, h, D, D] and ``prior`` [relations, h]."""


def serves_relations(weights: Tensor, *rows: Tensor) -> bool:
    """Always: this way knows no other."""
    return True


def head_products(left: Tensor, right: Tensor, heads: int) -> Tensor:
    """[n, H]: the product of each head's numbers of two rows [n, H·D]. Of half precision, in fp32."""
    both = left * right if left.itemsize >= _WIDE else left.float() * right.float()
    return both.unflatten(1, (heads, left.shape[1] // heads)).sum(-1)


def all_forward(
    graph: MessageGraph,
    chosen: tuple[int, ...],
    rows: tuple[Tensor, Rows, Rows],
    matrices: Matrices,
    kept: Sequence[Tensor | None],
    found: tuple[Tensor, Tensor, Tensor],
) -> Tensor:
    """Fill ``found`` with what ``chosen`` relations, which end in one type, bring there; return the logits [h, E].

    ``rows``: that type's q [targets, h·D], and per type k and v [sources, h·D]. ``kept``: for each chosen relation
    bool [E], False where an edge carries nothing. ``found``: Σ α v [targets, h·D], Σ exp(a − highest) and highest
    [targets, h]; before, the total is 0 and highest −∞. Edges of the logits are one relation's after the other's.
    """
    queries, keys, values = rows
    sums, totals, highest = found
    sums.zero_()
    logits = sums.new_empty(matrices[0].shape[1], sum(graph.relations[number].num_edges for number in chosen))
    if not chosen:
        return logits
    edges = edges_into(graph, chosen)
    dropped = edges.dropped(kept)
    for heads in _groups(edges, matrices, sums):
        own, into = logits[heads.first : heads.last], heads.of(sums)
        edges.fill_logits(own, heads, queries, keys, dropped)
        top = own.new_full((heads.count, edges.num_targets), -math.inf)
        top.scatter_reduce_(1, edges.target.expand(heads.count, -1), own, "amax")
        weights = own - top.clamp_min(torch.finfo(top.dtype).min).index_select(1, edges.target)
        weights.exp_()
        total = torch.zeros_like(top)
        for part in edges.parts:
            ends = part.ends(heads.count)
            share = weights[:, part.first : part.last].flatten()
            part.targets.add_(total, ends.totals(share), 1)
            of_sources = part.sources.rows(values[part.source_type], heads)
            w_v = heads.w_v(part)
            if part.on_target:
                part.targets.add_product_(into, ends.sums(share, of_sources.contiguous()), w_v)
            else:
                part.targets.add_(into, ends.sums(share, _times(of_sources, w_v)))
        into.div_(total.masked_fill(total == 0, 1.0).unsqueeze(-1))
        totals[:, heads.first : heads.last], highest[:, heads.first : heads.last] = total.T, top.T
    return logits


def all_backward(
    graph: MessageGraph,
    chosen: tuple[int, ...],
    rows: tuple[Rows, Rows, Rows],
    matrices: Matrices,
    kept: Sequence[Tensor | None],
    softmax: tuple[Rows, Rows, Rows, Rows],
    d_rows: tuple[Rows, Rows, Rows],
    d_matrices: Matrices,
) -> None:
    """Add the gradients of ``chosen`` relations to ``d_rows``; fill their ``d_matrices``.

    ``rows`` and ``d_rows``: q, k and v per type. ``softmax``, per type: the gradient of the attention's result
    [targets, h·D]; the log of the softmax's total over all relations and Σ α·dα [targets, h]; the logits [h, E] of
    :func:`all_forward`, or None, and they are made once more.
    """
    target_type = {number: graph.relations[number].target_type for number in chosen}
    masks = dict(zip(chosen, kept, strict=True))
    for t, numbers in groupby(sorted(chosen, key=target_type.__getitem__), key=target_type.__getitem__):
        edges = edges_into(graph, tuple(numbers))
        dropped = edges.dropped([masks[part.relation] for part in edges.parts])
        slopes, log_total, delta = (_present(of_type[t]) for of_type in softmax[:3])
        logits = softmax[3][t]
        for heads in _groups(edges, matrices, log_total):
            if logits is None:
                own = log_total.new_empty(heads.count, edges.num_edges)
                edges.fill_logits(own, heads, _present(rows[0][t]), rows[1], dropped)
            else:
                own = logits[heads.first : heads.last]
            logs, deltas = (x.T[heads.first : heads.last].index_select(1, edges.target) for x in (log_total, delta))
            # Those of dropped edges are −∞, and what carries nothing is 0.
            alpha = torch.sub(own, logs, out=logs).exp_()
            for part in edges.parts:
                here = slice(part.first, part.last)
                shares = alpha[:, here].flatten(), deltas[:, here].flatten()
                _part_backward(part, heads, t, rows, slopes, shares, d_rows, d_matrices)


def _part_backward(
    part: _Part,
    heads: _Heads,
    t: int,
    rows: tuple[Rows, Rows, Rows],
    slopes: Tensor,
    shares: tuple[Tensor, Tensor],
    d_rows: tuple[Rows, Rows, Rows],
    d_matrices: Matrices,
) -> None:
    """One relation into type ``t``; ``shares``: α and Σ α·dα of each edge's target, [h·E]."""
    ends = part.ends(heads.count)
    alpha, deltas = shares
    q, d_out = (part.targets.rows(x, heads) for x in (rows[0][t], slopes))
    k, v = (part.sources.rows(x[part.source_type], heads) for x in rows[1:])
    m_k, w_v = heads.m_k(part), heads.w_v(part)
    into_q = heads.of(_present(d_rows[0][t]))
    into_k, into_v = (heads.of(_present(x[part.source_type])) for x in d_rows[1:])
    if part.on_target:
        near = _times(q, m_k.mT), _times(d_out, w_v.mT)
        far = k.contiguous(), v.contiguous()
    else:
        near = q.contiguous(), d_out.contiguous()
        far = _times(k, m_k), _times(v, w_v)
    d_logits = ends.dots(near[1], far[1]).sub_(deltas).mul_(alpha)
    g_q = ends.sums(d_logits, far[0])
    if part.on_target:
        d_m_k = product(g_q.mT, q)
        product(ends.sums(alpha, far[1]).mT, d_out, out=heads.w_v(part, d_matrices))
    del far
    g_k, g_v = ends.sums_by_source(d_logits, near[0]), ends.sums_by_source(alpha, near[1])
    del near, d_logits
    if part.on_target:
        part.targets.add_product_(into_q, g_q, m_k)
        part.sources.add_(into_k, g_k)
        part.sources.add_(into_v, g_v)
    else:
        d_m_k = product(k.mT, g_k)
        product(v.mT, g_v, out=heads.w_v(part, d_matrices))
        part.targets.add_(into_q, g_q)
        part.sources.add_product_(into_k, g_k, m_k.mT)
        part.sources.add_product_(into_v, g_v, w_v.mT)
    heads.put_slopes(part, d_m_k, d_matrices)


@dataclass(frozen=True)
class _Heads:
    """Heads ``first:last`` that go together, and the matrices of all; what is computed has their precision."""

    first: int
    last: int
    matrices: Matrices

    @property
    def count(self) -> int:
        return self.last - self.first

    @property
    def width(self) -> int:
        return int(self.matrices[0].shape[-1])

    def of(self, rows: Tensor) -> Tensor:
        """[h, n, D]: these heads of rows [n, H·D], where they are."""
        columns = rows[:, self.first * self.width : self.last * self.width]
        return columns.unflatten(1, (self.count, self.width)).transpose(0, 1)

    def w_v(self, part: _Part, matrices: Matrices | None = None) -> Tensor:
        """[h, D, D]: the relation's W^V, or that of others than :attr:`matrices`."""
        return (matrices or self.matrices)[1][part.relation, self.first : self.last]

    def m_k(self, part: _Part) -> Tensor:
        """[h, D, D]: p / √D · W^K, so that logits are q · k m_k."""
        w_k, _, prior = self.matrices
        place = (part.relation, slice(self.first, self.last))
        return w_k[place] * (prior[place] / math.sqrt(self.width))[:, None, None]

    def put_slopes(self, part: _Part, d_m_k: Tensor, d_matrices: Matrices) -> None:
        """Fill the gradients of W^K and of the prior from that of :meth:`m_k`."""
        w_k, _, prior = self.matrices
        place = (part.relation, slice(self.first, self.last))
        scale = 1 / math.sqrt(self.width)
        d_matrices[0][place] = d_m_k * (prior[place] * scale)[:, None, None]
        d_matrices[2][place] = torch.linalg.vecdot(d_m_k.flatten(1), w_k[place].flatten(1)) * scale


@dataclass(frozen=True)
class _Side:
    """Nodes of a type at one end of a relation's edges: ``nodes`` int64, ascending, or None: all ``count`` of the type."""

    nodes: Tensor | None
    count: int

    @staticmethod
    def of(nodes: Tensor, whole: int) -> _Side:
        return _Side(None, whole) if nodes.numel() >= _ALL * whole else _Side(nodes, nodes.numel())

    def rows(self, table: Tensor | None, heads: _Heads) -> Tensor:
        """[h, n, D]: their rows of the type's [N, H·D]; in memory where they were, or [n, h, D]."""
        table = _present(table)
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
            self.add_(out, _times(left, right))
        else:
            add_product_(out[0], left[0], right[0])


class _Part:
    """One relation's edges, which are ``first:last`` of those of all.

    ``source``, ``target`` int32 [E]: places among the nodes of :attr:`sources` and :attr:`targets`; ``bounds`` int32
    [targets + 1]: each target's run of edges.
    """

    def __init__(self, relation: int, r: RelationPlan, counts: tuple[int, int], first: int) -> None:
        self.relation, self.on_target, self.source_type = relation, r.on_target, r.source_type
        self.first, self.last, self._plan = first, first + r.num_edges, r
        self.sources = _Side.of(r.source_nodes, counts[0])
        self.targets = _Side.of(r.target_nodes, counts[1])
        self.source = r.source if self.sources.nodes is not None else r.source_row
        self.target = r.target if self.targets.nodes is not None else r.target_nodes.to(torch.int32)[r.target.long()]
        self.bounds = _runs(self.target, self.targets.count)

    @cached_property
    def transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        """The edges by source: their places int64 [E], their targets int32 [E], the sources' runs int32 [sources + 1]."""
        order = self._plan.by_source
        ascending = self.source.index_select(0, order)
        return order, self.target.index_select(0, order), _runs(ascending, self.sources.count)

    def ends(self, heads: int) -> _Ends:
        """The edges of so many heads."""
        return _Ends(self, heads)


class _Ends:
    """A relation's edges for one head, or for some at once as if those were a graph beside the other: nodes and edges of a
    head follow those of the one before. ``source`` and ``target`` int32 [h·E]; ``bounds`` int32 [h·n_t + 1]."""

    def __init__(self, part: _Part, heads: int) -> None:
        self.heads, self._part = heads, part
        self._sizes = part.sources.count, part.targets.count, part.last - part.first
        self.source = self._repeated(part.source, self._sizes[0])
        self.bounds = self._runs(part.bounds)

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
        found = weighted_sums(of, self._runs(bounds), weights.index_select(0, turned), rows.flatten(0, 1))
        return found.view(self.heads, -1, rows.shape[2])

    def _repeated(self, numbers: Tensor, count: int) -> Tensor:
        """``numbers`` for each head, which has ``count`` of what they name."""
        if self.heads == 1:
            return numbers
        first = torch.arange(self.heads, dtype=numbers.dtype, device=numbers.device).mul_(count)
        return (first[:, None] + numbers).flatten()

    def _runs(self, bounds: Tensor) -> Tensor:
        return torch.cat([bounds[:1], self._repeated(bounds[1:], self._sizes[2])])


class EdgesInto:
    """The edges of some relations into one type, one relation's after the other's, each in the order of its targets.

    ``target`` int64 [E]: the nodes that they end in.
    """

    def __init__(self, graph: MessageGraph, chosen: tuple[int, ...]) -> None:
        self.parts: list[_Part] = []
        self.num_edges = 0
        for number in chosen:
            r = graph.relations[number]
            counts = graph.source_counts[r.source_type], graph.target_counts[r.target_type]
            self.parts.append(_Part(number, r, counts, self.num_edges))
            self.num_edges += r.num_edges
            self.num_targets = counts[1]
        relations = [graph.relations[number] for number in chosen]
        self.target = torch.cat([r.target_nodes[r.target.long()] for r in relations])

    def dropped(self, kept: Sequence[Tensor | None]) -> Tensor | None:
        """bool [E]: edges that carry nothing in this step; ``kept`` relation by relation."""
        there = [k for k in kept if k is not None]
        return ~torch.cat(there) if there else None

    def fill_logits(self, out: Tensor, heads: _Heads, queries: Tensor, keys: Rows, dropped: Tensor | None) -> None:
        """Set ``out`` [h, E] to the edges' logits, −∞ for those that are ``dropped``."""
        for part in self.parts:
            q, k = part.targets.rows(queries, heads), part.sources.rows(keys[part.source_type], heads)
            m_k = heads.m_k(part)
            near, far = (_times(q, m_k.mT), k.contiguous()) if part.on_target else (q.contiguous(), _times(k, m_k))
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


def _groups(edges: EdgesInto, matrices: Matrices, like: Tensor) -> Iterator[_Heads]:
    """Heads that go together: one on the CPU; elsewhere, where calls cost more than memory does, as many as can be."""
    heads = matrices[0].shape[1]
    largest = max(max(p.last - p.first, p.sources.count, p.targets.count) for p in edges.parts)
    size = 1 if like.device.type in _ONE_BY_ONE else min(max(_MOST // largest, 1), heads)
    for first in range(0, heads, size):
        yield _Heads(first, min(first + size, heads), matrices)


def weighted_sums(of: Tensor, bounds: Tensor, weights: Tensor, rows: Tensor) -> Tensor:
    """[n, D]: Σ weights[e] · rows[of[e]] over each node's edges e, which are ``bounds[i]:bounds[i + 1]``; both int32."""
    return F.embedding_bag(of, rows, bounds, mode="sum", per_sample_weights=weights, include_last_offset=True)


def _times(rows: Tensor, matrices: Tensor) -> Tensor:
    """[h, n, D] times [h, D, D], contiguous."""
    out = rows.new_empty(rows.shape)
    if len(rows) == 1:
        product(rows[0], matrices[0], out=out[0])
        return out
    return product(rows, matrices, out=out)


def _runs(ascending: Tensor, count: int) -> Tensor:
    """int32 [count + 1]: where the run of each of the numbers 0 … count − 1 begins, and the last one ends."""
    numbers = torch.arange(count + 1, dtype=ascending.dtype, device=ascending.device)
    return torch.searchsorted(ascending, numbers, out_int32=True)


def _present(x: Tensor | None) -> Tensor:
    assert x is not None
    return x
