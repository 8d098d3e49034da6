"""The ComplEx part of a softmax HGT: a phase of its own, and weights that held-out links choose."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from graphmill.errors import SettingsError
from graphmill.evaluation.ranking.links import rank_links
from graphmill.evaluation.ranking.queries import link_queries
from graphmill.explain.links import explain_links
from graphmill.graph.later_nodes import LaterNodes
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.planning import parts_of
from graphmill.runs.resolve import fingerprint, parse_settings
from graphmill.systems.factor.memory import has_reverses
from graphmill.systems.factor.model import products
from graphmill.systems.hgt import complex_part
from graphmill.systems.hgt.complex_part import complex_settings
from graphmill.systems.hgt.later_nodes import grown_factors, grown_links
from graphmill.systems.hgt.part_weights import fit_mix
from graphmill.systems.hgt.softmax import HgtSoftmaxSystem
from graphmill.systems.hgt.softmax_decoder import PARTS, PLAIN
from graphmill.systems.hgt.softmax_scorer import scorer_of
from graphmill.training.contract import Execution
from tests.systems.hgt import softmax_cases
from tests.training.cases import CASES, typed_graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(Path(tmp_path_factory.mktemp("hgt")) / "graph")


def built(graph: TypedGraph) -> tuple[HgtSoftmaxSystem, torch.nn.Module]:
    return softmax_cases.built(graph, "hgt-softmax-complex", torch.float64)


def test_each_phase_trains_its_own_weights(graph: TypedGraph) -> None:
    system, model = built(graph)
    _, second = system.phases
    assert (second.name, second.steps_per_epoch) == ("complex", 3)
    assert second.training is not None
    assert second.training.OPTIMIZER == "adagrad"
    of = {phase.name: {n for g in system.parameter_groups(model, phase) for n in g.names} for phase in system.phases}
    assert of["complex"] == {n for n, _ in model.named_parameters() if n.startswith("factors.")}
    assert not of["complex"] & of["train"]
    assert set(system.row_keys(model)) == {n for n, _ in model.named_parameters()}
    batch = system.step(second, 0, 0)
    assert [term.name for term in system.terms(model, batch, system.encode(model, batch))] == ["softmax", "n3"]  # type: ignore[arg-type]


def test_a_small_graph_gets_no_more_steps_than_five_passes_over_its_links(graph: TypedGraph) -> None:
    steps = complex_settings(graph, CASES["hgt-softmax"].job(graph, model={"complex_dim": 8}).settings).training
    links = sum(r["split"]["train"] for r in graph.manifest["relations"]) * (1 if has_reverses(graph) else 2)
    assert steps.steps_per_epoch == math.ceil(5 * links / 1024) < 1000


@pytest.mark.parametrize(
    ("links", "nodes", "n3"), [(99_999, 1_000, 0.1), (100_000, 1_001, 0.05), (100_000, 1_000, 0.02), (500, 5, 0.02)]
)
def test_the_more_links_the_less_norm(graph: TypedGraph, links: int, nodes: int, n3: float) -> None:
    many = SimpleNamespace(manifest={"relations": [{"split": {"train": links}}]}, num_nodes=nodes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(complex_part, "has_reverses", lambda _: True)
        settings = CASES["hgt-softmax"].job(graph, model={"complex_dim": 8}).settings
        assert complex_settings(many, settings).objective.n3 == n3  # type: ignore[arg-type]


def test_until_it_is_weighed_complex_says_nothing_and_then_its_score_is_added(graph: TypedGraph) -> None:
    system, model = built(graph)
    decoder, heads = model.decoder, np.arange(6)
    before = system.scorer(model).score_targets(1, heads)
    decoder.mix[1, PARTS.index("ComplEx")] = 0.5
    after = system.scorer(model).score_targets(1, heads)
    assert system.complex is not None
    tables = model.factors
    popularity, tables.popularity = tables.popularity, None
    complex_alone = system.complex.scorer(tables).score_targets(1, heads)
    tables.popularity = popularity
    torch.testing.assert_close(after - before, 0.5 * complex_alone, atol=1e-5, rtol=1e-4)


def test_weights_go_to_the_part_that_ranks_held_out_links(graph: TypedGraph) -> None:
    """Vectors of ComplEx that are planted, so that a link's target is the only node that scores."""
    system, model = built(graph)
    queries = link_queries(graph, "valid")
    n, width = graph.num_nodes, 2 * graph.num_nodes
    nodes, relations = np.zeros((n, width), np.float32), np.zeros((len(graph.relations), width), np.float32)
    nodes[:, :n] = np.eye(n)
    relations[:, :n] = 1.0
    for r in queries.relations:  # a head is its targets
        first, second = system.sums.offsets[r.relation]
        nodes[r.heads + first, r.tails + second] = 3.0
    scorer = system.scorer(model)
    scorer.factors = (nodes, relations)
    before = rank_links(scorer, queries, auc_negatives=0).macro["mrr"]
    fit_mix(model.decoder, scorer, queries, seed=0)
    mix = model.decoder.mix.clone()
    assert (mix[:, PARTS.index("ComplEx")] > 0).all()
    assert (mix >= 0).all()
    assert rank_links(scorer, queries, auc_negatives=0).macro["mrr"] > 2 * before
    fit_mix(model.decoder, scorer, queries, seed=0)
    assert torch.equal(mix, model.decoder.mix)


