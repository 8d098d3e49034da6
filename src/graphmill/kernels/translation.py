"""Projects rows by one of several matrices (TransR's relations), and computes the softmax over the edges of a node.

Products are grouped by relation, so that no matrix is gathered for each row (2,048 × 64 × 64 numbers instead of 61
matrices). KGAT's attention over edges needs no tensor of edges × width.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.devices import part_bytes, to_device
from graphmill.kernels.products import product

MOST_PADDED = 1 << 18  # rows including padding: up to here, padding costs an accelerator less than more launches
EDGE_BYTES = 8 << 20
"""Bytes of projected rows in memory at a time on a CPU, when edges are scored."""


def grouped_projection(rows: Tensor, bounds: Sequence[int], matrices: Tensor) -> Tensor:
    """Each of the ``rows`` [n, d] times the matrix of its group, of ``matrices`` [G, d, k].

    Rows ``bounds[g] : bounds[g + 1]`` belong to group g. Returns [n, k] in the dtype of the rows. One product per
    nonempty group, forward and backward; on an accelerator one for all, up to :data:`MOST_PADDED` padded rows.
    """
    longest = max((stop - start for start, stop in pairwise(bounds)), default=0)
    if rows.device.type != "cpu" and 0 < longest * len(matrices) <= MOST_PADDED and len(matrices) > 1:
        place = np.arange(len(rows)) + np.repeat(np.arange(len(matrices)) * longest - bounds[:-1], np.diff(bounds))
        at = to_device(torch.from_numpy(place), rows.device)
        with torch.autocast(rows.device.type, enabled=False):
            padded = rows.new_zeros(len(matrices) * longest, rows.shape[1]).index_copy(0, at, rows)
            result = torch.bmm(padded.view(len(matrices), longest, -1), matrices.to(rows.dtype))
            return result.flatten(0, 1).index_select(0, at)
    return _Grouped.apply(rows, matrices, list(bounds))


class _Grouped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, matrices: Tensor, bounds: list[int]) -> Tensor:
        ctx.save_for_backward(rows, matrices)
        ctx.bounds = bounds
        out = rows.new_empty(len(rows), matrices.shape[2])
        with torch.autocast(rows.device.type, enabled=False):
            for g, (start, stop) in enumerate(pairwise(bounds)):
                if stop > start:
                    product(rows[start:stop], matrices[g], out=out[start:stop])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient,) = gradients
        rows, matrices = ctx.saved_tensors
        to_rows, to_matrices = torch.empty_like(rows), torch.zeros_like(matrices)
        with torch.autocast(rows.device.type, enabled=False):
            for g, (start, stop) in enumerate(pairwise(ctx.bounds)):
                if stop > start:
                    part = gradient[start:stop]
                    product(part, matrices[g].T, out=to_rows[start:stop])
                    product(rows[start:stop].T, part, out=to_matrices[g])
        return to_rows, to_matrices, None


class EdgeGroup(NamedTuple):
    """The edges of relations ``first`` to ``last`` - 1, sorted by relation and head, and their nodes."""

    first: int
    last: int
    head_bounds: list[int]
    """Bounds of each relation's heads in ``heads``; ``tail_bounds`` likewise."""
    tail_bounds: list[int]
    edges: Tensor
    """int64 [E]: positions of these edges among all edges."""
    heads: Tensor
    """int64 [m]: the head nodes, relation after relation; ``tails`` [n] likewise."""
    tails: Tensor
    indptr: Tensor
    """int64 [m + 1]: bounds of each head's edges."""
    tail: Tensor
    """int64 [E]: each edge's index into ``tails``."""


def score_edges_(logits: Tensor, nodes: Tensor, projections: Tensor, translations: Tensor, part: EdgeGroup) -> None:
    """Fill ``logits`` at the edges of ``part`` with ⟨W_r t, tanh(W_r h + e_r)⟩ (KGAT, eq. 4); not differentiable.

    ``logits`` [all edges], ``nodes`` [N, d], and, for all relations, ``projections`` [R, d, k] and ``translations`` [R, k].
    """
    matrices, moves = projections[part.first : part.last], translations[part.first : part.last]
    left = grouped_projection(nodes.index_select(0, part.heads), part.head_bounds, matrices)
    right = grouped_projection(nodes.index_select(0, part.tails), part.tail_bounds, matrices)
    counts = torch.tensor(part.head_bounds, device=nodes.device).diff()
    move = moves.repeat_interleave(counts, 0)
    head = torch.arange(len(part.heads), device=nodes.device).repeat_interleave(part.indptr.diff())
    logits[part.edges] = translation_logits(left, right, move, head, part.tail)


def translation_logits(heads: Tensor, tails: Tensor, translation: Tensor, head: Tensor, tail: Tensor) -> Tensor:
    """π = ⟨t, tanh(h + e_r)⟩ of edges (KGAT, eq. 4); not differentiable.

    ``heads`` [m, k] and ``tails`` [n, k]: the projected nodes. ``translation``: [k] for one relation, or [m, k] with a
    row for each head. ``head``, ``tail`` int64 [E]: rows of ``heads`` and ``tails``. Returns [E].
    """
    moved = torch.tanh(heads + translation)
    out = heads.new_empty(len(head))
    step = max(part_bytes(heads.device, EDGE_BYTES) // (heads.element_size() * heads.shape[1]), 1)
    for start in range(0, len(head), step):
        part = slice(start, start + step)
        out[part] = (moved.index_select(0, head[part]) * tails.index_select(0, tail[part])).sum(1)
    return out


def segment_softmax(logits: Tensor, row: Tensor, indptr: Tensor) -> Tensor:
    """exp(a_e) / Σ over the edges of the same row, [E]. Sums are in at least fp32; a single edge gets 1.

    ``row`` int64 [E], ascending; ``indptr`` int64 [rows + 1]: bounds of each row's edges.
    """
    num_rows = len(indptr) - 1
    highest = logits.new_full((num_rows,), -torch.inf).scatter_reduce_(0, row, logits, "amax")
    powers = torch.exp(logits - highest[row])
    total = torch.zeros_like(highest).index_add_(0, row, powers)
    return powers / total[row]
