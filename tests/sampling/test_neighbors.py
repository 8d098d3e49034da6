"""Sampled neighbourhoods: who is in them and how often, what they leave out, and that they depend on the key alone."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.sampling import neighbor_picks
from graphmill.sampling.neighbor_picks import ALL, InEdges, pick, priorities, uniforms
from graphmill.sampling.neighbors import NeighborSample, budget_sample, uniform_sample

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


def edge_set(relations: list[InEdges], sample: NeighborSample) -> list[set[tuple[int, int]]]:
    """Per relation the sample's edges as local numbers of the graph."""
    return [
        set(zip(sample.nodes[r.source_type][s].tolist(), sample.nodes[r.target_type][t].tolist(), strict=True))
        for r, s, t in zip(relations, sample.source, sample.target, strict=True)
    ]


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
    found, rows = pick(edges, nodes, 4, 17, masked)
    assert usable[found].all()
    assert (target[found] == rows).all()
    assert (np.diff(found) > 0).all()
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
        found, _ = pick(edges, np.zeros(1, np.int64), fanout, key * 0x1234567, NONE)
        hits[found] += 1
        together[np.ix_(found, found)] += 1
    share = fanout / degree
    assert np.abs(hits / draws - share).max() < 4.5 * np.sqrt(share * (1 - share) / draws)
    # Two edges come together as often as in a draw without replacement.
    both = share * (fanout - 1) / (degree - 1)
    off = together[~np.eye(degree, dtype=bool)] / draws
    assert np.abs(off - both).max() < 5 * np.sqrt(both / draws)


def test_priorities_are_distinct_and_uniforms_are_uniform() -> None:
    numbers = np.arange(100_000)
    assert len(np.unique(priorities(numbers, 5))) == len(numbers)
    u = uniforms(numbers, 5)
    assert 0 < u.min() < u.max() < 1
    assert np.abs(np.histogram(u, 20, (0, 1))[0] / 5000 - 1).max() < 0.06
    assert abs(np.corrcoef(u, uniforms(numbers, 6))[0, 1]) < 0.02


# -- uniform fan-outs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [NONE, np.arange(40) % 3 == 0])
def test_with_every_edge_taken_the_sample_is_the_neighbourhood_of_so_many_hops(masked: np.ndarray) -> None:
    relations = graph(number=14)
    seeds = [np.array([1, 4]), np.array([2])]
    sample = uniform_sample(COUNTS, relations, seeds, [[ALL] * 4] * 2, masked, 1)
    inside = [set(s.tolist()) for s in seeds]
    edges: list[set[tuple[int, int]]] = [set() for _ in relations]
    frontier = [set(s) for s in inside]
    for hop in range(2):
        reached: list[set[int]] = [set(), set()]
        for number, r in enumerate(relations):
            for v in frontier[r.target_type]:
                for e in range(r.indptr[v], r.indptr[v + 1]):
                    if r.split[e] == 0 and not (len(masked) and masked[r.pair[e]]):
                        edges[number].add((int(r.src[e]), v))
                        reached[r.source_type].add(int(r.src[e]))
        frontier = [now - old for now, old in zip(reached, inside, strict=True)]
        inside = [old | now for old, now in zip(inside, reached, strict=True)]
        assert sample.counts[1 - hop].tolist() == [len(nodes) for nodes in inside]
    assert edge_set(relations, sample) == edges
    assert [set(nodes.tolist()) for nodes in sample.nodes] == inside
    assert sample.counts[2].tolist() == [2, 1]


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(0, 6), st.integers(0, 6))
def test_a_layer_reads_no_node_that_the_layer_before_did_not_compute(seed: int, first: int, second: int) -> None:
    relations = graph(seed)
    rng = np.random.default_rng(seed)
    seeds = [np.flatnonzero(rng.random(n) < 0.3) for n in COUNTS]
    sample = uniform_sample(COUNTS, relations, seeds, [[first] * 4, [second, 0, 3, ALL]], NONE, seed)
    for t, nodes in enumerate(sample.nodes):
        assert len(set(nodes.tolist())) == len(nodes) == sample.counts[0, t]
        np.testing.assert_array_equal(nodes[: len(seeds[t])], seeds[t])
    for layer in range(2):
        for number, r in enumerate(relations):
            source, target = sample.layer_edges(layer, number, r.target_type)
            assert (source < sample.counts[layer, r.source_type]).all()
            assert (target < sample.counts[layer + 1, r.target_type]).all()
            assert (np.diff(target) >= 0).all()
            assert np.bincount(target, minlength=1).max() <= (max(first, second) if number == 0 else len(r.src))


