"""DRAGON: equal to the textbook form on dense graphs, in values and gradients; rows on demand equal all rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.propagation import SparseMatrix, sparse_matrix
from graphmill.systems.dragon.model import NUM_LAYERS, Dragon, DragonConfig
from tests.systems.mmgcn.test_model import ITEM, ITEMS, USER, USERS, graph_of


def square(size: int, seed: int) -> SparseMatrix:
    rng = np.random.default_rng(seed)
    row, column = np.divmod(rng.choice(size * size, 2 * size, replace=False), size)
    return sparse_matrix(row, column, rng.random(2 * size), (size, size))


def model_of(modalities: int = 2, **changes: object) -> Dragon:
    torch.manual_seed(0)
    sizes = {"embedding_dim": 4} | changes
    features = [torch.randn(ITEMS, width) for width in (3, 8, 5)[:modalities]]
    return Dragon(DragonConfig(USERS, ITEMS, **sizes), features).double()  # type: ignore[arg-type]


def dense(matrix: SparseMatrix) -> Tensor:
    rows = matrix.forward
    return torch.zeros(matrix.shape, dtype=torch.float64).index_put_((rows.row, rows.column), rows.value.double())


def textbook(model: Dragon, user_graph: SparseMatrix, item_graph: SparseMatrix) -> tuple[Tensor, Tensor]:
    between = torch.zeros(USERS, ITEMS, dtype=torch.float64)
    between[USER, ITEM] = 1
    degrees = torch.sqrt(between.sum(1, keepdim=True).clamp(min=1) * between.sum(0).clamp(min=1))
    between = (between / degrees).float().double()
    a = torch.zeros(USERS + ITEMS, USERS + ITEMS, dtype=torch.float64)
    a[:USERS, USERS:], a[USERS:, :USERS] = between, between.T
    users, items = [], []
    for m, (preference, tower) in enumerate(zip(model.preferences, model.towers, strict=True)):
        mapped = tower.out(F.leaky_relu(tower.hidden(tower.features), 0.01))
        power = F.normalize(torch.cat([preference, mapped]))
        total = power
        for _ in range(NUM_LAYERS):
            power = a @ power
            total = total + power
        users.append(model.modality_weights[:, m, None] * total[:USERS])
        items.append(total[USERS:])
    user, item = torch.cat(users, dim=1), torch.cat(items, dim=1)
    near = item
    for _ in range(model.config.item_layers):
        near = dense(item_graph) @ near
    return user + dense(user_graph) @ user, item + near


def ours(model: Dragon, user_graph: SparseMatrix, item_graph: SparseMatrix) -> tuple[Tensor, Tensor]:
    users, items = model.heterogeneous(graph_of("symmetric"))
    return model.add_users(users, user_graph), model.add_items(items, item_graph)


def gradients(model: Dragon, outputs: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    torch.manual_seed(1)
    model.zero_grad()
    sum((out * torch.randn_like(out)).sum() for out in outputs).backward()  # type: ignore[union-attr]
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("item_layers", [1, 2, 3])
@pytest.mark.parametrize("modalities", [1, 2, 3])
def test_values_and_gradients_are_those_of_the_textbook_form(item_layers: int, modalities: int) -> None:
    model = model_of(modalities, item_layers=item_layers)
    graphs = square(USERS, 1), square(ITEMS, 2)
    for a, b in zip(ours(model, *graphs), textbook(model, *graphs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    result, wanted = gradients(model, ours(model, *graphs)), gradients(model, textbook(model, *graphs))
    for name in wanted:
        torch.testing.assert_close(result[name], wanted[name], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dim", [4, 32])
def test_embedding_dim_is_the_width_everywhere(dim: int) -> None:
    model = model_of(embedding_dim=dim)
    users, items = model.heterogeneous(graph_of("symmetric"))
    assert users.shape == (USERS, model.width)
    assert items.shape == (ITEMS, model.width)
    assert model.width == 2 * dim
    assert {p.shape[-1] for p in model.preferences} == {dim}


@pytest.mark.parametrize("modalities", [1, 2, 3])
def test_modality_weights_start_as_shares(modalities: int) -> None:
    result = model_of(modalities).modality_weights
    assert result.shape == (USERS, modalities)
    torch.testing.assert_close(result.sum(1), torch.ones(USERS, dtype=torch.float64))


def test_every_parameter_is_used() -> None:
    model = model_of()
    assert all(bool((g != 0).any()) for g in gradients(model, ours(model, square(USERS, 1), square(ITEMS, 2))).values())


def test_recomputed_towers_give_the_same_bits() -> None:
    model, graphs = model_of(), (square(USERS, 1), square(ITEMS, 2))
    plain = gradients(model, ours(model, *graphs))
    model.checkpointing = True
    again = gradients(model, ours(model, *graphs))
    assert all(torch.equal(plain[name], again[name]) for name in plain)
