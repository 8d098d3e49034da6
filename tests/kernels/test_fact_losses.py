"""TransR's losses and norms: values and gradients are the formulas'."""

from __future__ import annotations

import pytest
import torch

from graphmill.kernels.losses import fact_losses


def problem(facts: int, width: int, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(facts, 3, width, dtype=torch.float64, generator=generator) * scale
    translations = torch.randn(4, width, dtype=torch.float64, generator=generator)
    relations = torch.randint(0, 3, (facts,), generator=generator).sort().values  # of the last relation there is none
    return rows.requires_grad_(), translations.requires_grad_(), relations


@pytest.mark.parametrize(("facts", "width"), [(0, 3), (1, 1), (300, 33)])
def test_values_and_gradients_are_the_formulas(facts: int, width: int) -> None:
    rows, translations, relations = problem(facts, width, 0.3)
    loss, norm = fact_losses(rows, translations, relations)
    moved = rows[:, 0] + translations[relations]
    gap = (moved - rows[:, 1]).square().sum(1) - (moved - rows[:, 2]).square().sum(1)
    wanted = torch.logaddexp(torch.zeros_like(gap), gap).sum()  # softplus of torch is linear from 20 on
    squares = rows.square().sum() + translations[relations].square().sum()
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(norm, squares / 2)
    mine = torch.autograd.grad(3.0 * loss + 0.25 * norm, (rows, translations))
    theirs = torch.autograd.grad(3.0 * wanted + 0.25 * squares / 2, (rows, translations))
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-8)


def test_one_of_the_two_sums_alone() -> None:
    rows, translations, relations = problem(5, 3)
    for place in (0, 1):
        assert torch.autograd.gradcheck(
            lambda r, t, place=place: fact_losses(r, t, relations)[place], (rows, translations)
        )


def test_distant_rows_stay_finite() -> None:
    rows, translations, relations = problem(6, 4, scale=1e4)
    loss, _ = fact_losses(rows.float(), translations.float(), relations)
    loss.backward()
    assert torch.isfinite(loss)
    assert rows.grad is not None
    assert torch.isfinite(rows.grad).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_fp32(dtype: torch.dtype) -> None:
    rows, translations, relations = problem(20, 8, 0.3)
    low = fact_losses(rows.to(dtype), translations.to(dtype), relations)
    assert all(t.dtype == torch.float32 for t in low)
    for mine, exact in zip(low, fact_losses(rows, translations, relations), strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("number", [-1, 4])
def test_a_relation_that_is_none_of_them_is_refused(number: int) -> None:
    rows, translations, relations = problem(5, 3)
    relations[2] = number
    with pytest.raises(IndexError):
        fact_losses(rows, translations, relations)


def test_shapes_that_do_not_fit_are_refused() -> None:
    rows, translations, relations = problem(5, 3)
    with pytest.raises((ValueError, RuntimeError)):
        fact_losses(rows, translations, relations[:3])
    with pytest.raises((ValueError, RuntimeError)):
        fact_losses(rows, translations[:, :2], relations)
