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


def logistic(states, table, target, negative, weights):
    return ours.item_logistic_sum(states, torch.arange(len(target)), table, target, negative, weights)


@pytest.mark.parametrize("block", [1, 40, 10_000])
def test_bce_and_generalised_bce_in_blocks(case, block, monkeypatch):
    states, table, target, negative = case
    monkeypatch.setattr(ours, "BLOCK_BYTES", 4 * block)
    mine = logistic(*case, ours.bce_weights(K))
    same(mine, plain.bce_reference(states, table, target, negative), (states, table))
    for calibration in (0.0, 0.75, 1.0):
        expected = plain.gbce_reference(states, table, target, negative, calibration)
        same(logistic(*case, ours.gbce_weights(K, ITEMS, calibration)), expected, (states, table))


def test_uncalibrated_generalised_bce_is_bce_with_sums(case):
    states, table, target, negative = case
    one = states, table, target, negative[:, :1]
    torch.testing.assert_close(
        2 * logistic(*one, ours.gbce_weights(1, ITEMS, 0.0)), logistic(*one, ours.bce_weights(1))
    )


def test_rows_of_states_are_chosen_and_a_gradient_that_is_there_is_added_to(case):
    states, table, target, negative = case
    rows = torch.tensor([8, 0, 3, 5])
    table.grad = torch.ones_like(table)
    loss = ours.item_logistic_sum(states, rows, table, target[:4], negative[:4], ours.bce_weights(K))
    (2 * loss).backward()
    found = loss.detach(), states.grad, table.grad - 1
    own = states.detach().requires_grad_(), table.detach().requires_grad_()
    expected = plain.bce_reference(own[0][rows], own[1], target[:4], negative[:4])
    (2 * expected).backward()
    for mine, theirs in zip(found, (expected.detach(), own[0].grad, own[1].grad), strict=True):
        torch.testing.assert_close(mine, theirs)


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
    same(logistic(states, table, target, torch.full_like(negative, -1), ours.bce_weights(K)), expected, (states, table))


def test_losses_are_finite_for_any_finite_score():
    far = torch.tensor([1e4, -1e4])
    assert torch.isfinite(ours.logistic_sum(far, far[:, None], ours.bce_weights(1)))
