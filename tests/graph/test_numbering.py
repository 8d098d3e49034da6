"""Which nodes and edges are in the graph, and what they are called."""

import numpy as np
import pyarrow as pa
import pytest

from graphmill.errors import InputError, SettingsError
from tests.graph.conftest import triples_of
from tests.graph.tables import edges_table, nodes_table

TYPES = ["gene", "drug", "gene", "disease", "drug", "gene"]


def test_nodes_are_contiguous_by_type_in_order_of_appearance_and_in_table_order_within_a_type(build):
    graph = build(nodes_table(TYPES), edges_table([("r", i, (i + 1) % 6) for i in range(6)]))
    assert [(t.name, t.count, t.offset) for t in graph.node_types] == [
        ("gene", 3, 0),
        ("drug", 2, 3),
        ("disease", 1, 5),
    ]
    table = graph.node_table()
    assert table.column_names == ["index", "id", "type", "name", "source"]
    assert table["index"].to_pylist() == [100, 102, 105, 101, 104, 103]
    assert table["id"].to_pylist() == ["id0", "id2", "id5", "id1", "id4", "id3"]
    assert table["type"].to_pylist() == ["gene"] * 3 + ["drug"] * 2 + ["disease"]


def test_include_node_types_gives_the_order_and_drops_edges_with_an_end_outside(build):
    graph = build(
        nodes_table(TYPES),
        edges_table([("r", 0, 1), ("r", 1, 3), ("r", 3, 4), ("r", 0, 2)]),
        include_node_types=["disease", "drug"],
        add_reverse="never",
    )
    assert [t.name for t in graph.node_types] == ["disease", "drug"]
    assert [edge[:3] for edge in triples_of(graph)] == [(101, "r", 103), (103, "r", 104)]
    assert graph.manifest["report"]["excluded_edges"] == 2
    assert graph.manifest["report"]["excluded_nodes"] == 3


def test_an_unknown_node_type_is_refused_with_the_known_ones(build):
    with pytest.raises(SettingsError, match=r"'gene/protein'; .*'disease', 'drug', 'gene'"):
        build(nodes_table(TYPES), edges_table([("r", 0, 1)]), include_node_types=["gene/protein", "drug"])


def test_a_choice_of_types_without_any_edge_is_refused(build):
    with pytest.raises(InputError, match=r"no edge .*'disease'"):
        build(nodes_table(TYPES), edges_table([("r", 0, 1)]), include_node_types=["disease"])


def test_isolated_nodes_are_kept_by_default_and_counted(build):
    graph = build(nodes_table(TYPES), edges_table([("r", 0, 1)]))
    assert graph.num_nodes == 6
    assert graph.manifest["report"]["isolated_nodes"] == {"gene": 2, "drug": 1, "disease": 1}
    assert graph.cold_nodes().tolist() == [False, True, True, False, True, True]


def test_isolated_nodes_can_be_dropped_and_are_still_counted(build):
    graph = build(nodes_table(TYPES), edges_table([("r", 0, 4)]), isolated_nodes="drop")
    assert graph.node_table()["index"].to_pylist() == [100, 104]
    assert [(t.name, t.count, t.offset) for t in graph.node_types] == [("gene", 1, 0), ("drug", 1, 1)]
    assert graph.manifest["report"]["isolated_nodes"] == {"gene": 2, "drug": 1, "disease": 1}
    assert not graph.cold_nodes().any()


def test_a_node_that_has_edges_only_to_excluded_types_is_isolated(build):
    graph = build(nodes_table(TYPES), edges_table([("r", 0, 1), ("r", 2, 3)]), include_node_types=["gene", "drug"])
    assert graph.manifest["report"]["isolated_nodes"] == {"gene": 2, "drug": 1}


def test_tables_in_several_chunks_with_differing_dictionaries_are_one_table(build):
    nodes, edges = nodes_table(TYPES), edges_table([("b", 0, 1), ("a", 1, 3), ("b", 3, 4), ("c", 2, 5)])
    chunked_nodes = pa.concat_tables([nodes_table(["gene", "drug"], ["id0", "id1"]), nodes.slice(2)])
    cut = pa.concat_tables([edges_table([("b", 0, 1)]), edges_table([("a", 1, 3), ("b", 3, 4)]), edges.slice(3)])
    whole, pieces = build(nodes, edges), build(chunked_nodes, cut)
    assert len(triples_of(whole)) == 8
    assert triples_of(pieces) == triples_of(whole)
    assert [r.key for r in pieces.relations] == [r.key for r in whole.relations]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("head", pa.array([0, 6], pa.int32()), "row 1: head = 6, but the nodes table has 6 rows"),
        ("tail", pa.array([-1, 1], pa.int32()), "row 0: tail = -1"),
        ("tail", pa.array([1, None], pa.int32()), "column 'tail' has 1 empty cells"),
        ("head", pa.array([0, 1], pa.int64()), "column 'head' is int64; expected int32"),
        ("relation", pa.array(["r", None]), "column 'relation' has 1 empty cells"),
        ("split", pa.array([0, 3], pa.uint8()), "row 1: split = 3"),
        ("weight", pa.array([1.0, np.nan], pa.float32()), "row 1: weight = nan is not finite"),
        ("timestamp", pa.array([1.0, 2.0]), "column 'timestamp' is double; expected int64"),
    ],
)
def test_cells_that_cannot_be_used_are_named(build, column, values, message):
    edges = edges_table([("r", 0, 1), ("r", 1, 2)])
    edges = edges.drop_columns([column]) if column in edges.column_names else edges
    with pytest.raises(InputError, match=message):
        build(nodes_table(TYPES), edges.append_column(column, values))


@pytest.mark.parametrize(
    ("table", "column"), [("nodes", "type"), ("nodes", "id"), ("edges", "relation"), ("edges", "head")]
)
def test_a_missing_column_is_named(build, table, column):
    tables = {"nodes": nodes_table(TYPES), "edges": edges_table([("r", 0, 1)])}
    tables[table] = tables[table].drop_columns([column])
    with pytest.raises(InputError, match=f"table '{table}' has no column '{column}'"):
        build(**tables)
