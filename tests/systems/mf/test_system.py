"""MF: its loss by hand, with one negative of each pair and with several."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from graphmill.training.contract import StepSizes
from tests.systems.recommenders.multimodal_systems import gradient, small_graph, system_of


@pytest.mark.parametrize(("loss", "negatives"), [("bpr", 1), ("bpr", 3), ("sampled_softmax", 3)])
def test_the_loss_is_the_mean_over_a_pairs_negatives_or_its_share_among_them(
    tmp_path: Path, loss: str, negatives: int
) -> None:
    objective = {"loss": loss, "negatives_per_positive": negatives, "regularisation": 0.5}
    system = system_of("mf", small_graph(tmp_path), objective=objective)
    model = system.build(StepSizes()).double()
    batch = system.step(system.phases[0], 0, 0)
    assert batch.negatives.shape == ((len(batch),) if negatives == 1 else (len(batch), negatives))
    result = gradient(system, model)
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    user, item = model.user[batch.users], model.item[batch.positives]
    others = model.item[batch.negatives.reshape(len(batch), -1)]
    gap = (user * item).sum(1, keepdim=True) - (user[:, None] * others).sum(2)
    pairs = F.softplus(-gap).mean() if loss == "bpr" else torch.log1p(torch.exp(-gap).sum(1)).mean()
    norm = ((user.square() + item.square()).sum() + others.square().sum() / negatives) / (2 * len(batch))
    assert result.losses[loss] == pytest.approx(float(pairs.detach()))
    assert result.losses["norm"] == pytest.approx(float(norm.detach()))
    (pairs + 0.5 * norm).backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(grads[name], p.grad, rtol=1e-10, atol=1e-13)


def test_no_negative_is_an_item_of_its_user(tmp_path: Path) -> None:
    system = system_of("mf", small_graph(tmp_path), objective={"negatives_per_positive": 5})
    batch, train = system.step(system.phases[0], 1, 0), system.view.train
    known = {(int(u), int(i)) for u, i in zip(train.row, train.columns, strict=True)}
    rows = np.repeat(batch.users, 5)
    assert not known & {(int(u), int(i)) for u, i in zip(rows, batch.negatives.ravel(), strict=True)}
