"""MMGCN and DRAGON as systems: their loss by hand, features that matter, precision, settings that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import graphmill
from graphmill.errors import InputError, SettingsError
from graphmill.graph.build import build_graph
from graphmill.graph.interactions import Interactions
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.row_norm import normalise_rows
from graphmill.runs.warm_start import WarmStart
from graphmill.settings import parse
from graphmill.systems import registry
from graphmill.systems.recommenders import multimodal
from graphmill.systems.recommenders.multimodal import Modality, modalities
from graphmill.training.contract import StepSizes
from graphmill.training.precision import Precision
from tests.systems.recommenders.multimodal_systems import PARTS, gradient, small_graph, system_of, train
from tests.training.cases import THREE_SETS, recommender_graph

SYSTEMS = ("mmgcn", "dragon")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return small_graph(tmp_path_factory.mktemp("multimodal"))


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize(("loss", "negatives"), [("bpr", 1), ("bpr", 3), ("sampled_softmax", 3)])
def test_the_loss_is_that_of_the_final_vectors_of_all_nodes(
    graph: TypedGraph, name: str, loss: str, negatives: int
) -> None:
    system = system_of(name, graph, objective={"loss": loss, "negatives_per_positive": negatives})
    model = system.build(StepSizes()).double()
    batch = system.step(system.phases[0], 0, 0)
    result = gradient(system, model).losses[loss]
    users, items = system.vectors(model)
    against = batch.negatives.reshape(len(batch), -1)
    positive = (users[batch.users] * items[batch.positives]).sum(1)
    negative = (users[batch.users][:, None] * items[against]).sum(2)
    wanted = -torch.log(torch.sigmoid(positive[:, None] - negative)).mean()
    if loss == "sampled_softmax":
        wanted = -torch.log_softmax(torch.column_stack((positive, negative)), 1)[:, 0].mean()
    assert result == pytest.approx(float(wanted.detach()), rel=1e-6)


def test_the_regulariser_of_mmgcn_is_the_mean_over_rows_of_the_step(graph: TypedGraph) -> None:
    system = system_of("mmgcn", graph)
    model = system.build(StepSizes()).double()
    batch = system.step(system.phases[0], 0, 0)
    z, users = model.identity, system.view.num_users
    twice = np.repeat(batch.users, 2)
    items = np.stack((batch.positives, batch.negatives), axis=1).reshape(-1) + users
    wanted = (z[twice] ** 2 + z[items] ** 2).mean() + sum((t.preference**2).mean() for t in model.towers)
    assert gradient(system, model).losses["regularisation"] == pytest.approx(float(wanted.detach()), rel=1e-12)


def test_the_regulariser_of_dragon_is_the_mean_over_users_of_the_step(graph: TypedGraph) -> None:
    system = system_of("dragon", graph)
    model = system.build(StepSizes()).double()
    users = system.step(system.phases[0], 0, 0).users
    wanted = sum((p[users] ** 2).mean() for p in model.preferences) + (model.modality_weights**2).mean()
    assert gradient(system, model).losses["regularisation"] == pytest.approx(float(wanted.detach()), rel=1e-12)


def test_dragons_bpr_counts_in_bits(graph: TypedGraph) -> None:
    system = system_of("dragon", graph, objective={"regularisation": 0.0})
    result = gradient(system, system.build(StepSizes()))
    assert result.losses["total"] == pytest.approx(result.losses["bpr"] / np.log(2.0))


IDENTITY = {"model": {"identity_dim": 3}, "objective": {"negatives_per_positive": 2, "identity_regularisation": 0.2}}


@pytest.mark.parametrize("loss", ["bpr", "sampled_softmax"])
def test_dragons_vectors_by_id_are_trained_as_mf_trains_its(graph: TypedGraph, loss: str) -> None:
    """Whatever the features' part says of the same pairs; log₂ counts their norm less by ln 2."""
    system = system_of("dragon", graph, **IDENTITY | {"objective": IDENTITY["objective"] | {"loss": loss}})
    model = system.build(StepSizes()).double()
    alone_loss = {"loss": loss, "negatives_per_positive": 2, "regularisation": 0.2 * np.log(2.0)}
    alone = system_of("mf", graph, model={"embedding_dim": 3}, objective=alone_loss)
    twin = alone.build(StepSizes()).double()
    twin.load_state_dict(model.identities.state_dict())
    both, one = gradient(system, model, chunks=3), gradient(alone, twin)
    assert both.losses["identity"] == pytest.approx(one.losses[loss])
    assert both.losses["identity_norm"] == pytest.approx(one.losses["norm"])
    for name, p in twin.named_parameters():
        torch.testing.assert_close(model.identities.get_parameter(name).grad * np.log(2.0), p.grad)


