"""Item and position vectors in one pass against the plain composition: values, gradients, masks, threads, bad numbers."""

import pytest
import torch
from torch import nn

from graphmill.kernels import input_embedding as module
from graphmill.kernels.input_embedding import input_embedding

ITEMS, LENGTH, ROWS = 13, 6, 1000


def run(kind, width, p, filled, training=True):
    generator = torch.Generator().manual_seed(0)
    table = nn.Parameter(torch.randn(ITEMS, width, generator=generator, dtype=kind))
    positions = nn.Parameter(torch.randn(LENGTH, width, generator=generator, dtype=kind))
    if filled:  # what another part of the loss has left there
        table.grad = torch.ones_like(table)
    items, places = (torch.randint(0, n, (ROWS,), generator=generator) for n in (ITEMS, LENGTH))
    torch.manual_seed(1)
    out = input_embedding(table, items, positions, places, 3.0, p, training)
    (out * torch.linspace(-1, 1, out.numel(), dtype=kind).view_as(out)).sum().backward()
    return out.detach(), table.grad, positions.grad


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 16, 50])
@pytest.mark.parametrize(("p", "filled"), [(0.0, False), (0.4, False), (0.4, True)])
def test_compiled_is_the_plain_form(monkeypatch, kind, width, p, filled):
    pytest.importorskip("numba")
    compiled = run(kind, width, p, filled)
    monkeypatch.setattr(module, "_compiled_serves", lambda *_: False)
    tolerance = 1e-12 if kind == torch.float64 else 2e-5
    for a, b in zip(compiled, run(kind, width, p, filled), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_one_result_whatever_the_number_of_threads():
    before, found = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(run(torch.float32, 50, 0.4, False))
    torch.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_nothing_is_dropped_in_evaluation():
    out, *_ = run(torch.float64, 4, 0.9, False, training=False)
    assert out.ne(0).all()


@pytest.mark.parametrize(("items", "places"), [([ITEMS], [0]), ([-1], [0]), ([0], [LENGTH])])
def test_a_row_that_is_not_there_is_refused(items, places):
    table, positions = torch.zeros(ITEMS, 4), torch.zeros(LENGTH, 4)
    with pytest.raises(IndexError):
        input_embedding(table, torch.tensor(items), positions, torch.tensor(places), 1.0, 0.0, True)


@pytest.mark.parametrize("frozen", ["table", "positions"])
def test_a_frozen_table_gets_no_gradient(frozen):
    table, positions = nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.ones(2, 4))
    still = table if frozen == "table" else positions
    still.requires_grad_(False)
    still.grad = torch.zeros_like(still)
    input_embedding(table, torch.tensor([0, 2]), positions, torch.tensor([0, 1]), 1.0, 0.0, True).sum().backward()
    assert still.grad.eq(0).all()
    assert (positions if frozen == "table" else table).grad.sum() == 8
