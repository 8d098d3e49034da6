"""The audit finds exactly what is planted, and nothing where nothing leaks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.graph.splits import TEST, TRAIN, VALID
from tests.graph.audit import audit_edges, audit_leakage, overlap
from tests.graph.tables import edges_table, nodes_table, random_tables

NAMES = ["r", "s", "t"]


def audit(*edges: tuple[int, str, int, int]):
    """Audit edges (head, relation, tail, split)."""
    head, relation, tail, split = zip(*edges, strict=True)
    numbers = np.array([NAMES.index(name) for name in relation])
    return audit_edges(np.array(head), np.array(tail), numbers, np.array(split), NAMES)


@pytest.mark.parametrize(
    "train",
    [(0, "r", 1), (0, "s", 1), (1, "r", 0), (1, "s", 0)],
    ids=["repeated", "under another relation", "reversed", "inverse relation"],
)
def test_each_kind_of_leak_is_found(train):
    report = audit((0, "r", 1, TEST), (*train, TRAIN), (1, "r", 2, TRAIN), (0, "r", 2, TEST))
    result = overlap(report, "test")
    assert (result.edges, result.leaked) == (2, 1)
    assert result.pairs.tolist() == [[0, 1]]
    assert result.relations == (("r", 2, 1),)
    assert report.leaked_pairs == 1
    assert not report.clean


def test_an_edge_that_leaks_in_several_ways_is_one_leaked_edge():
    result = overlap(audit((0, "r", 1, TEST), (0, "r", 1, TRAIN), (0, "s", 1, TRAIN), (1, "t", 0, TRAIN)), "test")
    assert result.leaked == 1


def test_valid_is_held_against_train_and_test_against_valid():
    report = audit((0, "r", 1, TRAIN), (1, "r", 0, VALID), (2, "r", 3, VALID), (2, "s", 3, TEST))
    assert [(o.held_out, o.seen, o.leaked) for o in report.overlaps] == [
        ("valid", "train", 1),
        ("test", "train", 0),
        ("test", "valid", 1),
    ]
    assert report.leaked_pairs == 2


def test_a_self_loop_leaks_through_the_same_self_loop():
    result = overlap(audit((3, "r", 3, TEST), (3, "s", 3, TRAIN), (4, "r", 4, TEST)), "test")
    assert (result.edges, result.leaked) == (2, 1)


def test_edges_without_any_held_out_are_clean():
    report = audit((0, "r", 1, TRAIN), (1, "r", 0, TRAIN))
    assert report.clean
    assert report.to_dict()["leaked_pairs"] == 0


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from(NAMES), st.integers(0, 6), st.integers(0, 2)),
        min_size=1,
        max_size=40,
    )
)
def test_counts_equal_those_of_a_plain_search(edges):
    report = audit(*edges)
    for result in report.overlaps:
        held_out, seen = (["train", "valid", "test"].index(name) for name in (result.held_out, result.seen))
        held = [(h, r, t) for h, r, t, split in edges if split == held_out]
        known = {(h, r, t) for h, r, t, split in edges if split == seen}
        joined = {(h, t) for h, _, t in known}
        leaked = [(h, r, t) for h, r, t in held if (h, t) in joined or (t, h) in joined]
        assert result.leaked == len(leaked)
        assert [tuple(pair) for pair in result.pairs.tolist()] == sorted({(min(h, t), max(h, t)) for h, _, t in leaked})
        assert {name: (n, k) for name, n, k in result.relations} == {
            name: (sum(r == name for _, r, _ in held), sum(r == name for _, r, _ in leaked))
            for name in {r for _, r, _ in held}
        }


@pytest.mark.parametrize("k", [0, 1, 17])
@pytest.mark.parametrize("kind", ["repeated", "reversed", "inverse relation"])
def test_the_audit_of_a_graph_finds_exactly_the_planted_pairs(build, kind, k):
    nodes, edges = random_tables(
        7, {"drug": 60, "gene": 80}, {"binds": ("drug", "gene", 900), "links": ("gene", "gene", 700)}
    )
    columns = [edges[name].to_pylist() for name in ("relation", "head", "tail")]
    triples = list(zip(*columns, strict=True))
    split = [TEST if i < 100 else VALID if i < 200 else TRAIN for i in range(len(triples))]
    planted = [triples[i] for i in np.random.default_rng(0).choice(200, k, replace=False)]
    copies = {
        "repeated": planted,
        "reversed": [(r, t, h) for r, h, t in planted],
        "inverse relation": [(f"{r} of", t, h) for r, h, t in planted],
    }[kind]
    graph = build(nodes, edges_table(triples + copies, split=split + [TRAIN] * k))
    report = audit_leakage(graph)
    index = graph.node_table()["index"].to_pylist()
    result = {frozenset((index[a], index[b])) for o in report.overlaps for a, b in o.pairs.tolist()}
    assert result == {frozenset((100 + h, 100 + t)) for _, h, t in planted}
    assert report.leaked_pairs == k
    assert graph.manifest["report"]["leakage"] == report.to_dict()


def test_our_own_splits_leak_nothing_even_where_pairs_have_many_relations(build):
    nodes, edges = random_tables(8, {"n": 50}, {"a": ("n", "n", 600), "b": ("n", "n", 700), "c": ("n", "n", 300)})
    graph = build(nodes, edges, split={"valid": 0.2, "test": 0.2})
    report = audit_leakage(graph)
    assert report.clean
    assert overlap(report, "test").edges > 500


def test_the_audit_does_not_trust_pair_numbers(build):
    graph = build(nodes_table(["n"] * 3), edges_table([("r", 0, 1), ("s", 0, 1), ("r", 1, 2)], split=[0, 2, 0]))
    for relation in graph.relations:
        object.__setattr__(graph.edges(relation), "pair", np.arange(relation.edges) + 100 * relation.index)
    assert audit_leakage(graph).leaked_pairs == 1