def test_what_ranks_no_better_is_left_as_it_was_trained(graph: TypedGraph) -> None:
    system, model = built(graph)
    scorer = system.scorer(model)
    assert scorer.factors is not None
    scorer.factors, scorer.features = (np.zeros_like(scorer.factors[0]), scorer.factors[1]), None
    only = model.decoder
    with torch.no_grad():  # every other part says the same of all
        only.sums.zero_()
        only.relation.zero_()
        only.popularity.zero_()
    fit_mix(only, scorer, link_queries(graph, "valid"), seed=0)
    assert only.mix.unique(dim=0).tolist() == [list(PLAIN)]


def test_an_explanation_has_complex_as_a_part_of_the_score(graph: TypedGraph) -> None:
    system, model = built(graph)
    model = model.float()
    model.decoder.mix.copy_(torch.tensor([0.5, 2.0, 3.0, 0.7, 0.9, 4.0, 0.8]))
    first, second = system.sums.offsets[1]
    (why,) = explain_links(system, model, 1, [first + 2], [second + 3])
    score = float(system.scorer(model).score_targets(1, np.array([2]))[0, 3])
    assert why.parts["ComplEx"] != 0.0
    assert sum(why.parts.values()) == pytest.approx(score, abs=0.02)


def test_arrays_of_an_export_are_small_and_score_by_themselves(graph: TypedGraph) -> None:
    system, model = built(graph)
    model.decoder.mix[:, 3] = 0.5
    vectors = np.concatenate([block.vectors for block in system.embeddings(model)]).astype(np.float32)
    arrays = system.scoring(model)
    assert arrays["complex.nodes"].shape == (graph.num_nodes, 8)
    found = scorer_of(arrays, vectors).score_targets(0, np.arange(4))
    torch.testing.assert_close(found, system.scorer(model).score_targets(0, np.arange(4)).float(), atol=1e-5, rtol=1e-5)
    without = scorer_of(
        {k: v for k, v in arrays.items() if not k.startswith(("complex.", "paths.")) and k != "mix"}, vectors
    )
    assert not torch.equal(found, without.score_targets(0, np.arange(4)))


