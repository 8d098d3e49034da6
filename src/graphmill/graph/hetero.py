"""Converts a typed graph to PyTorch Geometric's ``HeteroData``. It imports torch, so no module imports it at module
level."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch_geometric.data import HeteroData

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph


def to_hetero_data(graph: TypedGraph) -> HeteroData:
    """Copy all nodes and edges of ``graph`` into tensors. Types and relations keep the graph's order.

    Nodes: ``num_nodes``; if the type has features ``x`` (count, f) float32, all sets side by side, and ``has_x`` (count,)
    bool. Edges: ``edge_index`` (2, E) int64, sorted by destination; ``split`` (E,) uint8; ``pair`` (E,) int64;
    ``edge_weight`` (E,) float32 and ``time`` (E,) int64 if the data has them.
    """
    data = HeteroData()
    for node_type in graph.node_types:
        store = data[node_type.name]
        store.num_nodes = node_type.count
        features = graph.all_features(node_type.name)
        if features is not None:
            masks = [graph.feature_mask(node_type.name, name) for name in graph.feature_sets(node_type.name)]
            store.x = torch.from_numpy(features.copy())
            store.has_x = torch.from_numpy(np.any(np.array(masks), axis=0))
    for relation in graph.relations:
        edges = graph.edges(relation)
        store = data[relation.key]
        store.edge_index = torch.from_numpy(np.stack((edges.src, edges.dst)).astype(np.int64))
        store.split = torch.from_numpy(edges.split.copy())
        store.pair = torch.from_numpy(edges.pair.astype(np.int64))
        if edges.weight is not None:
            store.edge_weight = torch.from_numpy(edges.weight.copy())
        if edges.timestamp is not None:
            store.time = torch.from_numpy(edges.timestamp.copy())
    return data
