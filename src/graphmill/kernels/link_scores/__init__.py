"""Scores of typed links from a table of vectors, without a copy of any row.

As tensor operations a link's vectors are gathered, multiplied and summed through arrays of links × width, a dozen of them
with those of the backward pass. In one pass each way a link reads its rows where they are and adds to their gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.runtime.threads import has_numba
from graphmill.kernels.table_rows import check_numbers, gradient_of_table


def link_scores(nodes: Tensor, relation: Tensor | None, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
    """Σ_c z_hc · r_c · z_tc [B, T], at least fp32: DistMult (Yang et al. 2015); with ``relation`` None, r = 1.

    ``nodes`` z [N, d]; ``relation`` r [R, d]; ``heads`` and ``relations`` int64 [B]; ``tails`` int64 [B, T], the targets
    that each link is scored with. Compiled (on a CPU with numba; a table of half precision as one copy in fp32),
    ``.backward()`` adds the gradient of a leaf ``nodes`` to ``nodes.grad`` in place where that is there
    (:func:`graphmill.kernels.table_rows.table_rows`), which no hook sees; additions are in the links' order at any number of
    threads.

    Raises ValueError where shapes do not fit, IndexError where a number has no row.
    """
    _check_shapes(nodes, relation, heads, relations, tails)
    if torch.compiler.is_compiling() or not _compiled_serves(nodes, relation):
        return _gathered(nodes, relation, heads, relations, tails)
    for numbers, table, what in ((heads, nodes, "head"), (tails, nodes, "tail"), (relations, relation, "relation")):
        if table is not None:
            check_numbers(numbers, table, what)
    found: Tensor = _LinkScores.apply(_wide(nodes), relation, heads, relations, tails)
    return found


def _gathered(nodes: Tensor, relation: Tensor | None, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
    # One gather: the backward pass of each would fill an array of the size of the table.
    # Of a table in fp32: gradients of half precision would be added in half precision.
    rows = _wide(nodes).index_select(0, torch.cat([heads, tails.T.reshape(-1)]))
    left, *right = rows.split(len(heads)) if len(heads) else (rows,) * (1 + tails.shape[1])
    left = left if relation is None else left * relation.index_select(0, relations)
    return torch.stack([(left * part).sum(-1) for part in right], 1)


def _check_shapes(nodes: Tensor, relation: Tensor | None, heads: Tensor, relations: Tensor, tails: Tensor) -> None:
    links = heads.shape
    if heads.dim() != 1 or relations.shape != links or tails.dim() != 2 or tails.shape[:1] != links:
        shapes = ", ".join(str(list(t.shape)) for t in (heads, relations, tails))
        raise ValueError(f"heads [B], relations [B] and tails [B, T] do not fit each other: {shapes}")
    if any(t.dtype != torch.int64 for t in (heads, relations, tails)):
        raise ValueError("heads, relations and tails are numbers of rows, int64")
    if relation is not None and relation.shape[1:] != nodes.shape[1:]:
        raise ValueError(f"vectors of nodes {list(nodes.shape)} and relations {list(relation.shape)} differ in width")


def _compiled_serves(nodes: Tensor, relation: Tensor | None) -> bool:
    return (
        nodes.device.type == "cpu"
        and nodes.is_contiguous()
        and (relation is None or relation.dtype == (torch.float64 if nodes.dtype == torch.float64 else torch.float32))
        and has_numba()
    )


def _wide(x: Tensor) -> Tensor:
    """At least fp32: products of half-precision vectors are summed in fp32."""
    return x if x.dtype == torch.float64 else x.float()


class _LinkScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, nodes: Tensor, relation: Tensor | None, heads: Tensor, relations: Tensor, tails: Tensor
    ) -> Tensor:
        from graphmill.kernels.link_scores import cpu as link_scores_cpu

        # Only of a leaf is the gradient added to in place; what a step has made may go before its gradient is there.
        ctx.leaf = nodes if nodes.is_leaf else None
        ctx.save_for_backward(nodes, relation, heads, relations, tails)
        return link_scores_cpu.forward(nodes, relation, heads, relations, tails)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from graphmill.kernels.link_scores import cpu as link_scores_cpu

        nodes, relation, heads, relations, tails = ctx.saved_tensors
        own = into = None
        if ctx.needs_input_grad[0]:
            own = torch.zeros_like(nodes) if ctx.leaf is None else gradient_of_table(ctx.leaf)
            into = ctx.leaf.grad if own is None else own
        of_relation = torch.zeros_like(relation) if relation is not None and ctx.needs_input_grad[1] else None
        link_scores_cpu.backward(nodes, relation, heads, relations, tails, gradient, into, of_relation)
        return own, of_relation, None, None, None
