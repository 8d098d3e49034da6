"""A transformer's sub-layers with what stands around them: dropout, residual, LayerNorm (Vaswani et al. 2017, 3.1).

    self_attention      LN(x + W attention(z) + b)
    attention_output    LN(x + W a + b): the end of it, for another kind of attention
    feed_forward        LN(x + dropout(W₂ dropout(relu(W₁ z + b₁)) + b₂))

with z = LN(x) or x, each with or without its residual and its norms. Between two matrix products torch walks over the rows
five to eight times, and autograd keeps a table for each of these operations. Compiled (``sublayers.cpu``), bias, dropout,
residual and norm are one pass over the product, in place, and one pass back, which adds up the gradients of biases, γ and β
on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.dropout import add_dropout, draw_key, dropout, relu_dropout
from graphmill.kernels.layer_norm import LayerNorm
from graphmill.kernels.products import add_product_, linear, product
from graphmill.kernels.runtime.threads import has_numba
from graphmill.kernels.sequence_attention import Bucket, causal_attention, compiled

Linear = tuple[Tensor, Tensor]
"""Weight [out, in] and bias [out]."""


@dataclass(frozen=True)
class CausalAttention:
    """:func:`causal_attention` of some buckets."""

    buckets: Sequence[Bucket]
    heads: int
    p: float
    training: bool

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """[R, d] each → [R, d]."""
        return causal_attention(query, key, value, self.buckets, self.heads, self.p, self.training)

    def plan(self) -> Any:
        """Where the compiled kernel finds the sequences."""
        from graphmill.kernels.sequence_attention import cpu as sequence_attention_cpu

        return sequence_attention_cpu.plan(tuple(self.buckets), self.heads)


def self_attention(
    x: Tensor,
    projections: Linear,
    output: Linear,
    attention: CausalAttention,
    *,
    residual: bool,
    before: LayerNorm | None = None,
    after: LayerNorm | None = None,
) -> Tensor:
    """[R, d] → [R, d]: W attention(Q, K, V) + b, Q, K and V being z times ``projections`` ([3 · d, d] and [3 · d]).

    z = ``before`` (x) or x. ``residual``: x is added; ``after`` is the norm of the sum.
    """
    if not (_compiled_serves(x) and compiled(x, attention.buckets)):
        z = x if before is None else before(x)
        attended = attention(*linear(z, *projections).split(x.shape[1], dim=1))
        out = linear(attended, *output)
        out = x + out if residual else out
        return out if after is None else after(out)
    p = attention.p if attention.training else 0.0
    keys = [draw_key() for _ in attention.buckets] if p > 0.0 else []
    found: Tensor = _SelfAttention.apply(
        x.contiguous(), *projections, *output, *_parameters(before), *_parameters(after), residual,
        attention.plan(), attention.heads, p, keys, torch.is_grad_enabled(),
    )  # fmt: skip
    return found


def attention_output(x: Tensor, attended: Tensor, output: Linear, norm: LayerNorm | None) -> Tensor:
    """LN(``x`` + ``attended`` Wᵀ + b), without LN where there is no ``norm``. [R, d] each → [R, d]."""
    if not _compiled_serves(x, attended):
        out = x + linear(attended, *output)
        return out if norm is None else norm(out)
    found: Tensor = _AttentionOutput.apply(x.contiguous(), attended.contiguous(), *output, *_parameters(norm))
    return found


def feed_forward(
    x: Tensor,
    first: Linear,
    second: Linear,
    p: float,
    training: bool,
    *,
    residual: bool,
    before: LayerNorm | None = None,
    after: LayerNorm | None = None,
) -> Tensor:
    """[R, d] → [R, d]: dropout(W₂ dropout(relu(W₁ z + b₁)) + b₂), z = ``before`` (x) or x; ``after`` (x + that).

    ``residual``: whether x is added. ``p``: both dropouts' rate.
    """
    if not _compiled_serves(x):
        z = x if before is None else before(x)
        branch = linear(relu_dropout(linear(z, *first), p, training), *second)
        out = add_dropout(x, branch, p, training) if residual else dropout(branch, p, training)
        return out if after is None else after(out)
    p = p if training else 0.0
    keys = (draw_key(), draw_key()) if p > 0.0 else ((0, 0), (0, 0))
    out = _FeedForward.apply(
        x.contiguous(), *first, *second, *_parameters(before), *_parameters(after), residual, p, keys
    )
    return out


def _compiled_serves(*tensors: Tensor) -> bool:
    """The compiled form is for whole precisions on the CPU; torch.compile and autocast have the plain one."""
    first = tensors[0]
    return (
        first.device.type == "cpu"
        and first.dtype in (torch.float32, torch.float64)
        and all(t.dtype == first.dtype for t in tensors)
        and first.numel() > 0
        and has_numba()
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
    )


def _parameters(norm: LayerNorm | None) -> tuple[Tensor | None, Tensor | None, float]:
    return (None, None, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)


class _SelfAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        (
            x, weight, bias, output_weight, output_bias, gamma_before, beta_before, eps_before, gamma, beta, eps,
            residual, where, heads, p, keys, keep
        ) = given  # fmt: skip
        from graphmill.kernels.layer_norm import cpu as layer_norm_cpu
        from graphmill.kernels.sequence_attention import cpu as sequence_attention_cpu
        from graphmill.kernels.sublayers import cpu as kernels

        normed, known = x, None
        if gamma_before is not None:
            assert beta_before is not None
            normed, known = layer_norm_cpu.forward(x, gamma_before, beta_before, eps_before)
        projected = product(normed, weight.T, bias)
        query, key, value = projected.split(x.shape[1], dim=1)
        attended, shares = sequence_attention_cpu.forward(query, key, value, where, heads, p, keys, None, keep)
        total = product(attended, output_weight.T)
        out, statistics = kernels.finish_(total, output_bias, x if residual else None, gamma, beta, eps)
        ctx.save_for_backward(
            None if known is None else x, normed, known, gamma_before, weight, projected, attended, shares, output_weight,
            None if gamma is None else total, gamma, statistics,
        )  # fmt: skip
        ctx.rest = residual, where, heads, p, keys
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from graphmill.kernels.sequence_attention import cpu as sequence_attention_cpu
        from graphmill.kernels.sublayers import cpu as kernels

        (x, normed, known, gamma_before, weight, projected, attended, shares, output_weight, total, gamma,
         statistics) = ctx.saved_tensors  # fmt: skip
        residual, where, heads, p, keys = ctx.rest
        found = kernels.unfinish(gradient.contiguous(), total, gamma, statistics)
        into_output = product(found.branch.T, attended)
        query, key, value = projected.split(normed.shape[1], dim=1)
        into_attended = product(found.branch, output_weight)
        packed, into_bias, _, _ = sequence_attention_cpu.backward(
            query, key, value, into_attended, shares, where, heads, p, keys, None
        )
        into_x, into_gamma, into_beta = _through_projection(
            packed, weight, x, known, gamma_before, found.total if residual else None, gamma is not None
        )
        return (
            into_x, product(packed.T, normed), into_bias, into_output, found.bias, into_gamma, into_beta, None, found.gamma,
            found.beta, None, None, None, None, None, None, None,
        )  # fmt: skip


def _through_projection(
    gradient: Tensor,
    weight: Tensor,
    x: Tensor | None,
    statistics: Tensor | None,
    gamma: Tensor | None,
    around: Tensor | None,
    own: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The gradient of what a sub-layer starts from, through its first product and the norm before that, if any.

    ``around``: what reaches it by the residual, and may be written to if it is our ``own``. Also the norm's γ and β's.
    """
    from graphmill.kernels.layer_norm import cpu as layer_norm_cpu

    if statistics is None:
        if around is None:
            return product(gradient, weight), None, None
        found = add_product_(around if own else around.clone(), gradient, weight)
        return found, None, None
    assert x is not None
    assert gamma is not None
    return layer_norm_cpu.backward(product(gradient, weight), x, gamma, statistics, around)


