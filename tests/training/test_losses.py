"""Every loss is finite, with finite gradients, for scores up to ± 10⁴ in half precision, and equals its textbook form."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels import losses
from graphmill.kernels.full_softmax import full_logistic_sum, full_softmax_sum
from graphmill.systems.sequences import next_item_losses

Loss = Callable[[Tensor, Tensor], Tensor]
ROWS = 6


def _columns(scores: Tensor) -> Tensor:
    return scores.reshape(-1, 1)


# Scores are products of a row of length 1 with a vector of length 1, so that each kernel meets the score itself.
def _one_to_n(states: Tensor, table: Tensor) -> Tensor:
    return full_logistic_sum(states, table, torch.arange(len(states)) % len(table), one=0.9, zero=0.01, parts=2)


def _sampled(states: Tensor, table: Tensor) -> Tensor:
    target, sampled = torch.arange(len(states)) % len(table), torch.tensor([1, 2, 3])
    none = torch.zeros(3), torch.zeros(len(states))
    return next_item_losses.sampled_softmax_sum(states, table, target, sampled, *none)


PAIRWISE: dict[str, Loss] = {
    "bpr": lambda s, o: losses.bpr_losses(s, o).sum(),
    "positive link": lambda s, o: losses.positive_link_loss(s).sum(),
    "negative link": lambda s, o: losses.negative_link_loss(s).sum(),
    "bce": lambda s, o: next_item_losses.logistic_sum(s, _columns(o)),
}
TABLE: dict[str, Loss] = {
    "one to n": _one_to_n,
    "sampled softmax": _sampled,
    "full softmax": lambda s, t: full_softmax_sum(s, t, torch.arange(len(s)) % len(t)),
    "contrastive": lambda s, t: losses.info_nce_sums(
        s, t, torch.arange(len(s)) % len(t), torch.arange(len(s)), (torch.arange(len(s)) + 1) % len(t), 0.07
    ),
}
EXTREME = torch.tensor([-1e4, -300.0, -20.0, 20.0, 300.0, 1e4])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [*PAIRWISE, *TABLE])
def test_finite_at_extreme_scores(name: str, dtype: torch.dtype) -> None:
    if name in PAIRWISE:
        a, b, loss = EXTREME.to(dtype), EXTREME.flip(0).to(dtype), PAIRWISE[name]
    else:
        a, b = (EXTREME[:, None] / 100).to(dtype), torch.tensor([[-100.0], [-1.0], [1.0], [100.0]], dtype=dtype)
        loss = TABLE[name]
    a.requires_grad_()
    b.requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        value = loss(a, b)
    assert value.dtype == torch.float32
    assert math.isfinite(float(value.detach()))
    value.backward()
    assert all(x.grad is None or bool(torch.isfinite(x.grad).all()) for x in (a, b))


def _log_sigmoid(x: Tensor) -> Tensor:
    return torch.log(torch.sigmoid(x))


TEXTBOOK: dict[str, Loss] = {
    "bpr": lambda s, o: -_log_sigmoid(s - o).sum(),
    "positive link": lambda s, o: -_log_sigmoid(s).sum(),
    "negative link": lambda s, o: -torch.log(1 - torch.sigmoid(s)).sum(),
    "bce": lambda s, o: -_log_sigmoid(s).sum() - torch.log(1 - torch.sigmoid(o)).sum(),
    "full softmax": lambda s, t: (
        -torch.log(torch.softmax(s @ t.T, dim=1)[torch.arange(len(s)), torch.arange(len(s)) % len(t)]).sum()
    ),
    "one to n": lambda s, t: F.binary_cross_entropy(
        torch.sigmoid(s @ t.T),
        torch.full((len(s), len(t)), 0.01, dtype=s.dtype).index_put(
            (torch.arange(len(s)), torch.arange(len(s)) % len(t)), torch.tensor(0.9, dtype=s.dtype)
        ),
        reduction="sum",
    ),
}


@pytest.mark.parametrize("name", TEXTBOOK)
def test_equal_to_the_textbook_form_where_that_is_finite(name: str) -> None:
    torch.manual_seed(0)
    if name in PAIRWISE:
        inputs, loss = (torch.randn(ROWS).double() * 5, torch.randn(ROWS).double() * 5), PAIRWISE[name]
    else:
        inputs, loss = (torch.randn(ROWS, 3).double(), torch.randn(4, 3).double()), TABLE[name]
    for x in inputs:
        x.requires_grad_()
    ours, theirs = loss(*inputs), TEXTBOOK[name](*inputs)
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-10)
    for a, b in zip(
        torch.autograd.grad(ours, inputs, allow_unused=True),
        torch.autograd.grad(theirs, inputs, allow_unused=True),
        strict=True,
    ):
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
