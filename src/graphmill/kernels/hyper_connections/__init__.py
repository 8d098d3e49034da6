"""Mixing of residual streams (hyper-connections): what a layer reads, and what it writes back.

    u = RMSNorm(vec X) Φ          x̄ = Σ_s h_s X_s          X' = H X + p ⊗ y

:func:`project_streams`, :func:`read_streams` and :func:`write_streams` are these in plain torch, for every device. On the
CPU :func:`connect` is a whole connection, maps included, compiled (``cpu.connection``): the streams are by far the
largest tensors of a step, and each of its passes takes them block by block, so that they come from memory once a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.runtime.threads import has_numba


def project_streams(streams: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm(vec X) Φ, with the scale applied after the product: [N, n, C], [n · C, m] → [N, m].

    vec X · Φ / √(mean(vec X²) + eps) equals normalising first, and reads the streams once less.
    """
    flat = streams.flatten(1)
    scale = torch.rsqrt(flat.square().mean(1, keepdim=True) + eps)
    return (flat @ weight) * scale


def read_streams(streams: Tensor, weights: Tensor) -> Tensor:
    """``streams`` [N, n, C] and ``weights`` [N, n] → [N, C], the weighted sum."""
    return torch.bmm(weights.to(streams.dtype)[:, None, :], streams).squeeze(1)


def write_streams(streams: Tensor, mixing: Tensor, weights: Tensor, update: Tensor) -> Tensor:
    """H X + p ⊗ y: ``mixing`` [N, n, n], ``weights`` [N, n], ``update`` [N, C] → [N, n, C]."""
    mixed = torch.bmm(mixing.to(streams.dtype), streams)
    return torch.addcmul(mixed, weights.to(mixed.dtype)[:, :, None], update.to(mixed.dtype)[:, None, :])


def expand_streams(x: Tensor, streams: int) -> Tensor:
    """[R, n, C], or [R, 1, C] where all streams are the same → [R, n, C]."""
    return x if x.shape[1] == streams else x.expand(-1, streams, -1).contiguous()


def reduce_streams(x: Tensor) -> Tensor:
    """[R, n, C] → [R, C]: the mean over streams."""
    if _compiled(x):
        found: Tensor = _Reduce.apply(x.contiguous())
        return found
    # Divided after the sum: the gradient is then divided while it is [R, C].
    return x.sum(dim=1) / x.shape[1]


def connect(
    streams: Tensor,
    phi: Tensor,
    alpha: Tensor,
    biases: Sequence[Tensor],
    iterations: int,
    eps: float,
    branch: Callable[[Tensor], Tensor],
) -> Tensor:
    """H X + p ⊗ branch(Σ_s h_s X_s), where :func:`connect_serves`: streams X [R, n, C] → the same.

    Where all streams are the same, one does: [R, 1, C] → [R, n, C].

    With u = RMSNorm(vec X) Φ [R, 2 n + m], split in n, n and m columns:

        h = σ(α₀ u₀ + b₀)          p = 2 σ(α₁ u₁ + b₁)          H = D(α₂ u₂ + b₂)

    ``phi`` [n · C, 2 n + m], ``alpha`` [3], ``biases`` [n], [n] and [m]. D is ``sinkhorn`` with so many ``iterations`` and
    m = n², or, with none, ``permutation_mixture`` with m = n!. All of one dtype, fp32 or float64.
    """
    read, p, mixing, streams = _Enter.apply(streams.contiguous(), phi, alpha, *biases, iterations, eps)
    update = branch(read)
    found: Tensor = _Leave.apply(streams, mixing, p, update.to(streams.dtype).contiguous())
    return found


def connect_serves(streams: Tensor, phi: Tensor) -> bool:
    """Whether :func:`connect` is for these: whole precisions on the CPU; torch.compile and autocast have the plain form."""
    return _compiled(streams) and phi.dtype == streams.dtype and not torch.is_autocast_enabled("cpu")


def _compiled(x: Tensor) -> bool:
    plain = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    return plain and has_numba() and not torch.compiler.is_compiling()


def _dense(streams: Tensor) -> Tensor:
    """Streams or their gradient [R, n, C], contiguous: [R, 1, C] where one stands for all."""
    return (streams[:, :1] if streams.stride(1) == 0 else streams).contiguous()


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        from graphmill.kernels.hyper_connections.cpu import connection as kernels

        ctx.streams = x.shape[1]
        return kernels.add_streams(x, 1.0 / x.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return (gradients[0] / ctx.streams)[:, None, :].expand(-1, ctx.streams, -1)


class _Enter(torch.autograd.Function):
    """x̄, p, H and the streams themselves, which stand for H X: :class:`_Leave` computes that, in the pass that adds p ⊗ y.

    So the gradient that arrives for the streams is that of H X, which is the gradient of X' itself. Backward reads it and
    the streams once, and the gradients of H and X are made of both together.
    """

    @staticmethod
    def forward(
        ctx: Any,
        streams: Tensor,
        phi: Tensor,
        alpha: Tensor,
        bias_pre: Tensor,
        bias_post: Tensor,
        bias_res: Tensor,
        iterations: int,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        from graphmill.kernels.hyper_connections.cpu import connection as kernels

        bias = torch.cat((bias_pre, bias_post, bias_res))
        read, kept = kernels.enter(streams, phi, alpha, bias, iterations, eps)
        ctx.save_for_backward(streams, phi, alpha, bias, *kept)
        ctx.iterations = iterations
        ctx.mark_non_differentiable(kept.mixing)
        return read, kept.p, kept.mixing, streams.expand(-1, len(bias_pre), -1)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, into_read: Tensor, into_p: Tensor, _: Tensor, into_mixed: Tensor
    ) -> tuple[Tensor | None, ...]:
        from graphmill.kernels.hyper_connections.cpu import connection as kernels

        streams, phi, alpha, bias, *kept = ctx.saved_tensors
        into_streams, into_phi, into_alpha, into_bias = kernels.enter_gradients(
            streams, phi, alpha, bias, ctx.iterations, kernels.Kept(*kept),
            into_read.contiguous(), into_p.contiguous(), _dense(into_mixed),
        )  # fmt: skip
        n = into_p.shape[1]
        return into_streams, into_phi, into_alpha, *into_bias.split([n, n, len(bias) - 2 * n]), None, None


class _Leave(torch.autograd.Function):
    """H X + p ⊗ y. The gradient goes on as that of H X: H's and X's own are :class:`_Enter`'s to make."""

    @staticmethod
    def forward(ctx: Any, streams: Tensor, mixing: Tensor, p: Tensor, update: Tensor) -> Tensor:
        from graphmill.kernels.hyper_connections.cpu import connection as kernels

        ctx.save_for_backward(p, update)
        return kernels.leave(_dense(streams), mixing, p, update)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from graphmill.kernels.hyper_connections.cpu import connection as kernels

        p, update = ctx.saved_tensors
        return gradients[0], None, *kernels.leave_gradients(p, update, _dense(gradients[0]))