class _AttentionOutput(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        attended: Tensor,
        weight: Tensor,
        bias: Tensor,
        gamma: Tensor | None,
        beta: Tensor | None,
        eps: float,
    ) -> Tensor:
        from graphmill.kernels.sublayers import cpu as kernels

        total = product(attended, weight.T)
        out, statistics = kernels.finish_(total, bias, x, gamma, beta, eps)
        ctx.save_for_backward(attended, weight, gamma, None if gamma is None else total, statistics)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from graphmill.kernels.sublayers import cpu as kernels

        attended, weight, gamma, total, statistics = ctx.saved_tensors
        found = kernels.unfinish(gradient.contiguous(), total, gamma, statistics)
        into_weight = product(found.branch.T, attended)
        return found.total, product(found.branch, weight), into_weight, found.bias, found.gamma, found.beta, None


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        (
            x, first_weight, first_bias, second_weight, second_bias, gamma_before, beta_before, eps_before, gamma, beta,
            eps, residual, p, keys
        ) = given  # fmt: skip
        from graphmill.kernels.layer_norm import cpu as layer_norm_cpu
        from graphmill.kernels.sublayers import cpu as kernels

        normed, known = x, None
        if gamma_before is not None:
            assert beta_before is not None
            normed, known = layer_norm_cpu.forward(x, gamma_before, beta_before, eps_before)
        inner = product(normed, first_weight.T)
        kernels.relu_(inner, first_bias, p, keys[0])
        total = product(inner, second_weight.T)
        out, statistics = kernels.finish_(total, second_bias, x if residual else None, gamma, beta, eps, p, keys[1])
        ctx.save_for_backward(
            x if known is not None else None, normed, known, gamma_before, first_weight, inner, second_weight,
            total if gamma is not None else None, gamma, statistics,
        )  # fmt: skip
        ctx.rest = residual, p, keys[1]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from graphmill.kernels.sublayers import cpu as kernels

        x, normed, known, gamma_before, first_weight, inner, second_weight, total, gamma, statistics = ctx.saved_tensors
        residual, p, key = ctx.rest
        found = kernels.unfinish(gradient.contiguous(), total, gamma, statistics, p, key)
        into_second = product(found.branch.T, inner)
        into_inner = product(found.branch, second_weight)
        into_first_bias = kernels.relu_gradient_(into_inner, inner, p)
        into_first = product(into_inner.T, normed)
        into_x, into_gamma, into_beta = _through_projection(
            into_inner, first_weight, x, known, gamma_before, found.total if residual else None, gamma is not None
        )
        return (
            into_x, into_first, into_first_bias, into_second, found.bias, into_gamma, into_beta, None, found.gamma,
            found.beta, None, None, None, None,
        )  # fmt: skip
