"""Picked in-edges: how many and how often, what they leave out, and that they depend on the key alone."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.sampling import neighbor_picks
from graphmill.sampling.neighbor_picks import ALL, InEdges, pick, priorities

NONE = np.zeros(0, bool)
COUNTS = [9, 14]


def in_edges(seed: int, sources: int, targets: int, number: int, source_type: int = 0, target_type: int = 0) -> InEdges:
    """Random edges, one in six held out; the last target has none, the first has a third of all."""
    rng = np.random.default_rng(seed)
    dst = np.sort(np.where(rng.random(number) < 0.33, 0, rng.integers(0, max(targets - 1, 1), number)))
    indptr = np.searchsorted(dst, np.arange(targets + 1))
    pair = rng.integers(0, 40, number).astype(np.int32)
    src = rng.integers(0, sources, number).astype(np.int32)
    return InEdges(source_type, target_type, indptr, src, pair, (rng.random(number) < 1 / 6).astype(np.uint8))


def graph(seed: int = 0, number: int = 60) -> list[InEdges]:
    ends = [(0, 0), (0, 1), (1, 0), (1, 1)]
    return [in_edges(seed + i, COUNTS[s], COUNTS[t], number, s, t) for i, (s, t) in enumerate(ends)]


# -- picking -----------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 99), st.integers(1, 30), st.integers(0, 200), st.booleans(), st.integers(1, 50))
def test_a_pick_in_parts_is_that_of_all_at_once(
    seed: int, fanout: int, number: int, masks: bool, together: int
) -> None:
    edges = in_edges(seed, 20, 12, number)
    rng = np.random.default_rng(seed)
    nodes = rng.permutation(12)[: int(rng.integers(0, 13))]
    masked = rng.random(40) < 0.3 if masks else NONE
    whole = pick(edges, nodes, fanout, seed, masked)
    with patch.object(neighbor_picks, "TOGETHER", together):
        parts = pick(edges, nodes, fanout, seed, masked)
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_pick_is_at_most_the_fanout_without_replacement_of_usable_edges() -> None:
    edges, masked = in_edges(3, 20, 12, 150), np.arange(40) % 4 == 0
    nodes = np.arange(12)
    usable = (edges.split == 0) & ~masked[edges.pair]
    target = np.repeat(nodes, np.diff(edges.indptr))
    result, rows = pick(edges, nodes, 4, 17, masked)
    assert usable[result].all()
    assert (target[result] == rows).all()
    assert (np.diff(result) > 0).all()
    np.testing.assert_array_equal(
        np.bincount(rows, minlength=12), np.minimum(np.bincount(target[usable], minlength=12), 4)
    )
    everything, _ = pick(edges, nodes, ALL, 17, masked)
    np.testing.assert_array_equal(everything, np.flatnonzero(usable))
    assert not len(pick(edges, nodes, 0, 17, masked)[0])


def test_each_edge_of_a_node_is_picked_as_often_as_every_other() -> None:
    degree, fanout, draws = 23, 5, 4000
    edges = InEdges(0, 0, np.array([0, degree]), *(np.zeros(degree, d) for d in (np.int32, np.int32, np.uint8)))
    hits, together = np.zeros(degree), np.zeros((degree, degree))
    for key in range(draws):
        result, _ = pick(edges, np.zeros(1, np.int64), fanout, key * 0x1234567, NONE)
        hits[result] += 1
        together[np.ix_(result, result)] += 1
    share = fanout / degree
    assert np.abs(hits / draws - share).max() < 4.5 * np.sqrt(share * (1 - share) / draws)
    # Two edges come together as often as in a draw without replacement.
    both = share * (fanout - 1) / (degree - 1)
    off = together[~np.eye(degree, dtype=bool)] / draws
    assert np.abs(off - both).max() < 5 * np.sqrt(both / draws)


def test_priorities_are_distinct() -> None:
    assert len(np.unique(priorities(np.arange(100_000), 5))) == 100_000
