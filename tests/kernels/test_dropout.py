"""Dropout masks: the right share, the right mean, keyed by torch's generator."""

import pytest
import torch

from graphmill.kernels.dropout import dropout, dropout_mask


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
    x = torch.randn(5)
    assert dropout(x, 0.5, False) is x
    assert dropout(x, 0.0, True) is x


def test_neighbouring_elements_are_independent():
    kept = (dropout_mask((1 << 16,), 0.5, torch.float32) > 0).double() - 0.5
    for lag in (1, 2, 3, 4, 5, 64):
        assert abs(float((kept[lag:] * kept[:-lag]).mean())) < 0.004
