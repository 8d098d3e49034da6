"""Negatives are never known positives, are drawn from the right distribution, and depend on their key alone."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.graph.sorted_unique import in_sorted
from graphmill.sampling.keyed import generator, key_of
from graphmill.sampling.negatives import PairSet, corrupt_tails, pair_keys


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 60), st.integers(1, 4), st.integers(0, 10_000))
def test_negatives_are_targets_that_the_head_is_not_joined_to(
    heads: int, tails: int, edges: int, per_positive: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    h, t = rng.integers(0, heads, edges), rng.integers(0, tails, edges)
    known = set(zip(h.tolist(), t.tolist(), strict=True))
    result = corrupt_tails(generator("t", seed), h, pair_keys(h, t, tails), tails, per_positive)
    for head, row in zip(h, result, strict=True):
        free = {tail for tail in range(tails) if (int(head), tail) not in known}
        for tail in row.tolist():
            assert tail in free if free else tail == -1


def test_a_head_with_one_free_target_always_gets_it() -> None:
    # 999 of 1,000 targets are known: rejection alone would rarely end.
    h, t = np.zeros(999, dtype=np.int64), np.delete(np.arange(1000), 613)
    assert (corrupt_tails(generator(0), h[:5], pair_keys(h, t, 1000), 1000, 3) == 613).all()


def test_uniform_negatives_are_uniform_over_the_free_targets() -> None:
    keys = pair_keys(np.zeros(2, dtype=np.int64), np.array([0, 1]), 10)
    drawn = corrupt_tails(generator(1), np.zeros(20_000, dtype=np.int64), keys, 10, 1).ravel()
    counts = np.bincount(drawn, minlength=10)
    assert counts[:2].sum() == 0
    assert np.abs(counts[2:] / 20_000 - 1 / 8).max() < 0.015


def test_contains_finds_exactly_the_keys() -> None:
    keys = np.array([3, 7, 11])
    assert in_sorted(np.array([[3, 4], [11, 12]]), keys).tolist() == [[True, False], [True, False]]
    assert not in_sorted(np.array([3]), keys[:0]).any()


def test_keys_tell_parts_apart_and_are_the_same_everywhere() -> None:
    assert key_of(1, "a") != key_of("1", "a") != key_of(1, "b")
    assert key_of("a", "bc") != key_of("ab", "c")
    # Pinned: a change would silently change every run's batches.
    assert key_of(0, "negatives", 3, 1) == 2468545817202262925
    assert generator(0, "x").integers(0, 1 << 30, 3).tolist() == generator(0, "x").integers(0, 1 << 30, 3).tolist()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(0, 200), st.integers(0, 10_000))
def test_a_set_of_pairs_with_bits_holds_what_the_sorted_keys_hold(tails: int, edges: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = pair_keys(rng.integers(0, 30, edges), rng.integers(0, tails, edges), tails)
    every = np.arange(30 * tails).reshape(30, tails)
    with_bits, without = PairSet(keys, 30 * tails), PairSet(keys, 1 << 40)
    assert (with_bits.contain(every) == in_sorted(every, keys)).all()
    assert (without.contain(every) == in_sorted(every, keys)).all()
    heads = rng.integers(0, 30, 50)
    drawn = [corrupt_tails(generator("s", seed), heads, known, tails, 2) for known in (keys, with_bits)]
    assert (drawn[0] == drawn[1]).all()
