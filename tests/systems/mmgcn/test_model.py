"""MMGCN: equal to the textbook form on the dense graph, in values and gradients; constants folded; both arrangements."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.systems.mmgcn.model import MMGCN, MMGCNConfig
from graphmill.systems.recommenders.user_item_graph import UserItemGraph, user_item_graph

USERS, ITEMS = 7, 5
# User 6 and item 4 have no interactions.
USER = np.array([0, 0, 1, 2, 2, 2, 3, 4, 5, 5])
ITEM = np.array([0, 1, 1, 0, 2, 3, 3, 2, 0, 1])


def graph_of(norm: str = "mean") -> UserItemGraph:
    return user_item_graph(USER, ITEM, USERS, ITEMS, norm)  # type: ignore[arg-type]


def model_of(**changes: object) -> MMGCN:
    torch.manual_seed(0)
    sizes = {"latent_dims": (6, 0), "embedding_dim": 4, "num_layers": 3} | changes
    widths = (3, 8, 5)[: len(sizes["latent_dims"])]  # type: ignore[arg-type]
    features = [torch.randn(ITEMS, width) for width in widths]
    return MMGCN(MMGCNConfig(USERS, ITEMS, **sizes), features).double()  # type: ignore[arg-type]


def textbook(model: MMGCN) -> tuple[Tensor, Tensor]:
    """The equations, written out over all nodes with a dense mean adjacency."""
    adjacency = torch.zeros(USERS + ITEMS, USERS + ITEMS, dtype=torch.float64)
    adjacency[USER, ITEM + USERS] = 1
    adjacency[ITEM + USERS, USER] = 1
    # The matrices hold fp32 weights: rounded alike here, so that all else can be compared in float64.
    weight = (1 / adjacency.sum(1, keepdim=True).clamp(min=1)).float().double()
    adjacency = adjacency * weight
    total = torch.zeros(USERS + ITEMS, model.config.embedding_dim, dtype=torch.float64)
    for tower in model.towers:
        # Raw features are held with norm 1, rounded to fp32.
        items = tower.features if tower.projection is None else F.normalize(tower.projection(tower.features))
        x = torch.cat([F.normalize(tower.preference), items])
        for layer in tower.layers:
            h = F.leaky_relu(adjacency @ (x @ layer.message), 0.01)
            inner = F.leaky_relu(x @ layer.inner.weight.T + layer.inner.bias, 0.01) + model.identity
            if model.config.combination == "concatenate":
                joined = torch.cat([h, inner], dim=1) @ layer.joint.weight.T + layer.joint.bias
            else:
                joined = h @ layer.joint.weight.T + layer.joint.bias + inner
            x = F.leaky_relu(joined, 0.01)
        total = total + x
    return tuple((total / len(model.towers)).split((USERS, ITEMS)))  # type: ignore[return-value]


def gradients(model: MMGCN, outputs: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    torch.manual_seed(1)
    model.zero_grad()
    sum((out * torch.randn_like(out)).sum() for out in outputs).backward()  # type: ignore[union-attr]
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("combination", ["concatenate", "add"])
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("latent", [(6, 0), (0,), (3, 5), (6, 0, 0), (0, 2, 7)])
def test_values_and_gradients_are_those_of_the_textbook_form(
    combination: str, trained: bool, latent: tuple[int, ...]
) -> None:
    model = model_of(combination=combination, trainable_embeddings=trained, latent_dims=latent)
    ours, theirs = model(graph_of()), textbook(model)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    result, wanted = gradients(model, model(graph_of())), gradients(model, textbook(model))
    assert set(result) == set(wanted) == {name for name, _ in model.named_parameters()}
    for name in wanted:
        torch.testing.assert_close(result[name], wanted[name], rtol=1e-9, atol=1e-11)


def test_more_items_than_users_multiplies_on_the_other_side_and_changes_nothing() -> None:
    # Users and items change places: 5 users, 7 items.
    torch.manual_seed(0)
    model = MMGCN(MMGCNConfig(ITEMS, USERS, (6,), 4), [torch.randn(USERS, 3)]).double()
    swapped = user_item_graph(ITEM, USER, ITEMS, USERS, "mean")
    users, items = model(swapped)
    tower = model.towers[0]
    x = F.normalize(torch.cat([tower.preference, tower.projection(tower.features)]))
    adjacency = torch.zeros(12, 12, dtype=torch.float64)
    adjacency[ITEM, USER + ITEMS] = adjacency[USER + ITEMS, ITEM] = 1
    adjacency *= (1 / adjacency.sum(1, keepdim=True).clamp(min=1)).float().double()
    for layer in tower.layers:
        h = F.leaky_relu(adjacency @ x @ layer.message, 0.01)
        inner = F.leaky_relu(layer.inner(x), 0.01) + model.identity
        x = F.leaky_relu(layer.joint(torch.cat([h, inner], dim=1)), 0.01)
    torch.testing.assert_close(torch.cat([users, items]), x, rtol=1e-10, atol=1e-12)


def test_published_tables_are_saved_and_never_trained() -> None:
    model = model_of(trainable_embeddings=False)
    parameters = dict(model.named_parameters())
    assert not any("identity" in name or "preference" in name for name in parameters)
    assert {"identity", "towers.0.preference", "towers.1.preference"} <= set(model.state_dict())
    assert {"identity", "towers.0.preference"} <= set(dict(model_of().named_parameters()))


def test_raw_features_enter_with_norm_one() -> None:
    raw, mapped = model_of(latent_dims=(0, 3)).towers
    torch.testing.assert_close(raw.features.norm(dim=1), torch.ones(ITEMS, dtype=torch.float64), rtol=1e-6, atol=0)
    assert not torch.allclose(mapped.features.norm(dim=1), torch.ones(ITEMS, dtype=torch.float64))


def test_features_are_not_saved_with_the_weights() -> None:
    assert not any("features" in name for name in model_of().state_dict())


def test_what_is_constant_is_computed_once_and_again_after_a_load() -> None:
    model, graph = model_of(trainable_embeddings=False), graph_of()
    calls = 0
    to_items = graph.to_items

    class Counting:
        def to_users(self, items: Tensor) -> Tensor:
            return graph.to_users(items)

        def to_items(self, users: Tensor) -> Tensor:
            nonlocal calls
            calls += users.shape[1] in (6, 8)  # the first layer's widths
            return to_items(users)

    counting = Counting()
    first = model(counting)
    model(counting)
    assert calls == 2  # once per tower
    state = {name: value + 1 if "preference" in name else value for name, value in model.state_dict().items()}
    model.load_state_dict(state)
    assert not torch.allclose(first[0], model(counting)[0])
    assert calls == 4


def test_constant_features_get_no_messages_back() -> None:
    """A tower of raw features sends nothing to users in its first layer that the backward pass would have to undo."""
    model, graph = model_of(latent_dims=(0,), num_layers=1), graph_of()

    class Refusing:
        def to_users(self, items: Tensor) -> Tensor:
            assert not items.requires_grad
            return graph.to_users(items)

        to_items = staticmethod(graph.to_items)

    sum(out.sum() for out in model(Refusing())).backward()  # type: ignore[union-attr]


@pytest.mark.parametrize("dim", [4, 32])
def test_embedding_dim_is_the_width_everywhere(dim: int) -> None:
    users, items = model_of(embedding_dim=dim)(graph_of())
    assert users.shape == (USERS, dim)
    assert items.shape == (ITEMS, dim)


def test_recomputed_layers_give_the_same_bits() -> None:
    model, graph = model_of(), graph_of()
    plain = gradients(model, model(graph))
    model.checkpointing = True
    again = gradients(model, model(graph))
    assert all(torch.equal(plain[name], again[name]) for name in plain)


def test_a_node_without_interactions_has_its_own_part_alone() -> None:
    model = model_of(latent_dims=(6,), num_layers=1)
    users, _ = model(graph_of())
    tower = model.towers[0]
    (layer,) = tower.layers
    inner = F.leaky_relu(layer.inner(F.normalize(tower.preference)[6]), 0.01) + model.identity[6]
    nothing = torch.zeros(6, dtype=torch.float64)
    torch.testing.assert_close(users[6], F.leaky_relu(layer.joint(torch.cat([nothing, inner])), 0.01))
