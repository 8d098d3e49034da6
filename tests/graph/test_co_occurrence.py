"""Users that share items: equal to counting pair by pair, whatever the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.graph import co_occurrence
from graphmill.graph.co_occurrence import top_co_occurrence
from graphmill.graph.interactions import Rows, to_rows

Pairs = list[list[tuple[int, int]]]


def random_rows(seed: int, users: int, items: int, pairs: int) -> tuple[Rows, Rows]:
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, users, pairs).astype(np.int32), rng.integers(0, items, pairs).astype(np.int32)
    return to_rows(user, item, users, items), to_rows(item, user, items, users)


def one_by_one(rows: Rows, k: int) -> Pairs:
    sets = [set(part.tolist()) for part in np.split(rows.columns, rows.indptr[1:-1])]
    found = []
    for user, own in enumerate(sets):
        others = [(len(own & other), n) for n, other in enumerate(sets) if n != user and own & other]
        found.append([(n, count) for count, n in sorted(others, key=lambda pair: (-pair[0], pair[1]))[:k]])
    return found


def as_lists(neighbours: Rows, shared: np.ndarray) -> Pairs:
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


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, by_column = random_rows(3, 60, 9, 300)
    whole = as_lists(*top_co_occurrence(rows, by_column, 5))
    monkeypatch.setattr(co_occurrence, "BLOCK_PRODUCTS", 40)
    assert as_lists(*top_co_occurrence(rows, by_column, 5)) == whole