def test_a_sample_is_a_function_of_its_key() -> None:
    relations, seeds = graph(number=200), [np.arange(4), np.arange(5)]

    def draw(*key: int | str) -> list[set[tuple[int, int]]]:
        sample = uniform_sample(COUNTS, relations, seeds, [[3] * 4] * 2, NONE, *key)
        return edge_set(relations, sample)

    assert draw(7, "train", 0) == draw(7, "train", 0)
    assert draw(7, "train", 0) != draw(7, "train", 1)


# -- the budget sampler ---------------------------------------------------------------------------------------------------


def test_the_budget_sampler_with_room_for_all_has_every_edge_among_its_nodes() -> None:
    relations, masked = graph(number=14), np.arange(40) % 5 == 0
    seeds = [np.array([1]), np.array([2, 3])]
    sample = budget_sample(COUNTS, relations, seeds, [ALL, ALL], masked, 1)
    reached = uniform_sample(COUNTS, relations, seeds, [[ALL] * 4] * 2, masked, 1)
    assert [set(n.tolist()) for n in sample.nodes] == [set(n.tolist()) for n in reached.nodes]
    for number, r in enumerate(relations):
        target = np.repeat(np.arange(COUNTS[r.target_type]), np.diff(r.indptr))
        inside = [np.isin(np.arange(n), nodes) for n, nodes in zip(COUNTS, sample.nodes, strict=True)]
        usable = (r.split == 0) & ~masked[r.pair] & inside[r.source_type][r.src] & inside[r.target_type][target]
        assert len(sample.target[number]) == usable.sum()
        assert edge_set(relations, sample)[number] == set(
            zip(r.src[usable].tolist(), target[usable].tolist(), strict=True)
        )


def test_the_budget_sampler_adds_so_many_nodes_of_each_type_a_hop() -> None:
    relations = graph(number=200)
    sample = budget_sample(COUNTS, relations, [np.array([1]), np.array([2])], [2, 3], NONE, 4)
    assert sample.counts.tolist() == [[6, 6], [6, 6], [1, 1]]
    for s, t, r in zip(sample.source, sample.target, relations, strict=True):
        assert s.max(initial=-1) < sample.counts[0, r.source_type]
        assert (np.diff(t) >= 0).all()


def test_a_node_is_drawn_in_proportion_to_its_squared_budget() -> None:
    # Node 0 hears from 1 (three parallel edges of four), 2 (one of four), and in the other relation from 2 alone:
    # B[1] = 3/4, B[2] = 1/4 + 1, so that 2 is drawn with 1.25² / (0.75² + 1.25²).
    pair, split = np.zeros(4, np.int32), np.zeros(4, np.uint8)
    first = InEdges(0, 0, np.array([0, 4, 4, 4]), np.array([1, 1, 1, 2], np.int32), pair, split)
    other = InEdges(0, 0, np.array([0, 1, 1, 1]), np.array([2], np.int32), pair[:1], split[:1])
    draws = 3000
    twos = sum(
        int(budget_sample([3], [first, other], [np.zeros(1, np.int64)], [1], NONE, key).nodes[0][1]) == 2
        for key in range(draws)
    )
    expected = 1.25**2 / (0.75**2 + 1.25**2)
    assert twos / draws == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / draws))
