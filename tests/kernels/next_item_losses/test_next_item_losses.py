"""Next-item losses against the sums that define them."""

import pytest
import torch

from graphmill.kernels import next_item_losses as ours
from graphmill.kernels.next_item_losses import reference as plain

ROWS, ITEMS, WIDTH, K = 9, 13, 5, 3


@pytest.fixture(params=["compiled", "torch"])
def case(request, monkeypatch):
    if request.param == "compiled":
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(ours, "has_numba", lambda: False)
    torch.manual_seed(0)
    states = torch.randn(ROWS, WIDTH, dtype=torch.float64, requires_grad=True)
    table = torch.randn(ITEMS, WIDTH, dtype=torch.float64, requires_grad=True)
    return states, table, torch.randint(0, ITEMS, (ROWS,)), torch.randint(0, ITEMS, (ROWS, K))


def same(a, b, variables):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    for x, y in zip(torch.autograd.grad(a, variables), torch.autograd.grad(b, variables), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-12)


def test_bce_and_generalised_bce(case):
    states, table, target, negative = case
    for calibration in (None, 0.0, 0.75, 1.0):
        scores = ours.score_items(states, table, target), ours.score_items(states, table, negative)
        if calibration is None:
            same(
                ours.logistic_sum(*scores, ours.bce_weights(K)),
                plain.bce_reference(states, table, target, negative),
                (states, table),
            )
        else:
            expected = plain.gbce_reference(states, table, target, negative, calibration)
            same(ours.logistic_sum(*scores, ours.gbce_weights(K, ITEMS, calibration)), expected, (states, table))


def test_uncalibrated_generalised_bce_is_bce_with_sums(case):
    states, table, target, negative = case
    positive, wrong = ours.score_items(states, table, target), ours.score_items(states, table, negative[:, :1])
    torch.testing.assert_close(
        2 * ours.logistic_sum(positive, wrong, ours.gbce_weights(1, ITEMS, 0.0)),
        ours.logistic_sum(positive, wrong, ours.bce_weights(1)),
    )


@pytest.mark.parametrize("block", [1, 4, 100])
def test_the_full_softmax_in_blocks_is_cross_entropy(case, block):
    states, table, target, _ = case
    same(
        3 * ours.full_softmax_sum(states, table, target, block),
        3 * plain.full_softmax_reference(states, table, target),
        (states, table),
    )


def test_the_full_softmax_needs_no_gradient_to_be_evaluated(case):
    states, table, target, _ = case
    with torch.no_grad():
        got = ours.full_softmax_sum(states, table, target)
    torch.testing.assert_close(got, plain.full_softmax_reference(states, table, target).detach())


def test_sampled_softmax_is_corrected_and_leaves_the_target_out(case):
    states, table, target, _ = case
    sampled = torch.tensor([0, int(target[0]), 4, 4])
    probability = torch.rand(ITEMS, dtype=torch.float64)
    logs = ours.expected_log_counts(probability, len(sampled))
    got = ours.sampled_softmax_sum(states, table, target, sampled, logs[sampled], logs[target])
    same(got, plain.sampled_softmax_reference(states, table, target, sampled, probability), (states, table))


def test_missing_negatives_count_nothing(case):
    states, table, target, negative = case
    scores = ours.score_items(states, table, target), ours.score_items(states, table, negative)
    none = torch.zeros(ROWS, K, dtype=torch.bool)
    expected = torch.nn.functional.softplus(-scores[0]).sum()
    torch.testing.assert_close(ours.logistic_sum(*scores, ours.bce_weights(K), none), expected)


def test_losses_are_finite_for_any_finite_score():
    far = torch.tensor([1e4, -1e4])
    assert torch.isfinite(ours.logistic_sum(far, far[:, None], ours.bce_weights(1)))
    assert torch.isfinite(ours.full_softmax_sum(far[:, None], torch.tensor([[1e3], [-1e3]]), torch.tensor([0, 1])))


@pytest.mark.parametrize("threads", [1, 3])
def test_scores_of_many_items_are_one_function_with_and_without_compiled_code(threads, monkeypatch):
    pytest.importorskip("numba")
    generator = torch.Generator().manual_seed(1)
    states, table = torch.randn(2000, 20, generator=generator), torch.randn(50, 20, generator=generator)
    items, weights = torch.randint(0, 50, (2000, 2), generator=generator), torch.randn(2000, 2, generator=generator)
    before, found = torch.get_num_threads(), []
    torch.set_num_threads(threads)
    for compiled in (True, False):
        monkeypatch.setattr(ours, "has_numba", lambda compiled=compiled: compiled)
        own = states.clone().requires_grad_(), torch.nn.Parameter(table.clone())
        own[1].grad = torch.ones_like(table)  # what another part of the loss has left there
        scores = ours.score_items(*own, items)
        (scores * weights).sum().backward()
        found.append((scores.detach(), own[0].grad, own[1].grad))
    torch.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
@pytest.mark.parametrize("k", [1, 3])
def test_logistic_losses_of_items_are_those_of_their_scores(threads, kind, k, monkeypatch):
    pytest.importorskip("numba")
    generator = torch.Generator().manual_seed(1)
    states, table = (torch.randn(n, 20, generator=generator, dtype=kind) for n in (900, 50))
    rows = torch.randperm(900, generator=generator)[:700]
    target, negative = (
        torch.randint(0, 50, (700,), generator=generator),
        torch.randint(-1, 50, (700, k), generator=generator),
    )
    weights, before, found = ours.gbce_weights(k, 50, 0.75), torch.get_num_threads(), []
    torch.set_num_threads(threads)
    for compiled in (True, False):
        monkeypatch.setattr(ours, "has_numba", lambda compiled=compiled: compiled)
        own = states.clone().requires_grad_(), torch.nn.Parameter(table.clone())
        own[1].grad = torch.ones_like(table)  # what another part of the loss has left there
        loss = ours.item_logistic_sum(own[0], rows, own[1], target, negative, weights)
        (2 * loss).backward()
        found.append((loss.detach(), own[0].grad, own[1].grad))
    torch.set_num_threads(before)
    tolerance = 1e-10 if kind == torch.float64 else 2e-5
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    scores = ours.score_items(states[rows], table, target), ours.score_items(states[rows], table, negative.clamp_min(0))
    torch.testing.assert_close(found[0][0], ours.logistic_sum(*scores, weights, negative >= 0))


@pytest.mark.parametrize(("row", "item"), [(9, 0), (-1, 0), (0, ITEMS), (0, -2)])
def test_a_row_or_item_that_is_not_there_is_refused(row, item):
    pytest.importorskip("numba")
    states, table = torch.zeros(9, 4), torch.zeros(ITEMS, 4)
    with pytest.raises(IndexError):
        ours.item_logistic_sum(
            states, torch.tensor([row]), table, torch.tensor([0]), torch.tensor([[item]]), ours.bce_weights(1)
        )


def test_a_target_cannot_be_missing():
    pytest.importorskip("numba")
    states, table = torch.zeros(9, 4), torch.zeros(ITEMS, 4)
    one = torch.tensor([0])
    with pytest.raises(IndexError, match="target"):
        ours.item_logistic_sum(states, one, table, torch.tensor([-1]), torch.tensor([[0]]), ours.bce_weights(1))
