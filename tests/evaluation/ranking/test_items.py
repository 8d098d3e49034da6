"""Recommenders measured: equal to a plain loop over users, with ties; KGAT's NDCG; the catalogue; the baselines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from graphmill.errors import TrainingError
from graphmill.evaluation.baselines import recommendation as recommendation_baselines
from graphmill.evaluation.baselines.recommendation import ItemModels, take_out, tune_item_baselines
from graphmill.evaluation.ranking import recommendation
from graphmill.evaluation.ranking.items import METRICS, ItemLists, rank_items
from graphmill.evaluation.ranking.recommendation import KnownItems
from graphmill.evaluation.ranking.shared_queries import Share, shared


def known(*items: list[int]) -> KnownItems:
    return KnownItems(np.cumsum([0, *map(len, items)]), np.array([i for row in items for i in row], np.int64))


def random_case(seed: int, users: int = 30, items: int = 40) -> tuple[torch.Tensor, KnownItems, KnownItems]:
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.permuted(np.tile(np.arange(items), (users, 1)), axis=1).astype(np.float32))
    split = rng.choice(3, (users, items), p=(0.7, 0.2, 0.1))
    split[0] = 0  # nobody to ask here
    rows = [[np.flatnonzero(split[u] == s).tolist() for u in range(users)] for s in (1, 2)]
    return scores, known(*rows[0]), known(*rows[1])


def by_hand(
    scores: torch.Tensor, seen: KnownItems, held: KnownItems, k: int, order_of: Sequence[int] | None = None
) -> dict[str, float]:
    """One user at a time, as it is defined; ``order_of``: the place of each item among those of equal score."""
    order_of = order_of or range(scores.shape[1])
    sums: dict[str, list[float]] = {name: [] for name in METRICS}
    for user in range(len(scores)):
        positives = set(held.items[held.indptr[user] : held.indptr[user + 1]].tolist())
        if not positives:
            continue
        masked = set(seen.items[seen.indptr[user] : seen.indptr[user + 1]].tolist())
        order = sorted(
            (i for i in range(scores.shape[1]) if i not in masked), key=lambda i: (-float(scores[user, i]), order_of[i])
        )
        hits = [item in positives for item in order[:k]] + [False] * max(k - len(order), 0)
        ideal = sum(1 / math.log2(i + 2) for i in range(min(k, len(positives))))
        sums["recall"].append(sum(hits) / len(positives))
        sums["precision"].append(sum(hits) / k)
        sums["ndcg"].append(sum(h / math.log2(i + 2) for i, h in enumerate(hits)) / ideal)
        sums["map"].append(sum(h * sum(hits[: i + 1]) / (i + 1) for i, h in enumerate(hits)) / min(k, len(positives)))
        sums["hit"].append(float(any(hits)))
        sums["mrr"].append(next((1 / (i + 1) for i, h in enumerate(hits) if h), 0.0))
    return {f"{name}@{k}": float(np.mean(values)) for name, values in sums.items()}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("block", [40, 1 << 20])
def test_every_metric_equals_the_loop_over_users(seed: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommendation, "BLOCK_NUMBERS", block)
    scores, seen, held = random_case(seed)
    lists = rank_items(lambda u: scores[torch.from_numpy(u)], 40, seen, held, 20)
    result = lists.metrics(METRICS, [1, 5, 20])
    for k in (1, 5, 20):
        for name, value in by_hand(scores, seen, held, k).items():
            assert result[name] == pytest.approx(value, abs=1e-12), name
    assert lists.by_user("recall", 5).mean() == pytest.approx(result["recall@5"])


@pytest.mark.parametrize("depth", [3, 4, 6])
def test_ties_give_the_expectation_over_all_orders_of_equal_scores(depth: int) -> None:
    """Groups inside the lists, and beyond their end; one user has all scores equal, one knows most of the last group."""
    scores = torch.tensor(
        [[2.0, 2, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1], [0, 3, 3, 0, 0, 0], [5, 4, 3, 2, 1, 0], [1, 0, 0, 0, 1, 1]]
    )
    seen, held = known([], [5], [0, 3], [0], []), known([1, 3, 4], [0, 2], [1, 4], [2, 5], [0, 1])
    lists = rank_items(lambda u: scores[torch.from_numpy(u)], 6, seen, held, depth)
    ks = [k for k in (1, 2, 3, 5) if k <= depth]
    result = lists.metrics(METRICS, ks)
    for k in ks:
        each = [by_hand(scores, seen, held, k, order) for order in itertools.permutations(range(6))]
        for name in each[0]:
            assert result[name] == pytest.approx(np.mean([one[name] for one in each]), abs=1e-12), name
    assert lists.by_user("recall", 2)[lists.users == 1] == pytest.approx(2 / 5)


def test_two_processes_find_the_ties_that_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommendation, "BLOCK_NUMBERS", 3 * 40)
    scores, seen, held = random_case(0)
    scores = (scores / 4).floor()
    arguments = (lambda u: scores[torch.from_numpy(u)], 40, seen, held, 10)
    alone, parts = rank_items(*arguments), []

    def kept(values: np.ndarray) -> np.ndarray:
        parts.append(values)
        return sum(parts)

    for rank in (0, 1):
        with shared(Share(rank, 2, kept)):
            together = rank_items(*arguments)
    assert len(alone.ties.rows) > 5
    assert together.metrics(METRICS, [10]) == alone.metrics(METRICS, [10])


@pytest.mark.parametrize("compiled", [True, False])
def test_constant_scores_get_what_chance_gets_however_items_are_numbered(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held-out items have the lowest numbers, as where numbers go by first appearance."""
    if not compiled:
        monkeypatch.setattr("graphmill.kernels.top_k.has_numba", lambda: False)
        monkeypatch.setattr("graphmill.kernels.rank_counts.has_numba", lambda: False)
    seen, held = known(*[[90 + u % 10] for u in range(40)]), known(*[[u % 3, 4 + u % 5] for u in range(40)])
    lists = rank_items(lambda u: torch.full((len(u), 100), 0.3), 100, seen, held, 20)
    result = lists.metrics(["recall", "hit"], [20])
    assert result["recall@20"] == pytest.approx(20 / 99)
    assert result["hit@20"] == pytest.approx(1 - (79 * 78) / (99 * 98))


