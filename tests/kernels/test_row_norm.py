"""Rows divided by their norm: values and gradients are those of the formula."""

from __future__ import annotations

import pytest
import torch

from graphmill.kernels.row_norm import normalise_rows


def rows() -> torch.Tensor:
    x = torch.randn(9, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    x[4] = 0.0
    x[5] *= 1e-14  # below the smallest divisor
    x[6] *= 1e8
    return x


def test_values_and_gradients_are_the_formulas() -> None:
    x, weight = rows().requires_grad_(), torch.randn(9, 5, dtype=torch.float64)
    y = normalise_rows(x)
    (y * weight).sum().backward()
    assert x.grad is not None
    divisor = x.detach().norm(dim=1, keepdim=True).clamp(min=1e-12)
    torch.testing.assert_close(y, x.detach() / divisor, rtol=1e-14, atol=1e-14)
    wanted = (weight - y * (weight * y).sum(1, keepdim=True)).detach() / divisor
    wanted[[4, 5]] = weight[[4, 5]] / 1e-12  # the divisor is the constant
    torch.testing.assert_close(x.grad, wanted, rtol=1e-10, atol=1e-13)


def test_gradcheck() -> None:
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(normalise_rows, (x,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norms_of_half_precision_rows_are_taken_in_fp32(dtype: torch.dtype) -> None:
    x = torch.full((1, 4096), 30.0, dtype=dtype)  # the sum of its squares, 3.7 million, is above what fp16 can hold
    y = normalise_rows(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y.float(), torch.full((1, 4096), 1 / 64.0), rtol=1e-2, atol=0)


def test_a_row_with_nan_becomes_nan_as_a_whole() -> None:
    x = torch.tensor([[float("nan"), 1.0, 2.0], [3.0, 0.0, 4.0]])
    y = normalise_rows(x)
    assert torch.isnan(y[0]).all()
    torch.testing.assert_close(y[1], torch.tensor([0.6, 0.0, 0.8]))
