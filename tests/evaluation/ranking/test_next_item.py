"""Ranks of a held-out next item: masks, ties, and the baselines."""

import numpy as np
import pytest
import torch

from graphmill.errors import TrainingError
from graphmill.evaluation.baselines.next_item import NextItemBaselines, NextItemSplit, baseline_ranks, tune_baselines
from graphmill.evaluation.ranking import recommendation
from graphmill.evaluation.ranking.next_item import NextItemRanks, full_ranks
from graphmill.evaluation.ranking.recommendation import KnownItems

NAMES = ("ndcg", "hr", "mrr")


def known(*items):
    return KnownItems(np.cumsum([0, *map(len, items)]), np.array([i for row in items for i in row], np.int64))


def test_gains_of_single_ranks():
    ranks = NextItemRanks(np.array([0]), np.array([0])), NextItemRanks(np.array([9]), np.array([0]))
    beyond = NextItemRanks(np.array([10]), np.array([0]))
    assert ranks[0].metrics(NAMES, [10]) == {"ndcg@10": 1.0, "hr@10": 1.0, "mrr": 1.0}
    assert ranks[1].metrics(NAMES, [10])["ndcg@10"] == pytest.approx(0.2890648263)
    assert beyond.metrics(NAMES, [10]) == {"ndcg@10": 0.0, "hr@10": 0.0, "mrr": pytest.approx(1 / 11)}


def test_ties_give_the_expectation_over_all_orders():
    for above, tied in ((0, 3), (2, 4), (4, 0), (5, 9)):
        ranks = NextItemRanks(np.array([above]), np.array([tied]))
        each = [NextItemRanks(np.array([r]), np.array([0])) for r in range(above, above + tied + 1)]
        got = ranks.metrics(NAMES, [1, 3, 5])
        for name, value in got.items():
            assert value == pytest.approx(np.mean([one.metrics(NAMES, [1, 3, 5])[name] for one in each])), name


def test_a_constant_scorer_gets_what_chance_gets():
    users = np.arange(4)
    nothing = known([], [], [], [])
    ranks = full_ranks(lambda u: torch.ones(len(u), 50), users, users * 7, 50, nothing)
    assert ranks.metrics(["hr"], [10])["hr@10"] == pytest.approx(0.2)


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_full_ranks_equal_a_plain_loop_and_a_target_met_before_is_ranked_among_all_items(monkeypatch, block):
    monkeypatch.setattr(recommendation, "BLOCK_NUMBERS", block)
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 6, (9, 20)).astype(np.float32)
    histories = [rng.integers(0, 20, rng.integers(0, 9)).tolist() for _ in range(9)]
    targets = rng.integers(0, 20, 9)
    histories[3].append(int(targets[3]))
    ranks = full_ranks(lambda u: torch.from_numpy(scores[u]), np.arange(9), targets, 20, known(*histories))
    for q in range(9):
        repeated, target_score = targets[q] in histories[q], scores[q, targets[q]]
        assert ranks.repeated[q] == repeated
        others = [i for i in range(20) if i != targets[q]]
        for result, rivals in (
            (ranks, [i for i in others if repeated or i not in histories[q]]),
            (ranks.unmasked, others),
        ):
            assert result.above[q] == sum(scores[q, i] > target_score for i in rivals)
            assert result.tied[q] == sum(scores[q, i] == target_score for i in rivals)


@pytest.mark.parametrize("many", [2, 5, 8])
def test_whoever_knows_only_what_a_user_has_had_finds_one_replay_in_as_many(many):
    rng = np.random.default_rng(1)
    favourites = np.stack([rng.choice(400, many, replace=False) for _ in range(300)])
    scores = torch.from_numpy(rng.random((300, 400)).astype(np.float32))
    scores[torch.arange(300)[:, None], torch.from_numpy(favourites)] += 1.0
    ranks = full_ranks(lambda u: scores[u], np.arange(300), favourites[:, 0], 400, known(*favourites.tolist()))
    assert ranks.repeated.all()
    assert ranks.metrics(["hr"], [1])["hr@1"] == pytest.approx(1 / many, abs=0.05)
    assert ranks.metrics(["hr"], [many])[f"hr@{many}"] == 1.0


def test_repeats_count_what_the_user_has_had_the_latest_most():
    baselines = NextItemBaselines(np.zeros(3, np.int64), np.array([3, 3, 3]), 1, 5, repeats=True)
    items = np.array([0, 1, 0, 2])
    split = NextItemSplit(np.array([0]), np.array([0]), np.array([0]), np.array([4]))
    result = baselines.repeat_scores(split, items, 0.5)(np.array([0]))[0]
    torch.testing.assert_close(result, torch.tensor([0.125 + 0.5, 0.25, 1.0, 1e-6, 0.0]))
    assert "repeats" in tune_baselines(baselines, split, items)


