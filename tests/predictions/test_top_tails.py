"""The best tails are those of brute force, whatever the blocks, ties included; median ranks and diversity from them."""

import numpy as np
import pytest
import torch

from graphmill.errors import TrainingError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions import top_tails
from graphmill.predictions.top_tails import best_tails, diversity, median_ranks, top_of_rows
from tests.predictions.conftest import candidates_of, random_scores, relation_called

SPLITS = {"exclude": (0, 1, 2), "exclude_train": (0,), "flag": (3,)}


def open_scores(graph: TypedGraph, relation, scores: np.ndarray, splits: tuple[int, ...]) -> np.ndarray:
    """By a loop over the edges."""
    scores, edges = scores.copy(), graph.edges(relation.index)
    for head, tail, split in zip(edges.src, edges.dst, edges.split, strict=True):
        if split in splits:
            scores[head, tail] = -np.inf
    if relation.source == relation.target:
        np.fill_diagonal(scores, -np.inf)
    return scores


@pytest.mark.parametrize("known", SPLITS)
@pytest.mark.parametrize("values", [4, 1 << 20])
@pytest.mark.parametrize(("name", "source"), [("drug_protein", "drug"), ("protein_protein", "gene/protein")])
def test_the_best_tails_are_those_of_brute_force(
    graph: TypedGraph, monkeypatch: pytest.MonkeyPatch, known: str, values: int, name: str, source: str
) -> None:
    relation = relation_called(graph, name, source)
    scores = random_scores(graph, relation, values)
    expected, k = open_scores(graph, relation, scores, SPLITS[known]), 5
    rows = []
    for head in range(len(scores)):
        order = sorted(range(scores.shape[1]), key=lambda tail: (-expected[head, tail], tail))
        rows += [(head, tail, rank) for rank, tail in enumerate(order[:k], 1) if np.isfinite(expected[head, tail])]
    candidates = candidates_of(graph, relation, scores, *SPLITS[known])
    for block in (1, 10**6):
        monkeypatch.setattr(top_tails, "BLOCK_SCORES", block)
        result = best_tails(candidates, np.arange(len(scores)), k)
        assert list(zip(result.heads, result.tails, result.ranks, strict=True)) == rows
        assert (result.scores == scores[result.heads, result.tails]).all()
    edges = graph.edges(relation.index)
    split_of = {(h, t): s for h, t, s in zip(edges.src, edges.dst, edges.split, strict=True)}
    assert result.known.tolist() == [split_of.get((h, t), -1) for h, t, _ in rows]
    if known == "flag":
        assert (result.known >= 0).any()


def test_a_head_with_fewer_candidates_gets_what_there_is() -> None:
    tails, values = top_of_rows(torch.tensor([[1.0, -torch.inf, 1.0, 0.5]]), 9)
    assert tails.tolist() == [[0, 2, 3, 1]]
    assert values.tolist() == [[1.0, 1.0, 0.5, -np.inf]]


def test_scores_that_are_not_finite_are_refused(graph: TypedGraph) -> None:
    relation = graph.relations[0]
    scores = random_scores(graph, relation)
    scores[0, 0] = np.nan
    with pytest.raises(TrainingError, match="not finite: the model has diverged"):
        best_tails(candidates_of(graph, relation, scores), np.arange(3), 2)


def test_a_median_rank_is_that_over_the_heads_for_which_the_tail_is_open(graph: TypedGraph) -> None:
    relation = relation_called(graph, "protein_protein", "gene/protein")
    scores = random_scores(graph, relation, 30)
    expected = open_scores(graph, relation, scores, (0, 1, 2))
    candidates = candidates_of(graph, relation, scores)
    heads = np.unique(candidates.links_of(0)[0])
    ranks: list[list[int]] = [[] for _ in range(scores.shape[1])]
    for head in heads:
        order = [t for t in np.argsort(-expected[head], kind="stable") if np.isfinite(expected[head, t])]
        for rank, tail in enumerate(order, 1):
            ranks[tail].append(rank)
    result = median_ranks(candidates, 10**6, seed=0)
    np.testing.assert_allclose(result, [np.median(each) for each in ranks])
    drawn = median_ranks(candidates, 8, seed=0)
    assert (drawn == median_ranks(candidates, 8, seed=0)).all()
    assert (drawn != result).any()


def test_a_tail_that_is_first_for_everybody_is_seen(graph: TypedGraph) -> None:
    relation = relation_called(graph, "drug_protein", "drug")
    scores = random_scores(graph, relation)
    candidates = candidates_of(graph, relation, scores)
    varied = diversity(best_tails(candidates, np.arange(24), 3), candidates, 3)
    scores[:, 7] = 1 << 21
    candidates = candidates_of(graph, relation, scores, 3)
    flyer = diversity(best_tails(candidates, np.arange(24), 3), candidates, 1)
    assert (flyer["distinct_tails"], flyer["top_tail_share"]) == (1, 1.0)
    assert varied["distinct_tails"] > 8
    assert varied["top_tail_share"] < 0.5
    assert median_ranks(candidates, 100, seed=0)[7] == 1.0
