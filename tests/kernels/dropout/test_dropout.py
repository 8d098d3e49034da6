"""Dropout: the right share, the right mean, keyed by torch's generator, one mask whatever makes it."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from graphmill.kernels import dropout as module
from graphmill.kernels.dropout import add_dropout, draw_key, dropout, dropout_mask, relu_dropout, words

KEY = (0x1234_5678, 0x9ABC_DEF0)


@pytest.fixture(params=["compiled", "torch"])
def backend(request, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "compiled":
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(module, "has_numba", lambda: False)
    return str(request.param)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_share_and_mean_are_those_of_dropout(p):
    mask = dropout_mask((400, 501), p, torch.float32)
    assert abs(float((mask == 0).float().mean()) - p) < 0.005
    assert abs(float(mask.mean()) - 1.0) < 0.03
    assert len(mask.unique()) == 2


def test_masks_follow_the_seed_and_differ_between_calls():
    torch.manual_seed(3)
    first, second = dropout_mask((50,), 0.5, torch.float64), dropout_mask((50,), 0.5, torch.float64)
    torch.manual_seed(3)
    assert torch.equal(first, dropout_mask((50,), 0.5, torch.float64))
    assert not torch.equal(first, second)


def test_recomputing_in_the_backward_pass_draws_the_same_mask():
    x = torch.ones(64, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda z: dropout(z, 0.5, True) ** 2, x, use_reentrant=False)
    value = y.detach().clone()
    y.sum().backward()
    assert torch.allclose(x.grad, 2 * value)


def test_nothing_is_dropped_in_evaluation_or_at_rate_zero():
    x, y = torch.randn(5), torch.randn(5)
    assert dropout(x, 0.5, False) is x
    assert dropout(x, 0.0, True) is x
    torch.testing.assert_close(relu_dropout(x, 0.5, False), torch.relu(x))
    torch.testing.assert_close(add_dropout(x, y, 0.0, True), x + y)


def test_neighbouring_elements_are_independent():
    kept = (dropout_mask((1 << 16,), 0.5, torch.float32) > 0).double() - 0.5
    for lag in (1, 2, 3, 4, 5, 64):
        assert abs(float((kept[lag:] * kept[:-lag]).mean())) < 0.004


def test_keys_of_neighbouring_seeds_give_masks_that_are_strangers():
    rows = []
    for seed in range(6):
        torch.manual_seed(seed)
        rows += [words(1 << 14, draw_key()) / 2**32 - 0.5 for _ in range(2)]
    for i, first in enumerate(rows):
        for second in rows[:i]:
            for shift in (0, 1, -1):
                # The standard deviation of this mean is 1 / (12 · 128).
                assert abs(float((first * np.roll(second, shift)).mean())) < 4.5 / (12 * 128), (i, shift)


def test_words_are_spread_evenly_over_all_their_bits():
    found = words(1 << 16, KEY)
    for bit in range(32):
        assert abs(float(((found >> np.uint32(bit)) & 1).mean()) - 0.5) < 0.008, bit
    counts = np.bincount(found >> np.uint32(24), minlength=256)
    assert float(((counts - 256) ** 2 / 256).sum()) < 360  # chi squared, 255 degrees of freedom: one in 100,000


@pytest.mark.parametrize("count", [1, 7, 100, 70_001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_compiled_passes_and_torch_make_the_same_numbers(count, dtype, monkeypatch):
    pytest.importorskip("numba")
    found = []
    for compiled in (True, False):
        monkeypatch.setattr(module, "has_numba", lambda compiled=compiled: compiled)
        torch.manual_seed(5)
        x, y = torch.randn(2, count).to(dtype).requires_grad_().unbind(0)
        parts = [dropout_mask((count,), 0.3, dtype), dropout(x, 0.3, True), relu_dropout(x, 0.3, True)]
        parts.append(add_dropout(x, y, 0.3, True))
        parts += torch.autograd.grad(sum((p * p).sum() for p in parts[1:]), (x, y))
        found.append(parts)
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6 if dtype != torch.bfloat16 else 1e-2, atol=1e-6)


@pytest.mark.usefixtures("backend")
def test_passes_that_do_more_are_their_parts_one_after_the_other():
    x, y = torch.randn(40, 33, dtype=torch.float64), torch.randn(40, 33, dtype=torch.float64)
    for whole, plain in (
        (lambda a, b: relu_dropout(a, 0.4, True) + b, lambda a, b: dropout(F.relu(a), 0.4, True) + b),
        (lambda a, b: add_dropout(a, b, 0.4, True), lambda a, b: a + dropout(b, 0.4, True)),
    ):
        found = []
        for function in (whole, plain):
            torch.manual_seed(6)
            a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
            out = function(a, b)
            found.append((out, *torch.autograd.grad((out**3).sum(), (a, b))))
        for mine, theirs in zip(*found, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_a_mask_does_not_depend_on_the_number_of_threads():
    before, found = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(7)
        found.append(dropout_mask((300, 301), 0.2, torch.float32))
    torch.set_num_threads(before)
    assert torch.equal(*found)
