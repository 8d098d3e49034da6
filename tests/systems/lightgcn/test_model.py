"""LightGCN against its equation, and against matrix factorisation where there are no layers."""

from pathlib import Path

import numpy as np
import torch

from graphmill.settings import parse
from graphmill.systems.lightgcn.model import LightGCN
from graphmill.systems.lightgcn.settings import LightGcnSettings
from graphmill.systems.lightgcn.system import LightGcnSystem
from graphmill.systems.recommenders.user_item_graph import user_item_graph
from graphmill.training.contract import StepSizes
from tests.training.cases import recommender_graph

USERS, ITEMS = 5, 4
PAIRS = np.array([[0, 0], [0, 1], [1, 1], [2, 1], [2, 2], [3, 3]])  # user 4 has no item


def dense() -> torch.Tensor:
    """The symmetrically normalised adjacency over users, then items, float64."""
    a = torch.zeros(USERS + ITEMS, USERS + ITEMS, dtype=torch.float64)
    for user, item in PAIRS:
        a[user, USERS + item] = a[USERS + item, user] = 1.0
    degree = a.sum(1).clamp(min=1)
    return a / (degree[:, None] * degree[None, :]).sqrt()


def test_it_is_the_mean_over_the_layers() -> None:
    model = LightGCN(USERS, ITEMS, 3, 3).double()
    graph = user_item_graph(PAIRS[:, 0], PAIRS[:, 1], USERS, ITEMS, "symmetric")
    users, items = model(graph)
    x = torch.cat((model.user, model.item))
    expected = sum(torch.linalg.matrix_power(dense(), layer) @ x for layer in range(4)) / 4
    torch.testing.assert_close(torch.cat((users, items)), expected, rtol=1e-6, atol=1e-7)
    gradient, plain = (
        torch.autograd.grad(y.square().sum(), model.user, retain_graph=True)[0]
        for y in (torch.cat((users, items)), expected)
    )
    torch.testing.assert_close(gradient, plain, rtol=1e-6, atol=1e-7)


def test_a_user_without_items_keeps_a_share_of_its_own_vector() -> None:
    model = LightGCN(USERS, ITEMS, 3, 1)
    users, _ = model(user_item_graph(PAIRS[:, 0], PAIRS[:, 1], USERS, ITEMS, "symmetric"))
    torch.testing.assert_close(users[4], model.user[4] / 2)


def test_the_norm_is_that_of_the_tables_rows(tmp_path: Path) -> None:
    graph = recommender_graph(tmp_path / "graph")
    values = {
        "system": "lightgcn",
        "data": str(graph.path),
        "objective": {"negatives_per_positive": 2, "regularisation": 0.5},
    }
    system = LightGcnSystem(graph, parse(LightGcnSettings, values, "test"), "full")
    model = system.build(StepSizes())
    batch = system.step(system.phases[0], 0, 0)
    norm = next(t for t in system.terms(model, batch, system.encode(model, batch)) if t.name == "norm")
    user, item = (p.detach().numpy() for p in (model.user, model.item))
    squares = (
        (user[batch.users] ** 2).sum() + (item[batch.positives] ** 2).sum() + (item[batch.negatives] ** 2).sum() / 2
    )
    np.testing.assert_allclose(float(norm.sum), squares / 2, rtol=1e-5)
    assert (batch.weights["norm"], norm.coefficient) == (len(batch), 0.5)
