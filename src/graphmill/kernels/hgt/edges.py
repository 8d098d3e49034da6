"""The edges of HGT's attention for one head, with torch's own sparse operators.

Products of an edge's two ends are ``torch.sparse.sampled_addmm``, weighted sums over a node's edges
``torch.nn.functional.embedding_bag``, the maximum and the total of the softmax ``torch.segment_reduce``. If there are more
parallel edges than pairs of nodes, the products are computed from gathered rows, in blocks of edges.
"""

from __future__ import annotations

import math
import warnings
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphmill.kernels.hgt.segments import weighted_sums

if TYPE_CHECKING:
    from graphmill.kernels.hgt.by_type import Inbox

_PART = 4096


def attend(
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


def gradients(
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
    # In current torch its values share the memory of ``found``, but no version guarantees it.
    return result if pattern.values().data_ptr() == result.data_ptr() else pattern.values()


@cache
def _without_warning() -> None:
    """Trigger torch's warning that sparse tensors are in beta state, once per process, and suppress it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        torch.sparse_csr_tensor([0, 0], [], [], (1, 1), check_invariants=False)