def test_a_later_node_with_the_edges_of_a_known_one_gets_its_vector(graph: TypedGraph) -> None:
    """Where known vectors follow from their neighbours' by a linear map; drugs have edges to genes only."""
    system, _ = built(graph)
    number = next(n for n, t in enumerate(graph.node_types) if t.name == "drug")
    kind, twin, none = graph.node_types[number], 3, np.zeros(0, np.int64)
    edges = []
    for relation, matrix in zip(graph.relations, system.sums.outgoing, strict=True):
        new, pairs = np.int64(kind.count), matrix.tocoo()
        if relation.source == "drug":
            theirs = pairs.col[pairs.row == twin].astype(np.int64)
            edges.append((np.full_like(theirs, new), theirs))
        elif relation.target == "drug":
            theirs = pairs.row[pairs.col == twin].astype(np.int64)
            edges.append((theirs, np.full_like(theirs, new)))
        else:
            edges.append((none, none))
    later = LaterNodes([int(n == number) for n in range(len(graph.node_types))], edges)
    torch.manual_seed(0)
    nodes, relations = 30 * torch.randn(graph.num_nodes, 6), torch.randn(len(graph.relations), 6)
    nodes.requires_grad_()
    score, count = torch.zeros(()), np.zeros(graph.num_nodes)
    for r, matrix in enumerate(system.sums.outgoing):
        pairs, (first, second) = matrix.tocoo(), system.sums.offsets[r]
        heads, tails = (torch.from_numpy(np.asarray(at, np.int64)) for at in (pairs.row + first, pairs.col + second))
        score = score + (products(nodes[heads], relations[r][None], "complex") * nodes[tails]).sum()
        count += np.bincount(heads, minlength=graph.num_nodes) + np.bincount(tails, minlength=graph.num_nodes)
    rows = slice(kind.offset, kind.offset + kind.count)
    total, n = torch.autograd.grad(score, nodes)[0][rows], torch.from_numpy(count[rows, None]).float()
    known = nodes.detach().clone()
    known[rows] = torch.cat([total / (1 + n).sqrt(), total / (1 + n)], 1) @ torch.randn(12, 6)
    links = grown_links(later, system.sums, graph)
    grown = grown_factors(later, graph, links, (known.numpy(), relations.numpy()))
    np.testing.assert_allclose(grown[rows.stop], known[kind.offset + twin], rtol=0.02, atol=0.5)
    assert len(grown) == graph.num_nodes + 1


def test_settings_that_do_nothing_are_refused(graph: TypedGraph) -> None:
    with pytest.raises(SettingsError, match=r"complex_dim 7 is odd"):
        parse_settings({"system": "hgt", "model": {"complex_dim": 7}}, "x")
    with pytest.raises(SettingsError, match=r"complex_steps is not read with model\.complex_dim: 0"):
        parse_settings({"system": "hgt", "model": {"complex_dim": 0}, "training": {"complex_steps": 7}}, "x")
    with pytest.raises(SettingsError, match=r"complex_dim is not read with objective\.loss: link_contrastive"):
        parse_settings({"system": "hgt", "model": {"complex_dim": 8}, "objective": {"loss": "link_contrastive"}}, "x")


def test_a_run_without_it_is_the_run_that_it_was(graph: TypedGraph) -> None:
    job = CASES["hgt-softmax"].job(graph)
    other = CASES["hgt-softmax"].job(graph, model={"complex_dim": 8})
    assert fingerprint(job, "x", 7) != fingerprint(other, "x", 7)
    assert {"complex_dim"} == set(job.settings.unread("full")["model"])
    assert "complex_dim" not in other.settings.unread("full").get("model", [])


def test_its_memory_is_estimated(graph: TypedGraph) -> None:
    def held(when: str, width: int) -> float:
        job = CASES["hgt-softmax"].job(graph, model={"embedding_dim": 64, "complex_dim": width})
        return sum(part.bytes(Execution()) for part in parts_of(job, graph, "full") if part.when == when)

    vectors = 4 * 64 * (graph.num_nodes + len(graph.relations))
    assert held("weights", 64) - held("weights", 0) == pytest.approx(vectors, rel=0.1)
    assert held("always", 64) > held("always", 0)
