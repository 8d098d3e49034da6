"""The kernel workload's variants compute the same."""

from __future__ import annotations

import pytest
import torch
from benchmarks.parts import hgt_step

from tests.kernels.hgt.graphs import random_edges


def losses(options: set[str]) -> list[torch.Tensor]:
    """The loss, and the gradients of all parameters."""
    torch.manual_seed(0)
    counts = [12, 9]
    model = hgt_step.Ours((counts, random_edges(counts, [(0, 1, 40), (1, 0, 30), (1, 1, 20)], 1)), options)
    loss = hgt_step.mean_squares(model())
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.parametrize("way", ["torch", "sparse"])
def test_each_way_has_the_same_loss_and_gradients(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hgt_step, "WIDTHS", (128, 128, 128))  # heads of 16, which other tests compile, too
    for ours, theirs in zip(losses({way}), losses(set()), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
