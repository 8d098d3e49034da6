"""``link_scores`` for the CPU, compiled.

Backward, a thread owns some columns of all rows, so that no two add to one number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.runtime.compiled_math import FAST
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
_LINE = 16
"""Columns that a thread takes or leaves together: a cache line of fp32."""


def forward(nodes: Tensor, relation: Tensor | None, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
    """See :func:`graphmill.kernels.link_scores.link_scores`; one dtype, contiguous tables."""
    out = nodes.new_empty(tails.shape)
    tables = (nodes.detach().numpy(), _table(nodes, relation))
    arrays = (*tables, heads.numpy(), relations.numpy(), tails.numpy(), relation is not None, out.numpy())
    over_ranges(_forward, arrays, len(heads), out.numel() * nodes.shape[1])
    return out


def backward(
    nodes: Tensor, relation: Tensor | None, heads: Tensor, relations: Tensor, tails: Tensor, gradient: Tensor,
    into: Tensor | None, of_relation: Tensor | None,
) -> None:  # fmt: skip
    """Add the gradients to ``into`` [N, d] and ``of_relation`` [R, d], each unless it is None."""
    width = nodes.shape[1]
    tables = (nodes.detach().numpy(), _table(nodes, relation))
    links = (heads.numpy(), relations.numpy(), tails.numpy(), gradient.contiguous().numpy())
    asked = (relation is not None, into is not None, of_relation is not None)
    sums = (_table(nodes, into), _table(nodes, of_relation))
    over_ranges(_backward, (*tables, *links, *asked, *sums), -(-width // _LINE), tails.numel() * width)


def _table(nodes: Tensor, table: Tensor | None) -> np.ndarray:
    found: np.ndarray = (torch.empty(0, nodes.shape[1], dtype=nodes.dtype) if table is None else table).detach().numpy()
    return found


@_jit
def _forward(  # type: ignore[no-untyped-def]
    nodes, relation, heads, relations, tails, typed, out, first, last
):
    width = nodes.shape[1]
    left = np.empty(width, nodes.dtype)
    zero = nodes.dtype.type(0)
    for link in range(first, last):
        head = nodes[heads[link]]
        if typed:
            of = relation[relations[link]]
            for c in range(width):
                left[c] = head[c] * of[c]
        else:
            left[:] = head
        for n in range(tails.shape[1]):
            tail, score = nodes[tails[link, n]], zero
            for c in range(width):
                score += left[c] * tail[c]
            out[link, n] = score


@_jit
def _backward(arguments: Any, first: int, last: int) -> None:
    nodes, relation, heads, relations, tails, gradient, typed, to_nodes, to_relations, into, of_relation = arguments
    begin, end = first * _LINE, min(last * _LINE, nodes.shape[1])
    size = end - begin
    left, sums = np.empty(size, nodes.dtype), np.empty(size, nodes.dtype)
    for link in range(len(heads)):
        node, kind = heads[link], relations[link]
        head = nodes[node, begin:end]
        if typed:
            of = relation[kind, begin:end]
            for c in range(size):
                left[c] = head[c] * of[c]
        else:
            left[:] = head
        sums[:] = 0
        for n in range(tails.shape[1]):
            slope, tail = gradient[link, n], nodes[tails[link, n], begin:end]
            for c in range(size):
                sums[c] += slope * tail[c]
            if to_nodes:
                onto = into[tails[link, n], begin:end]
                for c in range(size):
                    onto[c] += slope * left[c]
        if to_relations:
            onto = of_relation[kind, begin:end]
            for c in range(size):
                onto[c] += sums[c] * head[c]
        if to_nodes:
            onto = into[node, begin:end]
            if typed:
                of = relation[kind, begin:end]
                for c in range(size):
                    onto[c] += sums[c] * of[c]
            else:
                for c in range(size):
                    onto[c] += sums[c]
