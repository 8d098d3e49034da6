"""ComplEx, DistMult, RotatE and TransE: scores and losses against loops, inverses, candidates, refused settings."""

import math

import numpy as np
import pytest
import torch

from graphmill.errors import SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.settings import parse
from graphmill.systems.factor.model import scores_of_all, scores_of_pairs
from graphmill.systems.factor.settings import FactorSettings
from graphmill.systems.factor.system import FactorSystem, scorer_of
from graphmill.training.contract import StepSizes
from tests.systems.conve.graphs import random_graph
from tests.training.cases import typed_graph


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(tmp_path_factory.mktemp("typed") / "graph")


@pytest.fixture(scope="module")
def triples(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return random_graph(tmp_path_factory.mktemp("triples") / "graph")


def system_on(graph: TypedGraph, name: str = "complex", **sections) -> FactorSystem:
    values = {"model": {"embedding_dim": 6}, "preset": "none"}
    values = {name: {**values.get(name, {}), **section} for name, section in sections.items()} | {
        name: value for name, value in values.items() if name not in sections
    }
    return FactorSystem(graph, parse(FactorSettings, {"system": name, **values}, "test"), "full")


def complex_numbers(*vectors: np.ndarray) -> list[np.ndarray]:
    return [x[: len(x) // 2] + 1j * x[len(x) // 2 :] for x in vectors]


def score_by_hand(model, score: str, head: int, relation: int, tail: int) -> float:
    h, r, t = (
        x.detach().double().numpy() for x in (model.entities[head], model.relations[relation], model.entities[tail])
    )
    if score == "distmult":
        return float((h * r * t).sum())
    if score == "transe":
        return -float(np.linalg.norm(h + r - t))
    if score == "rotate":
        h, t = complex_numbers(h, t)
        return -float(np.linalg.norm(h * np.exp(1j * r) - t))
    h, r, t = complex_numbers(h, r, t)
    return float((h * r * t.conj()).sum().real)


SCORES = ("complex", "distmult", "rotate", "transe")


@pytest.mark.parametrize("score", SCORES)
def test_scores_are_those_of_the_papers_and_popularity(typed: TypedGraph, score: str) -> None:
    system = system_on(typed, score)
    model = system.build(StepSizes())
    torch.nn.init.normal_(model.popularity)
    for relation in typed.relations:
        source, target = typed.node_type(relation.source), typed.node_type(relation.target)
        edges = typed.edges(relation)
        result = system.scorer(model).score_targets(relation.index, np.array([0, 3]))
        assert result.shape == (2, target.count)
        for row, head in enumerate((0, 3)):
            for tail in (1, 5):
                expected = score_by_hand(model, score, source.offset + head, relation.index, target.offset + tail)
                degree = len(set(edges.src[(edges.split == 0) & (edges.dst == tail)].tolist()))
                expected += model.popularity[relation.index].item() * math.log1p(degree)
                assert float(result[row, tail]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("score", SCORES)
def test_an_export_scores_as_the_model(typed: TypedGraph, score: str) -> None:
    system = system_on(typed, score)
    model = system.build(StepSizes())
    torch.nn.init.normal_(model.popularity)
    exported = scorer_of(system.scoring(model), np.concatenate([b.vectors for b in system.embeddings(model)]))
    heads = np.array([0, 3, 7])
    for relation in typed.relations:
        wanted = system.scorer(model).score_targets(relation.index, heads)
        torch.testing.assert_close(exported.score_targets(relation.index, heads), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("score", SCORES)
def test_gradients_of_scores_are_their_slopes(score: str) -> None:
    torch.manual_seed(0)
    x, targets = (torch.randn(n, 6, dtype=torch.float64, requires_grad=True) for n in (3, 5))
    assert torch.autograd.gradcheck(lambda a, b: scores_of_all(a, b, score), (x, targets))
    pairs = scores_of_pairs(x, targets[:3], score)
    torch.testing.assert_close(scores_of_all(x, targets, score)[:, :3].diagonal(), pairs)


@pytest.mark.parametrize("name", ["rotate", "transe"])
def test_a_distances_loss_is_a_cross_entropy(typed: TypedGraph, name: str) -> None:
    system = system_on(typed, name, objective={"candidates": 0})
    model = system.build(StepSizes())
    torch.nn.init.zeros_(model.popularity)
    batch = system.step(system.phases[0], 0, 0).shard(0, 9)
    (softmax,) = system.terms(model, batch, system.encode(model, batch))
    loss = 0.0
    for head, relation, tail, number in zip(batch.head, batch.relation, batch.tail, batch.kind, strict=True):
        kind = typed.node_types[number]
        all_scores = [
            score_by_hand(model, name, head, relation, n) for n in range(kind.offset, kind.offset + kind.count)
        ]
        loss += math.log(sum(math.exp(s) for s in all_scores)) - all_scores[tail - kind.offset]
    assert softmax.sum.item() == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("candidates", [0, 7])
def test_the_loss_is_a_cross_entropy_among_the_targets_type(typed: TypedGraph, candidates: int) -> None:
    system = system_on(typed, objective={"candidates": candidates, "n3": 0.1})
    model = system.build(StepSizes())
    batch = system.step(system.phases[0], 0, 0).shard(0, 5)
    softmax, norm = system.terms(model, batch, system.encode(model, batch))
    loss = cubes = 0.0
    for place in range(len(batch)):
        head, relation, tail = int(batch.head[place]), int(batch.relation[place]), int(batch.tail[place])
        kind = typed.node_types[int(batch.kind[place])]
        nodes = range(kind.offset, kind.offset + kind.count)
        drawn = [int(n) for n in batch.candidates[int(batch.kind[place])]] if candidates else list(nodes)
        edges = typed.edges(relation)

        def degree(node: int, edges=edges, kind=kind) -> int:
            return len(set(edges.src[(edges.split == 0) & (edges.dst == node - kind.offset)].tolist()))

        score = score_by_hand(model, "complex", head, relation, tail) + math.log(degree(tail))
        others = [
            score_by_hand(model, "complex", head, relation, n) + math.log1p(degree(n)) for n in drawn if n != tail
        ]
        correction = math.log(kind.count / candidates) if candidates else 0.0
        loss += math.log(math.exp(score) + sum(math.exp(s + correction) for s in others)) - score
        for vector in (model.entities[head], model.relations[relation], model.entities[tail]):
            v = vector.detach().double().numpy()
            cubes += float((np.hypot(v[:3], v[3:]) ** 3).sum())
    assert float(softmax.sum) == pytest.approx(loss, rel=1e-4)
    assert float(norm.sum) == pytest.approx(cubes, rel=1e-4)
    assert norm.coefficient == 0.1


@pytest.mark.parametrize("name", ["complex", "distmult"])
def test_the_relation_is_predicted_among_all_of_a_graph_of_triples(triples: TypedGraph, name: str) -> None:
    system = system_on(triples, name, objective={"relation_weight": 0.25})
    model = system.build(StepSizes())
    batch = system.step(system.phases[0], 0, 0).shard(0, 9)
    term = system.terms(model, batch, system.encode(model, batch))[-1]
    loss = 0.0
    for head, relation, tail in zip(batch.head, batch.relation, batch.tail, strict=True):
        scores = [score_by_hand(model, name, head, r, tail) for r in range(system.num_relations)]
        loss += math.log(sum(map(math.exp, scores))) - scores[relation]
    assert (term.name, term.coefficient) == ("relation", 0.25)
    assert term.sum.item() == pytest.approx(loss, rel=1e-4)


def test_a_relation_alone_between_its_types_is_not_predicted(typed: TypedGraph) -> None:
    assert len({(r.source, r.target) for r in typed.relations}) == len(typed.relations)
    system = system_on(typed)
    assert set(system.step(system.phases[0], 0, 0).weights) == {"softmax", "n3"}


def test_what_the_loss_reads_goes_to_the_device_in_one_copy(typed: TypedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    system = system_on(typed, objective={"candidates": 7})
    model = system.build(StepSizes())
    batch = system.step(system.phases[0], 0, 0)
    encoded, copies, whole = system.encode(model, batch), [], system._tensors
    monkeypatch.setattr(system, "_tensors", lambda *arrays: (copies.append(len(arrays)), whole(*arrays))[1])
    system.terms(model, batch, encoded)
    assert copies == [3 + 8 * len(np.unique(batch.kind))]


def test_triples_are_asked_on_both_sides_and_typed_graphs_for_tails(typed: TypedGraph, triples: TypedGraph) -> None:
    both, tails = system_on(triples), system_on(typed)
    assert len(both.ranking_queries("test").relations) == 2 * len(triples.relations)
    assert both.num_relations == 2 * len(triples.relations)
    assert len(tails.ranking_queries("test").relations) == len(typed.relations)
    assert tails.num_relations == len(typed.relations)
    assert len(both.links) == 2 * sum(
        int((typed_split == 0).sum()) for typed_split in (triples.edges(r).split for r in triples.relations)
    )


def test_candidates_are_of_the_type_and_drawn_for_the_step(typed: TypedGraph) -> None:
    system = system_on(typed, objective={"candidates": 10}, acceleration={"batch_size": 50})
    first, again, other = (system.step(system.phases[0], 0, i) for i in (0, 0, 1))
    for kind, nodes in first.candidates.items():
        node_type = typed.node_types[kind]
        assert len(set(nodes.tolist())) == 10
        assert nodes.min() >= node_type.offset
        assert nodes.max() < node_type.offset + node_type.count
        np.testing.assert_array_equal(nodes, again.candidates[kind])
        assert set(nodes.tolist()) != set(other.candidates[kind].tolist())


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"embedding_dim": 7}}, "make it even"),
        ({"system": "rotate", "model": {"embedding_dim": 7}}, "half of a vector of rotate is real; make it even"),
        ({"system": "transe", "objective": {"n3": 0.1}}, "objective.n3 is not read with system: transe"),
        ({"system": "rotate", "objective": {"n3": 0.1}}, "objective.n3 is not read with system: rotate"),
        (
            {"system": "rotate", "objective": {"relation_weight": 1.0}},
            "relation_weight is not read with system: rotate",
        ),
        ({"model": {"scoring": "distmult"}}, "unknown setting 'model.scoring'"),
        ({"acceleration": {"batching": "edge_sampled"}}, "should be 'auto' or 'full'"),
        ({"acceleration": {"edge_sample_size": 3}}, "unknown setting"),
        ({"acceleration": {"compile": "default"}}, "nothing to compile"),
        ({"evaluation": {"metrics": ["recall"]}}, "unknown recall"),
        ({"evaluation": {"baselines": ["knnn"]}}, "known: knn, spectral, complex"),
    ],
)
def test_what_it_cannot_honour_is_refused(sections, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse(FactorSettings, {"system": "complex", **sections}, "test")
