"""Training triples of recommenders: who is drawn, what counts as an item that a user has not, and that keys decide all."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.errors import InputError
from graphmill.graph.interactions import CsrPattern, to_rows
from graphmill.systems.recommenders.sampler import Draw, PairSampler, Pool

Step = tuple[np.ndarray, np.ndarray, np.ndarray]
USERS, ITEMS = 30, 24
SEEN = 18
"""Items from this one on are in nobody's training list."""


def rows_of(seed: int = 0, users: int = USERS, items: int = SEEN, pairs: int = 150) -> CsrPattern:
    """Random pairs, and every item of ``items`` in somebody's list; user ``users`` - 1 has nothing."""
    rng = np.random.default_rng(seed)
    user = np.concatenate((rng.integers(0, users - 1, pairs), np.arange(items) % (users - 1)))
    item = np.concatenate((rng.integers(0, items, pairs), np.arange(items)))
    return to_rows(user.astype(np.int32), item.astype(np.int32), users, ITEMS)


def pairs_of(rows: CsrPattern) -> set[tuple[int, int]]:
    return set(zip(rows.row.tolist(), rows.columns.tolist(), strict=True))


def epoch_of(sampler: PairSampler, epoch: int) -> list[Step]:
    return [sampler.step(epoch, index) for index in range(sampler.steps_per_epoch)]


def same(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# ---------------------------------------------------------------- items that a user has not


@pytest.mark.parametrize(("negatives", "items"), [("seen", SEEN), ("all", ITEMS)])
@pytest.mark.parametrize("draw", ["pairs", "users"])
def test_negatives_are_the_seen_items_or_all_items_each_of_them_and_equally_often(
    draw: Draw, negatives: Pool, items: int
) -> None:
    """MMRec draws from the items that somebody trained on, KGAT from all."""
    sampler = PairSampler(rows_of(), ITEMS, 64, 3, draw=draw, negatives=negatives, per_positive=50)
    drawn = np.concatenate([sampler.step(epoch, 0)[2].ravel() for epoch in range(10)])
    assert set(drawn.tolist()) == set(range(items))
    # One user's negatives are uniform over what that user has not.
    user = int(np.flatnonzero(sampler.train.counts)[0])
    of_user = np.concatenate(
        [n[u == user].ravel() for u, _, n in (sampler.step(e, i) for e in range(60) for i in range(3))]
    )
    free = sorted(set(range(items)) - {item for u, item in pairs_of(sampler.train) if u == user})
    share = np.bincount(of_user, minlength=ITEMS)[free] / len(of_user)
    assert len(of_user) > 1000
    assert share.sum() == 1.0
    assert np.abs(share * len(free) - 1).max() < 0.3


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    users=st.integers(2, 12),
    items=st.integers(2, 8),
    pairs=st.integers(1, 80),
    batch=st.integers(1, 20),
    per_positive=st.integers(1, 4),
    draw=st.sampled_from(["pairs", "users"]),
    negatives=st.sampled_from(["seen", "all"]),
)
def test_no_negative_is_a_training_item_of_its_user_and_every_positive_is(
    seed: int, users: int, items: int, pairs: int, batch: int, per_positive: int, draw: Draw, negatives: Pool
) -> None:
    rows = rows_of(seed, users, items, pairs)
    try:
        sampler = PairSampler(rows, ITEMS, batch, seed, draw=draw, negatives=negatives, per_positive=per_positive)
    except InputError:
        assert negatives == "seen"
        assert set(rows.counts.tolist()) <= {0, items}
        return
    known = pairs_of(rows)
    for user, positive, negative in epoch_of(sampler, 0):
        assert negative.shape == ((len(user),) if per_positive == 1 else (len(user), per_positive))
        assert known.issuperset(zip(user.tolist(), positive.tolist(), strict=True))
        drawn = zip(np.repeat(user, per_positive).tolist(), negative.ravel().tolist(), strict=True)
        assert not known & set(drawn)
        assert ((negative >= 0) & (negative < (items if negatives == "seen" else ITEMS))).all()


# ---------------------------------------------------------------- who is drawn


