"""DRAGON's homogeneous graphs: nearest items and similar users, equal to the plain computation; golden weights."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from graphmill.errors import SettingsError
from graphmill.graph.interactions import Interactions, to_rows
from graphmill.kernels.propagation import SparseMatrix
from graphmill.systems.dragon.graphs import item_graph, user_graph
from graphmill.systems.recommenders.multimodal import Modality

ITEMS = 40


def modality(name: str, seed: int, width: int = 6, missing: tuple[int, ...] = ()) -> Modality:
    features = np.random.default_rng(seed).normal(size=(ITEMS, width)).astype(np.float32)
    present = np.ones(ITEMS, bool)
    present[list(missing)] = False
    features[~present] = 0.0
    return Modality(name, features, present)


def dense(matrix: SparseMatrix) -> np.ndarray:
    rows = matrix.forward
    out = torch.zeros(matrix.shape, dtype=torch.float64)
    result: np.ndarray = out.index_put_((rows.row, rows.column), rows.value.double(), accumulate=True).numpy()
    return result


def nearest_by_sorting(features: np.ndarray, k: int) -> np.ndarray:
    unit = features.astype(np.float64) / np.linalg.norm(features, axis=1, keepdims=True)
    order = np.argsort(-(unit @ unit.T), axis=1, kind="stable")[:, :k]
    out = np.zeros((ITEMS, ITEMS))
    np.put_along_axis(out, order, 1 / k, axis=1)
    return out


def test_rows_are_the_nearest_items_with_the_item_itself() -> None:
    image, text = modality("image", 1), modality("text", 2, 3)
    result = dense(item_graph([image, text], [0.1, 0.9], 10))
    wanted = 0.1 * nearest_by_sorting(image.features, 10) + 0.9 * nearest_by_sorting(text.features, 10)
    np.testing.assert_allclose(result, wanted, rtol=1e-6)
    assert (np.diag(result) > 0).all()


def test_golden_weights() -> None:
    """k = 10: each neighbour 0.1; of two modalities 0.01 (image), 0.09 (text), and 0.1 where both agree."""
    single = dense(item_graph([modality("image", 1)], [], 10))
    assert set(np.round(single[single > 0], 7)) == {0.1}
    both = dense(item_graph([modality("image", 1), modality("text", 2)], [0.1, 0.9], 10))
    assert set(np.round(both[both > 0], 7)) == {0.01, 0.09, 0.1}


def test_weights_are_shares_and_equal_where_none_are_given() -> None:
    sets = [modality("image", 1), modality("text", 2)]
    np.testing.assert_allclose(dense(item_graph(sets, [], 5)), dense(item_graph(sets, [3.0, 3.0], 5)), rtol=1e-6)
    only_text = dense(item_graph(sets, [0.0, 2.0], 5))
    np.testing.assert_allclose(only_text, dense(item_graph(sets[1:], [], 5)), rtol=1e-6)


def test_an_item_without_features_has_itself_alone_and_is_nobodys_neighbour() -> None:
    result = dense(item_graph([modality("image", 1, missing=(3, 7))], [], 6))
    for item in (3, 7):
        assert result[item, item] == 1.0
        assert result[item].sum() == result[:, item].sum() == 1.0
    np.testing.assert_allclose(result.sum(1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("k", [2, ITEMS, 10 * ITEMS])
def test_more_neighbours_than_items_are_all_of_them(k: int) -> None:
    result = dense(item_graph([modality("image", 1)], [], k))
    assert ((result > 0).sum(1) == min(k, ITEMS)).all()


def test_weights_that_do_not_fit_are_refused() -> None:
    sets = [modality("image", 1), modality("text", 2)]
    with pytest.raises(SettingsError, match=r"1 numbers for 2 modalities \(image, text\)"):
        item_graph(sets, [1.0], 5)
    with pytest.raises(SettingsError, match="all 0"):
        item_graph(sets, [0.0, 0.0], 5)


# ---------------------------------------------------------------- users

PAIRS = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 2), (3, 0), (3, 1), (3, 2), (4, 5)]


def view_of(pairs: list[tuple[int, int]], users: int, items: int) -> Interactions:
    user, item = (np.array(side, np.int32) for side in zip(*pairs, strict=True))
    none = to_rows(user[:0], item[:0], users, items)
    by_user, by_item = to_rows(user, item, users, items), to_rows(item, user, items, users)
    return Interactions(users, items, 0, users, by_user, by_item, none, none, {}, {}, {}, {})


def test_users_weigh_by_how_many_items_they_share() -> None:
    result = dense(user_graph(view_of(PAIRS, 6, 6), 2))
    three, two = np.exp([3.0, 2.0])
    wanted = np.zeros((6, 6))
    wanted[0, [3, 1]] = np.array([three, two]) / (three + two)
    wanted[1, [0, 3]] = 0.5
    wanted[2, [0, 3]] = 0.5
    wanted[3, [0, 1]] = np.array([three, two]) / (three + two)
    # Users 4 and 5 share nothing with anybody: their rows are empty.
    np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=0)


def test_many_shared_items_do_not_overflow() -> None:
    pairs = [(user, item) for user in range(3) for item in range(2000 if user else 1500)]
    result = dense(user_graph(view_of(pairs, 3, 2000), 2))
    np.testing.assert_allclose(result.sum(1), 1.0, rtol=1e-6)
    assert result[1, 2] > 0.999999


def mean_of_filled_rows(shared: np.ndarray, k: int) -> np.ndarray:
    """What the authors' way gives each neighbour on average: rows filled up to ``k`` by drawing from the neighbours again,
    then the softmax over all ``k``. Every outcome of the draws is equally likely, and each is counted.
    """
    total, outcomes = np.zeros(len(shared)), 0
    for drawn in product(range(len(shared)), repeat=max(k - len(shared), 0)):
        row = np.array([*range(len(shared)), *drawn])
        weights = np.exp(shared[row].astype(float))
        total += np.bincount(row, weights / weights.sum())
        outcomes += 1
    return total / outcomes


def own_weights(shared: list[int], k: int) -> np.ndarray:
    """User 0's weights in our graph, most shared first, where its neighbours share so many items with it."""
    pairs = [(0, item) for item in range(max(shared))]
    others = [(user, item) for user, count in enumerate(shared, 1) for item in range(count)]
    result: np.ndarray = dense(user_graph(view_of(pairs + others, len(shared) + 1, max(shared)), k))[0, 1:]
    return result


