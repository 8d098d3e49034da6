"""Parts of a ranking's queries, and queries of chosen heads and candidates, against counts by hand."""

import numpy as np
import pytest
import torch

from graphmill.evaluation.baselines.links import DegreeScorer
from graphmill.evaluation.ranking.links import rank_links
from graphmill.evaluation.ranking.parts import NodeLabels, parts
from graphmill.evaluation.ranking.per_query import values_of
from graphmill.evaluation.ranking.queries import LinkQueries, first_nodes, link_queries, narrowed
from tests.evaluation.ranking.graphs import ChanceScorer, random_graph

GRAPH = random_graph(3)
QUERIES = link_queries(GRAPH, "test")


def test_every_way_of_parting_has_every_query_once_and_the_mean_of_all() -> None:
    rankings = {
        "model": rank_links(ChanceScorer(QUERIES), QUERIES),
        "degree": rank_links(DegreeScorer(QUERIES), QUERIES),
    }
    member = np.zeros((GRAPH.num_nodes, 2), bool)
    member[np.arange(GRAPH.num_nodes), np.arange(GRAPH.num_nodes) % 2] = True
    result = parts(QUERIES, rankings, first_nodes(GRAPH), NodeLabels("area", ("even", "odd"), member))
    kinds = {row["by"] for row in result}
    assert len(kinds) == 5
    for kind in kinds:
        rows = [row for row in result if row["by"] == kind]
        assert sum(row["queries"] for row in rows) == QUERIES.total
        for who, ranking in rankings.items():
            mean = sum(row["mrr"][who] * row["queries"] for row in rows) / QUERIES.total
            assert mean == pytest.approx(ranking.micro["mrr"])


def test_numbers_of_links_are_those_of_training() -> None:
    rankings = {"model": rank_links(ChanceScorer(QUERIES), QUERIES)}
    member = np.arange(GRAPH.num_nodes)[:, None] % 3 == 0
    result = parts(QUERIES, rankings, first_nodes(GRAPH), NodeLabels("third", ("yes",), member))
    few = labelled = 0
    offset = {each.name: each.offset for each in GRAPH.node_types}
    for queries, relation in zip(QUERIES.relations, GRAPH.relations, strict=True):
        edges = GRAPH.edges(relation.index)
        links = np.unique(np.stack([edges.src, edges.dst])[:, edges.split == 0], axis=1)
        for head, tail in zip(queries.heads, queries.tails, strict=True):
            few += 1 <= (links[0] == head).sum() <= 2
            labelled += (tail + offset[relation.target]) % 3 == 0
    output = {(row["by"], row["part"]): row["queries"] for row in result}
    assert output["training links of the head", "1 to 2"] == few
    assert output["third of the target", "yes"] == labelled


def test_chosen_candidates_are_ranked_among_themselves() -> None:
    relation = QUERIES.relations[0]
    rng = np.random.default_rng(1)
    table = torch.from_numpy(rng.random((len(relation.known_indptr) - 1, relation.candidates)))

    class Scorer:
        def score_targets(self, number: int, heads: np.ndarray) -> torch.Tensor:
            return table[heads]

    heads, candidates = np.arange(0, 30, 2), np.arange(1, 50, 2)
    yes = np.array([0 * 50 + 3, 2 * 50 + 5], np.int64)
    without = (relation.heads * 50 + relation.tails)[relation.heads % 2 == 0][:1]
    request = narrowed(relation, heads, candidates, yes, without)
    result = rank_links(Scorer(), LinkQueries("test", (request,)), ks=(1, 5))
    known = {(h, t) for h in range(30) for t in relation.known_tails[slice(*relation.known_indptr[h : h + 2])]}
    known |= {(int(pair) // 50, int(pair) % 50) for pair in yes}
    expected = []
    for head, tail in zip(relation.heads.tolist(), relation.tails.tolist(), strict=True):
        if head % 2 or not tail % 2 or head * 50 + tail in without:
            continue
        rivals = [c for c in candidates.tolist() if c != tail and (head, c) not in known]
        expected.append(1 + sum(float(table[head, c]) > float(table[head, tail]) for c in rivals))
    assert len(expected) > 5
    np.testing.assert_allclose(1 / result.relations[0].reciprocal, expected)
    assert set(request.targets.tolist()) <= set(candidates.tolist())
    hits, groups = values_of(result, "hits@5")
    assert hits.tolist() == [float(rank <= 5) for rank in expected]
    assert set(groups.tolist()) == {0}
