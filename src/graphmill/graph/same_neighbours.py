"""Which nodes have the same training neighbours: a system that learns from edges alone cannot tell them apart."""

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.typed_graph import TypedGraph


def neighbourhood_groups(graph: TypedGraph) -> NDArray[np.int64]:
    """int64 [nodes]: one number for all nodes with the same training neighbours by the same relations, repeated edges
    counted; 0: no training edge.

    A neighbourhood is the sum of random 64-bit numbers, one for each (relation, end, neighbour): two that differ have the
    same sum with a probability of 2⁻⁶⁴.
    """
    rng, total = np.random.default_rng(0), np.zeros(graph.num_nodes, np.uint64)
    for relation in graph.relations:
        ends = graph.training_edges(relation, everywhere=True)
        for node, neighbour in (ends, ends[::-1]):
            numbers = rng.integers(2**64, size=graph.num_nodes, dtype=np.uint64)
            np.add.at(total, node, numbers[neighbour])
    groups = np.unique(total, return_inverse=True)[1].astype(np.int64) + 1
    groups[graph.cold_nodes()] = 0
    return groups