def test_dragons_features_are_trained_as_without_vectors_by_id(graph: TypedGraph) -> None:
    system = system_of("dragon", graph, **IDENTITY)
    without = system_of("dragon", graph, objective={"negatives_per_positive": 2})
    model, other = system.build(StepSizes()).double(), without.build(StepSizes()).double()
    assert set(other.state_dict()) == {n for n in model.state_dict() if not n.startswith("identities.")}
    other.load_state_dict({n: v for n, v in model.state_dict().items() if not n.startswith("identities.")})
    gradient(system, model)
    gradient(without, other)
    for name, p in other.named_parameters():
        torch.testing.assert_close(model.get_parameter(name).grad, p.grad)


def test_dragons_scores_are_the_sum_of_both_parts(graph: TypedGraph) -> None:
    system = system_of("dragon", graph, **IDENTITY)
    model = system.build(StepSizes())
    users, items = system.vectors(model)
    assert users.shape[1] == items.shape[1] == system.embedding_width == 2 * 4 + 3
    assert torch.equal(users[:, -3:], model.identities.user)
    assert torch.equal(items[:, -3:], model.identities.item)
    assert system.all_vectors(model).shape[1] == system.embedding_width
    with torch.no_grad():
        model.identities.user.zero_()
    without = system.vectors(model)
    torch.testing.assert_close(users[:, :-3] @ items[:, :-3].T, without[0] @ without[1].T)


def test_dragons_vectors_by_id_start_from_those_of_mf(graph: TypedGraph) -> None:
    """``init_from`` goes by these labels and keys."""
    system, alone = system_of("dragon", graph, **IDENTITY), system_of("mf", graph, model={"embedding_dim": 3})
    keys, theirs = system.row_keys(system.build(StepSizes())), alone.row_keys(alone.build(StepSizes()))
    assert keys["identities.user"] == theirs["user"]
    assert keys["identities.item"] == theirs["item"]
    assert len({label for label, _ in keys.values()}) == len(keys)


@pytest.mark.parametrize("from_mmgcn", [False, True])
def test_mmgcns_table_starts_from_both_tables_of_mf_and_from_its_own(graph: TypedGraph, from_mmgcn: bool) -> None:
    """A user and an item may have one id, so the rows of the one table say which they are."""
    system, alone = system_of("mmgcn", graph), system_of("mf", graph)
    model, mf = system.build(StepSizes()), alone.build(StepSizes())
    if from_mmgcn:
        tensors = {"identity": torch.randn_like(model.identity)}
        rows = {"identity": system.row_keys(model)["identity"][1]}
    else:
        tensors = {"user": mf.user.detach(), "item": mf.item.detach()}
        rows = {"user": system.ids("user"), "item": system.ids("item")}
    start = WarmStart("x", tensors, rows)
    start.applied_to(system)(model)
    assert torch.equal(model.identity, torch.cat(list(tensors.values())))
    assert start.copied == len(model.identity)


def test_tables_that_are_not_trained_get_no_term_and_no_gradient(graph: TypedGraph) -> None:
    system = system_of("mmgcn", graph, model={"trainable_embeddings": False})
    model = system.build(StepSizes())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert set(gradient(system, model).losses) == {"bpr", "total"}
    trained, _ = train(system, 1)
    for name in ("identity", "towers.0.preference", "towers.1.preference"):
        assert torch.equal(before[name], trained.state_dict()[name])


def test_dragon_follows_its_graphs_for_some_rows_as_for_all(graph: TypedGraph) -> None:
    system = system_of("dragon", graph, model={"item_layers": 2})
    model = system.build(StepSizes()).double()
    gradient(system, model)
    usual = {name: p.grad.clone() for name, p in model.named_parameters()}
    gradient(system, model, chunks=3)
    for name, p in model.named_parameters():
        torch.testing.assert_close(usual[name], p.grad, rtol=1e-10, atol=1e-13)


def _shuffled(view: Interactions, names: Sequence[str], *, seed: int) -> list[Modality]:
    """The feature sets, with each item's features given to another."""
    sets = modalities(view, names)
    orders = [np.random.default_rng(seed).permutation(len(each.features)) for each in sets]
    return [Modality(m.name, m.features[order], m.present[order]) for m, order in zip(sets, orders, strict=True)]


