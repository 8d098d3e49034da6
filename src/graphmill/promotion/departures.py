"""What left a model with its newest version: nodes and edges of the version before that the new graph does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graphmill.errors import InputError
from graphmill.evaluation.embedding_files import ExportedNodes, read_embeddings, read_nodes
from graphmill.export.weights import NODES
from graphmill.graph.graph_location import open_graph_of
from graphmill.graph.sorted_unique import in_sorted
from graphmill.graph.summary import GraphSummary, NodeHashes, graph_difference
from graphmill.graph.typed_graph import TypedGraph
from graphmill.promotion.versions import Version
from graphmill.training.run_directory import RunDirectory

SAMPLE = 5


def departures(before: Version, graph: TypedGraph, summary: GraphSummary) -> dict[str, Any]:
    """``nodes`` and ``edges`` (pairs of nodes): how many of the version ``before`` are not in ``graph``.

    ``node_sample``, ``edge_sample``: the first few, as text; edges only if the graph of ``before`` still exists. {} if
    the version ``before`` is damaged.
    """
    table = graph.node_table()
    here = set(zip(table["type"].to_pylist(), table["id"].to_pylist(), strict=True))
    try:
        nodes, lost = nodes_of(before), graph_difference(GraphSummary.load(before.path), summary).lost
    except InputError:
        return {}
    kinds = (nodes.type_names[code] for code in nodes.types)
    gone = [f"{kind} {node}" for kind, node in zip(kinds, nodes.ids, strict=True) if (kind, node) not in here]
    edges = _edges(before, summary) if lost else []
    return {"nodes": len(gone), "edges": lost, "node_sample": gone[:SAMPLE], "edge_sample": edges}


def nodes_of(version: Version) -> ExportedNodes:
    """The nodes of the version's graph, in its order."""
    return read_embeddings(version.path) if version.about["dim"] else read_nodes(version.path / NODES)


def _edges(version: Version, summary: GraphSummary) -> list[str]:
    """The first edges of the version's graph whose pair is not in ``summary``; none if that graph is gone."""
    run = Path(version.about["run_dir"])
    try:
        graph = open_graph_of(run, RunDirectory(run).read_json("manifest.json")["data"])
    except InputError:
        return []
    hashes, ids, sample = NodeHashes(graph), graph.node_table()["id"], list[str]()
    for relation in graph.relations:
        src, dst = graph.ends(relation)
        rows = np.flatnonzero(~in_sorted(hashes.pairs(src, dst), summary.pairs))[: SAMPLE - len(sample)]
        sample += [f"{ids[int(src[row])]} {relation.name} {ids[int(dst[row])]}" for row in rows]
    return sample
