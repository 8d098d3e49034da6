"""HGT's attention over all relations into a type at once, for the CPU.

For each head, a table holds the sources' rows of all relations, multiplied by the relations' matrices. A target's edges over
all relations are then consecutive, and the softmax is over them, one head at a time. Nothing writes a row per edge, and sums
are in the order of the edges, whatever the number of threads. Queries and their gradients are not gathered by relation. It
computes in fp32 and fp64; rows of lower precision are converted.

Products of an edge's two ends are ``torch.sparse.sampled_addmm``, weighted sums over a node's edges
``torch.nn.functional.embedding_bag``, the maximum and the total of the softmax ``torch.segment_reduce``. If there are more
parallel edges than pairs of nodes, the products are computed from gathered rows, in blocks of edges.
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

__all__ = ["Inbox", "all_backward", "all_forward", "head_products", "inbox_of"]

ALL = 0.7
"""If a relation uses at least this fraction of a type's nodes, it takes all of them, which avoids gathering rows and
scattering gradients."""
_PART = 4096
"""Edges of a block of gathered rows."""


def all_forward(
    graph: MessageGraph, chosen: tuple[int, ...], rows: tuple[Tensor, TypeRows, TypeRows], matrices: Weights,
    kept: Sequence[Tensor | None], into: tuple[Tensor, Tensor, Tensor],
) -> None:  # fmt: skip
    """Fill ``into`` with the messages of the ``chosen`` relations, which all end in one type. Before the call, the
    total is 0 and highest is −∞.

    ``rows``: that type's q [targets, h·D], and per type k and v [sources, h·D]. ``kept``: for each chosen relation bool
    [E], False for an edge without a message. ``into``: Σ α v [targets, h·D], Σ exp(a − highest) and highest [targets, h].
    """
    queries, keys, values = rows
    sums, totals, highest = into
    if not chosen:
        sums.zero_()
        return
    heads = matrices[0].shape[1]
    inbox = inbox_of(graph, chosen)
    dropped = inbox.dropped(kept)
    q, (sent_k, sent_v) = _by_head(queries, heads, sums.dtype), _multiplied(inbox, keys, values, matrices)
    by_head = sums.unflatten(1, (heads, -1))
    for head in range(heads):
        result = _attend(inbox, q[head].contiguous(), sent_k[head], sent_v[head], dropped)
        by_head[:, head], totals[:, head], highest[:, head] = result


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
    heads, dtype = matrices[0].shape[1], matrices[0].dtype
    for t, numbers in groupby(sorted(chosen, key=target_type.__getitem__), key=target_type.__getitem__):
        inbox = inbox_of(graph, tuple(numbers))
        dropped = inbox.dropped([masks[part.relation] for part in inbox.parts])
        queries, slopes, log_total, delta, d_queries = (present(of_type[t]) for of_type in (rows.q, *softmax, d_rows.q))
        q, d_out = _by_head(queries, heads, dtype), _by_head(slopes, heads, dtype)
        sent_k, sent_v = _multiplied(inbox, rows.k, rows.v, matrices)
        for head in range(heads):
            targets = q[head].contiguous(), d_out[head].contiguous(), log_total[:, head], delta[:, head]
            d_q, d_k, d_v = _gradients(inbox, targets, sent_k[head], sent_v[head], dropped)
            d_queries.unflatten(1, (heads, -1))[:, head] += d_q
            # The rows of this head are not read again.
            sent_k[head], sent_v[head] = d_k, d_v
        for part in inbox.parts:
            _part_backward(part, rows, matrices, (sent_k, sent_v), d_rows, d_matrices)


def _part_backward(
    part: _Part, rows: Rows, matrices: Weights, slopes: tuple[Tensor, Tensor], d_rows: Rows, d_matrices: Weights
) -> None:
    """The gradients of a relation's rows and matrices from those of its sent rows, ``slopes`` [h, rows, D]."""
    (w_k, w_v, prior), (d_w_k, d_w_v, d_prior) = (tuple(w[part.relation] for w in of) for of in (matrices, d_matrices))
    heads, width, dtype = w_k.shape[0], w_k.shape[1], w_k.dtype
    factor = (prior / math.sqrt(width))[:, None, None]
    of_k, of_v = (slope[:, part.first : part.last] for slope in slopes)
    k, v = (_by_head(part.rows(of_type), heads, dtype) for of_type in rows[1:])
    d_w_v.copy_(torch.bmm(v.mT, of_v))
    # The logits are q · k (factor · W). The gradients of factor and W both follow from the gradient of this matrix.
    of_scaled = torch.bmm(k.mT, of_k)
    torch.mul(of_scaled, factor, out=d_w_k)
    d_prior.copy_(torch.linalg.vecdot(of_scaled.flatten(1), w_k.flatten(1)) / math.sqrt(width))
    part.add(d_rows.k, torch.bmm(of_k, (w_k * factor).mT))
    part.add(d_rows.v, torch.bmm(of_v, w_v.mT))


