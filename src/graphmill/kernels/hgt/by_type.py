"""HGT's attention over all relations into a type at once, for the CPU.

For each head, a table holds the sources' rows of all relations, multiplied by the relations' matrices. A target's edges over
all relations are then consecutive, and the softmax is over them. The products are torch's; the edges are followed by
``edges_numba``, or without numba by ``edges_torch``. Neither writes a row per edge, and each sums in the order of the edges,
whatever the number of threads. Queries and their gradients are not gathered by relation. It computes in fp32 and fp64; rows
of lower precision are converted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.kernels.hgt.relations import Rows, TypeRows, Weights, present
from graphmill.kernels.hgt.segments import head_products, runs
from graphmill.kernels.products import add_product_, product

ALL = 0.7
"""If a relation uses at least this fraction of a type's nodes, it takes all of them, which avoids gathering rows and
scattering gradients."""


class ByType:
    """The backend, with the module that follows the edges: ``attend`` and ``gradients`` of one head."""

    def __init__(self, edges: ModuleType) -> None:
        self.edges = edges
        self.head_products = head_products

    def all_forward(
        self, graph: MessageGraph, chosen: tuple[int, ...], rows: tuple[Tensor, TypeRows, TypeRows], matrices: Weights,
        kept: Sequence[Tensor | None], found: tuple[Tensor, Tensor, Tensor],
    ) -> None:  # fmt: skip
        """Fill ``found`` with the messages of the ``chosen`` relations, which all end in one type. Before the call, the
        total is 0 and highest is −∞.

        ``rows``: that type's q [targets, h·D], and per type k and v [sources, h·D]. ``kept``: for each chosen relation
        bool [E], False for an edge without a message. ``found``: Σ α v [targets, h·D], Σ exp(a − highest) and highest
        [targets, h].
        """
        queries, keys, values = rows
        sums, totals, highest = found
        if not chosen:
            sums.zero_()
            return
        heads, width = matrices[0].shape[1:3]
        inbox = inbox_of(graph, chosen)
        dropped = inbox.dropped(kept)
        for head in range(heads):
            columns = slice(head * width, (head + 1) * width)
            sent = _multiplied(inbox, keys, values, matrices, head)
            own = self.edges.attend(inbox, _own(queries, columns, sums.dtype), *sent, dropped)
            sums[:, columns], totals[:, head], highest[:, head] = own

    def all_backward(
        self, graph: MessageGraph, chosen: tuple[int, ...], rows: Rows, matrices: Weights,
        kept: Sequence[Tensor | None], softmax: tuple[TypeRows, TypeRows, TypeRows], d_rows: Rows, d_matrices: Weights,
    ) -> None:  # fmt: skip
        """Add the gradients of the ``chosen`` relations to ``d_rows``, and fill their ``d_matrices``.

        ``rows`` and ``d_rows``: q, k and v per type. ``softmax``, per type: the gradient of the attention's result
        [targets, h·D]; the log of the softmax's total over all relations and Σ α·dα [targets, h]. It has no logits: they
        are recomputed.
        """
        target_type = {number: graph.relations[number].target_type for number in chosen}
        masks = dict(zip(chosen, kept, strict=True))
        for t, numbers in groupby(sorted(chosen, key=target_type.__getitem__), key=target_type.__getitem__):
            inbox = inbox_of(graph, tuple(numbers))
            dropped = inbox.dropped([masks[part.relation] for part in inbox.parts])
            own = tuple(present(of_type[t]) for of_type in (rows.q, *softmax, d_rows.q))
            for head in range(matrices[0].shape[1]):
                self._head_backward(inbox, own, rows, matrices, dropped, d_rows, d_matrices, head)

    def _head_backward(
        self, inbox: Inbox, own: tuple[Tensor, ...], rows: Rows, matrices: Weights, dropped: Tensor | None,
        d_rows: Rows, d_matrices: Weights, head: int,
    ) -> None:  # fmt: skip
        """The backward pass of one head of a type. ``own``: its q, the result's gradient, log total, Σ α·dα, q's
        gradient."""
        queries, slopes, log_total, delta, d_queries = own
        width, dtype = matrices[0].shape[2], matrices[0].dtype
        columns = slice(head * width, (head + 1) * width)
        targets = _own(queries, columns, dtype), _own(slopes, columns, dtype), log_total[:, head], delta[:, head]
        sent = _multiplied(inbox, rows.k, rows.v, matrices, head)
        d_q, d_k, d_v = self.edges.gradients(inbox, targets, *sent, dropped)
        del sent
        d_queries[:, columns].add_(d_q)
        (w_k, w_v, prior), (d_w_k, d_w_v, d_prior) = matrices, d_matrices
        for part in inbox.parts:
            place, factor = (part.relation, head), prior[part.relation, head] / math.sqrt(width)
            k, v = (part.rows(of_type, columns, dtype) for of_type in rows[1:])
            of_k, of_v = d_k[part.first : part.last], d_v[part.first : part.last]
            product(v.T, of_v, out=d_w_v[place])
            # The logits are q · k (factor · W). The gradients of factor and W both follow from the gradient of this matrix.
            of_scaled = product(k.T, of_k)
            torch.mul(of_scaled, factor, out=d_w_k[place])
            d_prior[place] = torch.linalg.vecdot(of_scaled.flatten(), w_k[place].flatten()) / math.sqrt(width)
            part.add(d_rows.k, columns, of_k, (w_k[place] * factor).T)
            part.add(d_rows.v, columns, of_v, w_v[place].T)


class _Part(NamedTuple):
    """One relation's rows ``first:last`` of the table of sent rows."""

    relation: int
    source_type: int
    nodes: Tensor | None
    """int64: the source nodes; None: all nodes of their type."""
    first: int
    last: int

    def rows(self, of_type: TypeRows, columns: slice, dtype: torch.dtype) -> Tensor:
        """[n, D]: one head of the sources' rows, before multiplication by the relation's matrix."""
        rows = present(of_type[self.source_type])[:, columns]
        return (rows if self.nodes is None else rows.index_select(0, self.nodes)).to(dtype)

    def add(self, of_type: TypeRows, columns: slice, gradient: Tensor, matrix: Tensor) -> None:
        """Add ``gradient`` · ``matrix`` to one head of the sources' rows."""
        rows = present(of_type[self.source_type])[:, columns]
        if self.nodes is None:
            add_product_(rows, gradient, matrix)
            return
        # index_add_ would sort the nodes.
        found = rows.index_select(0, self.nodes)
        rows.index_copy_(0, self.nodes, add_product_(found, gradient, matrix))