def test_no_baseline_gains_by_the_numbers_of_the_items() -> None:
    train, held = trained()
    order = np.random.default_rng(0).permutation(24)
    turned = [KnownItems(part.indptr, order[part.items]) for part in (train, held)]

    def figures(train: KnownItems, held: KnownItems) -> dict[str, float]:
        models, out = ItemModels(train, 24), {}
        for name, score in (
            ("popularity", models.popularity_scores()),
            ("knn", models.knn_scores(0, 10.0)),
            ("none", lambda users: torch.zeros(len(users), 24)),
        ):
            result = rank_items(score, 24, train, held, 5).metrics(["recall", "ndcg", "map", "mrr"], [5])
            out |= {f"{name} {metric}": value for metric, value in result.items()}
        return out

    assert figures(*turned) == pytest.approx(figures(train, held), rel=1e-5)


def test_the_golden_user() -> None:
    hit = np.array([[True, False, True, False, False]])
    lists = ItemLists(np.zeros(1, np.int64), np.arange(5)[None], hit, np.array([3]))
    result = lists.metrics(METRICS, [1, 3, 5])
    assert [result[f"ndcg@{k}"] for k in (1, 3, 5)] == pytest.approx([1.0, 0.703918, 0.703918], abs=1e-6)
    assert result["mrr@5"] == result["hit@5"] == 1.0


def test_users_can_be_chosen_and_scores_without_a_value_are_refused() -> None:
    scores, seen, held = random_case(1)
    some = rank_items(lambda u: scores[torch.from_numpy(u)], 40, seen, held, 5, users=np.array([0, 3, 7]))
    assert some.users.tolist() == [3, 7]
    with pytest.raises(TrainingError, match="diverged"):
        rank_items(lambda u: torch.full((len(u), 40), torch.nan), 40, seen, held, 5)


def test_the_catalogue() -> None:
    held = known([0], [1])
    scores = torch.tensor([[9.0, 1, 0, 0], [9, 8, 0, 0]])
    lists = rank_items(lambda u: scores[torch.from_numpy(u)], 4, known([], []), held, 2)
    result = lists.catalogue(np.array([10, 2, 1, 1]), held, [1, 2])
    assert result == {
        "coverage@1": 0.25,
        "popularity_bias@1": pytest.approx(10 / 6),
        "coverage@2": 0.5,
        "popularity_bias@2": pytest.approx(1.0),
    }


def trained(users: int = 60, items: int = 24) -> tuple[KnownItems, KnownItems]:
    """Users of four groups who take items of their group."""
    rng = np.random.default_rng(3)
    rows, held = [], []
    for user in range(users):
        taken = rng.permutation(np.arange(user % 4, items, 4))[:5]
        rows.append(sorted(taken[:4].tolist()))
        held.append(taken[4:].tolist())
    return known(*rows), known(*held)


def test_ease_is_its_closed_form() -> None:
    train, _ = trained()
    models = ItemModels(train, 24)
    result = models.ease_scores(7.0)(np.arange(60)).numpy()
    x = models.rows.toarray().astype(np.float64)
    p = np.linalg.inv(x.T @ x + 7.0 * np.eye(24))
    b = -p / np.diag(p)
    np.fill_diagonal(b, 0.0)
    np.testing.assert_allclose(result, x @ b, rtol=1e-4, atol=1e-5)


