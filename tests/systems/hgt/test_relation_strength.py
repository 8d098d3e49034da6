"""Relation strengths: chosen by validation links, kept by the checkpoint, never part of the loss."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphmill.evaluation.ranking.links import rank_links
from graphmill.evaluation.ranking.queries import LinkQueries, link_queries, relation_queries
from graphmill.evaluation.ranking.ranks import ranks_of
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.hgt.decoder import LinkDecoder
from graphmill.systems.hgt.relation_strength import STRENGTHS, fit_strength
from graphmill.training.contract import Execution
from graphmill.training.engine import Engine
from tests.training.cases import CASES, trained, typed_graph

HEADS, TAILS, DIM = 30, 60, 8


class Vectors:
    """Scores of a decoder on given vectors; every tail has its own degree."""

    def __init__(self, decoder: LinkDecoder, heads: torch.Tensor, tails: torch.Tensor) -> None:
        self.decoder, self.heads, self.tails = decoder, heads, tails
        self.log_degree = torch.arange(TAILS).flip(0).float().log1p()
        self.log_degree[0] = 6.0  # far above the others

    def score_targets(self, relation: int, heads: np.ndarray) -> torch.Tensor:
        return self.decoder.against_all(self.heads[torch.from_numpy(heads)], relation, self.tails, self.log_degree)


@pytest.fixture
def scorer() -> Vectors:
    draw = torch.Generator().manual_seed(3)
    heads, tails = torch.randn(HEADS, DIM, generator=draw), torch.randn(TAILS, DIM, generator=draw)
    return Vectors(LinkDecoder(3, DIM, "dot", popularity=True).requires_grad_(False), heads, tails)


def queries(scorer: Vectors) -> LinkQueries:
    """Relation 0 links each head to the most popular tail, 1 to the one that its vector points to, 2 is not asked for."""
    heads = np.arange(HEADS)
    nearest = (scorer.heads @ scorer.tails.T).argmax(1).numpy()
    none = np.zeros(0, dtype=np.int64)
    asked = [(heads, np.zeros(HEADS, dtype=np.int64)), (heads, nearest), (none, none)]
    return LinkQueries(
        "valid", tuple(relation_queries(i, f"r{i}", a, (none, none), [], HEADS, TAILS) for i, a in enumerate(asked))
    )


def test_a_relation_of_popularity_takes_the_smallest_factor_and_one_of_vectors_all_of_it(scorer: Vectors) -> None:
    asked = queries(scorer)
    scorer.decoder.popularity[1] = 0.1  # type: ignore[index]
    fit_strength(scorer.decoder, scorer, asked)
    chosen = scorer.decoder.strength.tolist()
    assert chosen[0] == pytest.approx(STRENGTHS[0])
    assert chosen[1] == 1.0
    assert chosen[2] == 1.0
    assert rank_links(scorer, asked, auc_negatives=0).relations[0].metrics["mrr"] == 1.0


def test_no_other_factor_ranks_the_asked_links_better(scorer: Vectors) -> None:
    rng = np.random.default_rng(0)
    none = np.zeros(0, dtype=np.int64)
    pairs = (np.repeat(np.arange(HEADS), 3), rng.integers(0, TAILS, 3 * HEADS))
    relation = relation_queries(0, "r", pairs, (none, none), [], HEADS, TAILS)
    fit_strength(scorer.decoder, scorer, LinkQueries("valid", (relation,)))
    best = np.mean(1 / ranks_of(scorer, relation).realistic)
    for factor in STRENGTHS:
        scorer.decoder.strength[0] = factor
        assert np.mean(1 / ranks_of(scorer, relation).realistic) <= best


def test_training_scores_and_gradients_leave_it_out() -> None:
    decoder = LinkDecoder(2, DIM, "distmult", popularity=True)
    draw = torch.Generator().manual_seed(1)
    nodes, links = torch.randn(10, DIM, generator=draw), torch.arange(5)
    arguments = (nodes, links, torch.tensor([0, 1, 0, 1, 0]), links[:, None] + 5, torch.rand(5, 1, generator=draw))
    before = decoder(*arguments)
    decoder.strength.fill_(0.1)
    assert torch.equal(decoder(*arguments), before)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(Path(tmp_path_factory.mktemp("strength")) / "graph")


def with_strength(graph: TypedGraph, strength: bool) -> tuple[Engine, float]:
    job, system = CASES["hgt-full"].build(
        graph, model={"relation_strength": strength}, training={"epochs": 3}, evaluation={"eval_every": 1}
    )
    engine = trained(job, system)
    scorer = system.scorer(engine.model.eval())
    return engine, rank_links(scorer, link_queries(graph, "valid"), auc_negatives=0).macro["mrr"]


def test_a_training_ranks_with_the_strengths_of_its_own_weights_and_learns_the_same_without(graph: TypedGraph) -> None:
    (fitted, mrr), (plain, plain_mrr) = with_strength(graph, True), with_strength(graph, False)
    strengths = fitted.model.state_dict()["decoder.strength"]
    assert set(strengths.tolist()) <= set(torch.tensor(STRENGTHS).tolist())
    assert bool((strengths < 1).any())
    assert torch.equal(plain.model.state_dict()["decoder.strength"], torch.ones_like(strengths))
    for (name, a), (_, b) in zip(fitted.model.named_parameters(), plain.model.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    assert mrr >= plain_mrr
    assert fitted.state.last_metrics["mrr"] == pytest.approx(mrr, rel=1e-6)


def test_final_figures_take_the_strengths_as_they_are(graph: TypedGraph) -> None:
    _, system = CASES["hgt-full"].build(graph)
    model = system.build(Execution()).eval()
    model.decoder.strength.fill_(0.5)
    for split in ("valid", "test"):
        system.evaluate(model, split, final=True, poll=lambda: None)
    assert model.decoder.strength.unique().tolist() == [0.5]
