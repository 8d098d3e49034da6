"""Lists of recommendations and the set metrics by MMRec's definitions."""

import numpy as np
import pytest
import torch

from graphmill.errors import TrainingError
from graphmill.evaluation.ranking import recommendation
from graphmill.evaluation.ranking.recommendation import KnownItems, set_metrics, top_k, user_metrics


def known(*items):
    return KnownItems(np.cumsum([0, *map(len, items)]), np.array([i for row in items for i in row], np.int64))


def test_one_user_worked_by_hand():
    hit = np.array([[True, False, True, False, False]])
    got = user_metrics(hit, np.array([3]), [1, 3, 5])
    expected = {
        1: (0.333333, 1.0, 1.0, 1.0),
        3: (0.666667, 0.666667, 0.703918, 0.555556),
        5: (0.666667, 0.4, 0.703918, 0.555556),
    }
    for k, values in expected.items():
        for name, value in zip(("recall", "precision", "ndcg", "map"), values, strict=True):
            assert got[f"{name}@{k}"][0] == pytest.approx(value, abs=1e-6), (name, k)


def test_users_without_held_out_items_do_not_count():
    lists = np.array([[0, 1], [2, 3], [1, 0]])
    got = set_metrics(lists, known([0], [], [9]), np.arange(3), [2])
    assert got["recall@2"] == pytest.approx(0.5)


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_the_best_unknown_items_come_first(monkeypatch, block):
    monkeypatch.setattr(recommendation, "BLOCK_NUMBERS", block)
    scores = torch.tensor([[5.0, 4, 3, 2], [1, 2, 3, 4]])
    items, best = top_k(lambda u: scores[torch.from_numpy(u)], np.arange(2), 4, known([0], [3, 3, 2, 1]), 2)
    assert items.tolist() == [[1, 2], [0, -1]]
    assert best[0].tolist() == [4.0, 3.0]
    assert best[1, 1] == -np.inf
    assert scores[0, 0] == 5.0  # the caller's scores are left as they are


def test_a_cut_beyond_the_lists_and_scores_without_a_value_are_refused():
    with pytest.raises(ValueError, match="@5"):
        user_metrics(np.zeros((1, 3), bool), np.array([1]), [5])
    with pytest.raises(TrainingError, match="diverged"):
        top_k(lambda u: torch.full((1, 3), torch.inf), np.arange(1), 3, known([]), 1)


def test_a_scorers_own_mistake_is_not_called_divergence():
    def scorer(users):
        raise ValueError("a table of the wrong shape")

    with pytest.raises(ValueError, match="wrong shape"):
        top_k(scorer, np.arange(1), 3, known([]), 1)