class Inbox:
    """The edges of some relations into one type, sorted by (target, relation, source).

    ``source`` int32 [E]: rows of the table of sent rows, which has one relation after the other (``parts``). ``target``
    int32 [E]. ``indptr`` int64 and ``bounds`` int32 [targets + 1]: bounds of each target's edges.
    """

    def __init__(self, graph: MessageGraph, chosen: tuple[int, ...]) -> None:
        relations = [graph.relations[number] for number in chosen]
        parts, sources, first = [], [], 0
        for number, r in zip(chosen, relations, strict=True):
            count = graph.source_counts[r.source_type]
            whole = r.source_nodes.numel() >= ALL * count
            last = first + (count if whole else r.source_nodes.numel())
            parts.append(_Part(number, r.source_type, None if whole else r.source_nodes, first, last))
            sources.append((r.source_row if whole else r.source) + first)
            first = last
        targets = torch.cat([r.target_nodes.to(torch.int32)[r.target] for r in relations])
        self.parts, self.rows, self.num_targets = parts, first, graph.target_counts[relations[0].target_type]
        self.target, self._order = torch.sort(targets, stable=True)
        self.source = torch.cat(sources).index_select(0, self._order)
        self.indptr = runs(self.target, self.num_targets).long()
        self.bounds = self.indptr.to(torch.int32)

    def dropped(self, kept: Sequence[Tensor | None]) -> Tensor | None:
        """bool [E]: edges without a message in this step, in this class's order; ``kept`` is in relation order."""
        there = [k for k in kept if k is not None]
        return ~torch.cat(there).index_select(0, self._order) if there else None

    @cached_property
    def transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Edges sorted by source: positions int64 [E], targets int32 [E], bounds per source int32 [rows + 1]."""
        source, order = torch.sort(self.source, stable=True)
        return order, self.target.index_select(0, order), runs(source, self.rows)


def inbox_of(graph: MessageGraph, chosen: tuple[int, ...]) -> Inbox:
    """The :class:`Inbox` of the ``chosen`` relations, made once per graph."""
    key = ("inbox", chosen)
    if key not in graph.compiled:
        graph.compiled[key] = Inbox(graph, chosen)
    return graph.compiled[key]


def _multiplied(inbox: Inbox, keys: TypeRows, values: TypeRows, matrices: Weights, head: int) -> tuple[Tensor, Tensor]:
    """The sent rows of all relations for one head: k · (factor W^K) and v · W^V, [rows, D]."""
    w_k, w_v, prior = matrices
    width = w_k.shape[2]
    columns = slice(head * width, (head + 1) * width)
    sent_k, sent_v = w_k.new_empty(2, inbox.rows, width)
    for part in inbox.parts:
        place, here = (part.relation, head), slice(part.first, part.last)
        scaled = w_k[place] * (prior[place] / math.sqrt(width))
        product(part.rows(keys, columns, w_k.dtype), scaled, out=sent_k[here])
        product(part.rows(values, columns, w_k.dtype), w_v[place], out=sent_v[here])
    return sent_k, sent_v


def _own(rows: Tensor, columns: slice, dtype: torch.dtype) -> Tensor:
    """One head of the targets' rows, contiguous."""
    return rows[:, columns].to(dtype).contiguous()
