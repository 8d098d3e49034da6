"""The compiled LayerNorm against torch's: values, gradients, shapes, and what it leaves to torch."""

import pytest
import torch
from torch import nn

from graphmill.kernels import layer_norm as module
from graphmill.kernels.layer_norm import LayerNorm


@pytest.mark.parametrize("shape", [(1, 3), (5, 3), (700, 50), (40, 3, 17), (0, 4)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_value_and_gradients_are_those_of_torch(shape, dtype) -> None:
    pytest.importorskip("numba")
    generator = torch.Generator().manual_seed(0)
    mine, theirs = LayerNorm(shape[-1], 1e-6), nn.LayerNorm(shape[-1], 1e-6)
    draws = [torch.randn(shape[-1], generator=generator), torch.randn(shape[-1], generator=generator)]
    x, weights = (3 * torch.randn(shape, generator=generator, dtype=dtype) + 1 for _ in range(2))
    found = []
    for norm in (mine, theirs):
        norm.to(dtype)
        with torch.no_grad():
            norm.weight.copy_(draws[0])
            norm.bias.copy_(draws[1])
        own = x.clone().requires_grad_()
        out = norm(own)
        found.append([out, *torch.autograd.grad((out * weights).sum(), (own, norm.weight, norm.bias))])
    rtol, atol = (1e-10, 1e-10) if dtype == torch.float64 else (2e-5, 2e-4)
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol)


def test_sums_over_rows_do_not_depend_on_the_number_of_threads() -> None:
    pytest.importorskip("numba")
    norm, x = LayerNorm(33), torch.randn(3001, 33)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(torch.autograd.grad((norm(x) ** 3).sum(), (norm.weight, norm.bias)))
    torch.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_low_precision_and_a_machine_without_numba_are_left_to_torch(monkeypatch) -> None:
    norm, x = LayerNorm(8), torch.randn(4, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert norm(x.bfloat16()).dtype == nn.functional.layer_norm(x.bfloat16(), (8,)).dtype
    expected = norm(x)
    monkeypatch.setattr(module, "has_numba", lambda: False)
    torch.testing.assert_close(norm(x), expected)


def test_parameters_have_the_names_of_torch() -> None:
    assert list(LayerNorm(3).state_dict()) == list(nn.LayerNorm(3).state_dict())
