"""Sequences of a typed graph: order, leave-one-out split, histories."""

import numpy as np
import pytest

from graphmill.errors import InputError, SettingsError
from graphmill.graph.build import build_graph
from graphmill.graph.sequences import sequence_view
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.interactions_csv import read_sequence

from .tables import edges_table, nodes_table

TEXT = "u a 5\nu b 1\nu a 9\nu c 9\nv a 1\nv b 2\nw c 3\nw a 4\nw b 5\n"


def build(tmp_path, text=TEXT, **settings):
    path = tmp_path / "views.txt"
    path.write_text(text)
    tables = read_sequence(path)
    return build_graph(tables.nodes, tables.edges, GraphSettings(**settings), tmp_path / "graph")


def named(view, graph):
    ids = graph.node_table()["id"].to_pylist()
    return {
        ids[view.user_offset + u]: [
            (ids[view.item_offset + view.items[i]], int(view.split[i]))
            for i in range(view.indptr[u], view.indptr[u + 1])
        ]
        for u in range(view.num_users)
    }


EXPECTED = {
    "u": [("b", 0), ("a", 0), ("a", 1), ("c", 2)],
    "v": [("a", 0), ("b", 0)],
    "w": [("c", 0), ("a", 1), ("b", 2)],
}


@pytest.mark.parametrize("add_reverse", ["never", "missing"])
def test_the_last_is_test_the_one_before_valid_and_short_sequences_are_trained_on(tmp_path, add_reverse):
    graph = build(tmp_path, add_reverse=add_reverse)
    assert named(sequence_view(graph), graph) == EXPECTED


def test_targets_and_where_training_ends(tmp_path):
    view = sequence_view(build(tmp_path))
    users, at = view.targets("test")
    assert users.tolist() == [0, 2]
    assert at.tolist() == [3, 8]
    assert (view.train_ends() - view.indptr[:-1]).tolist() == [2, 2, 1]
    assert view.same_second().tolist() == [False, False, False, True, *[False] * 5]


def test_without_times_the_order_of_the_file_counts(tmp_path):
    graph = build(tmp_path, "u c\nu a\nu b\nu a\n")
    view = sequence_view(graph)
    assert named(view, graph)["u"] == [("c", 0), ("a", 0), ("b", 1), ("a", 2)]
    assert view.timestamps is None


def test_pairs_can_be_drawn_instead(tmp_path):
    text = "".join(f"u{i % 40} i{i % 37} {i}\n" for i in range(600))
    graph = build(tmp_path, text, split={"method": "pairs", "valid": 0.1, "test": 0.1})
    assert graph.manifest["report"]["split_source"] == "drawn"
    split = sequence_view(graph).split
    assert 40 < (split == 1).sum() < 80


def test_leaving_one_out_of_no_sequence_is_refused(tmp_path):
    settings = GraphSettings(split={"method": "leave_one_out"})
    nodes, edges = nodes_table(["x", "x"]), edges_table([("r", 0, 1)])
    with pytest.raises(SettingsError, match="needs sequences"):
        build_graph(nodes, edges, settings, tmp_path / "graph")


def test_a_graph_without_interactions_is_refused(tmp_path):
    nodes, edges = nodes_table(["x", "y"]), edges_table([("r", 0, 1)])
    graph = build_graph(nodes, edges, GraphSettings(), tmp_path / "graph")
    with pytest.raises(InputError, match="no single relation of interactions"):
        sequence_view(graph)


@pytest.mark.real_data
def test_movielens_has_one_target_a_user(datasets, tmp_path):
    tables = read_sequence(datasets / "ml-latest-small" / "ml-latest-small.txt.gz")
    view = sequence_view(build_graph(tables.nodes, tables.edges, GraphSettings(), tmp_path / "graph"))
    assert len(view.targets("valid")[0]) == len(view.targets("test")[0]) == 671
    _, at = view.targets("test")
    assert int(view.same_second()[at].sum()) == 128
    assert np.all(np.diff(view.timestamps)[np.diff(view.users) == 0] >= 0)
