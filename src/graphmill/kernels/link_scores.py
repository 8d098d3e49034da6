"""Scores of typed links from a table of vectors, without a copy of any row.

As tensor operations a link's vectors are gathered, multiplied and summed through arrays of links × width, a dozen of them
with those of the backward pass. In one pass each way a link reads its rows where they are and adds to their gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.table_rows import gradient_of_table
from graphmill.kernels.threads import has_numba


def link_scores(nodes: Tensor, relation: Tensor | None, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
    """Σ_c z_hc · r_c · z_tc [B, T], at least fp32: DistMult (Yang et al. 2015); with ``relation`` None, r = 1.

    ``nodes`` z [N, d]; ``relation`` r [R, d]; ``heads`` and ``relations`` int64 [B]; ``tails`` int64 [B, T], the targets
    that each link is scored with. The gradient of ``nodes`` is added to ``nodes.grad`` in place where that is there
    (:func:`graphmill.kernels.table_rows.table_rows`); additions are in the links' order at any number of threads.

    Raises IndexError where a number has no row.
    """
    for numbers, table, what in ((heads, nodes, "head"), (tails, nodes, "tail"), (relations, relation, "relation")):
        _check(numbers, table, what)
    if _compiled_serves(nodes, relation):
        found: Tensor = _LinkScores.apply(nodes, relation, heads, relations, tails)
        return found
    # One gather: the backward pass of each would fill an array of the size of the table.
    rows = nodes.index_select(0, torch.cat([heads, tails.reshape(-1)]))
    left, right = rows.split((len(heads), tails.numel()))
    left = _wide(left) if relation is None else _wide(left) * relation.index_select(0, relations)
    return (left.unsqueeze(1) * _wide(right).view(*tails.shape, nodes.shape[1])).sum(-1)


def _check(numbers: Tensor, table: Tensor | None, what: str) -> None:
    # On an accelerator it would wait for the numbers, and the gathering refuses them there.
    if table is None or numbers.device.type != "cpu" or not numbers.numel() or torch.compiler.is_compiling():
        return
    least, most = (int(n) for n in torch.aminmax(numbers))
    if least < 0 or most >= len(table):
        raise IndexError(f"a {what} is {least if least < 0 else most}, and there are rows 0 to {len(table) - 1}")


def _compiled_serves(nodes: Tensor, relation: Tensor | None) -> bool:
    return (
        nodes.device.type == "cpu"
        and nodes.dtype in (torch.float32, torch.float64)
        and nodes.is_contiguous()
        and (relation is None or relation.dtype == nodes.dtype)
        and has_numba()
        and not torch.compiler.is_compiling()
    )


def _wide(x: Tensor) -> Tensor:
    """At least fp32: products of half-precision vectors are summed in fp32."""
    return x if x.dtype == torch.float64 else x.float()


class _LinkScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, nodes: Tensor, relation: Tensor | None, heads: Tensor, relations: Tensor, tails: Tensor
    ) -> Tensor:
        from graphmill.kernels import link_scores_numba

        ctx.nodes = nodes if ctx.needs_input_grad[0] else None
        ctx.save_for_backward(nodes, relation, heads, relations, tails)
        return link_scores_numba.forward(nodes, relation, heads, relations, tails)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from graphmill.kernels import link_scores_numba

        nodes, relation, heads, relations, tails = ctx.saved_tensors
        own = None if ctx.nodes is None else gradient_of_table(ctx.nodes)
        into = None if ctx.nodes is None else ctx.nodes.grad if own is None else own
        of_relation = torch.zeros_like(relation) if relation is not None and ctx.needs_input_grad[1] else None
        link_scores_numba.backward(nodes, relation, heads, relations, tails, gradient, into, of_relation)
        return own, of_relation, None, None, None
