"""Users that share items: equal to counting pair by pair, whatever the blocks."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.graph import co_occurrence
from graphmill.graph.co_occurrence import top_co_occurrence
from graphmill.graph.interactions import CsrPattern, to_rows

Pairs = list[list[tuple[int, int]]]


def random_rows(seed: int, users: int, items: int, pairs: int) -> tuple[CsrPattern, CsrPattern]:
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, users, pairs).astype(np.int32), rng.integers(0, items, pairs).astype(np.int32)
    return to_rows(user, item, users, items), to_rows(item, user, items, users)


def one_by_one(rows: CsrPattern, k: int) -> Pairs:
    sets = [set(part.tolist()) for part in np.split(rows.columns, rows.indptr[1:-1])]
    result = []
    for user, items in enumerate(sets):
        others = [(len(items & other), n) for n, other in enumerate(sets) if n != user and items & other]
        result.append([(n, count) for count, n in sorted(others, key=lambda pair: (-pair[0], pair[1]))[:k]])
    return result


def as_lists(neighbours: CsrPattern, shared: np.ndarray) -> Pairs:
    pairs = list(zip(neighbours.columns.tolist(), shared.tolist(), strict=True))
    return [pairs[a:b] for a, b in zip(neighbours.indptr[:-1], neighbours.indptr[1:], strict=True)]


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**16),
    users=st.integers(1, 25),
    items=st.integers(1, 12),
    pairs=st.integers(0, 80),
    k=st.integers(1, 6),
)
def test_equal_to_counting_pair_by_pair(seed: int, users: int, items: int, pairs: int, k: int) -> None:
    rows, by_column = random_rows(seed, users, items, pairs)
    assert as_lists(*top_co_occurrence(rows, by_column, k)) == one_by_one(rows, k)


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**16),
    users=st.integers(1, 25),
    items=st.integers(1, 12),
    pairs=st.integers(0, 80),
    products=st.integers(1, 60),
)
def test_equal_to_counting_pair_by_pair_wherever_blocks_end(
    seed: int, users: int, items: int, pairs: int, products: int
) -> None:
    """Down to a row a block; rows without any product, and rows that are more than a block by themselves."""
    rows, by_column = random_rows(seed, users, items, pairs)
    blocks: list[tuple[int, int]] = []
    cut = co_occurrence.row_blocks

    def noted(work: np.ndarray, most: int) -> list[tuple[int, int]]:
        blocks.extend(cut(work, most))
        for first, end in blocks:
            assert end == first + 1 or work[first:end].sum() <= products
        return blocks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(co_occurrence, "BLOCK_PRODUCTS", products)
        patch.setattr(co_occurrence, "row_blocks", noted)
        assert as_lists(*top_co_occurrence(rows, by_column, 4)) == one_by_one(rows, 4)
    assert [row for first, end in blocks for row in range(first, end)] == list(range(users))


def test_users_times_users_is_never_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An item that everybody has: all users share something, so that even a sparse product would be users × users."""
    users, items, k, products = 3000, 40, 5, 30_000
    rng = np.random.default_rng(1)
    user = np.concatenate((np.arange(users), rng.integers(0, users, 3 * users))).astype(np.int32)
    item = np.concatenate((np.zeros(users), rng.integers(1, items, 3 * users))).astype(np.int32)
    rows, by_column = to_rows(user, item, users, items), to_rows(item, user, items, users)
    monkeypatch.setattr(co_occurrence, "BLOCK_PRODUCTS", products)
    tracemalloc.start()
    try:
        neighbours, shared = top_co_occurrence(rows, by_column, k)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (neighbours.counts == k).all()
    # Some sixty bytes a product of a block, and the result twice while it is put together: less than a byte a pair of users.
    assert most < 80 * products + 2 * 20 * k * users < users * users / 2
    # The right answer as well: counted densely, in the order that is promised.
    has = np.zeros((users, items), np.float32)
    has[rows.row, rows.columns] = 1
    for first in range(0, users, 500):
        counts = (has[first : first + 500] @ has.T).astype(np.int64)
        counts[np.arange(len(counts)), np.arange(first, first + len(counts))] = -1
        best = np.argsort(-counts, axis=1, kind="stable")[:, :k]
        assert np.array_equal(neighbours.columns.reshape(users, k)[first : first + 500], best)
        assert np.array_equal(shared.reshape(users, k)[first : first + 500], np.take_along_axis(counts, best, 1))


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, by_column = random_rows(3, 60, 9, 300)
    whole = as_lists(*top_co_occurrence(rows, by_column, 5))
    monkeypatch.setattr(co_occurrence, "BLOCK_PRODUCTS", 40)
    assert as_lists(*top_co_occurrence(rows, by_column, 5)) == whole