def test_item_knn_is_the_sum_of_shrunk_cosines_of_the_nearest() -> None:
    train, _ = trained()
    models = ItemModels(train, 24)
    x = models.rows.toarray().astype(np.float64)
    count = x.T @ x
    cosine = count / (np.sqrt(np.outer(np.diag(count), np.diag(count))) + 10.0)
    np.fill_diagonal(cosine, 0.0)
    np.testing.assert_allclose(models.knn_scores(0, 10.0)(np.arange(60)).numpy(), x @ cosine, rtol=1e-5, atol=1e-6)
    nearest = np.zeros_like(cosine)
    for item in range(24):
        chosen = np.argsort(-cosine[:, item], kind="stable")[:2]
        nearest[chosen, item] = cosine[chosen, item]
    few = models.knn_scores(2, 10.0)(np.arange(60)).numpy()
    assert np.isclose(few.sum(), (x @ nearest).sum(), rtol=1e-4)


@pytest.mark.parametrize("with_validation", [True, False])
def test_baselines_are_tuned_on_validation_or_a_part_of_train(with_validation: bool) -> None:
    train, held = trained()
    baselines = tune_item_baselines(train, held if with_validation else known(*[[]] * 60), 24, "recall@5")
    assert set(baselines) == {"popularity", "item_knn", "ease"}
    models = ItemModels(train, 24)
    values = {
        name: rank_items(baseline.scores(models), 24, train, held, 5).metrics(["recall"], [5])["recall@5"]
        for name, baseline in baselines.items()
    }
    assert values["ease"] > 0.9
    assert values["item_knn"] > 0.9
    assert values["popularity"] < 0.5


def test_a_tenth_of_train_is_taken_out_and_every_user_keeps_an_item() -> None:
    rng = np.random.default_rng(3)
    rows = [rng.choice(500, size, replace=False).tolist() for size in rng.integers(0, 20, 400)]
    train = known(*rows)
    left, out = take_out(train)
    assert 0.07 < len(out.items) / len(train.items) < 0.1
    for user, items in enumerate(rows):
        stays, goes = (part.items[part.indptr[user] : part.indptr[user + 1]].tolist() for part in (left, out))
        assert sorted(stays + goes) == sorted(items)
        assert stays or not items
    again = take_out(train)
    assert again[1].items.tolist() == out.items.tolist()


def test_item_knn_takes_the_most_frequent_items_where_users_have_too_many_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train, _ = trained()
    whole = ItemModels(train, 24)
    assert whole.paired.tolist() == list(range(24))
    counts = np.bincount(train.items, minlength=24)
    frequent = np.argsort(-counts, kind="stable")[:9]
    x = whole.rows.toarray()[:, frequent]
    monkeypatch.setattr(recommendation_baselines, "PAIRS", int((x.sum(1) ** 2).sum()))
    few = ItemModels(train, 24)
    assert few.paired.tolist() == sorted(frequent.tolist())
    scores = few.knn_scores(0, 10.0)(np.arange(60)).numpy()
    together = (x.T @ x) / (np.sqrt(np.outer(counts[frequent], counts[frequent])) + 10.0)
    np.fill_diagonal(together, 0.0)
    np.testing.assert_allclose(scores[:, frequent], x @ together, rtol=1e-5, atol=1e-6)
    assert not np.delete(scores, frequent, axis=1).any()


def test_baselines_are_fitted_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    train, _ = trained()
    request = {"knn": lambda m: m.knn_scores(2, 10.0), "all": lambda m: m.knn_scores(0, 1.0)}
    whole = {name: make(ItemModels(train, 24))(np.arange(60)) for name, make in request.items()}
    monkeypatch.setattr(recommendation_baselines, "_BLOCK_NUMBERS", 17)
    for name, make in request.items():
        assert torch.equal(make(ItemModels(train, 24))(np.arange(60)), whole[name])


def test_tuning_the_baselines_can_be_stopped() -> None:
    train, held = trained()

    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        tune_item_baselines(train, held, 24, "recall@5", stop)


def test_ease_takes_the_most_frequent_items_where_there_are_too_many() -> None:
    train, _ = trained()
    scores = ItemModels(train, 24, ease_items=10).ease_scores(5.0)(np.arange(60)).numpy()
    assert (scores != 0).any(axis=0).sum() <= 10


def test_ease_says_what_to_do_where_its_matrix_is_singular() -> None:
    twins = known(*[[0, 1, 2]] * 1000)
    with pytest.raises(TrainingError, match="larger regularisation"):
        ItemModels(twins, 3).ease_scores(1e-12)(np.arange(5))