def test_scores_that_are_not_finite_are_refused():
    with pytest.raises(TrainingError, match="diverged"):
        full_ranks(lambda u: torch.full((len(u), 3), torch.nan), np.arange(1), np.array([0]), 3, known([]))


def test_baselines_by_hand():
    # Two users: a b c, a b d; popularity a, b; after b come c and d.
    users, items = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 2, 0, 1, 3])
    baselines = NextItemBaselines(users, items, 2, 5)
    split = NextItemSplit(np.array([0]), np.array([3]), np.array([0]), np.array([2]))  # history a b, next d
    rows = np.array([0])
    assert baselines.popularity_scores(split, items)(rows)[0].tolist() == [2, 2, 1, 1, 0]
    markov = baselines.markov_scores(split, items, 0.6)(rows)[0]
    torch.testing.assert_close(markov, torch.tensor([0.2, 0.2, 0.6, 0.6, 0.0]))
    one = baselines.knn_scores(split, items, 0, 1)(rows)[0]
    torch.testing.assert_close(one, torch.tensor([1.0, 0.0, 0.5**0.5, 0.5**0.5, 0.0]))
    nearest = baselines.knn_scores(split, items, 1, 2)(rows)[0]
    torch.testing.assert_close(nearest, torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0]))


def test_popularity_of_the_last_days_is_chosen_where_tastes_change():
    users, items, day = np.repeat(np.arange(30), 4), np.tile(np.array([0, 0, 1, 2]), 30), 86_400
    times = np.tile(np.array([0, 0, 200 * day, 200 * day + 1]), 30)
    query = np.arange(30)
    split = NextItemSplit(query, np.full(30, 1), query * 4, query * 4)
    for known_times, first in ((times, 1), (None, 0)):
        baselines = NextItemBaselines(users, items, 30, 4, times=known_times)
        result = tune_baselines(baselines, split, items, wanted=["popularity"])["popularity"]
        scores = result.scores(split)(np.array([0]))[0]
        assert int(scores.argmax()) == first
        assert scores[3] < scores[0], "items of no late interaction keep their order"


def test_each_baseline_is_tuned_on_validation():
    users, items = np.repeat(np.arange(30), 4), np.tile(np.array([0, 1, 2, 3]), 30)
    baselines = NextItemBaselines(users, items, 30, 6)
    query = np.arange(30)
    split = NextItemSplit(query, np.full(30, 3), query * 4, query * 4 + 3)
    result = tune_baselines(baselines, split, items)
    assert set(result) == {"popularity", "markov", "session_knn"}
    ranks = {name: baseline_ranks(baselines, baseline.scores, split, items) for name, baseline in result.items()}
    assert ranks["markov"].metrics(["hr"], [1]) == {"hr@1": 1.0}
    every = [
        baseline_ranks(baselines, lambda s, h=h: baselines.knn_scores(s, items, 0, h), split, items)
        for h in (1, 3, 5, 10)
    ]
    best = max(r.metrics(["ndcg"], [10])["ndcg@10"] for r in every)
    assert ranks["session_knn"].metrics(["ndcg"], [10])["ndcg@10"] >= best


@pytest.mark.real_data
def test_baselines_on_movielens_are_the_recorded_ones(datasets, tmp_path):
    from graphmill.graph.build import build_graph
    from graphmill.graph.sequences import sequence_view
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.interactions_csv import read_sequence

    tables = read_sequence(datasets / "ml-latest-small" / "ml-latest-small.txt.gz")
    s = sequence_view(build_graph(tables.nodes, tables.edges, GraphSettings(), tmp_path / "graph"))
    train = s.split == 0
    users, at = s.targets("test")
    split = NextItemSplit(users, s.items[at], s.indptr[users], at)
    baselines = NextItemBaselines(s.users[train], s.items[train], s.num_users, s.num_items)
    queries = np.arange(len(users))

    def ndcg(score):
        return full_ranks(score, queries, split.targets, s.num_items, split.known(s.items)).metrics(["ndcg"], [10])

    # An independent evaluator's figures on this file: popularity .0200, Markov .0605, item-kNN .0560.
    assert ndcg(baselines.popularity_scores(split, s.items))["ndcg@10"] == pytest.approx(0.0200, abs=3e-4)
    assert ndcg(baselines.markov_scores(split, s.items, 0.001))["ndcg@10"] == pytest.approx(0.0605, abs=6e-4)
    assert ndcg(baselines.knn_scores(split, s.items, 0, 5))["ndcg@10"] == pytest.approx(0.0560, abs=3e-4)