class _Part(NamedTuple):
    """One relation's rows ``first:last`` of the table of sent rows."""

    relation: int
    source_type: int
    nodes: Tensor | None
    """int64: the source nodes; None: all nodes of their type."""
    first: int
    last: int

    def rows(self, of_type: TypeRows) -> Tensor:
        """[n, h·D]: the sources' rows, before multiplication by the relation's matrices."""
        rows = present(of_type[self.source_type])
        return rows if self.nodes is None else rows.index_select(0, self.nodes)

    def add(self, of_type: TypeRows, slopes: Tensor) -> None:
        """Add ``slopes`` [h, n, D] to the sources' rows."""
        rows, added = present(of_type[self.source_type]), slopes.transpose(0, 1).flatten(1)
        if self.nodes is None:
            rows += added
            return
        # index_add_ would sort the nodes.
        rows.index_copy_(0, self.nodes, added.add_(rows.index_select(0, self.nodes)))


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
        existing = [k for k in kept if k is not None]
        return ~torch.cat(existing).index_select(0, self._order) if existing else None

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


def _multiplied(inbox: Inbox, keys: TypeRows, values: TypeRows, matrices: Weights) -> tuple[Tensor, Tensor]:
    """The sent rows of all relations: k · (factor W^K) and v · W^V, [h, rows, D]."""
    w_k, w_v, prior = matrices
    heads, width = w_k.shape[1:3]
    sent_k, sent_v = w_k.new_empty(2, heads, inbox.rows, width)
    for part in inbox.parts:
        here, factor = slice(part.first, part.last), (prior[part.relation] / math.sqrt(width))[:, None, None]
        k, v = (_by_head(part.rows(of_type), heads, w_k.dtype) for of_type in (keys, values))
        sent_k[:, here] = torch.bmm(k, w_k[part.relation] * factor)
        sent_v[:, here] = torch.bmm(v, w_v[part.relation])
    return sent_k, sent_v


def _by_head(rows: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
    """[n, h·D] → [h, n, D], a view where ``dtype`` is that of the rows."""
    return rows.unflatten(1, (heads, -1)).transpose(0, 1).to(dtype)


def _attend(
    inbox: Inbox, q: Tensor, keys: Tensor, values: Tensor, dropped: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Σ α v [targets, D], Σ exp(a − highest) and highest a [targets]; a = q · k over each target's edges.

    ``q`` [targets, D]; ``keys``, ``values`` [rows, D]: the sent rows; ``dropped`` bool [E]: edges without a message.
    """
    logits = _dots(inbox, q, keys)
    if dropped is not None:
        logits.masked_fill_(dropped, -math.inf)
    top = torch.segment_reduce(logits, "max", offsets=inbox.indptr, unsafe=True)
    shift = top.clamp_min(torch.finfo(top.dtype).min)
    weights = logits.sub_(shift.index_select(0, inbox.target)).exp_()
    total = torch.segment_reduce(weights, "sum", offsets=inbox.indptr, unsafe=True)
    sums = weighted_sums(inbox.source, inbox.bounds, weights, values)
    return sums.div_(total.masked_fill(total == 0, 1.0).unsqueeze(1)), total, top


def _gradients(
    inbox: Inbox, targets: tuple[Tensor, Tensor, Tensor, Tensor], keys: Tensor, values: Tensor, dropped: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q [targets, D] and of the sent keys and values [rows, D].

    ``targets``: q and the result's gradient [targets, D], the log of the softmax's total and Σ α·dα [targets].
    """
    q, d_out, log_total, delta = targets
    alpha = _dots(inbox, q, keys, log_total).exp_()
    if dropped is not None:
        alpha.masked_fill_(dropped, 0.0)
    d_logits = _dots(inbox, d_out, values, delta).mul_(alpha)
    d_q = weighted_sums(inbox.source, inbox.bounds, d_logits, keys)
    order, target, bounds = inbox.transposed
    d_k = weighted_sums(target, bounds, d_logits.index_select(0, order), q)
    d_v = weighted_sums(target, bounds, alpha.index_select(0, order), d_out)
    return d_q, d_k, d_v


def _dots(inbox: Inbox, left: Tensor, right: Tensor, less: Tensor | None = None) -> Tensor:
    """[E]: for each edge the dot product of a row of ``left`` [targets, D] and a row of ``right`` [rows, D].

    ``less`` [targets]: subtracted from the products of each target.
    """
    if less is not None:
        result = less.neg().index_select(0, inbox.target)
    else:
        # sampled_addmm multiplies the old values by beta = 0, and NaN would stay NaN, so start from zeros.
        result = left.new_zeros(len(inbox.source))
    if len(result) > len(left) * len(right):
        # More parallel edges than entries of a matrix, which sampled_addmm refuses.
        for start in range(0, len(result), _PART):
            part = slice(start, start + _PART)
            rows = left.index_select(0, inbox.target[part]).mul_(right.index_select(0, inbox.source[part]))
            result[part] += rows.sum(1)
        return result
    _without_warning()
    places = (len(left), len(right))
    pattern = torch.sparse_csr_tensor(inbox.bounds, inbox.source, result, places, check_invariants=False)
    torch.sparse.sampled_addmm(pattern, left, right.T, beta=0.0 if less is None else 1.0, out=pattern)
    # In current torch its values share the memory of ``result``, but no version guarantees it.
    return result if pattern.values().data_ptr() == result.data_ptr() else pattern.values()


@cache
def _without_warning() -> None:
    """Trigger torch's warning that sparse tensors are in beta state, once per process, and suppress it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        torch.sparse_csr_tensor([0, 0], [], [], (1, 1), check_invariants=False)
