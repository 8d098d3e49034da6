"""Dropout: the right share, the right mean, keyed by torch's generator, one mask whatever makes it."""

import numpy as np
import pytest
import torch

from graphmill.kernels import dropout as module
from graphmill.kernels.dropout import draw_key, dropout, words

KEY = (0x1234_5678, 0x9ABC_DEF0)


def mask(shape: tuple[int, ...], p: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return dropout(torch.ones(shape, dtype=dtype), p, True)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_share_and_mean_are_those_of_dropout(p):
    found = mask((400, 501), p)
    assert abs(float((found == 0).float().mean()) - p) < 0.005
    assert abs(float(found.mean()) - 1.0) < 0.03
    assert len(found.unique()) == 2


def test_masks_follow_the_seed_and_differ_between_calls():
    torch.manual_seed(3)
    first, second = mask((50,), 0.5, torch.float64), mask((50,), 0.5, torch.float64)
    torch.manual_seed(3)
    assert torch.equal(first, mask((50,), 0.5, torch.float64))
    assert not torch.equal(first, second)


def test_recomputing_in_the_backward_pass_draws_the_same_mask():
    x = torch.ones(64, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda z: dropout(z, 0.5, True) ** 2, x, use_reentrant=False)
    value = y.detach().clone()
    y.sum().backward()
    assert torch.allclose(x.grad, 2 * value)


def test_nothing_is_dropped_in_evaluation_or_at_rate_zero():
    x = torch.randn(5)
    assert dropout(x, 0.5, False) is x
    assert dropout(x, 0.0, True) is x


def test_neighbouring_elements_are_independent():
    kept = (mask((1 << 16,), 0.5) > 0).double() - 0.5
    for lag in (1, 2, 3, 4, 5, 64):
        assert abs(float((kept[lag:] * kept[:-lag]).mean())) < 0.004


def test_keys_of_neighbouring_seeds_give_masks_that_are_strangers():
    rows = []
    for seed in range(6):
        torch.manual_seed(seed)
        rows += [words(np.arange(1 << 14), draw_key()) / 2**32 - 0.5 for _ in range(2)]
    for i, first in enumerate(rows):
        for second in rows[:i]:
            for shift in (0, 1, -1):
                # The standard deviation of this mean is 1 / (12 · 128).
                assert abs(float((first * np.roll(second, shift)).mean())) < 4.5 / (12 * 128), (i, shift)


def test_words_are_spread_evenly_over_all_their_bits():
    found = words(np.arange(1 << 16), KEY)
    for bit in range(32):
        assert abs(float(((found >> np.uint32(bit)) & 1).mean()) - 0.5) < 0.008, bit
    counts = np.bincount(found >> np.uint32(24), minlength=256)
    assert float(((counts - 256) ** 2 / 256).sum()) < 360  # chi squared, 255 degrees of freedom: one in 100,000


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_blocks_of_what_lies_in_any_order_have_one_mask_there_and_back(dtype, monkeypatch):
    x = torch.randn(40, 33).to(dtype).T.requires_grad_()
    found = []
    for block in (7, 1 << 16):
        monkeypatch.setattr(module, "BLOCK", block)
        torch.manual_seed(6)
        out = dropout(x, 0.4, True)
        (gradient,) = torch.autograd.grad(out.sum(), x)
        torch.testing.assert_close(out, x * gradient)
        found.append(out)
    assert torch.equal(*found)


def test_some_rows_have_the_mask_that_they_have_in_the_table():
    x, rows = torch.randn(50, 7, requires_grad=True), torch.tensor([3, 4, 17, 49])
    found = []
    for part in (x[rows], x):
        torch.manual_seed(2)
        out = dropout(part, 0.5, True, rows if part is not x else None)
        found.append((out if part is not x else out[rows], torch.autograd.grad(out.sum(), x)[0][rows]))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
