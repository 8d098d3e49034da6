"""The sums of a layer's messages (DistMult's, Yang et al. 2015: products of entries), without a row per edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.devices import suits_compiled, to_device, wide
from graphmill.kernels.frontier.arrays import Layer
from graphmill.kernels.runtime.threads import has_numba
from graphmill.kernels.table_rows import table_rows


def message_sums(layer: Layer, x: Tensor, w: Tensor, weight: Tensor | None = None) -> Tensor:
    """Σ weight · w[relation] · x[source] over the edges into each row → [n, d] in the dtype of ``x``, sums in fp32.

    ``x`` [rows one layer before, d]; ``w`` [relations, d]; ``weight`` [E]: instead of the layer's, with a gradient.
    """
    vectors, factors = wide(x).contiguous(), wide(w).contiguous()
    if weight is None and suits_compiled(vectors, factors) and has_numba():
        out: Tensor = _MessageSums.apply(vectors, factors, layer)
        return out.to(x.dtype)
    source, target, relation = (_on(x, numbers).long() for numbers in (layer.source, layer.target, layer.relation))
    weights = (_on(x, layer.weight) if weight is None else weight).to(vectors.dtype)
    messages = table_rows(vectors, source) * table_rows(factors, relation) * weights[:, None]
    return vectors.new_zeros(len(layer.node), x.shape[1]).index_add(0, target, messages).to(x.dtype)


def _on(like: Tensor, array: np.ndarray) -> Tensor:
    return to_device(torch.from_numpy(array), like.device)


class _MessageSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, layer: Layer) -> Tensor:
        from graphmill.kernels.frontier import cpu

        out = x.new_zeros(len(layer.node), x.shape[1])
        cpu.sums(layer, x, w, out)
        ctx.save_for_backward(x, w)
        ctx.layer = layer
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor, Tensor, None]:
        from graphmill.kernels.frontier import cpu

        x, w = ctx.saved_tensors
        to_x, to_w = torch.zeros_like(x), torch.zeros_like(w)
        cpu.gradients(ctx.layer, x, w, given[0].contiguous(), to_x, to_w)
        return to_x, to_w, None