@pytest.mark.parametrize("shared", [[3], [2, 2], [1, 1, 1]])
def test_filling_rows_as_the_authors_do_is_the_same_on_average_where_all_share_equally_many(shared: list[int]) -> None:
    result = own_weights(shared, 8)
    np.testing.assert_allclose(result, mean_of_filled_rows(np.array(shared), 8), rtol=1e-6)


def test_rows_that_need_no_filling_are_the_authors() -> None:
    np.testing.assert_allclose(own_weights([3, 2, 1], 3), mean_of_filled_rows(np.array([3, 2, 1]), 3), rtol=1e-6)


@pytest.mark.parametrize("shared", [[3, 2], [2, 1, 1], [3, 2, 1]])
@pytest.mark.parametrize("filled", [1, 2, 6])
def test_filling_rows_as_the_authors_do_is_near_on_average_but_not_the_same_where_some_share_more(
    shared: list[int], filled: int
) -> None:
    k = len(shared) + filled
    gap = own_weights(shared, k) - mean_of_filled_rows(np.array(shared), k)
    # The one that shares most has more here, the others have less.
    assert 0.01 < gap[0] < 0.03
    assert (gap[1:] < 0).all()


def test_in_rows_of_forty_the_difference_is_hundredths_and_smaller_than_that_between_their_epochs() -> None:
    """About the worst that we found: half a row of neighbours, one of which shares more than all the others."""
    shared, k = [5] + [1] * 19, 40
    times = 1 + np.random.default_rng(0).multinomial(k - len(shared), np.full(len(shared), 1 / len(shared)), 20_000)
    weights = times * np.exp(np.array(shared, float))
    weights /= weights.sum(1, keepdims=True)
    gap = own_weights(shared, k) - weights.mean(0)
    assert 0.02 < gap[0] == np.abs(gap).max() < 0.05 < weights[:, 0].std()
