"""The kernel workload's variants compute the same."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from benchmarks import hgt_step
from graphmill.systems.hgt import model as hgt
from tests.kernels.hgt.graphs import random_edges


def losses(options: set[str]) -> list[torch.Tensor]:
    """The loss, and the gradients of all parameters."""
    torch.manual_seed(0)
    counts = [12, 9]
    model = hgt_step.Ours((counts, random_edges(counts, [(0, 1, 40), (1, 0, 30), (1, 1, 20)], 1)), options)
    loss = hgt_step.mean_squares(model())
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.parametrize("way", ["torch", "sparse", "compiled"])
def test_each_way_has_the_same_loss_and_gradients(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``compiled``: a block by torch's compiler, here without its generated code, which takes half a minute to make."""
    monkeypatch.setattr(hgt, "gelu_linear", hgt.gelu_linear)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    for ours, theirs in zip(losses({way}), losses(set()), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
