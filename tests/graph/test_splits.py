"""Held-out pairs: nothing straddles, relations have their share, no node is left out of training, growth keeps them."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.graph.relations import Pairs, RelationFacts, draw_splits
from graphmill.graph.settings import SplitSettings
from graphmill.graph.splits import TEST, TRAIN, VALID, node_keys
from tests.graph.conftest import triples_of
from tests.graph.tables import edges_table, nodes_table, random_tables

COUNTS = {"drug": 60, "gene": 90}
RELATIONS = {
    "binds": ("drug", "gene", 1200),
    "treats": ("drug", "gene", 300),
    "links": ("gene", "gene", 1000),
    "rare": ("drug", "drug", 12),
}


def pairs_of(src, dst, ranges, num_nodes):
    facts = [RelationFacts(("n", str(r), "n"), part.stop - part.start, 0, 0, 0, 0) for r, part in enumerate(ranges)]
    return Pairs(facts, np.array(src, np.int32), np.array(dst, np.int32), {"n": 0}, num_nodes)


def draw(src, dst, ranges, num_nodes, **share):
    pairs = pairs_of(src, dst, ranges, num_nodes)
    keys = node_keys(["n"] * num_nodes, map(str, range(num_nodes)), share.get("seed", 0))
    return pairs, draw_splits(pairs, keys, SplitSettings(**share))


@settings(deadline=None)
@given(
    edges=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 11), st.integers(0, 11)), min_size=1, max_size=80),
    valid=st.sampled_from([0.0, 0.1, 0.4]),
    test=st.sampled_from([0.0, 0.2, 0.5]),
    seed=st.integers(0, 3),
)
def test_on_any_multigraph_every_node_keeps_a_training_pair_and_self_loops_stay_in_train(edges, valid, test, seed):
    edges = sorted(edges)
    bounds = np.searchsorted([relation for relation, _, _ in edges], range(4))
    ranges = [slice(a, b) for a, b in pairwise(bounds) if b > a]
    src, dst = [s for _, s, _ in edges], [d for _, _, d in edges]
    pairs, split = draw(src, dst, ranges, 12, valid=valid, test=test, seed=seed)
    train = split == TRAIN
    loops = pairs.low == pairs.high
    assert train[loops].all()
    has_pair = set(pairs.low[~loops]) | set(pairs.high[~loops])
    assert has_pair == set(pairs.low[train & ~loops]) | set(pairs.high[train & ~loops])
    assert valid > 0 or not (split == VALID).any()
    assert test > 0 or not (split == TEST).any()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=60))
def test_edges_have_one_pair_number_exactly_when_they_join_the_same_two_nodes(edges):
    src, dst = (np.array(ends, np.int32) for ends in zip(*edges, strict=True))
    pairs = pairs_of(src, dst, [slice(0, len(src))], 10)
    assert len({frozenset(edge) for edge in edges}) == len(pairs) == pairs.of_edge.max() + 1
    for edge, number in zip(edges, pairs.of_edge, strict=True):
        assert {pairs.low[number], pairs.high[number]} == set(edge)
    assert (pairs.low <= pairs.high).all()


def test_an_edge_its_reverse_and_other_relations_of_its_nodes_never_straddle(build):
    nodes, edges = random_tables(1, COUNTS, RELATIONS)
    graph = build(nodes, edges, split={"valid": 0.2, "test": 0.2})
    splits: dict[frozenset[int], set[int]] = {}
    for head, _, tail, split in triples_of(graph):
        splits.setdefault(frozenset((head, tail)), set()).add(split)
    assert {len(seen) for seen in splits.values()} == {1}
    assert graph.num_pairs == len(splits)


def test_every_relation_has_its_share(build):
    nodes, edges = random_tables(2, COUNTS, RELATIONS)
    graph = build(nodes, edges, split={"valid": 0.1, "test": 0.2})
    for relation in graph.manifest["relations"]:
        shares = {name: relation["split"][name] / relation["edges"] for name in ("valid", "test")}
        # A relation that shares many pairs with a rarer one gets the rarer one's share of those, rounded.
        tolerance = 0.005 if relation["edges"] > 100 else 1 / relation["edges"]
        assert shares == pytest.approx({"valid": 0.1, "test": 0.2}, abs=tolerance), relation["name"]


def test_a_relation_of_ten_pairs_has_a_pair_in_each_split_even_when_the_share_rounds_to_none(build):
    nodes, edges = random_tables(3, COUNTS, RELATIONS | {"rare": ("drug", "drug", 10)})
    graph = build(nodes, edges, split={"valid": 0.01, "test": 0.01})
    (rare,) = [r for r in graph.manifest["relations"] if r["name"] == "rare"]
    assert rare["split"] == {"train": 16, "valid": 2, "test": 2}  # two directions each


def test_a_relation_whose_pairs_all_belong_to_tiny_relations_still_has_held_out_pairs():
    # Relation 0 has 12 pairs; each is also in one of three relations of 4 pairs, whose share rounds to none.
    ring = [(i, (i + 1) % 12) for i in range(12)]
    src = [a for a, _ in ring] * 2
    dst = [b for _, b in ring] * 2
    _, split = draw(src, dst, [slice(0, 12), slice(12, 16), slice(16, 20), slice(20, 24)], 12, valid=0.05, test=0.05)
    assert np.bincount(split, minlength=3).tolist() == [10, 1, 1]


def test_where_candidates_are_few_test_and_valid_share_them():
    # A star: each leaf has one pair, which must stay in train. Nothing can be held out.
    _, split = draw([0] * 20, range(1, 21), [slice(0, 20)], 21, valid=0.2, test=0.2)
    assert (split == TRAIN).all()
    # A chord more: leaves 1..10 are joined in a ring as well.
    src, dst = [0] * 20 + list(range(1, 11)), [*range(1, 21), *range(2, 11), 1]
    _, split = draw(src, dst, [slice(0, 30)], 21, valid=0.3, test=0.3)
    counts = np.bincount(split, minlength=3)
    assert counts[TEST] + counts[VALID] > 5
    assert abs(int(counts[TEST]) - int(counts[VALID])) <= 1


def test_the_draw_depends_on_the_seed_and_not_on_the_order_of_rows(build):
    nodes, edges = random_tables(4, COUNTS, RELATIONS)
    shuffled = edges.take(pa.array(np.random.default_rng(0).permutation(len(edges))))
    assert triples_of(build(nodes, edges)) == triples_of(build(nodes, shuffled))
    assert triples_of(build(nodes, edges)) != triples_of(build(nodes, edges, split={"seed": 1}))


def test_the_draw_does_not_depend_on_the_order_of_nodes(build):
    nodes, edges = random_tables(4, COUNTS, RELATIONS)
    order = np.random.default_rng(1).permutation(len(nodes))
    row = np.argsort(order).astype(np.int32)
    moved = edges
    for column in ("head", "tail"):
        at = edges.column_names.index(column)
        moved = moved.set_column(at, column, pa.array(row[edges[column].to_numpy()]))
    assert triples_of(build(nodes.take(pa.array(order)), moved)) == triples_of(build(nodes, edges))


def test_data_that_grows_keeps_nearly_all_of_its_test_pairs(build):
    nodes, edges = random_tables(5, COUNTS, RELATIONS)
    part = edges.slice(0, int(0.95 * len(edges)))
    share = {"valid": 0.1, "test": 0.1}

    def test_pairs(graph):
        return {frozenset((a, b)) for a, _, b, split in triples_of(graph) if split == TEST}

    before, after = test_pairs(build(nodes, part, split=share)), test_pairs(build(nodes, edges, split=share))
    assert len(before & after) > 0.85 * len(before)


def test_a_split_that_comes_with_the_data_is_kept_and_added_reverses_follow_it(build):
    edges = edges_table([("r", 0, 1), ("r", 1, 2), ("r", 2, 3), ("s", 1, 0)], split=[0, 1, 2, 2])
    graph = build(nodes_table(["n"] * 4), edges, split={"valid": 0.3, "test": 0.3})
    assert triples_of(graph) == [
        (100, "r", 101, 0),
        (100, "s", 101, 2),
        (101, "r", 100, 0),
        (101, "r", 102, 1),
        (101, "s", 100, 2),
        (102, "r", 101, 1),
        (102, "r", 103, 2),
        (103, "r", 102, 2),
    ]
    assert graph.manifest["report"]["split_source"] == "given"
    assert graph.manifest["report"]["cold_nodes"] == {"n": 2}


def test_a_given_split_can_be_drawn_anew(build):
    nodes, edges = random_tables(6, COUNTS, RELATIONS)
    given_split = edges.append_column("split", pa.array(np.full(len(edges), 2), pa.uint8()))
    redrawn = build(nodes, given_split, split={"given": "redraw"})
    assert triples_of(redrawn) == triples_of(build(nodes, edges))
    assert redrawn.manifest["report"]["split_source"] == "drawn"


def test_a_triple_given_in_train_and_in_test_stays_in_both_so_that_the_audit_sees_it(build):
    edges = edges_table([("r", 0, 1), ("r", 0, 1), ("r", 0, 1)], split=[0, 2, 0])
    graph = build(nodes_table(["n"] * 2), edges, add_reverse="never")
    assert triples_of(graph) == [(100, "r", 101, 0), (100, "r", 101, 2)]
    assert graph.manifest["report"]["duplicates"] == 1
    assert graph.manifest["report"]["leakage"]["leaked_pairs"] == 1