@pytest.mark.parametrize("name", SYSTEMS)
def test_training_learns_and_features_help(graph: TypedGraph, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty items of five kinds that users keep to; what a user has not met is of the same kind by its features."""
    recalls = {}
    for shuffled in (False, True):
        result = []
        for seed in range(3):
            monkeypatch.setattr(multimodal, "modalities", partial(_shuffled, seed=seed) if shuffled else modalities)
            system = system_of(
                name,
                graph,
                model={"embedding_dim": 8, **({"num_layers": 1} if name == "mmgcn" else {})},
                training={"seed": seed},
                evaluation={"top_k": [5], "selection_metric": "ndcg@5"},
            )
            model, steps = train(system, 12)
            assert np.mean([s.losses["bpr"] for s in steps[-5:]]) < 0.8 * steps[0].losses["bpr"]
            held_out = [system.evaluate(model, split, final=False, poll=lambda: None) for split in ("valid", "test")]
            result.append(np.mean([figures["ndcg@5"] for figures in held_out]))
        recalls[shuffled] = np.mean(result)
    assert recalls[False] > recalls[True]


@pytest.mark.parametrize(
    ("name", "model", "width"),
    [
        ("mmgcn", {"num_layers": 1, "latent_dims": [0, 7, 0]}, 8),
        ("mmgcn", {"num_layers": 1, "combination": "add"}, 8),
        ("dragon", {"item_graph_weights": [0.2, 0.3, 0.5]}, 24),
    ],
)
def test_three_modalities_are_trained_together_and_each_of_them_has_its_part(
    tmp_path: Path, name: str, model: dict[str, Any], width: int
) -> None:
    graph = recommender_graph(tmp_path / "graph", THREE_SETS)
    system = system_of(name, graph, model={"embedding_dim": 8} | model)
    assert [m.name for m in system.modalities] == ["audio", "image", "text"]
    start = {name: p.clone() for name, p in system.build(StepSizes()).named_parameters()}
    trained, steps = train(system, 12)
    assert np.mean([s.losses["bpr"] for s in steps[-5:]]) < 0.8 * steps[0].losses["bpr"]
    assert not [name for name, p in trained.named_parameters() if torch.equal(p, start[name])], (
        "all of them are trained"
    )
    figures = system.evaluate(trained, "test", final=True, poll=lambda: None)
    assert 0.0 < figures["ndcg@20"] <= 1.0
    users, items = system.vectors(trained)
    assert users.shape[1] == items.shape[1] == system.embedding_width == width
    # Each tower has its own set's features, and whichever is taken away, the vectors are others.
    for tower, modality in zip(trained.towers, system.modalities, strict=True):  # type: ignore[call-overload]
        features = torch.tensor(np.asarray(modality.features))
        assert torch.equal(tower.features, features) or torch.equal(tower.features, normalise_rows(features))
        kept = tower.features.clone()
        tower.features.zero_()
        assert not torch.allclose(system.vectors(trained)[1], items)
        tower.features.copy_(kept)
    torch.testing.assert_close(system.vectors(trained)[1], items)


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_training_in_mixed_precision_is_finite_where_the_textbook_form_fails(
    graph: TypedGraph, name: str, precision: str
) -> None:
    system = system_of(name, graph, model={"embedding_dim": 8}, objective={"regularisation": 0.0})
    model = system.build(StepSizes())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0 if name == "mmgcn" else 12.0)
    users, items = system.vectors(model)
    assert float((users @ items.T).abs().max()) > 20.0  # where σ is 0 in fp16
    arithmetic = Precision(precision, torch.device("cpu"))
    arithmetic.scaler.scale = 1.0
    low, exact = gradient(system, model, precision=arithmetic), gradient(system, model)
    assert low.finite
    assert low.losses["bpr"] == pytest.approx(exact.losses["bpr"], rel=0.05)
    _, low_steps = train(system, 12, precision=precision)
    _, full_steps = train(system, 12)
    assert all(np.isfinite(step.losses["bpr"]) for step in low_steps)
    assert sum(not step.finite for step in low_steps) <= 10  # while the loss scale finds its size
    assert low_steps[-1].losses["bpr"] < 0.8 * low_steps[0].losses["bpr"]
    assert low_steps[-1].losses["bpr"] == pytest.approx(full_steps[-1].losses["bpr"], rel=0.25)


# ---------------------------------------------------------------- settings and input


@pytest.mark.parametrize("name", SYSTEMS)
def test_modalities_are_chosen_by_name_and_in_order(graph: TypedGraph, name: str) -> None:
    assert [m.name for m in system_of(name, graph).modalities] == ["image", "text"]
    assert [m.name for m in system_of(name, graph, model={"modalities": ["text"]}).modalities] == ["text"]
    turned = system_of(name, graph, model={"modalities": ["text", "image"]})
    assert [f.shape[1] for f in turned.features()] == [5, 6]
    with pytest.raises(SettingsError, match="'audio' is not a feature set of the items"):
        system_of(name, graph, model={"modalities": ["audio"]})


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_graph_without_features_is_refused(graph: TypedGraph, name: str, tmp_path: Path) -> None:
    nodes = graph.node_table()
    plain = build_graph(nodes, _edges(graph), GraphSettings(add_reverse="never"), tmp_path / "plain")
    with pytest.raises(InputError, match="no item features"):
        system_of(name, plain)


def test_latent_widths_by_default_and_by_hand(graph: TypedGraph) -> None:
    def widths(**model: object) -> list[int]:
        built = system_of("mmgcn", graph, model=model).build(StepSizes())
        return [tower.preference.shape[1] for tower in built.towers]

    assert widths() == [16, 5]  # 4 × embedding_dim; then the text features as they are
    assert widths(latent_dims=[0, 7]) == [6, 7]
    with pytest.raises(SettingsError, match="3 widths for 2 modalities"):
        widths(latent_dims=[1, 2, 3])


@pytest.mark.parametrize(
    ("name", "model", "sentence"),
    [
        ("mmgcn", {"latent_dims": [-1]}, "latent_dims"),
        ("mmgcn", {"modalities": ["image"], "latent_dims": [4, 4]}, "2 widths for 1 modalities"),
        ("dragon", {"item_graph_weights": [-0.1, 1.1]}, "a weight is 0 or more"),
        ("dragon", {"modalities": ["image"], "item_graph_weights": [0.1, 0.9]}, "2 numbers for 1 modalities"),
        ("dragon", {"item_neighbours": 1}, "item_neighbours"),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, model: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        parse(PARTS[name][0], {"model": model}, "test")  # type: ignore[arg-type]


def test_exported_width_is_known_beforehand(graph: TypedGraph) -> None:
    for name, model in (("mmgcn", {}), ("dragon", {})):
        system = system_of(name, graph, model=model)
        blocks = list(system.embeddings(system.build(StepSizes())))
        assert {block.vectors.shape[1] for block in blocks} == {system.embedding_width}
        assert sum(len(block.vectors) for block in blocks) == graph.num_nodes


@pytest.mark.parametrize("name", SYSTEMS)
def test_rows_are_called_by_node_ids_and_towers_by_modality(graph: TypedGraph, name: str) -> None:
    system = system_of(name, graph)
    model = system.build(StepSizes())
    parameters = dict(model.named_parameters())
    keys = system.row_keys(model)
    assert set(keys) == set(parameters)
    assert len({label for label, _ in keys.values()}) == len(keys)
    for parameter, (_, rows) in keys.items():
        assert len(rows) in (0, len(parameters[parameter]))
    alone = system_of(name, graph, model={"modalities": ["text"]})
    labels = {label for label, _ in alone.row_keys(alone.build(StepSizes())).values()}
    # The tower of a modality keeps its name wherever it stands: a later training can start from it.
    assert {label for label in labels if label.startswith(("text.", "towers.text."))} & {k for k, _ in keys.values()}


def _edges(graph: TypedGraph):  # type: ignore[no-untyped-def]
    import pyarrow as pa

    relation = next(r for r in graph.relations if r.name == "interacted")
    edges = graph.edges(relation)
    offsets = {t.name: t.offset for t in graph.node_types}
    names = pa.array(["interacted"] * len(edges.src)).dictionary_encode()
    head, tail = (
        pa.array((np.asarray(side).astype(np.int32) + offsets[kind]).astype(np.int32))
        for side, kind in ((edges.src, relation.source), (edges.dst, relation.target))
    )
    columns = {"relation": names, "display_relation": names, "head": head, "tail": tail}
    return pa.table(columns | {"split": pa.array(np.asarray(edges.split, np.uint8))})


@pytest.mark.parametrize("name", ["mmgcn", "dragon"])
def test_attributes_of_items_are_a_modality(name: str, tmp_path: Path) -> None:
    pairs = [(f"u{u}", f"i{i}", t) for u in range(12) for t, i in enumerate(range(u % 3, 24, 3))]
    tables = graphmill.read_interactions(pd.DataFrame(pairs, columns=["user", "item", "timestamp"]))
    about = pd.DataFrame([(f"i{i}", f"word{i % 3} thing", i) for i in range(24)], columns=["item", "words", "year"])
    tables = graphmill.read_attributes(tables, about, "item", words="text", year="number")
    graph = graphmill.build_graph(tables, tmp_path / "graph")
    settings = registry.settings_model(name).model_validate({"system": name, "data": str(graph.path)})
    (result,) = registry.create(name, graph, settings, "full").modalities  # type: ignore[attr-defined]
    assert result.name == "attributes"
    assert result.present.all()
