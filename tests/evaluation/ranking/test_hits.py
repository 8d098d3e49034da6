"""Hits of ranked lists: equal to looking every place up."""

from __future__ import annotations

import numpy as np
import pytest

from graphmill.evaluation.ranking.recommendation import hits


def test_places_and_counts() -> None:
    rng = np.random.default_rng(0)
    users, items, k = 300, 90, 12
    lists = rng.permuted(np.tile(np.arange(items), (users, 1)), axis=1)[:, :k]
    lists[5, 7:] = -1
    counts = rng.integers(0, 9, users)  # drawn with repetitions; some users have none
    indptr = np.concatenate(([0], np.cumsum(counts)))
    held = rng.integers(0, items, indptr[-1])
    marked, distinct = hits(lists, indptr, held, items)
    for row in range(users):
        held_items = set(held[indptr[row] : indptr[row + 1]].tolist())
        assert marked[row].tolist() == [item in held_items for item in lists[row].tolist()]
        assert distinct[row] == len(held_items)


def test_items_that_are_not_there() -> None:
    for lists, held in (
        (np.array([[4]]), np.array([1])),
        (np.array([[1]]), np.array([4])),
        (np.array([[1]]), np.array([-1])),
    ):
        with pytest.raises(IndexError):
            hits(lists, np.array([0, 1]), held, 4)


def test_nobody_and_nothing() -> None:
    marked, distinct = hits(np.zeros((0, 3), np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64), 4)
    assert marked.shape == (0, 3)
    assert distinct.shape == (0,)
    marked, distinct = hits(np.array([[2, -1]]), np.array([0, 0]), np.zeros(0, np.int64), 4)
    assert not marked.any()
    assert distinct.tolist() == [0]