@pytest.mark.parametrize("batch", [1, 7, 40, 10_000])
def test_drawn_as_pairs_each_pair_comes_once_an_epoch_and_the_last_step_is_short(batch: int) -> None:
    rows = rows_of()
    sampler = PairSampler(rows, ITEMS, batch, 3, draw="pairs")
    for epoch in (0, 5):
        steps = epoch_of(sampler, epoch)
        sizes = [len(user) for user, _, _ in steps]
        assert len(steps) == -(-len(rows) // batch)
        assert set(sizes[:-1]) <= {batch}
        result = Counter(pair for user, item, _ in steps for pair in zip(user.tolist(), item.tolist(), strict=True))
        assert result == Counter(pairs_of(rows))


def test_drawn_as_users_no_user_comes_twice_in_a_step_but_does_in_the_next() -> None:
    rows = rows_of()
    active = int((rows.counts > 0).sum())
    for batch in (5, active):  # the latter: all of them, in each step
        sampler = PairSampler(rows, ITEMS, batch, 3, draw="users", negatives="all")
        assert sampler.steps_per_epoch == len(rows) // batch + 1
        steps = [sampler.step(epoch, index) for epoch in range(4) for index in range(sampler.steps_per_epoch)]
        assert all(len(set(user.tolist())) == len(user) == batch for user, _, _ in steps)
        assert any(set(a[0].tolist()) & set(b[0].tolist()) for a, b in pairwise(steps))
        times = Counter(u for user, _, _ in steps for u in user.tolist())
        assert set(times) == set(np.flatnonzero(rows.counts > 0).tolist())
    # All users in every step: so often each, and each with all of its items in turn.
    assert set(times.values()) == {len(steps)}
    assert {pair for u, i, _ in steps for pair in zip(u.tolist(), i.tolist(), strict=True)} == pairs_of(rows)


def test_users_are_drawn_alike_however_many_items_they_have_and_their_items_alike() -> None:
    """Drawn as users, a pair of a user with many items is rare; drawn as pairs it is as frequent as any."""
    user = np.array([0] * 10 + [1, 2, 3], np.int32)
    item = np.array([*range(10), 0, 1, 2], np.int32)
    sampler = PairSampler(to_rows(user, item, 4, ITEMS), ITEMS, 2, 3, draw="users", negatives="all")
    steps = [sampler.step(epoch, index) for epoch in range(500) for index in range(sampler.steps_per_epoch)]
    share = np.bincount(np.concatenate([u for u, _, _ in steps])) / (2 * len(steps))
    assert np.abs(share - 0.25).max() < 0.02
    items = np.concatenate([i[u == 0] for u, i, _ in steps])
    assert np.abs(np.bincount(items, minlength=10) / len(items) - 0.1).max() < 0.02


def test_with_more_places_in_a_step_than_users_they_come_again() -> None:
    rows = rows_of()
    user, _, _ = PairSampler(rows, ITEMS, 200, 3, draw="users", negatives="all").step(0, 0)
    assert len(user) == 200
    assert set(user.tolist()) <= set(np.flatnonzero(rows.counts > 0).tolist())


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize("draw", ["pairs", "users"])
def test_a_step_depends_on_seed_epoch_and_number_and_on_nothing_before_it(draw: Draw) -> None:
    def sampler(seed: int = 3) -> PairSampler:
        return PairSampler(rows_of(), ITEMS, 20, seed, draw=draw)

    one, busy = sampler(), sampler()
    wanted = one.step(4, 2)
    for epoch in (0, 9, 4):
        epoch_of(busy, epoch)
    assert same(wanted, busy.step(4, 2))
    assert same(wanted, one.step(4, 2))
    assert same(wanted, one.step(4, 2 + one.steps_per_epoch)), "past the end a pass starts again"
    for other in (one.step(4, 3), one.step(5, 2), sampler(8).step(4, 2)):
        # Both of its draws are: who, and what beside.
        assert not same(wanted[:2], other[:2])
        assert (wanted[2] == other[2]).mean() < 0.4


# ---------------------------------------------------------------- users for whom there is no negative


@pytest.mark.parametrize("draw", ["pairs", "users"])
def test_a_user_who_has_every_item_of_the_pool_is_left_out_and_not_counted(draw: Draw) -> None:
    """Nothing could stand beside such a user's items. Where items that nobody has may be negatives, there is something."""
    rows = rows_of()
    full = np.full(SEEN, 4, np.int32), np.arange(SEEN, dtype=np.int32)
    user, item = (np.concatenate(both) for both in zip((rows.row, rows.columns), full, strict=True))
    rows = to_rows(user, item, USERS, ITEMS)
    seen = PairSampler(rows, ITEMS, 10, 3, draw=draw, negatives="seen")
    assert seen.num_pairs == len(rows) - SEEN
    assert seen.steps_per_epoch == (seen.num_pairs // 10 + 1 if draw == "users" else -(-seen.num_pairs // 10))
    steps = [step for epoch in range(5) for step in epoch_of(seen, epoch)]
    assert not any((u == 4).any() for u, _, _ in steps)
    if draw == "pairs":
        result = Counter(pair for u, i, _ in epoch_of(seen, 0) for pair in zip(u.tolist(), i.tolist(), strict=True))
        assert result == Counter(pair for pair in pairs_of(rows) if pair[0] != 4)
    every = PairSampler(rows, ITEMS, 10, 3, draw=draw, negatives="all")
    assert every.num_pairs == len(rows)
    steps = [step for epoch in range(5) for step in epoch_of(every, epoch)]
    drawn = np.concatenate([n[u == 4] for u, _, n in steps])
    assert len(drawn)
    assert (drawn >= SEEN).all()


@pytest.mark.parametrize("draw", ["pairs", "users"])
@pytest.mark.parametrize("negatives", ["seen", "all"])
def test_where_everybody_has_everything_there_is_nothing_to_learn_and_it_says_so(draw: Draw, negatives: Pool) -> None:
    user, item = np.divmod(np.arange(12, dtype=np.int32), 4)
    rows = to_rows(user, item, 5, 4)  # users 3 and 4 have nothing
    with pytest.raises(InputError, match="no item can be a negative"):
        PairSampler(rows, 4, 2, 3, draw=draw, negatives=negatives)
