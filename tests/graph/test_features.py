"""Features are aligned with the graph's nodes; a node without any has zeros and is marked and counted."""

import numpy as np
import pyarrow as pa
import pytest

from graphmill.errors import InputError
from tests.graph.tables import edges_table, nodes_table

NODES = nodes_table(["gene", "drug", "gene", "drug", "gene"])
EDGES = edges_table([("r", 0, 1), ("r", 2, 3)])


def features_of(rows, values):
    array = pa.FixedSizeListArray.from_arrays(pa.array(np.array(values, np.float32).ravel()), np.shape(values)[1])
    return pa.table({"node": pa.array(rows, pa.int32()), "values": array})


def test_rows_follow_the_local_node_order_and_missing_ones_are_zero_and_marked(build):
    graph = build(NODES, EDGES, {"gene": features_of([4, 0], [[4.0, 4.5], [0.25, 0.5]])})
    values, mask = graph.features("gene"), graph.feature_mask("gene")
    assert values.dtype == np.float32
    assert values.tolist() == [[0.25, 0.5], [0.0, 0.0], [4.0, 4.5]]
    assert mask.tolist() == [True, False, True]
    assert graph.manifest["node_types"][0]["features"] == {"width": 2, "nodes_without": 1}
    assert graph.describe()["features"] == {"gene": 2}


def test_each_type_has_its_own_matrix(build):
    tables = {"drug": features_of([3], [[3.0, 3.5]]), "gene": features_of([2, 0], [[2.0], [1.0]])}
    graph = build(NODES, EDGES, tables)
    assert graph.features("drug").tolist() == [[0.0, 0.0], [3.0, 3.5]]
    assert graph.features("gene").tolist() == [[1.0], [2.0], [0.0]]


def test_types_without_features_have_none(build):
    graph = build(NODES, EDGES, {"gene": features_of([0], [[1.0]])})
    assert graph.features("drug") is None
    assert graph.feature_mask("drug") is None
    with pytest.raises(InputError, match="no node type 'disease'"):
        graph.features("disease")


def test_features_of_nodes_that_are_not_in_the_graph_are_counted(build):
    table = features_of([0, 4], [[1.0], [2.0]])
    graph = build(NODES, EDGES, {"gene": table}, isolated_nodes="drop")
    assert graph.features("gene").tolist() == [[1.0], [0.0]]
    assert graph.manifest["report"]["features_unused"] == {"gene": 1}


def test_features_of_an_excluded_type_are_left_out(build):
    edges = edges_table([("r", 0, 2), ("r", 0, 1)])
    graph = build(NODES, edges, {"drug": features_of([1], [[1.0]])}, include_node_types=["gene"])
    assert "features_000.npy" not in graph.manifest["files"]


def test_features_in_several_chunks_are_one_matrix(build):
    table = pa.concat_tables([features_of([4], [[4.0, 5.0]]), features_of([2, 0], [[2.0, 3.0], [0.0, 1.0]]).slice(1)])
    assert build(NODES, EDGES, {"gene": table}).features("gene").tolist() == [[0.0, 1.0], [0.0, 0.0], [4.0, 5.0]]


@pytest.mark.parametrize(
    ("node_type", "rows", "values", "message"),
    [
        ("protein", [0], [[1.0]], "node type 'protein'; .*'drug', 'gene'"),
        ("gene", [0, 1], [[1.0], [2.0]], "features of 'gene', row 1: node 1 has type 'drug'"),
        ("gene", [0, 5], [[1.0], [2.0]], "features of 'gene', row 1: node 5 is not a row of the nodes table"),
        ("gene", [0, 2, 0], [[1.0], [2.0], [3.0]], "features of 'gene': node 0 has more than one row"),
        ("gene", [0, 2], [[1.0], [np.inf]], "features of 'gene', row 1: not all values are finite"),
    ],
)
def test_features_that_fit_no_node_are_refused(build, node_type, rows, values, message):
    with pytest.raises(InputError, match=message):
        build(NODES, EDGES, {node_type: features_of(rows, values)})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"node": pa.array([0], pa.int64()), "values": [[1.0]]}), "expected the columns node"),
        (pa.table({"node": pa.array([0], pa.int32()), "values": [[1.0]]}), "expected a fixed-size list of float32"),
        (
            pa.table({"node": pa.array([None], pa.int32()), "values": pa.array([[1.0]], pa.list_(pa.float32(), 1))}),
            "empty cells",
        ),
    ],
)
def test_feature_tables_of_another_shape_are_refused(build, table, message):
    with pytest.raises(InputError, match=message):
        build(NODES, EDGES, {"gene": table})
