"""gelu_linear equals torch's gelu and linear, values and gradients, and keeps no second array."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from graphmill.kernels.products import gelu_linear


def test_it_equals_gelu_then_linear() -> None:
    torch.manual_seed(0)
    leaves = [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((7, 5), (3, 5), (3,))]
    ours, theirs = gelu_linear(*leaves), F.linear(F.gelu(leaves[0]), *leaves[1:])
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    d = torch.randn_like(ours)
    pairs = zip(torch.autograd.grad(ours, leaves, d), torch.autograd.grad(theirs, leaves, d), strict=True)
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_only_the_input_and_the_weight_are_kept() -> None:
    kept: list[torch.Size] = []

    def note(x: torch.Tensor) -> torch.Tensor:
        kept.append(x.shape)
        return x

    x, weight, bias = torch.randn(7, 5, requires_grad=True), torch.randn(3, 5, requires_grad=True), torch.zeros(3)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        gelu_linear(x, weight, bias)
    assert kept == [x.shape, weight.shape]


def test_in_bfloat16_it_stays_in_bfloat16() -> None:
    x, weight = torch.randn(4, 5).bfloat16().requires_grad_(), torch.randn(3, 5, requires_grad=True)
    y = gelu_linear(x, weight, torch.zeros(3))
    y.float().sum().backward()
    assert y.dtype == x.grad.dtype == torch.bfloat16
    assert weight.grad.dtype == torch.float32
