"""The ranking loss of the recommenders: golden values, extreme scores and half precision."""

from __future__ import annotations

import pytest
import torch

from graphmill.kernels.losses import bpr_losses, half_squares, row_dots


@pytest.mark.parametrize(
    ("gap", "value"), [(-20.0, 20.000000002), (-5.0, 5.0067153485), (0.0, 0.6931471806), (5.0, 0.0067153485)]
)
def test_golden_values(gap: float, value: float) -> None:
    positive = torch.tensor([1.0 + gap], dtype=torch.float64)
    assert float(bpr_losses(positive, torch.ones(1, dtype=torch.float64))) == pytest.approx(value, abs=1e-9)


def test_it_is_finite_with_a_gradient_of_minus_one_at_extreme_scores() -> None:
    gap = torch.tensor([-1e4, -200.0, 200.0, 1e4], requires_grad=True)
    losses = bpr_losses(gap, torch.zeros(4))
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    torch.testing.assert_close(gap.grad, torch.tensor([-1.0, -1.0, 0.0, 0.0]))


def test_half_precision_is_computed_in_fp32() -> None:
    half = torch.tensor([-20.0], dtype=torch.float16)  # where the sigmoid is 0, and its logarithm infinite
    assert bpr_losses(half, torch.zeros(1, dtype=torch.float16)).dtype == torch.float32
    assert float(bpr_losses(half, torch.zeros(1, dtype=torch.float16))) == pytest.approx(20.0)


def test_close_scores_in_half_precision_are_told_apart_by_scalar_products_in_fp32() -> None:
    left = torch.full((1, 64), 1.0, dtype=torch.bfloat16)
    right = torch.full((1, 64), 1.0, dtype=torch.bfloat16)
    right[0, 0] = 0.9921875
    assert float(row_dots(left, right)) == pytest.approx(63.9921875)


def test_half_squares() -> None:
    assert float(half_squares(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [0.0]]))) == 7.0
