"""The split by time: the newest links are held out, training knows nothing of their time, pairs stay together."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.errors import InputError, SettingsError
from graphmill.graph.edge_splits import split_edges
from graphmill.graph.leakage import later_edges
from graphmill.graph.numbering import read_edges
from graphmill.graph.settings import SplitSettings
from graphmill.ingest.tables import NO_TIME
from tests.graph.audit import audit_leakage
from tests.graph.conftest import triples_of
from tests.graph.tables import edges_table, nodes_table

NODES = nodes_table(["drug"] * 4 + ["disease"] * 8)


def dated(count: int = 32) -> tuple[list[tuple[str, int, int]], list[int]]:
    """Each drug beside each disease once, one a day."""
    return [("treats", i % 4, 4 + i // 4) for i in range(count)], list(range(100, 100 + count))


def test_the_newest_links_are_held_out_in_every_direction(build):
    triples, times = dated()
    graph = build(
        NODES, edges_table(triples, timestamp=times), split={"method": "by_time", "valid": 0.125, "test": 0.25}
    )
    relation = graph.relation("drug", "treats", "disease")
    edges = graph.edges(relation)
    order = np.argsort(edges.timestamp)
    assert edges.split[order].tolist() == [0] * 20 + [1] * 4 + [2] * 8
    mirror = graph.edges(graph.relation("disease", "treats", "drug"))
    assert mirror.split[np.argsort(mirror.timestamp)].tolist() == [0] * 20 + [1] * 4 + [2] * 8
    report = graph.manifest["report"]
    assert (report["split_source"], report["later_repeats"]) == ("by_time", 0)
    assert (report["valid_from"], report["test_from"]) == ("120", "124")
    assert report["leakage"]["later"] == {"train against valid": 0, "train against test": 0, "valid against test": 0}
    assert audit_leakage(graph).clean


def test_what_is_said_again_later_is_left_out_and_counted(build):
    triples, times = dated()
    # A repeat, a reverse and another relation of the first pair, all in the future; and the first pair again in the past.
    triples += [("treats", 0, 4), ("treats", 4, 0), ("cures", 0, 4), ("cures", 0, 4)]
    times += [131, 131, 125, 101]
    graph = build(
        NODES, edges_table(triples, timestamp=times), split={"method": "by_time", "valid": 0.125, "test": 0.25}
    )
    assert graph.manifest["report"]["later_repeats"] == 3
    of_pair = {(relation, split) for a, relation, b, split in triples_of(graph) if {a, b} == {100, 104}}
    assert of_pair == {("treats", 0), ("cures", 0)}
    assert audit_leakage(graph).clean


@pytest.mark.parametrize(("split", "share"), [([0] * 24 + [2] * 8, 0.0), ([2] * 8 + [0] * 24, 1.0)])
def test_the_audit_says_how_much_training_knows_of_the_future(build, split, share):
    triples, times = dated()
    edges = edges_table(triples, timestamp=times, split=split)
    assert build(NODES, edges).manifest["report"]["leakage"]["newer_share"] == share
    untimed = build(NODES, edges_table(triples, split=split)).manifest["report"]["leakage"]
    assert "newer_share" not in untimed


def test_edges_without_a_time_are_known_from_the_beginning(build):
    triples, times = dated()
    triples += [("is_a", 4, 5), ("known", 3, 11)]  # the second pair is the newest of all, and was known
    graph = build(
        NODES,
        edges_table(triples, timestamp=[*times, NO_TIME, NO_TIME]),
        split={"method": "by_time", "valid": 0.1, "test": 0.1},
    )
    result = triples_of(graph)
    assert (104, "is_a", 105, 0) in result
    assert (103, "known", 111, 0) in result
    assert not any(relation == "treats" and {a, b} == {103, 111} for a, relation, b, _ in result)
    assert audit_leakage(graph).clean


def test_coarse_times_stay_together_and_every_part_has_a_moment(build):
    triples, _ = dated()
    years = [2018] * 20 + [2019] * 4 + [2020] * 8
    graph = build(
        NODES, edges_table(triples, timestamp=years), split={"method": "by_time", "valid": 0.05, "test": 0.05}
    )
    edges = graph.edges(graph.relation("drug", "treats", "disease"))
    assert dict(zip(edges.timestamp.tolist(), edges.split.tolist(), strict=True)) == {2018: 0, 2019: 1, 2020: 2}


@pytest.mark.parametrize(("valid", "test", "parts"), [(0.0, 0.25, {0, 2}), (0.25, 0.0, {0, 1}), (0.0, 0.0, {0})])
def test_a_part_that_is_not_asked_for_is_empty(build, valid, test, parts):
    triples, times = dated()
    graph = build(
        NODES, edges_table(triples, timestamp=times), split={"method": "by_time", "valid": valid, "test": test}
    )
    edges = graph.edges(graph.relation("drug", "treats", "disease"))
    assert set(edges.split.tolist()) == parts
    assert (edges.split > 0).sum() == (8 if valid + test else 0)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(0, 6), st.integers(0, 9)), min_size=1),
    valid=st.sampled_from([0.0, 0.1, 0.3]),
    test=st.sampled_from([0.1, 0.4]),
)
def test_on_any_multigraph_pairs_never_straddle_and_the_past_never_knows_the_future(rows, valid, test):
    table = edges_table(
        [(f"r{r}", h, t) for r, h, t, _ in rows], timestamp=[NO_TIME if t == 0 else t for *_, t in rows]
    )
    try:
        edges, _, about = split_edges(
            read_edges(table, 7), None, SplitSettings(method="by_time", valid=valid, test=test)
        )
    except InputError:
        return
    times = edges.attributes["timestamp"]
    assert len(edges.head) + about["later_repeats"] == len(rows)
    part_of: dict[frozenset[int], set[int]] = {}
    for head, tail, split in zip(edges.head.tolist(), edges.tail.tolist(), edges.split.tolist(), strict=True):
        part_of.setdefault(frozenset((head, tail)), set()).add(split)
    assert all(len(parts) == 1 for parts in part_of.values())
    assert set(part_of) == {frozenset((h, t)) for _, h, t, _ in rows}, "no pair is lost"
    parts = [times[edges.split == number] for number in (0, 1, 2)]
    assert len(parts[0])
    for earlier, later in ((0, 1), (0, 2), (1, 2)):
        if len(parts[earlier]) and len(parts[later]):
            assert parts[earlier].max() < parts[later].min()
    assert len(parts[2])
    assert bool(len(parts[1])) == bool(valid)


def test_without_times_it_is_refused_in_one_sentence(build):
    triples, times = dated()
    method = {"method": "by_time"}
    with pytest.raises(SettingsError, match=r"by_time .*'timestamp'"):
        build(NODES, edges_table(triples), split=method)
    with pytest.raises(InputError, match="no edge has a time"):
        build(NODES, edges_table(triples, timestamp=[NO_TIME] * len(times)), split=method)
    with pytest.raises(InputError, match=r"nothing to train on: links have 2 different times, the first of them 7"):
        build(NODES, edges_table(triples, timestamp=[7, 8] * 16), split=method)


def test_the_audit_finds_training_edges_that_are_too_new(build):
    triples, times = dated(12)
    edges = edges_table(triples, timestamp=times).append_column("split", pa.array([0] * 8 + [1, 0, 2, 2], pa.uint8()))
    read = read_edges(edges, 12)
    assert read.split is not None
    assert later_edges(read.attributes["timestamp"], read.split) == (1, 0, 0)
