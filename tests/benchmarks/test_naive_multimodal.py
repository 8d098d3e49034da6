"""The plain MMGCN and DRAGON that benchmarks time compute what ours compute: the comparison is of the same function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.naive import multimodal
from benchmarks.recommenders_step import _graphs

from graphmill.graph.typed_graph import TypedGraph
from graphmill.training.contract import Execution
from tests.systems.recommenders.multimodal_recipes import gradient, recipe_of, small_graph
from tests.training.cases import THREE_SETS, TWO_SETS, recommender_graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return small_graph(tmp_path_factory.mktemp("naive"))


def training_pairs(view) -> torch.Tensor:  # type: ignore[no-untyped-def]
    return torch.from_numpy(np.stack((view.train.row, view.train.columns)).astype(np.int64))


def plain_mmgcn(recipe: Any, ours: Any) -> multimodal.MMGCN:
    """The plain model with the weights of ours."""
    view = recipe.view
    plain = multimodal.MMGCN(
        view.num_users, view.num_items, training_pairs(view), recipe.features(), recipe.latent_dims, dim=4
    )
    with torch.no_grad():
        plain.identity.copy_(ours.identity)
        for mine, theirs in zip(ours.towers, plain.towers, strict=True):
            theirs.preference.copy_(mine.preference)
            if mine.projection is not None:
                theirs.mapped.load_state_dict(mine.projection.state_dict())
            for number, layer in enumerate(mine.layers):
                theirs.message[number].copy_(layer.message)
                theirs.own[number].load_state_dict(layer.own.state_dict())
                theirs.joint[number].load_state_dict(layer.joint.state_dict())
    return plain


@pytest.mark.parametrize("sets", [TWO_SETS, THREE_SETS])
def test_mmgcn(sets: dict[str, int], tmp_path: Path) -> None:
    graph = recommender_graph(tmp_path / "graph", sets)
    recipe = recipe_of("mmgcn", graph, model={"trainable_embeddings": False}, objective={"regularisation": 0.0})
    ours = recipe.build(Execution())
    plain = plain_mmgcn(recipe, ours)
    users, items = recipe.vectors(ours)
    torch.testing.assert_close(torch.cat((users, items)), plain().detach(), rtol=1e-4, atol=1e-6)
    batch = recipe.step(recipe.phases[0], 0, 0)
    loss = plain.loss(*(torch.from_numpy(a) for a in (batch.users, batch.positives, batch.negatives)), 0.0)
    assert gradient(recipe, ours).losses["bpr"] == pytest.approx(float(loss.detach()), rel=1e-5)
    loss.backward()
    for mine, theirs in zip(ours.towers, plain.towers, strict=True):
        for number, layer in enumerate(mine.layers):
            torch.testing.assert_close(layer.message.grad, theirs.message[number].grad, rtol=1e-3, atol=1e-6)


def test_the_published_regulariser_of_mmgcn_moves_no_weight_and_is_left_out_where_tables_are_not_trained(
    graph: TypedGraph,
) -> None:
    """It squares tables that no optimizer sees: a constant, whichever modalities' preferences are in it."""
    gradients, losses = [], []
    for strength in (0.0, 0.7):
        objective = {"regularisation": strength}
        recipe = recipe_of("mmgcn", graph, model={"trainable_embeddings": False}, objective=objective)
        ours = recipe.build(Execution())
        plain = plain_mmgcn(recipe, ours)
        batch = recipe.step(recipe.phases[0], 0, 0)
        loss = plain.loss(*(torch.from_numpy(a) for a in (batch.users, batch.positives, batch.negatives)), strength)
        loss.backward()
        found = gradient(recipe, ours).losses
        assert set(found) == {"bpr", "total"}
        losses.append((float(loss.detach()), found["total"]))
        gradients.append([[p.grad for p in model.parameters() if p.grad is not None] for model in (plain, ours)])
        # All that is trained got one, in both.
        assert [len(grads) for grads in gradients[-1]] == [len(list(model.parameters())) for model in (plain, ours)]
    (theirs, mine), (theirs_with, mine_with) = losses
    assert theirs_with > theirs + 0.01
    assert mine_with == mine == pytest.approx(theirs, rel=1e-5)
    for without, with_it in zip(*gradients, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(without, with_it, strict=True))


@pytest.mark.parametrize("sets", [TWO_SETS, THREE_SETS])
@pytest.mark.parametrize("neighbours", [3, 40])
def test_dragon(sets: dict[str, int], neighbours: int, tmp_path: Path) -> None:
    graph = recommender_graph(tmp_path / "graph", sets)
    recipe = recipe_of("dragon", graph, model={"user_neighbours": neighbours}, objective={"regularisation": 0.0})
    ours, view = recipe.build(Execution()), recipe.view
    plain = multimodal.Dragon(
        view.num_users, view.num_items, training_pairs(view), recipe.features(), *_graphs(recipe), dim=4
    )
    with torch.no_grad():
        plain.modality_weights.copy_(ours.modality_weights.unsqueeze(2))
        for number, tower in enumerate(ours.towers):
            plain.preferences[number].copy_(ours.preferences[number])
            plain.hidden[number].load_state_dict(tower.hidden.state_dict())
            plain.out[number].load_state_dict(tower.out.state_dict())
    for a, b in zip(recipe.vectors(ours), plain(), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-4, atol=1e-6)
    batch = recipe.step(recipe.phases[0], 0, 0)
    loss = plain.loss(*(torch.from_numpy(a) for a in (batch.users, batch.positives, batch.negatives)), 0.0)
    assert gradient(recipe, ours).losses["total"] == pytest.approx(float(loss.detach()), rel=1e-5)
    loss.backward()
    for number, preference in enumerate(ours.preferences):
        torch.testing.assert_close(preference.grad, plain.preferences[number].grad, rtol=1e-3, atol=1e-6)


def test_the_plain_recall_is_ours(graph: TypedGraph) -> None:
    recipe = recipe_of("dragon", graph)
    model = recipe.build(Execution())
    users, items = recipe.vectors(model)
    view = recipe.view

    def sets(rows):  # type: ignore[no-untyped-def]
        return [set(part.tolist()) for part in np.split(rows.columns, rows.indptr[1:-1])]

    plain = multimodal.recall_at_20(users @ items.T, sets(view.train), sets(view.valid))
    assert recipe.evaluate(model, "valid", final=False, poll=lambda: None)["recall@20"] == pytest.approx(plain)
