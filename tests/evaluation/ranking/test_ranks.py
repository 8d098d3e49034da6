"""Filtered ranks are exact: worked by hand, against a loop over candidates, and for any block size."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.errors import TrainingError
from graphmill.evaluation.ranking.queries import RelationQueries, link_queries, relation_queries
from graphmill.evaluation.ranking.ranks import ranks_of

from .graphs import random_graph

NONE = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


class Table:
    """Scores from a table heads × candidates, recording the sizes that were asked for."""

    def __init__(self, scores: np.ndarray, dtype: torch.dtype = torch.float32) -> None:
        self.scores = torch.as_tensor(scores, dtype=dtype)
        self.batches: list[np.ndarray] = []

    def score_targets(self, relation: int, heads: np.ndarray) -> torch.Tensor:
        self.batches.append(heads)
        return self.scores[torch.from_numpy(heads)]


def queries_of(
    heads: list[int], tails: list[int], known: list[tuple[int, int]], shape: tuple[int, int]
) -> RelationQueries:
    further = np.array(known, dtype=np.int64).reshape(-1, 2)
    return relation_queries(
        0, "r", (np.array(heads), np.array(tails)), NONE, [(further[:, 0], further[:, 1])], shape[0], shape[1]
    )


@pytest.mark.parametrize(
    ("known", "optimistic", "pessimistic", "realistic"), [([], 2, 4, 3.0), ([(0, 0)], 1, 3, 2.0), ([(0, 2)], 2, 3, 2.5)]
)
def test_ties_are_between_the_optimistic_and_the_pessimistic_rank(
    known: list[tuple[int, int]], optimistic: int, pessimistic: int, realistic: float
) -> None:
    """Scores .9 .5 .5 .5 .1, target 1; first raw, then with the best filtered, then with a tied one filtered."""
    ranks = ranks_of(Table(np.array([[0.9, 0.5, 0.5, 0.5, 0.1]])), queries_of([0], [1], known, (1, 5)))
    assert (ranks.above + 1).tolist() == [optimistic]
    assert (ranks.above + ranks.tied + 1).tolist() == [pessimistic]
    assert ranks.realistic.tolist() == [realistic]
    assert ranks.options.tolist() == [5 - len(known)]


def by_hand(scores: np.ndarray, queries: RelationQueries) -> tuple[list[int], list[int], list[int]]:
    above, tied, options = [], [], []
    for head, tail in zip(queries.heads, queries.tails, strict=True):
        known = set(queries.known_tails[queries.known_indptr[head] : queries.known_indptr[head + 1]].tolist()) - {tail}
        others = [scores[head, c] for c in range(queries.candidates) if c not in known and c != tail]
        above.append(sum(s > scores[head, tail] for s in others))
        tied.append(sum(s == scores[head, tail] for s in others))
        options.append(len(others) + 1)
    return above, tied, options


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 7, 1000]), st.sampled_from([3, 10**6]))
@settings(max_examples=40, deadline=None)
def test_ranks_equal_a_loop_over_candidates(seed: int, batch_rows: int, levels: int) -> None:
    """With three levels of scores nearly everything ties, with a million nearly nothing."""
    graph = random_graph(seed)
    for queries in link_queries(graph, "test").relations:
        rng = np.random.default_rng(seed)
        scores = rng.integers(0, levels, (len(queries.known_indptr) - 1, queries.candidates)).astype(np.float64)
        table = Table(scores, torch.float64)
        ranks = ranks_of(table, queries, batch_rows=batch_rows)
        above, tied, options = by_hand(scores, queries)
        assert ranks.above.tolist() == above
        assert ranks.tied.tolist() == tied
        assert ranks.options.tolist() == options
        request = np.concatenate(table.batches)
        assert len(np.unique(request)) == len(request)  # no head is scored twice
        assert max(len(heads) for heads in table.batches) <= batch_rows


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_stops_the_ranking_and_says_where(bad: float) -> None:
    scores = np.zeros((2, 4))
    scores[1, 2] = bad
    with pytest.raises(TrainingError, match="relation 'r': 1 of 4 scores"):
        ranks_of(Table(scores), queries_of([0, 1], [1, 1], [], (2, 4)), batch_rows=1)


def test_scores_of_the_wrong_shape_are_a_mistake_of_the_scorer() -> None:
    with pytest.raises(ValueError, match=r"\(1, 3\), not \(1, 4\)"):
        ranks_of(Table(np.zeros((1, 3))), queries_of([0], [1], [], (1, 4)))


def test_the_block_is_bounded_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmill.evaluation.ranking.ranks.BLOCK_BYTES", 16 * 4 * 3)
    table = Table(np.random.default_rng(0).random((10, 4)))
    ranks_of(table, queries_of(list(range(10)), [1] * 10, [], (10, 4)))
    assert [len(heads) for heads in table.batches] == [3, 3, 3, 1]


def test_half_precision_scores_are_ranked_as_they_are() -> None:
    scores = np.array([[0.5, 0.5 + 1e-5, 0.1]])  # equal in bfloat16
    ranks = ranks_of(Table(scores, torch.bfloat16), queries_of([0], [0], [], (1, 3)))
    assert (ranks.above.tolist(), ranks.tied.tolist()) == ([0], [1])
