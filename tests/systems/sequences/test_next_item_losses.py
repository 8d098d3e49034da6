"""Next-item losses against the sums that define them."""

import pytest
import torch

from graphmill.systems.sequences import next_item_losses as ours
from tests.systems.sequences import next_item_reference as plain

ROWS, ITEMS, WIDTH, K = 9, 13, 5, 3


@pytest.fixture
def case():
    torch.manual_seed(0)
    states = torch.randn(ROWS, WIDTH, dtype=torch.float64, requires_grad=True)
    table = torch.randn(ITEMS, WIDTH, dtype=torch.float64, requires_grad=True)
    return states, table, torch.randint(0, ITEMS, (ROWS,)), torch.randint(0, ITEMS, (ROWS, K))


def same(a, b, variables):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    for x, y in zip(torch.autograd.grad(a, variables), torch.autograd.grad(b, variables), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("k", [1, K])
def test_bce(case, k):
    states, table, target, negative = case
    mine = ours.item_logistic_sum(states, table, target, negative[:, :k])
    same(mine, plain.bce_reference(states, table, target, negative[:, :k]), (states, table))


def test_sampled_softmax_is_corrected_and_leaves_the_target_out(case):
    states, table, target, _ = case
    sampled = torch.tensor([0, int(target[0]), 4, 4])
    probability = torch.rand(ITEMS, dtype=torch.float64)
    logs = ours.expected_log_counts(probability, len(sampled))
    got = ours.sampled_softmax_sum(states, table, target, sampled, logs[sampled], logs[target])
    same(got, plain.sampled_softmax_reference(states, table, target, sampled, probability), (states, table))


def test_missing_negatives_count_nothing(case):
    states, table, target, negative = case
    expected = torch.nn.functional.softplus(-(states * table[target]).sum(1)).sum()
    same(ours.item_logistic_sum(states, table, target, torch.full_like(negative, -1)), expected, (states, table))


def test_losses_are_finite_for_any_finite_score():
    far = torch.tensor([1e4, -1e4])
    assert torch.isfinite(ours.logistic_sum(far, far[:, None]))
