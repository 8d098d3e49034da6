"""Mixing of residual streams (hyper-connections): what a layer reads, and what it writes back. Per row, no parameters.

    u = RMSNorm(vec X) Φ          x̄ = Σ_s h_s X_s          X' = H X + p ⊗ y

The first two hand the streams on as well, for the next one to take: so every gradient of the streams is added in place into
the one that arrives, and its parts are never there at once. On the CPU the passes are compiled
(``hyper_connections_numba``); the plain form is in ``hyper_connections_reference``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.threads import has_numba


def project_streams(streams: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """RMSNorm(vec X) Φ, with the scale applied after the product: [N, n, C], [n · C, m] → [N, m], and the streams.

    vec X · Φ / √(mean(vec X²) + eps) equals normalising first, and reads the streams once less.
    """
    if _compiled(streams, weight):
        found: tuple[Tensor, Tensor] = _Project.apply(streams.contiguous(), weight, eps)
        return found
    flat = streams.flatten(1)
    scale = torch.rsqrt(flat.square().mean(1, keepdim=True) + eps)
    return (flat @ weight) * scale, streams


def read_streams(streams: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """``streams`` [N, n, C] and ``weights`` [N, n] → [N, C], the weighted sum, and the streams."""
    if _compiled(streams, weights):
        found: tuple[Tensor, Tensor] = _Read.apply(streams.contiguous(), weights.contiguous())
        return found
    return torch.bmm(weights.to(streams.dtype)[:, None, :], streams).squeeze(1), streams


def write_streams(streams: Tensor, mixing: Tensor, weights: Tensor, update: Tensor) -> Tensor:
    """H X + p ⊗ y: ``mixing`` [N, n, n], ``weights`` [N, n], ``update`` [N, C] → [N, n, C]."""
    if _compiled(streams, mixing, weights, update):
        found: Tensor = _Write.apply(*(t.contiguous() for t in (streams, mixing, weights, update)))
        return found
    mixed = torch.bmm(mixing.to(streams.dtype), streams)
    return torch.addcmul(mixed, weights.to(mixed.dtype)[:, :, None], update.to(mixed.dtype)[:, None, :])


def _compiled(*tensors: Tensor) -> bool:
    first = tensors[0]
    plain = first.device.type == "cpu" and first.dtype in (torch.float32, torch.float64)
    same = all(t.dtype == first.dtype for t in tensors)
    return plain and same and has_numba() and not torch.compiler.is_compiling()


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, streams: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        from graphmill.kernels import hyper_connections_numba as kernels

        scale = torch.rsqrt(kernels.squares(streams) / streams[0].numel() + eps) if len(streams) else streams[:, 0, 0]
        projected = (streams.flatten(1) @ weight).mul_(scale[:, None])
        ctx.save_for_backward(streams, weight, scale, projected)
        return projected, streams.view_as(streams)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, through: Tensor) -> tuple[Tensor | None, ...]:
        from graphmill.kernels import hyper_connections_numba as kernels

        streams, weight, scale, projected = ctx.saved_tensors
        into_product = gradient * scale[:, None]
        into_weight = streams.flatten(1).T @ into_product
        through = through.contiguous()
        through.flatten(1).addmm_(into_product, weight.T)
        # The scale is (mean of squares + ε)^(-1/2), and the product is projected / scale.
        factor = (gradient * projected).sum(1).mul_(scale * scale).div_(-max(weight.shape[0], 1))
        kernels.add_scaled_(through, streams, factor)
        return through, into_weight, None


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, streams: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        from graphmill.kernels import hyper_connections_numba as kernels

        ctx.save_for_backward(streams, weights)
        return kernels.read(streams, weights), streams.view_as(streams)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, through: Tensor) -> tuple[Tensor, Tensor]:
        from graphmill.kernels import hyper_connections_numba as kernels

        streams, weights = ctx.saved_tensors
        through = through.contiguous()
        into_weights = kernels.read_gradients_(streams, weights, gradient.contiguous(), through)
        return through, into_weights


class _Write(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, streams: Tensor, mixing: Tensor, weights: Tensor, update: Tensor) -> Tensor:
        from graphmill.kernels import hyper_connections_numba as kernels

        ctx.save_for_backward(streams, mixing, weights, update)
        return kernels.write(streams, mixing, weights, update)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        from graphmill.kernels import hyper_connections_numba as kernels

        streams, mixing, weights, update = ctx.saved_tensors
        return kernels.write_gradients(streams, mixing, weights, update, gradient.contiguous())
