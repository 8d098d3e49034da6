"""Projections grouped by relation, KGAT's logits, and the softmax over a node's edges: equal to their plain forms."""

from __future__ import annotations

import pytest
import torch

from graphmill.kernels import translation
from graphmill.kernels.threads import has_numba
from graphmill.kernels.translation import grouped_projection, segment_softmax, translation_logits


def test_grouped_projection_is_the_product_with_gathered_matrices() -> None:
    torch.manual_seed(0)
    rows = torch.randn(11, 4, dtype=torch.float64, requires_grad=True)
    matrices = torch.randn(5, 4, 3, dtype=torch.float64, requires_grad=True)
    bounds = [0, 3, 3, 4, 11, 11]  # two groups without rows
    group = torch.tensor([0, 0, 0, 2, 3, 3, 3, 3, 3, 3, 3])
    weight = torch.randn(11, 3, dtype=torch.float64)
    found = grouped_projection(rows, bounds, matrices)
    wanted = torch.bmm(rows[:, None], matrices[group])[:, 0]
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    ours = torch.autograd.grad((found * weight).sum(), (rows, matrices))
    plain = torch.autograd.grad((wanted * weight).sum(), (rows, matrices))
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(lambda r, m: grouped_projection(r, bounds, m), (rows, matrices))


def test_all_groups_in_one_call_give_what_a_call_each_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = [0, 0, 3, 100, 100, 101, 260]
    rows, matrices = torch.randn(260, 20), torch.randn(6, 20, 33)
    found = []
    for one_call in (True, False):
        monkeypatch.setattr(translation, "wide_registers", lambda one=one_call: one and has_numba())
        inputs = rows.clone().requires_grad_(), matrices.clone().requires_grad_()
        out = grouped_projection(inputs[0], bounds, inputs[1])
        scale = torch.linspace(-1, 1, out.numel()).view_as(out)
        found.append((out.detach(), *torch.autograd.grad((out * scale).sum(), inputs)))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)
    assert not found[0][2][0].any()


def test_grouped_projection_of_nothing() -> None:
    assert grouped_projection(torch.zeros(0, 4), [0, 0], torch.ones(1, 4, 2)).shape == (0, 2)


def test_logits_are_the_same_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    heads, tails, move = torch.randn(6, 3), torch.randn(5, 3), torch.randn(3)
    head, tail = torch.randint(6, (40,)), torch.randint(5, (40,))
    whole = translation_logits(heads, tails, move, head, tail)  # compiled, where numba is installed
    wanted = torch.stack([tails[t] @ torch.tanh(heads[h] + move) for h, t in zip(head, tail, strict=True)])
    torch.testing.assert_close(whole, wanted)
    monkeypatch.setattr(translation, "has_numba", lambda: False)
    torch.testing.assert_close(translation_logits(heads, tails, move, head, tail), wanted)
    monkeypatch.setattr(translation, "EDGE_BYTES", 4 * 3 * 7)
    torch.testing.assert_close(translation_logits(heads, tails, move, head, tail), wanted)


def test_segment_softmax_adds_up_to_one_for_each_node_and_survives_large_logits() -> None:
    logits = torch.tensor([1e4, 1e4 - 1, -1e4, 3.0, -1e4])
    row = torch.tensor([0, 0, 0, 2, 3])
    found = segment_softmax(logits, row, 5)
    assert found[:3].tolist() == pytest.approx([0.7310586, 0.2689414, 0.0])
    assert found[3:].tolist() == [1.0, 1.0]
