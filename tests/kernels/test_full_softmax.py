"""Losses against all rows of a table: torch's cross-entropies in value and gradients, for any blocks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.full_softmax import BLOCK_BYTES, Ragged, full_logistic_sum, full_softmax_sum, states_per_block


def reference(
    states: Tensor, table: Tensor, target: Tensor, rows: Tensor | None, bias: Tensor | None, smoothing: float = 0.0
) -> Tensor:
    scores = states @ table.T if bias is None else states @ table.T + bias
    scores = scores if rows is None else scores[rows]
    return F.cross_entropy(scores, target, reduction="sum", label_smoothing=smoothing)


def problem(states: int, table: int, width: int, pairs: int, seed: int, *, dtype: torch.dtype = torch.float64):
    """States, table, bias, targets and rows: distinct pairs in the order of their rows."""
    g = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(states * table, generator=g)[:pairs].sort().values
    made = (torch.randn(*size, generator=g, dtype=dtype) for size in ((states, width), (table, width), (table,)))
    return *(x.requires_grad_() for x in made), chosen % table, chosen // table


def ragged(rows: Tensor, states: int) -> Ragged:
    return Ragged(rows, np.searchsorted(rows.numpy(), np.arange(states + 1)))


@given(
    st.integers(1, 6), st.integers(1, 9), st.integers(1, 4), st.floats(0, 1), st.integers(1, 8), st.booleans(),
    st.sampled_from([0.0, 0.1]), st.integers(0, 999),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_any_number_of_targets_of_a_state_in_any_blocks(
    states, table, width, share, parts, biased, smoothing, seed
) -> None:
    x, e, b, target, rows = problem(states, table, width, int(share * states * table), seed)
    variables = (x, e, b) if biased else (x, e)
    mine = full_softmax_sum(x, e, target, ragged(rows, states), b if biased else None, smoothing=smoothing, parts=parts)
    theirs = reference(x, e, target, rows, b if biased else None, smoothing)
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    pairs = (torch.autograd.grad(3 * loss, variables, allow_unused=True) for loss in (mine, theirs))
    for grad, plain in zip(*pairs, strict=True):
        torch.testing.assert_close(grad, torch.zeros_like(grad) if plain is None else plain, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("parts", [1, 3, 100])
def test_one_target_of_each_state(parts: int) -> None:
    x, e, _, _, _ = problem(9, 13, 5, 0, 1)
    target = torch.arange(9) % 13
    mine, theirs = full_softmax_sum(x, e, target, parts=parts), reference(x, e, target, None, None)
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)
    for grad, plain in zip(torch.autograd.grad(mine, (x, e)), torch.autograd.grad(theirs, (x, e)), strict=True):
        torch.testing.assert_close(grad, plain, rtol=1e-10, atol=1e-12)


def test_no_gradient_is_needed_to_evaluate_it() -> None:
    x, e, b, target, rows = problem(4, 7, 3, 9, 2)
    with torch.no_grad():
        got = full_softmax_sum(x, e, target, ragged(rows, 4), b)
    torch.testing.assert_close(got, reference(x, e, target, rows, b).detach())


def test_only_the_gradients_asked_for_are_made() -> None:
    x, e, b, target, rows = problem(4, 7, 3, 9, 3)
    mine = full_softmax_sum(x.detach(), e, target, ragged(rows, 4), b.detach())
    plain = reference(x, e, target, rows, b)
    torch.testing.assert_close(torch.autograd.grad(mine, e)[0], torch.autograd.grad(plain, e)[0])


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_sums_and_gradients_in_fp32(low: torch.dtype) -> None:
    x, e, b, target, rows = problem(32, 700, 24, 200, 4, dtype=torch.float32)
    with torch.autocast("cpu", dtype=low):
        mine = full_softmax_sum(x, e, target, ragged(rows, 32), b, parts=3)
    theirs = reference(x, e, target, rows, b)
    assert mine.dtype == torch.float32
    assert mine.item() == pytest.approx(theirs.item(), rel=5e-3)
    for grad, plain in zip(torch.autograd.grad(mine, (x, e, b)), torch.autograd.grad(theirs, (x, e, b)), strict=True):
        assert grad.dtype == torch.float32
        assert float((grad - plain).norm() / plain.norm()) < 2e-2


def test_it_is_finite_for_any_finite_score() -> None:
    far = torch.tensor([[1e4], [-1e4]])
    assert torch.isfinite(full_softmax_sum(far, torch.tensor([[1e3], [-1e3]]), torch.tensor([0, 1])))


def logistic(x: Tensor, e: Tensor, b: Tensor | None, target: Tensor, rows: Tensor, parts: int = 1) -> Tensor:
    return full_logistic_sum(x, e, target, ragged(rows, len(x)), b, one=0.9, zero=0.01, parts=parts)


def dense_logistic(x: Tensor, e: Tensor, b: Tensor | None, target: Tensor, rows: Tensor) -> Tensor:
    scores = x @ e.T if b is None else x @ e.T + b
    wanted = torch.full_like(scores, 0.01)
    wanted[rows, target] = 0.9
    return F.binary_cross_entropy_with_logits(scores, wanted, reduction="sum")


@given(
    st.integers(1, 6), st.integers(1, 9), st.integers(1, 4), st.floats(0, 1), st.integers(1, 8), st.booleans(),
    st.integers(0, 999),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_the_logistic_loss_of_all_pairs_in_any_blocks(states, table, width, share, parts, biased, seed) -> None:
    x, e, b, target, rows = problem(states, table, width, int(share * states * table), seed)
    variables, bias = ((x, e, b), b) if biased else ((x, e), None)
    mine, theirs = logistic(x, e, bias, target, rows, parts), dense_logistic(x, e, bias, target, rows)
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    pairs = (torch.autograd.grad(3 * loss, variables) for loss in (mine, theirs))
    for grad, plain in zip(*pairs, strict=True):
        torch.testing.assert_close(grad, plain, rtol=1e-9, atol=1e-10)


def test_golden_three_logits_with_uniform_smoothing() -> None:
    x = torch.ones(1, 1, dtype=torch.float64)
    e = torch.tensor([[2.0], [-1.0], [0.5]], dtype=torch.float64)
    loss = full_logistic_sum(x, e, torch.tensor([0]), one=0.9 + 0.1 / 3, zero=0.1 / 3)
    assert float(loss) / 3 == pytest.approx(0.5214222276, abs=1e-10)


def test_the_logistic_loss_is_finite_for_any_finite_score() -> None:
    e = torch.tensor([[500.0], [-500.0]])
    assert float(full_logistic_sum(torch.ones(1, 1), e, torch.tensor([1]), one=1.0, zero=0.0)) == 1000.0


@pytest.mark.parametrize("low", [None, torch.bfloat16, torch.float16])
def test_sums_and_gradients_of_the_logistic_loss_are_in_fp32(low: torch.dtype | None) -> None:
    x, e, b, target, rows = problem(32, 700, 24, 200, 4, dtype=torch.float32)
    with torch.autocast("cpu", dtype=low or torch.bfloat16, enabled=low is not None):
        mine = logistic(x, e, b, target, rows, 3)
    theirs = dense_logistic(x, e, b, target, rows)
    assert mine.dtype == torch.float32
    assert mine.item() == pytest.approx(theirs.item(), rel=2e-3 if low else 1e-6)
    for grad, plain in zip(torch.autograd.grad(mine, (x, e, b)), torch.autograd.grad(theirs, (x, e, b)), strict=True):
        assert grad.dtype == torch.float32
        assert float((grad - plain).norm() / plain.norm()) < (2e-2 if low else 1e-5)


def test_a_second_backward_is_refused_because_the_first_scaled_in_place() -> None:
    x, e, b, target, rows = problem(3, 7, 4, 5, 3)
    loss = logistic(x, e, b, target, rows)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once only"):
        loss.backward()


def test_what_fits_is_one_block_and_more_parts_are_smaller_blocks() -> None:
    assert states_per_block(256, 14_541) == 256
    assert 256 < states_per_block(512, 14_541) < 512
    assert 4 * 14_541 * states_per_block(512, 14_541) <= BLOCK_BYTES
    assert states_per_block(256, 10_000, parts=4) == 64
    assert states_per_block(256, 10**7) == 16
