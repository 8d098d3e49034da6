"""What attributes are worth, on a small graph: hidden nodes have only test links, and the parts of the links are counted."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from benchmarks.parts import attributes

from graphmill.api import build_graph, read_features, read_interactions
from graphmill.graph.interactions import interaction_relation
from graphmill.graph.splits import TEST, TRAIN
from graphmill.graph.typed_graph import TypedGraph


class ByNumber:
    """Scores item n by −n, so that it has rank n + 1 but for the user's other items before it."""

    def __init__(self, graph: TypedGraph) -> None:
        self.items = graph.node_type("item").count

    def score_targets(self, relation: int, heads: np.ndarray) -> torch.Tensor:
        return -torch.arange(self.items, dtype=torch.float32).repeat(len(heads), 1)


def made(folder: Path) -> TypedGraph:
    """20 users and 12 items with a rating and a feature of their own; items 6 to 11 are met by two or three users each."""
    pairs = ((u, i) for u in range(20) for i in range(12) if (u * i % 4 < 3 if i < 6 else u % 7 == i - 6))
    met = [(f"u{u}", f"i{i}", 1 + (u + i) % 5) for u, i in pairs]
    pd.DataFrame(met, columns=["user", "item", "rating"]).to_csv(folder / "met.csv", index=False)
    pd.DataFrame({"id": [f"i{i}" for i in range(12)], "own": range(1, 13)}).to_csv(folder / "items.csv", index=False)
    tables = read_features(read_interactions(folder / "met.csv"), folder / "items.csv", "item")
    return build_graph(tables, folder / "graph", split={"method": "random", "valid": 0.1, "test": 0.2})


def test_hidden_nodes_have_only_test_links_and_keep_weights_and_features(tmp_path: Path) -> None:
    plain = made(tmp_path)
    first = plain.node_type("item").offset
    hidden = np.zeros(plain.num_nodes, bool)
    hidden[first + 3] = True
    tables = attributes.whole_tables(plain, hidden)
    graph = build_graph(tables, tmp_path / "hidden", add_reverse="never", include_node_types=["user", "item"])
    before, after = (each.edges(interaction_relation(each)) for each in (plain, graph))
    at_hidden = np.asarray(after.dst) == 3
    assert at_hidden.any()
    assert (np.asarray(after.split)[at_hidden] == TEST).all()
    assert np.array_equal(np.asarray(after.split)[~at_hidden], np.asarray(before.split)[~at_hidden])
    assert after.weight is not None
    assert np.array_equal(after.weight, np.asarray(before.weight))
    features = plain.features("item")
    assert features is not None
    others = attributes.features_of(plain, np.random.default_rng(0))["item"]["values"].to_pylist()
    assert sorted(others) == sorted(features.tolist()) != others != features.tolist()


def test_the_parts_of_the_test_links_are_ranked_apart(tmp_path: Path) -> None:
    graph = made(tmp_path)
    hidden = np.zeros(graph.num_nodes, bool)
    hidden[graph.node_type("item").offset] = True  # the first item, which the scorer ranks first
    result = attributes.figures(ByNumber(graph), graph, hidden)
    edges = graph.edges(interaction_relation(graph))
    items, split = np.asarray(edges.dst), np.asarray(edges.split)
    few = np.bincount(items[split == TRAIN], minlength=12) <= attributes.FEW
    assert result["hidden links"] == ((items == 0) & (split == TEST)).sum() > 0
    assert result["all links"] == ((items != 0) & (split == TEST)).sum()
    assert result["rare links"] == (few[items] & (items != 0) & (split == TEST)).sum() > 0
    assert result["hidden"] == 1.0
    assert 0 < result["rare"] < result["all"] < 1.0
