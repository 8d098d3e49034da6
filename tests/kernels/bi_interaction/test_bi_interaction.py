"""KGAT's bi-interaction: the compiled layer is the plain one, in values, gradients and masks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graphmill.kernels import bi_interaction as module
from graphmill.kernels.bi_interaction import bi_interaction, bi_interaction_at
from tests.kernels.test_propagation import random_matrix

pytest.importorskip("numba")
pytestmark = pytest.mark.skipif(not module.own_blocks(), reason="compiled for processors with AVX-512 or AVX2")


def problem(nodes: int, width: int, wide: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(nodes)
    shapes = (nodes, width), (wide, width), (wide,), (wide, width), (wide,)
    return [torch.randn(*s, dtype=dtype, generator=generator, requires_grad=True) for s in shapes]


def run(matrix: Any, tensors: list[torch.Tensor], p: float, training: bool = True) -> list[torch.Tensor]:
    torch.manual_seed(7)
    nodes, *weights = tensors
    out = bi_interaction(matrix, nodes, (weights[0], weights[1]), (weights[2], weights[3]), 0.2, p, training)
    drawn = torch.Generator().manual_seed(1)
    gradients = torch.autograd.grad(out, tensors, torch.randn(out.shape, dtype=out.dtype, generator=drawn))
    return [out.detach(), *gradients]


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize(("nodes", "width", "wide"), [(1, 3, 2), (40, 5, 7), (700, 64, 32)])
def test_values_gradients_and_masks_are_the_plain_ones(
    monkeypatch: pytest.MonkeyPatch, nodes: int, width: int, wide: int, p: float
) -> None:
    matrix, tensors = random_matrix(nodes, nodes, nodes, 6 * nodes), problem(nodes, width, wide, torch.float64)
    matrix = matrix.with_values(matrix.forward.value.double())
    mine = run(matrix, tensors, p)
    monkeypatch.setattr(module, "_compiled_serves", lambda *_: False)
    for own, plain in zip(mine, run(matrix, tensors, p), strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dearer", [1 << 20, 0])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("nodes", "width", "wide"), [(1, 3, 2), (40, 5, 7), (700, 64, 32), (300, 33, 64)])
def test_rows_looked_up_are_those_of_the_plain_layer(
    monkeypatch: pytest.MonkeyPatch, nodes: int, width: int, wide: int, whole: bool, dearer: int
) -> None:
    """Whether gradients of neighbourhoods go along the edges of these rows or along all, turned round."""
    from graphmill.kernels.bi_interaction import cpu

    monkeypatch.setattr(cpu, "_DEARER", dearer)
    matrix, tensors = random_matrix(nodes, nodes, nodes, 6 * nodes), problem(nodes, width, wide, torch.float64)
    matrix = matrix.with_values(matrix.forward.value.double())
    rows = torch.arange(0, nodes, 3)

    def found() -> list[torch.Tensor]:
        torch.manual_seed(7)
        table, *weights = tensors
        maps = (weights[0], weights[1]), (weights[2], weights[3])
        both = bi_interaction_at(rows, whole, matrix, table, *maps, 0.2, 0.3, True)
        scales = [torch.linspace(-1, 2, t.numel(), dtype=t.dtype).view_as(t) for t in both]
        loss = sum((t * scale).sum() for t, scale in zip(both, scales, strict=True))
        return [*(t.detach() for t in both), *torch.autograd.grad(loss, tensors)]

    mine = found()
    assert [len(t) for t in mine[:2]] == [nodes if whole else len(rows), len(rows)]
    monkeypatch.setattr(module, "_compiled_serves", lambda *_: False)
    for own, plain in zip(mine, found(), strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_that_nobody_asks_for_are_left_out(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    matrix, tensors = random_matrix(3, 700, 700, 4200), problem(700, 33, 20, dtype)
    matrix = matrix.with_values(matrix.forward.value.to(dtype))
    asked, rows = torch.arange(0, 700, 2), torch.arange(0, 700, 6)

    def found(wanted: torch.Tensor | None) -> list[torch.Tensor]:
        torch.manual_seed(7)
        table, *weights = tensors
        maps = (weights[0], weights[1]), (weights[2], weights[3])
        out, looked_up = bi_interaction_at(rows, True, matrix, table, *maps, 0.2, 0.3, True, wanted)
        if wanted is not None and module.by_rows(weights[0].numel()):
            assert not out[1::2].any()
        read = out[asked]
        loss = (read * torch.linspace(-1, 2, read.numel(), dtype=dtype).view_as(read)).sum() + looked_up.square().sum()
        return [read.detach(), looked_up.detach(), *torch.autograd.grad(loss, tensors)]

    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    for own, whole in zip(found(asked), found(None), strict=True):
        torch.testing.assert_close(own, whole, rtol=tolerance, atol=tolerance)


def test_gradients_along_few_edges_have_the_same_bits_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphmill.kernels.bi_interaction import cpu

    monkeypatch.setattr(cpu, "_DEARER", 0)
    matrix, (table, *weights) = random_matrix(2, 3000, 3000, 40_000), problem(3000, 64, 32, torch.float32)
    maps, rows = ((weights[0], weights[1]), (weights[2], weights[3])), torch.arange(0, 3000, 2)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            out, _ = bi_interaction_at(rows, False, matrix, table, *maps, 0.2, 0.0, True)
            found.append(torch.autograd.grad(out.square().sum(), table)[0])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("row", [-1, 40])
def test_a_row_that_is_not_there_raises(row: int) -> None:
    matrix, (table, *weights) = random_matrix(1, 40, 40, 90), problem(40, 5, 7, torch.float32)
    maps = (weights[0], weights[1]), (weights[2], weights[3])
    with pytest.raises(IndexError):
        bi_interaction_at(torch.tensor([row]), False, matrix, table, *maps, 0.2, 0.0, True)


def test_threads_change_nothing() -> None:
    matrix, tensors = random_matrix(2, 3000, 3000, 20_000), problem(3000, 16, 16, torch.float32)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(run(matrix, tensors, 0.1))
    finally:
        torch.set_num_threads(threads)
    for others in found[1:]:
        assert torch.equal(found[0][0], others[0])
        torch.testing.assert_close(others, found[0], rtol=1e-5, atol=1e-4)


def test_gradcheck() -> None:
    matrix, tensors = random_matrix(1, 7, 7, 30), problem(7, 3, 2, torch.float64)

    def layer(nodes: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        return bi_interaction(matrix, nodes, (weights[0], weights[1]), (weights[2], weights[3]), 0.1, 0.0, True)

    assert torch.autograd.gradcheck(layer, tensors)


def test_no_dropout_in_evaluation_and_no_key_is_drawn() -> None:
    matrix, tensors = random_matrix(1, 20, 20, 60), problem(20, 4, 4, torch.float32)
    for mine, plain in zip(run(matrix, tensors, 0.5, False), run(matrix, tensors, 0.0), strict=True):
        assert torch.equal(mine, plain)
    generator, nodes = torch.manual_seed(3), tensors[0]
    before = generator.get_state()
    bi_interaction(matrix, nodes, (tensors[1], tensors[2]), (tensors[3], tensors[4]), 0.2, 0.5, False)
    assert torch.equal(generator.get_state(), before)


def test_autocast_takes_the_plain_form_and_trains() -> None:
    matrix, tensors = random_matrix(1, 20, 20, 60), problem(20, 4, 4, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        low = run(matrix, tensors, 0.0)
    for mine, plain in zip(low, run(matrix, tensors, 0.0), strict=True):
        torch.testing.assert_close(mine.float(), plain, rtol=0.1, atol=0.3)
