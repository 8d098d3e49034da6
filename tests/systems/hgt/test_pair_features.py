"""Pair features of a softmax HGT: kNN's similarities and paths, in the score, the export and the explanation."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphmill.errors import SettingsError
from graphmill.evaluation.baselines.neighbours import NeighbourScorer, NeighbourSetting
from graphmill.evaluation.baselines.train_edges import TrainEdges
from graphmill.evaluation.ranking.queries import link_queries
from graphmill.explain.links import explain_links
from graphmill.graph.similar_neighbours import similar
from graphmill.graph.spectral import neighbourhoods, neighbourhoods_of_links
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.resolve import parse_settings
from graphmill.systems.hgt.pair_features import PathWeights
from graphmill.systems.hgt.part_weights import BEST, _mean_of_best, _mixtures, fit_mix
from graphmill.systems.hgt.softmax import HgtSoftmaxSystem
from graphmill.systems.hgt.softmax_decoder import PARTS, PLAIN
from graphmill.systems.hgt.softmax_scorer import scorer_of
from graphmill.systems.hgt.spectral import NeighbourSums
from tests.systems.hgt import softmax_cases
from tests.training.cases import CASES, typed_graph

MIX = [0.5, 2.0, 3.0, 0.0, 0.9, 4.0, 0.8]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(Path(tmp_path_factory.mktemp("hgt")) / "graph")


def built(graph: TypedGraph) -> tuple[HgtSoftmaxSystem, torch.nn.Module]:
    return softmax_cases.built(graph, "hgt-softmax", torch.float32)


def test_neighbourhoods_are_those_of_the_knn_baseline(graph: TypedGraph) -> None:
    system, model = built(graph)
    features = system.features_of(model)
    assert features is not None
    edges = TrainEdges(graph)
    knn = NeighbourScorer(edges, edges.neighbourhoods(3.0), NeighbourSetting(damping=0.5, strength=0.0))
    for relation in range(len(graph.relations)):
        heads = np.array([0, 5, 2])
        degrees = np.log1p(np.asarray(edges.matrix(relation).sum(0)).ravel())
        expected = knn.score_targets(relation, heads).numpy() - 1e-6 * degrees
        np.testing.assert_allclose(features.neighbours(relation, heads), expected, atol=2e-6)


def test_an_exports_neighbourhoods_are_the_graphs(graph: TypedGraph) -> None:
    own, told = neighbourhoods(graph), neighbourhoods_of_links(TrainingLinks.of_graph(graph))
    assert (own.matrix != told.matrix).nnz == 0
    np.testing.assert_array_equal(own.columns, told.columns)


def test_products_of_blocks_are_those_of_all(graph: TypedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    own, theirs = (sp.random(n, 30, 0.2, "csr", np.float32, rng) for n in (20, 11))
    links = sp.random(20, 11, 0.3, "csr", np.float32, rng)
    links.data[:] = 1
    whole = similar(own, theirs, links, np.arange(20))
    monkeypatch.setattr("graphmill.graph.similar_neighbours.BLOCK_BYTES", 700)
    for name, part in similar(own, theirs, links, np.arange(20)).items():
        np.testing.assert_allclose(part, whole[name], rtol=1e-5)
    np.testing.assert_allclose(whole["source"], (own @ own.T @ links).toarray(), rtol=1e-5)
    np.testing.assert_allclose(whole["target"], (links @ theirs @ theirs.T).toarray(), rtol=1e-5)


def planted(seed: int = 0) -> NeighbourSums:
    """Relation 0 joins what two steps of relation 1 join, nine times in ten; relation 2 is chance. Pairs are their own."""
    rng = np.random.default_rng(seed)
    n = 80
    step = rng.permutation(n)
    goal = np.where(rng.random(n) < 0.9, step[step], rng.integers(0, n, n))
    edges = [(np.arange(n), goal), (np.arange(n), step), (rng.integers(0, n, 300), rng.integers(0, n, 300))]
    matrices, at = [], 1
    for heads, tails in edges:
        key = np.unique(heads * n + tails)
        matrices.append(sp.csr_matrix((np.arange(at, at + len(key)), (key // n, key % n)), (n, n)))
        at += len(key)
    return NeighbourSums(matrices, [(0, 0)] * 3)


def test_the_path_that_was_planted_is_found_and_weighs_most() -> None:
    links = planted()
    paths = PathWeights(3)
    paths.fit(links, seed=0)
    assert paths.channels[0, int(paths.weights[0].argmax())].tolist() == [1, 1]
    again = PathWeights(3)
    again.fit(links, seed=0)
    assert torch.equal(paths.weights, again.weights)


def test_a_link_is_no_evidence_for_itself_by_its_reverse() -> None:
    """In a symmetric relation of chance the way back is there for each training link, and for no held-out one."""
    rng = np.random.default_rng(1)
    n, pairs = 60, {tuple(sorted(p)) for p in rng.integers(0, 60, (150, 2)).tolist() if p[0] != p[1]}
    ends = np.array(sorted(pairs))
    # Two relations, each the other's reverse but for one edge, so that neither is left out as the same.
    numbers = np.arange(1, len(ends) + 1)
    forth = sp.csr_matrix((numbers, (ends[:, 0], ends[:, 1])), (n, n))
    back = sp.csr_matrix((numbers[1:], (ends[1:, 0], ends[1:, 1])), (n, n))
    paths = PathWeights(2)
    paths.fit(NeighbourSums([forth, back], [(0, 0)] * 2), seed=0)
    direct = paths.weights[0][(paths.channels[0] == torch.tensor([1, -1])).all(1)]
    assert len(direct) == 1
    assert float(direct.abs()) < 0.5


def test_all_paths_in_one_product_are_those_of_each_channel(graph: TypedGraph) -> None:
    system, model = built(graph)
    features = system.features_of(model)
    assert features is not None
    heads = np.array([3, 0, 7])
    for relation in range(len(graph.relations)):
        expected = np.zeros((3, system.data.relations[relation].num_targets))
        for (first, second), weight in zip(features.channels[relation], features.weights[relation], strict=True):
            if weight:
                found = features.typed.step(int(first))[heads]
                expected += weight * (found if second < 0 else found @ features.typed.step(int(second))).toarray()
        expected = np.sign(expected) * np.log1p(np.abs(expected))
        np.testing.assert_allclose(features.paths(relation, heads), expected, atol=1e-5)
    assert (features.weights != 0).any()


def test_score_export_and_explanation_are_one(graph: TypedGraph) -> None:
    system, model = built(graph)
    plain = system.scorer(model).score_targets(1, np.array([2]))
    model.decoder.mix.copy_(torch.tensor(MIX))
    first, second = system.sums.offsets[1]
    score = system.scorer(model).score_targets(1, np.array([2]))
    assert not torch.allclose(plain, score)
    pairs = system.scorer(model).score(1, np.array([2, 2]), np.array([3, 8]))
    torch.testing.assert_close(pairs, score[0, [3, 8]].float(), rtol=1e-5, atol=1e-5)
    vectors = np.concatenate([block.vectors for block in system.embeddings(model)])
    exported = scorer_of(system.scoring(model), vectors).score_targets(1, np.array([2]))
    torch.testing.assert_close(exported, score.float(), rtol=1e-5, atol=1e-5)
    for tail in (3, 8, 11):
        (why,) = explain_links(system, model, 1, [first + 2], [second + tail])
        assert sum(why.parts.values()) == pytest.approx(float(score[0, tail]), abs=0.02)


def test_what_pairs_are_told_is_shared_out_to_edges(graph: TypedGraph) -> None:
    system, model = built(graph)
    model.decoder.mix.copy_(torch.tensor([0.0, 0, 0, 0, 0, 4.0, 0.8]))
    features = system.features_of(model)
    assert features is not None
    relation = system.data.relations[0]
    first, second = system.sums.offsets[0]
    head, tail = int(relation.src[0]), int(relation.dst[0])
    (why,) = explain_links(system, model, 0, [first + head], [second + tail])
    told = sum(why.parts[name] for name in ("neighbourhoods in common", "paths of one or two edges"))
    of_edges = sum(e.share for e in (*why.evidence, *why.against)) + why.other
    assert of_edges == pytest.approx(told, rel=1e-4)


def test_weights_go_to_the_feature_that_ranks(graph: TypedGraph) -> None:
    system, model = built(graph)
    scorer = system.scorer(model)
    assert scorer.features is not None
    queries = link_queries(graph, "valid")
    asked = {r.relation: np.zeros((len(r.known_indptr) - 1, r.candidates), np.float32) for r in queries.relations}
    for r in queries.relations:
        asked[r.relation][r.heads, r.tails] = 50.0
    scorer.features.paths = lambda relation, heads: asked[relation][heads]  # type: ignore[method-assign]
    fit_mix(model.decoder, scorer, queries, seed=0)
    assert (model.decoder.mix[:, PARTS.index("paths")] > 0).all()
    system._features = None


def test_weights_are_the_mean_of_the_best_choices() -> None:
    mixes = torch.rand(9, len(PARTS))
    values = np.array([0.2, 0.9, 0.1, 0.8, 0.7, 0.6, 0.5, 0.1, 0.1])
    torch.testing.assert_close(_mean_of_best(mixes, values), mixes[[1, 3, 4, 5, 6]].mean(0))
    assert BEST == 5
    assert torch.equal(_mean_of_best(mixes, np.full(9, 0.3)), mixes[0]), "what ranks no better changes nothing"


def test_a_checkpoint_holds_the_weights(graph: TypedGraph) -> None:
    system, model = built(graph)
    system.scorer(model)
    again = CASES["hgt-softmax"].model(system, torch.float32)
    again.load_state_dict(model.state_dict())
    assert bool(again.paths.fitted)
    assert torch.equal(again.paths.weights, model.paths.weights)


def test_without_them_nothing_is_weighed(graph: TypedGraph) -> None:
    _, system = CASES["hgt-softmax-alone"].build(graph)
    assert isinstance(system, HgtSoftmaxSystem)
    model = CASES["hgt-softmax-alone"].model(system, torch.float32)
    assert model.decoder.mix is None
    assert system.features_of(model) is None
    assert "paths.channels" not in system.scoring(model)
    assert len(PLAIN) == len(PARTS)
    with pytest.raises(SettingsError, match=r"pair_features is not read with objective\.loss: link_contrastive"):
        parse_settings(
            {"system": "hgt", "model": {"pair_features": False}, "objective": {"loss": "link_contrastive"}}, "x"
        )


def test_a_strength_that_nothing_reads_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"relation_strength is not read where validation links weigh"):
        parse_settings({"system": "hgt", "model": {"relation_strength": False}}, "x")
    off = {"pair_features": False, "complex_dim": 0}
    parse_settings({"system": "hgt", "model": {"relation_strength": False, **off}}, "x")
    parse_settings(
        {"system": "hgt", "model": {"relation_strength": False}, "objective": {"loss": "link_contrastive"}}, "x"
    )


def test_mixtures_are_the_sums_of_their_amounts() -> None:
    """What neighbouring choices share is summed once; the sum itself is the same, bit for bit."""
    scores = [torch.randn(3, 5, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    choices = [choice for choice in product((1.0, 0.0), (0.0, 0.3), (0.0, 5.0, 20.0)) if any(choice)]
    found = list(_mixtures(scores, choices))
    assert len(found) == len(choices)
    for choice, mixture in zip(choices, found, strict=True):
        assert torch.equal(mixture, sum(a * s for a, s in zip(choice, scores, strict=True)))


def test_a_score_is_the_sum_of_its_parts_alone(graph: TypedGraph) -> None:
    """The products of parts without weight are left out; what is left has the shape and the values of the whole."""
    system, model = built(graph)
    scorer, heads = system.scorer(model), np.array([0, 2, 3])

    def scored(mix: list[float]) -> torch.Tensor:
        model.decoder.mix.copy_(torch.tensor(mix))
        return scorer.score_targets(1, heads)

    alone = [scored([float(n == number) for n in range(len(PARTS))]) for number in range(len(PARTS))]
    assert {part.shape for part in alone} == {scored(MIX).shape}
    torch.testing.assert_close(sum(w * part for w, part in zip(MIX, alone, strict=True)), scored(MIX))
