"""HGT's attention over all relations into a type at once, with torch's own sparse operators.

The CPU uses it if numba is not installed. For each head, a table holds the sources' rows of all relations, multiplied
by the relations' matrices. A target's edges over all relations are then one row of one sparse matrix, and the softmax
is over that row. Products of an edge's two ends are ``torch.sparse.sampled_addmm``, weighted sums over a node's edges
``torch.nn.functional.embedding_bag``, the maximum and the total of the softmax ``torch.segment_reduce``. None of them
writes a row per edge, and each sums in the order of the edges, whatever the number of threads. Queries and their
gradients are not gathered by relation. It computes in fp32 and fp64; rows of lower precision are converted. (If there
are more parallel edges than pairs of nodes, the products are computed from gathered rows, in blocks of edges.)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.kernels.hgt.relations import Rows, TypeRows, Weights, present
from graphmill.kernels.hgt.segments import head_products, runs, weighted_sums
from graphmill.kernels.products import add_product_, product

__all__ = ["Inbox", "all_backward", "all_forward", "head_products", "inbox_of"]

_PART = 4096
ALL = 0.7
"""If a relation uses at least this fraction of a type's nodes, it takes all of them, which avoids gathering rows and
scattering gradients."""


def all_forward(
    graph: MessageGraph, chosen: tuple[int, ...], rows: tuple[Tensor, TypeRows, TypeRows], matrices: Weights,
    kept: Sequence[Tensor | None], found: tuple[Tensor, Tensor, Tensor],
) -> None:  # fmt: skip
    """Fill ``found`` with the messages of the ``chosen`` relations, which all end in one type. Before the call, the
    total is 0 and highest is −∞.

    ``rows``: that type's q [targets, h·D], and per type k and v [sources, h·D]. ``kept``: for each chosen relation bool
    [E], False for an edge without a message. ``found``: Σ α v [targets, h·D], Σ exp(a − highest) and highest [targets, h].
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
        sent_k, sent_v = _multiplied(inbox, keys, values, matrices, head)
        logits = _dots(inbox, _own(queries, columns, sums.dtype), sent_k)
        if dropped is not None:
            logits.masked_fill_(dropped, -math.inf)
        top = torch.segment_reduce(logits, "max", offsets=inbox.indptr, unsafe=True)
        shift = top.clamp_min(torch.finfo(top.dtype).min)
        weights = logits.sub_(shift.index_select(0, inbox.target)).exp_()
        total = torch.segment_reduce(weights, "sum", offsets=inbox.indptr, unsafe=True)
        own = weighted_sums(inbox.source, inbox.bounds, weights, sent_v)
        torch.div(own, total.masked_fill(total == 0, 1.0).unsqueeze(1), out=sums[:, columns])
        totals[:, head], highest[:, head] = total, top


def all_backward(
    graph: MessageGraph, chosen: tuple[int, ...], rows: Rows, matrices: Weights, kept: Sequence[Tensor | None],
    softmax: tuple[TypeRows, TypeRows, TypeRows], d_rows: Rows, d_matrices: Weights,
) -> None:  # fmt: skip
    """Add the gradients of the ``chosen`` relations to ``d_rows``, and fill their ``d_matrices``.

    ``rows`` and ``d_rows``: q, k and v per type. ``softmax``, per type: the gradient of the attention's result [targets,
    h·D]; the log of the softmax's total over all relations and Σ α·dα [targets, h]. It has no logits: they are recomputed.
    """
    target_type = {number: graph.relations[number].target_type for number in chosen}
    masks = dict(zip(chosen, kept, strict=True))
    for t, numbers in groupby(sorted(chosen, key=target_type.__getitem__), key=target_type.__getitem__):
        inbox = inbox_of(graph, tuple(numbers))
        dropped = inbox.dropped([masks[part.relation] for part in inbox.parts])
        own = tuple(present(of_type[t]) for of_type in (rows.q, *softmax, d_rows.q))
        for head in range(matrices[0].shape[1]):
            _head_backward(inbox, own, rows, matrices, dropped, d_rows, d_matrices, head)


def _head_backward(
    inbox: Inbox, own: tuple[Tensor, ...], rows: Rows, matrices: Weights, dropped: Tensor | None, d_rows: Rows,
    d_matrices: Weights, head: int,
) -> None:  # fmt: skip
    """The backward pass of one head of a type. ``own``: its q, the result's gradient, log total, Σ α·dα, q's gradient."""
    queries, slopes, log_total, delta, d_queries = own
    width, dtype = matrices[0].shape[2], matrices[0].dtype
    columns = slice(head * width, (head + 1) * width)
    q, d_out = _own(queries, columns, dtype), _own(slopes, columns, dtype)
    sent_k, sent_v = _multiplied(inbox, rows.k, rows.v, matrices, head)
    alpha = _dots(inbox, q, sent_k, log_total[:, head]).exp_()
    if dropped is not None:
        alpha.masked_fill_(dropped, 0.0)
    d_logits = _dots(inbox, d_out, sent_v, delta[:, head]).mul_(alpha)
    d_queries[:, columns].add_(weighted_sums(inbox.source, inbox.bounds, d_logits, sent_k))
    del sent_k, sent_v
    order, target, bounds = inbox.transposed
    d_k = weighted_sums(target, bounds, d_logits.index_select(0, order), q)
    del d_logits
    d_v = weighted_sums(target, bounds, alpha.index_select(0, order), d_out)
    del alpha
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


def _dots(inbox: Inbox, left: Tensor, right: Tensor, less: Tensor | None = None) -> Tensor:
    """[E]: for each edge the dot product of a row of ``left`` [targets, D] and a row of ``right`` [rows, D].

    ``less`` [targets]: subtracted from the products of each target.
    """
    if less is not None:
        found = less.neg().index_select(0, inbox.target)
    else:
        # sampled_addmm multiplies the old values by beta = 0, and NaN would stay NaN, so start from zeros.
        found = left.new_zeros(len(inbox.source))
    if len(found) > len(left) * len(right):
        # More parallel edges than entries of a matrix, which sampled_addmm refuses.
        for start in range(0, len(found), _PART):
            part = slice(start, start + _PART)
            rows = left.index_select(0, inbox.target[part]).mul_(right.index_select(0, inbox.source[part]))
            found[part] += rows.sum(1)
        return found
    _without_warning()
    places = (len(left), len(right))
    pattern = torch.sparse_csr_tensor(inbox.bounds, inbox.source, found, places, check_invariants=False)
    torch.sparse.sampled_addmm(pattern, left, right.T, beta=0.0 if less is None else 1.0, out=pattern)
    # In current torch its values share the memory of ``found``, but no version guarantees it.
    return found if pattern.values().data_ptr() == found.data_ptr() else pattern.values()


@cache
def _without_warning() -> None:
    """Trigger torch's warning that sparse tensors are in beta state, once per process, and suppress it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        torch.sparse_csr_tensor([0, 0], [], [], (1, 1), check_invariants=False)
