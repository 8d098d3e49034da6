"""Rows divided by their norm: equal to torch's own form, in values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from graphmill.kernels import row_norm as module
from graphmill.kernels.row_norm import beside_normalised, normalise_rows


@pytest.fixture(params=["compiled", "torch"], autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "compiled":
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(module, "has_numba", lambda: False)


def rows() -> torch.Tensor:
    x = torch.randn(9, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    x[4] = 0.0
    x[5] *= 1e-14  # below the smallest divisor
    x[6] *= 1e8
    return x


def test_values_and_gradients_are_torchs() -> None:
    ours, theirs = rows().requires_grad_(), rows().requires_grad_()
    weight = torch.randn(9, 5, dtype=torch.float64)
    a, b = normalise_rows(ours), F.normalize(theirs, eps=1e-12)
    torch.testing.assert_close(a, b, rtol=1e-14, atol=1e-14)
    (a * weight).sum().backward()
    (b * weight).sum().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    regular = [0, 1, 2, 3, 6, 7, 8]
    torch.testing.assert_close(ours.grad[regular], theirs.grad[regular], rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(ours.grad[[4, 5]], weight[[4, 5]] / 1e-12, rtol=1e-10, atol=0)


def test_side_by_side_they_are_what_torch_puts_there() -> None:
    first, second = torch.randn(9, 3, dtype=torch.float64), torch.randn(9, 2, dtype=torch.float64)
    found = []
    for join in (beside_normalised, lambda a, *more: torch.cat((a, *(F.normalize(x, eps=1e-12) for x in more)), 1)):
        tables = [x.clone().requires_grad_() for x in (first, rows()[:, 1:], second)]
        out = join(*tables)
        weight = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).view_as(out)
        found.append((out.detach(), *torch.autograd.grad((out * weight).sum(), tables)))
    regular = [0, 1, 2, 3, 6, 7, 8]  # of short rows see above
    for ours, torchs in zip(*found, strict=True):
        torch.testing.assert_close(ours[regular], torchs[regular], rtol=1e-10, atol=1e-13)
    assert torch.equal(beside_normalised(first), first)


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
