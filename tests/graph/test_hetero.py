"""``to_hetero_data`` equals the graph."""

import numpy as np
import pytest

from tests.graph.tables import edges_table, nodes_table, random_tables
from tests.graph.test_features import features_of

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")


@pytest.mark.filterwarnings("ignore:The node types .* are isolated")  # meant to be: one type has no edges
def test_hetero_data_equals_the_graph(build):
    nodes, edges = random_tables(
        0,
        {"drug": 9, "gene/protein": 14, "lonely": 2},
        {"off-label use": ("drug", "gene/protein", 40), "links": ("gene/protein", "gene/protein", 30)},
    )
    values = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    graph = build(nodes, edges, {"drug": features_of([8, 0, 3], values)})
    data = graph.to_hetero_data()
    data.validate(raise_on_error=True)
    assert data.node_types == [t.name for t in graph.node_types]
    assert data.edge_types == [r.key for r in graph.relations]
    assert {t: data[t].num_nodes for t in data.node_types} == {t.name: t.count for t in graph.node_types}
    assert np.array_equal(data["drug"].x.numpy(), graph.features("drug"))
    assert data["drug"].x[[8, 0, 3]].tolist() == values.tolist()
    assert np.flatnonzero(data["drug"].has_x.numpy()).tolist() == [0, 3, 8]
    assert "x" not in data["gene/protein"]
    for relation in graph.relations:
        store, expected = data[relation.key], graph.edges(relation)
        assert store.edge_index.dtype == torch.int64
        assert np.array_equal(store.edge_index.numpy(), [expected.src, expected.dst])
        assert np.array_equal(store.split.numpy(), expected.split)
        assert np.array_equal(store.pair.numpy(), expected.pair)
        assert "edge_weight" not in store
        assert "time" not in store


def test_edge_attributes_are_carried_over(build):
    edges = edges_table([("r", 1, 0), ("r", 0, 1)], weight=[0.5, 2.0], timestamp=[7, 9])
    data = build(nodes_table(["n", "n"]), edges).to_hetero_data()
    assert data["n", "r", "n"].edge_index.tolist() == [[1, 0], [0, 1]]
    assert data["n", "r", "n"].edge_weight.tolist() == [0.5, 2.0]
    assert data["n", "r", "n"].time.tolist() == [7, 9]


def test_the_tensors_are_copies_that_may_be_written_to(build):
    graph = build(nodes_table(["n", "n"]), edges_table([("r", 0, 1)]), {"n": features_of([0], [[1.0]])})
    data = graph.to_hetero_data()
    data["n"].x.zero_()
    data["n", "r", "n"].split.fill_(2)
    graph.verify()
