"""MMGCN's combination layer: the compiled form is the plain one, in values and gradients."""

from __future__ import annotations

import pytest
import torch

from graphmill.kernels import combination as module
from graphmill.kernels.combination import combine

pytest.importorskip("numba")
pytestmark = pytest.mark.skipif(not module.own_blocks(), reason="compiled for processors with AVX-512 or AVX2")
NAMES = ("messages", "rows", "identity", "own weight", "own bias", "joint weight", "joint bias")


def problem(count: int, w: int, v: int, d: int, k: int, concatenate: bool, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    shapes = (count, w), (count, v), (count, d), (d, v), (d,), (k, w + d if concatenate else w), (k,)
    return [torch.randn(*s, dtype=dtype, generator=generator, requires_grad=True) for s in shapes]


def run(tensors: list[torch.Tensor], wanted: list[int] | None = None) -> list[torch.Tensor]:
    # A copy: the plain form works on the messages in place.
    messages, rows, identity, *weights = tensors
    out = combine(messages * 1.0, rows, identity, (weights[0], weights[1]), (weights[2], weights[3]), 0.01)
    drawn = torch.Generator().manual_seed(1)
    over = torch.randn(out.shape, dtype=out.dtype, generator=drawn)
    chosen = tensors if wanted is None else [tensors[n] for n in wanted]
    return [out.detach(), *torch.autograd.grad(out, chosen, over)]


def plain(
    patch: pytest.MonkeyPatch, tensors: list[torch.Tensor], wanted: list[int] | None = None
) -> list[torch.Tensor]:
    with patch.context() as inside:
        inside.setattr(module, "_compiled_serves", lambda *tables: False)
        return run(tensors, wanted)


@pytest.mark.parametrize("concatenate", [True, False])
@pytest.mark.parametrize(("count", "w", "v"), [(1, 3, 3), (300, 5, 7), (5000, 20, 12)])
def test_values_and_gradients_are_the_plain_ones(
    monkeypatch: pytest.MonkeyPatch, count: int, w: int, v: int, concatenate: bool
) -> None:
    tensors = problem(count, w, v, 6, 9 if concatenate else 6, concatenate, torch.float64)
    for mine, theirs in zip(run(tensors), plain(monkeypatch, tensors), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("concatenate", [True, False])
@pytest.mark.parametrize("constant", [0, 1, 2])
def test_what_needs_no_gradient_gets_none(monkeypatch: pytest.MonkeyPatch, constant: int, concatenate: bool) -> None:
    tensors = problem(40, 5, 7, 6, 6, concatenate, torch.float64)
    tensors[constant].requires_grad_(False)
    wanted = [n for n in range(len(NAMES)) if n != constant]
    for mine, theirs in zip(run(tensors, wanted), plain(monkeypatch, tensors, wanted), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("concatenate", [True, False])
def test_gradcheck(concatenate: bool) -> None:
    def layer(*tensors: torch.Tensor) -> torch.Tensor:
        messages, rows, identity, *weights = tensors
        return combine(messages, rows, identity, (weights[0], weights[1]), (weights[2], weights[3]), 0.1)

    assert torch.autograd.gradcheck(layer, problem(5, 3, 4, 2, 2, concatenate, torch.float64))


def test_any_number_of_threads_gives_the_same_passes() -> None:
    tensors, threads, found = problem(5000, 16, 16, 16, 16, True, torch.float32), torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(run(tensors))
    finally:
        torch.set_num_threads(threads)
    for others in found[1:]:
        torch.testing.assert_close(others, found[0], rtol=1e-4, atol=1e-3)
