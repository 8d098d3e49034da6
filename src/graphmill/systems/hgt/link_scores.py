"""Scores of typed links from a table of vectors, a block of links at a time.

Scoring all links at once takes a dozen arrays of links × targets × width, forward and backward. Here these arrays cover
one block, and the backward pass gathers the rows again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.devices import part_bytes, wide
from graphmill.kernels.table_rows import gradient_of_table

BLOCK_BYTES = 8 << 20
"""Bytes of gathered target rows in memory at a time, on a CPU."""


def turned(rows: Tensor) -> Tensor:
    """Rows [.., d] with their two halves in the other order."""
    return rows.roll(rows.shape[-1] // 2, -1)


def link_scores(nodes: Tensor, relation: Tensor, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
    """Σ_c turned(z_h · r)_c · z_tc [B, T], at least fp32: SimplE (Kazemi & Poole 2018), d even.

    ``nodes`` z [N, d]; ``relation`` r [R, d]; ``heads`` and ``relations`` int64 [B]; ``tails`` int64 [B, T], the targets
    that each link is scored with. If ``nodes`` is a leaf and has a ``.grad``, ``.backward()`` adds to that in place, and
    hooks do not see the gradient (:func:`graphmill.kernels.table_rows.table_rows`). torch.compile scores all links at
    once.
    """
    # The table is read in fp32: half-precision gradients would be added in half precision.
    given = wide(nodes), relation, heads, relations, tails
    return _scores(*_gathered(*given)) if torch.compiler.is_compiling() else _LinkScores.apply(*given)


def _gathered(
    nodes: Tensor, relation: Tensor, heads: Tensor, relations: Tensor, tails: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """z_h [b, d], r [b, d] and z_t [b, T, d]."""
    vectors = relation.index_select(0, relations)
    rows = nodes.index_select(0, tails.reshape(-1)).view(*tails.shape, nodes.shape[1])
    return nodes.index_select(0, heads), vectors, rows


def _scores(left: Tensor, vectors: Tensor, right: Tensor) -> Tensor:
    return (turned(left * vectors)[:, None] * right).sum(-1)


def _blocks(nodes: Tensor, tails: Tensor) -> list[slice]:
    row = max(nodes.element_size() * nodes.shape[1] * tails.shape[1], 1)
    size = max(part_bytes(nodes.device, BLOCK_BYTES) // row, 1)
    return [slice(start, start + size) for start in range(0, len(tails), size)]


class _LinkScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, nodes: Tensor, relation: Tensor, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
        # Only a leaf's gradient is added to in place: another tensor may be freed before its gradient exists.
        ctx.leaf = nodes if nodes.is_leaf else None
        ctx.save_for_backward(nodes, relation, heads, relations, tails)
        out = nodes.new_empty(tails.shape)
        for part in _blocks(nodes, tails):
            out[part] = _scores(*_gathered(nodes, relation, heads[part], relations[part], tails[part]))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        nodes, relation, heads, relations, tails = ctx.saved_tensors
        of_nodes = into = of_relation = None
        if ctx.needs_input_grad[0]:
            of_nodes = torch.zeros_like(nodes) if ctx.leaf is None else gradient_of_table(ctx.leaf)
            into = ctx.leaf.grad if of_nodes is None else of_nodes
        if ctx.needs_input_grad[1]:
            of_relation = torch.zeros_like(relation)
        for part in _blocks(nodes, tails):
            left, vectors, right = _gathered(nodes, relation, heads[part], relations[part], tails[part])
            slopes = gradient[part, :, None]
            to_left = turned((slopes * right).sum(1))
            if of_relation is not None:
                of_relation.index_add_(0, relations[part], (to_left * left).to(of_relation.dtype))
            if into is not None:
                into.index_add_(0, heads[part], (to_left * vectors).to(into.dtype))
                to_right = (slopes * turned(left * vectors)[:, None]).flatten(0, 1)
                into.index_add_(0, tails[part].reshape(-1), to_right.to(into.dtype))
        return of_nodes, of_relation, None, None, None
