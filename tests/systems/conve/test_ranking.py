"""Filtered ranking on both sides, against loops, against PyKEEN's evaluator, and beside a frequency baseline."""

import numpy as np
import pytest
import torch

from graphmill.evaluation.ranking.links import LinkRanking, rank_links
from graphmill.evaluation.ranking.queries import LinkQueries, both_sides
from graphmill.evaluation.ranking.ranks import ranks_of
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.conve.data import both_directions, triples_of
from graphmill.systems.conve.exported import ConveScorer
from graphmill.training.contract import StepSizes
from tests.systems.conve.graphs import system_on


@pytest.fixture(scope="module")
def system(small: TypedGraph):
    return system_on(small)


@pytest.fixture(scope="module")
def model(system):
    model = system.build(StepSizes()).eval()
    with torch.no_grad():
        model.entities[1::2] = model.entities[0::2]  # a tie on every query
    return model


def rank_both_sides(scorer: ConveScorer, queries: LinkQueries, ks: tuple[int, ...]) -> LinkRanking:
    return rank_links(scorer, queries, ks=ks)


def ranks_by_hand(system, model, split: str) -> list[tuple[int, int, float, float]]:
    """(relation with inverses, number of options, optimistic, pessimistic rank) per query, with loops."""
    graph, m = system.graph, system.data.num_relations
    known = {tuple(t) for s in ("train", "valid", "test") for t in both_directions(triples_of(graph, s), m).tolist()}
    out = []
    for h, r, t in both_directions(triples_of(graph, split), m).tolist():
        scores = model.scores(model(torch.tensor([h]), torch.tensor([r])))[0].tolist()
        rivals = [s for e, s in enumerate(scores) if e == t or (h, r, e) not in known]
        above, same = sum(s > scores[t] for s in rivals), sum(s == scores[t] for s in rivals)
        out.append((r, len(rivals), above + 1.0, float(above + same)))
    return out


class TestAgainstLoops:
    @pytest.mark.parametrize("split", ["valid", "test"])
    def test_every_figure(self, system, model, split) -> None:
        hand = ranks_by_hand(system, model, split)
        result = rank_both_sides(ConveScorer(model, system.graph), both_sides(system.graph, split), (1, 3, 10))
        optimistic, pessimistic = np.array([h[2] for h in hand]), np.array([h[3] for h in hand])
        realistic = (optimistic + pessimistic) / 2
        assert (optimistic != pessimistic).any()
        assert result.micro["mrr"] == pytest.approx((1 / realistic).mean(), rel=1e-12)
        assert result.micro["mr"] == pytest.approx(realistic.mean(), rel=1e-12)
        assert result.micro["hits@3"] == pytest.approx((realistic <= 3).mean(), rel=1e-12)
        expected = np.mean([(h[1] - 1) / 2 for h in hand])
        assert result.micro["amri"] == pytest.approx(1 - (realistic - 1).mean() / expected, rel=1e-12)


class TestPyKeen:
    def test_figures_are_those_of_pykeens_evaluator_on_the_same_scores(self, system, model) -> None:
        pytest.importorskip("pykeen", reason="PyKEEN is not installed (an extra of the benchmarks)")
        from pykeen.evaluation import RankBasedEvaluator

        graph, m = system.graph, system.data.num_relations
        everything = [triples_of(graph, s) for s in ("train", "valid", "test")]
        known = {tuple(t) for t in both_directions(np.concatenate(everything), m).tolist()}
        evaluator = RankBasedEvaluator()
        test = triples_of(graph, "test")
        for target, triples in (("tail", test), ("head", both_directions(test, m)[len(test) :])):
            x = model(torch.from_numpy(triples[:, 0]), torch.from_numpy(triples[:, 1]))
            scores = model.scores(x).detach()
            true = scores.gather(1, torch.from_numpy(triples[:, 2])[:, None])
            for row, (h, r, t) in enumerate(triples.tolist()):
                others = [e for e in range(scores.shape[1]) if e != t and (h, r, e) in known]
                scores[row, others] = float("nan")
            evaluator.process_scores_(torch.from_numpy(test), target, scores, true)
        scorer, queries = ConveScorer(model, graph), both_sides(graph, "test")
        parts = [ranks_of(scorer, r) for r in queries.relations if len(r.heads)]
        for kind in ("realistic", "optimistic", "pessimistic"):
            mine = np.concatenate([getattr(part, kind) for part in parts])
            theirs = [ranks for (_, k), result in evaluator.ranks.items() if str(k) == kind for ranks in result]
            assert np.array_equal(np.sort(mine), np.sort(np.concatenate(theirs))), kind
        figures = rank_both_sides(scorer, queries, (1, 3, 5, 10)).micro
        theirs = evaluator.finalize()
        names = {
            "mrr": "both.realistic.inverse_harmonic_mean_rank",
            "mr": "both.realistic.arithmetic_mean_rank",
            "amri": "both.realistic.adjusted_arithmetic_mean_rank_index",
        } | {f"hits@{k}": f"both.realistic.hits_at_{k}" for k in (1, 3, 5, 10)}
        for name, theirs_name in names.items():  # their means are in single precision
            assert figures[name] == pytest.approx(theirs.get_metric(theirs_name), rel=1e-6), name
