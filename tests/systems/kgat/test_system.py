"""KGAT against the equations written out plainly: graph, attention, layers, losses, phases, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn import functional as F

from graphmill.errors import InputError, SettingsError
from graphmill.graph.build import build_graph
from graphmill.graph.interactions import knowledge_view
from graphmill.graph.settings import GraphSettings
from graphmill.graph.sorted_unique import in_sorted
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import restore
from graphmill.runs.resolve import parse_settings, read_settings, resolve
from graphmill.runs.train import train
from graphmill.runs.warm_start import read_warm_start
from graphmill.systems.kgat import graph as kgat_graph
from graphmill.systems.kgat.graph import CollaborativeGraph
from graphmill.systems.kgat.model import Kgat
from graphmill.systems.kgat.system import KgatSystem
from graphmill.systems.recommenders import row_selection as row_selection
from graphmill.systems.recommenders.system import PairBatch
from graphmill.training.contract import StepSizes
from tests.graph.test_interactions import tables
from tests.training.cases import CASES, recommender_graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return recommender_graph(tmp_path_factory.mktemp("kgat") / "graph")


def system_of(graph: TypedGraph, **sections: Any) -> KgatSystem:
    _, system = CASES["kgat"].build(graph, **sections)
    assert isinstance(system, KgatSystem)
    return system


def model_of(system: KgatSystem) -> Kgat:
    model = system.build(StepSizes()).double()
    assert isinstance(model, Kgat)
    return model


def facts_of(graph: CollaborativeGraph) -> set[tuple[int, int, int]]:
    return set(zip(graph.head.tolist(), graph.relation.tolist(), graph.tail.tolist(), strict=True))


def test_the_collaborative_graph_has_every_edge_in_both_directions(graph: TypedGraph) -> None:
    system = system_of(graph)
    facts, view = facts_of(system.facts), system.view
    assert system.facts.names == [
        "interacts", "interacts, inverse", "genre", "maker", "part_of",
        "genre, inverse", "maker, inverse", "part_of, inverse",
    ]  # fmt: skip
    user, item = int(view.train.row[0]), int(view.train.columns[0])
    assert (user + view.user_offset, 0, item + view.item_offset) in facts
    assert (item + view.item_offset, 1, user + view.user_offset) in facts
    assert (70 + 5, 4, 70) in facts  # part_of, and its inverse
    assert (70, 7, 70 + 5) in facts
    held_out = view.test.row[0] + view.user_offset, view.test.columns[0] + view.item_offset
    assert all((h, t) != held_out for h, _, t in facts)


def test_the_first_weights_are_random_walks_added_up_over_relations(graph: TypedGraph) -> None:
    g = system_of(graph).facts
    weight = g.matrix.forward.value.numpy()
    for node in (0, 45, 72):
        mine = g.head == node
        for relation in np.unique(g.relation[mine]):
            assert weight[mine & (g.relation == relation)].sum() == pytest.approx(1.0)


def test_attention_is_the_softmax_over_all_edges_of_a_node_whatever_their_relation(
    graph: TypedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = system_of(graph)
    model, g = model_of(system), system.facts
    result = g.attention(model)
    nodes = model.nodes().detach()
    logits = torch.stack(
        [
            (nodes[t] @ model.projections[r]) @ torch.tanh(nodes[h] @ model.projections[r] + model.translations[r])
            for h, r, t in zip(g.head, g.relation, g.tail, strict=True)
        ]
    ).detach()
    for node in range(graph.num_nodes):
        mine = torch.from_numpy(g.head == node)
        torch.testing.assert_close(result[mine], torch.softmax(logits[mine], 0), rtol=1e-10, atol=1e-12)
    assert len(g.scored) == 1
    for most, parts in ((60, 6), (1, g.num_relations)):  # several relations together, and each alone
        monkeypatch.setattr(kgat_graph, "TOGETHER", most)
        g.to(g.device)
        assert len(g.scored) == parts
        torch.testing.assert_close(g.attention(model), result, rtol=1e-12, atol=1e-12)


def test_masked_pairs_carry_nothing_in_the_step_that_is_to_predict_them(graph: TypedGraph) -> None:
    system = system_of(graph, objective={"mask_pairs": True}, model={"message_dropout": 0.0})
    model, g, view = model_of(system), system.facts, system.view
    batch = system.step(system.phases[0], 0, 0)
    pairs = set(
        zip((batch.users + view.user_offset).tolist(), (batch.positives + view.item_offset).tolist(), strict=True)
    )
    ends = zip(g.head.tolist(), g.relation.tolist(), g.tail.tolist(), strict=True)
    gone = [n for n, (h, r, t) in enumerate(ends) if (r == 0 and (h, t) in pairs) or (r == 1 and (t, h) in pairs)]
    assert batch.masked.tolist() == gone
    assert len(gone) == 2 * len(pairs)

    matrix = system._matrix(model)
    left = g.without(matrix, torch.from_numpy(batch.masked))
    weights = matrix.forward.value.clone()
    weights[gone] = 0
    assert torch.equal(left.forward.value, weights)
    assert torch.equal(left.transpose.value, weights[g.matrix.order])
    assert torch.equal(matrix.forward.value, model.attention), "the epoch's weights stay as they are"
    model.train()
    result = system.encode(model, batch).tensors["layer0"]
    torch.testing.assert_close(result, model(model.nodes(), left)[1][batch.nodes])
    # A step's parts all leave out what the whole step is to predict.
    parts = [*batch.split(3), batch.shard(1, 2)]
    assert all(np.array_equal(part.masked, batch.masked) for part in parts)
    assert all(np.array_equal(part.nodes, batch.nodes) for part in parts), "nor do ranks look up other nodes"


def test_masking_most_of_the_pairs_is_refused(graph: TypedGraph) -> None:
    pairs = system_of(graph).sampler.num_pairs
    batch = {"batch_size": pairs // 2 + 1}
    system_of(graph, acceleration=batch)
    with pytest.raises(SettingsError, match=rf"more than half of the {pairs:,} .*batch_size to {pairs // 2:,} or less"):
        system_of(graph, acceleration=batch, objective={"mask_pairs": True})


def test_evaluation_sees_every_interaction(graph: TypedGraph) -> None:
    masked, plain = (system_of(graph, objective={"mask_pairs": value}) for value in (True, False))
    model = model_of(plain)
    assert np.array_equal(masked.all_vectors(model), plain.all_vectors(model))


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", ["bi_interaction", "gcn", "graphsage"])
def test_a_step_looks_up_what_all_nodes_would_have(
    graph: TypedGraph, kind: str, checkpointing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On this small graph a batch reaches nearly all nodes; leave out those that it does not.
    monkeypatch.setattr(row_selection, "_NEARLY_ALL", 2.0)
    system = system_of(graph, model={"aggregation": kind, "message_dropout": 0.0})
    model = model_of(system)
    model.train()
    model.checkpointing = checkpointing
    batch = system.step(system.phases[0], 0, 0)
    rows, result = torch.from_numpy(batch.nodes), []
    wanted = np.concatenate((batch.users, *(x + system.view.item_offset for x in (batch.positives, batch.negatives))))
    assert batch.nodes.tolist() == sorted(set(wanted.tolist()))
    for at in (rows, None):
        states = model(model.nodes(), system._matrix(model), at)
        vectors = model.final(states if at is not None else [state[rows] for state in states])
        weight = torch.linspace(-1, 1, vectors.numel(), dtype=torch.float64).view_as(vectors)
        parameters = [*model.tables, *model.layers.parameters()]
        result.append((vectors.detach(), *torch.autograd.grad((vectors * weight).sum(), parameters)))
    torch.testing.assert_close(result[0], result[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("kind", "length"), [("bi_interaction", 1.0), ("gcn", 0.5), ("graphsage", 1.0)])
def test_layers_are_the_equations(graph: TypedGraph, kind: str, length: float) -> None:
    settings = {"aggregation": kind, "message_dropout": 0.0, "leaky_slope": 0.2, "layer_length": length}
    system = system_of(graph, model=settings)
    model = model_of(system)
    g = system.facts
    dense = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    dense.index_put_((torch.from_numpy(g.head), torch.from_numpy(g.tail)), model.attention, accumulate=True)
    state = model.nodes()
    parts = [state]
    for layer in model.layers:
        around = dense @ state
        w = layer.sum
        if kind == "graphsage":
            state = F.leaky_relu(torch.cat((state, around), 1) @ w.weight.T + w.bias, 0.2)
        elif kind == "gcn":
            state = F.leaky_relu((state + around) @ w.weight.T + w.bias, 0.2)
        else:
            p = layer.product
            state = F.leaky_relu((state + around) @ w.weight.T + w.bias, 0.2) + F.leaky_relu(
                (state * around) @ p.weight.T + p.bias, 0.2
            )
        parts.append(length * state / state.norm(dim=1, keepdim=True).clamp_min(1e-12))
    wanted = torch.cat(parts, 1)
    torch.testing.assert_close(model.final(model(model.nodes(), system._matrix(model))), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("loss", "negatives"), [("bpr", 1), ("bpr", 3), ("sampled_softmax", 3)])
def test_the_losses_are_the_equations(graph: TypedGraph, loss: str, negatives: int) -> None:
    objective = {"loss": loss, "negatives_per_positive": negatives}
    system = system_of(graph, model={"message_dropout": 0.0}, objective=objective)
    model = model_of(system)
    cf, kg = system.phases
    batch = system.step(cf, 0, 0)
    assert isinstance(batch, PairBatch)
    encoded = system.encode(model, batch)
    with torch.no_grad():
        pairs, norm = system.terms(model, batch, encoded)
    # The rows that are looked up, put back among all nodes.
    vectors = torch.zeros(graph.num_nodes, system.embedding_width, dtype=torch.float64)
    vectors[batch.nodes] = model.final(list(encoded.tensors.values())).detach()
    users, items = (vectors[o:] for o in (system.view.user_offset, system.view.item_offset))
    u, p, n = users[batch.users], items[batch.positives], items[batch.negatives.reshape(len(batch), negatives)]
    gap = (u * p).sum(1)[:, None] - (u[:, None] * n).sum(2)
    wanted = F.softplus(-gap).mean() if loss == "bpr" else torch.log1p(torch.exp(-gap).sum(1)).mean()
    assert float(pairs.sum / len(batch)) == pytest.approx(float(wanted.detach()))
    squares = (u**2 + p**2 + (n**2).mean(1)).sum()
    assert float(norm.sum) == pytest.approx(float(squares / 2))
    facts = system.step(kg, 0, 0)
    nodes = model.nodes()
    w, r = model.projections[facts.relations], model.translations[facts.relations]
    h, t, f = (torch.bmm(nodes[x][:, None], w)[:, 0] for x in (facts.heads, facts.tails, facts.wrong_tails))
    gap = (h + r - t).square().sum(1) - (h + r - f).square().sum(1)
    with torch.no_grad():
        true, l2 = system.terms(model, facts, system.encode(model, facts))
    assert float(true.sum / len(facts)) == pytest.approx(float(F.softplus(gap).mean()))
    assert float(l2.sum) == pytest.approx(float((h**2 + r**2 + t**2 + f**2).sum() / 2))
    assert l2.coefficient == 0.00001


def test_facts_are_drawn_from_the_graph_and_their_false_tails_are_false(graph: TypedGraph) -> None:
    g = system_of(graph).facts
    facts = facts_of(g)
    heads: list[int] = []
    for index in range(40):
        head, relation, tail, wrong = g.draw(40, 0, index)
        assert (np.diff(relation) >= 0).all()
        assert len(set(head.tolist())) == 40
        assert all(fact in facts for fact in zip(head.tolist(), relation.tolist(), tail.tolist(), strict=True))
        assert all(fact not in facts for fact in zip(head.tolist(), relation.tolist(), wrong.tolist(), strict=True))
        heads += head.tolist()
    # Uniform over nodes, not over edges: every node with edges about equally often.
    counts = np.bincount(heads, minlength=graph.num_nodes)[g.heads]
    assert counts.min() > 0.4 * counts.mean()


def test_negatives_of_users_are_never_training_items(graph: TypedGraph) -> None:
    system = system_of(graph)
    keys = np.sort(system.view.train.row * np.int64(30) + system.view.train.columns)
    for index in range(5):
        batch = system.step(system.phases[0], 0, index)
        assert in_sorted(batch.users * 30 + batch.positives, keys).all()
        assert not in_sorted(batch.users * 30 + batch.negatives, keys).any()


def test_the_batches_of_both_phases(graph: TypedGraph) -> None:
    def sizes(**sections: Any) -> list[tuple[int, int]]:
        sections["training"] = {"steps_per_epoch": 0}
        return [(p.batch_size, p.steps_per_epoch) for p in system_of(graph, **sections).phases]

    edges, pairs = len(system_of(graph).facts), len(system_of(graph).view.train)
    double = sizes(acceleration={"batch_size": 32}, objective={"kg_batch_size": 0})
    assert double == [(32, pairs // 32 + 1), (64, edges // 64 + 1)]
    assert sizes(acceleration={"batch_size": 32}, objective={"kg_batch_size": 7})[1] == (7, edges // 7 + 1)


def test_the_file_of_the_convention_per_gpu_is_the_published_protocol(repository: Path) -> None:
    path = repository / "examples" / "recommenders" / "kgat_per_gpu.yaml"
    settings: Any = parse_settings(read_settings(path), str(path))
    assert (settings.step_size(), settings.objective.kg_batch_size) == (1024, 0)
    protocol = (settings.training.epochs, settings.training.patience_epochs, settings.evaluation.eval_every)
    assert protocol == (1000, 100, 10), "over after ten evaluations without a better one"
    assert settings.evaluation.selection_split == "test"


def test_attention_is_state_it_changes_between_epochs_and_is_in_the_checkpoint(graph: TypedGraph) -> None:
    system = system_of(graph)
    model = system.build(StepSizes())
    assert isinstance(model, Kgat)
    first = model.attention.clone()
    system.begin_epoch(model, 0)
    assert torch.equal(model.attention, first)
    assert torch.equal(system._matrix(model).forward.value, first)
    system.begin_epoch(model, 1)
    assert not torch.equal(model.attention, first)
    assert torch.equal(system._matrix(model).forward.value, model.attention)
    assert "attention" in model.state_dict()


def test_each_phase_trains_its_own_parameters(graph: TypedGraph) -> None:
    system = system_of(graph)
    model = system.build(StepSizes())
    names = [{n.split(".")[0] for g in system.parameter_groups(model, p) for n in g.names} for p in system.phases]
    assert names == [{"tables", "layers"}, {"tables", "translations", "projections"}]


def test_it_starts_from_the_vectors_of_mf(graph: TypedGraph, tmp_path: Path) -> None:
    values = {
        "data": str(graph.path),
        "preset": "none",
        "model": {"embedding_dim": 8},
        "acceleration": {"device": "cpu"},
    }
    short = {"epochs": 2, "steps_per_epoch": 2}
    first = train({"system": "mf", **values, "training": short}, "test", root=str(tmp_path / "mf"))
    kgat = {**values, "system": "kgat", "model": {"embedding_dim": 8, "layer_dims": [4]}}
    system = KgatSystem(graph, resolve(kgat, "test").settings, "full")
    model, mf = system.build(StepSizes()), restore(first["run_dir"]).model
    start = read_warm_start(first["run_dir"])
    start.applied_to(system)(model)
    assert torch.equal(model.tables[0], mf.user)  # type: ignore[index]
    assert torch.equal(model.tables[1], mf.item)  # type: ignore[index]
    assert "70 of" in start.summary


def test_it_works_without_knowledge(tmp_path: Path) -> None:
    pairs = [(u, i, 0 if (u + i) % 5 else 2) for u in range(20) for i in range(12) if (u + i) % 3]
    nodes, edges = tables(pairs, 20, 12)
    graph = build_graph(nodes, edges, GraphSettings(add_reverse="never"), tmp_path / "g")
    system = system_of(graph)
    assert system.facts.num_relations == 2
    batch = system.step(system.phases[1], 0, 0)
    assert system.terms(model_of(system), batch, system.encode(model_of(system), batch))


def test_facts_mixed_with_added_reverses_are_refused(tmp_path: Path) -> None:
    graph = recommender_graph(tmp_path / "a")
    nodes = graph.node_table()
    source = recommender_graph(tmp_path / "b").edges(graph.relation("entity", "part_of", "entity"))
    rows = [("interacted", 0, 40, 0), ("part_of", 70 + int(source.src[0]), 70 + int(source.dst[0]), 0)]
    names = pa.array([r[0] for r in rows]).dictionary_encode()
    ends = {name: pa.array([r[i] for r in rows], pa.int32()) for i, name in ((1, "head"), (2, "tail"))}
    edges = pa.table({"relation": names, "display_relation": names, **ends, "split": pa.array([0, 0], pa.uint8())})
    mixed = build_graph(nodes, edges, GraphSettings(), tmp_path / "c")
    with pytest.raises(InputError, match="add_reverse: never"):
        system_of(mixed)
    assert len(knowledge_view(mixed, directed=False).head) == 2, "for what knows no direction both are facts"


def test_settings_that_make_no_sense_are_refused(graph: TypedGraph) -> None:
    with pytest.raises(SettingsError, match="layer_dims"):
        system_of(graph, model={"layer_dims": []})
    with pytest.raises(SettingsError, match="edge_sampled"):
        system_of(graph, acceleration={"batching": "edge_sampled"})
