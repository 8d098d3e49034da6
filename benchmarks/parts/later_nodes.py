"""Nodes that join after the training: how well their links are ranked without a retraining, and with one.

``python -m benchmarks.fold_in nodes --json`` hides a tenth of the nodes of Hetionet's ``kg_5k`` (split 0), trains each of
``--systems`` by its defaults on the rest, and adds the hidden nodes with their training edges (``graphmill links --edges``).
The test links of hidden nodes are ranked by that model and by the same settings trained on the whole graph: macro MRR over
relations, the same queries, candidates and filter.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from benchmarks.parts import card
from graphmill.evaluation.ranking.queries import RelationQueries, link_queries, relation_queries
from graphmill.evaluation.ranking.ranks import Scorer, ranks_of
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import TRAIN
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.tables import REJECTS, IngestResult
from graphmill.runs.export import restore
from graphmill.runs.train import train
from graphmill.usage.embed import link_model_with
from graphmill.usage.links import LinkModel

SHARE = 0.1
TARGET = "ratio >= 0.8"
TARGETS = {"hgt": TARGET, "nbfnet": "ratio >= 0.95"}
"""By system; NBFNet has nothing of its own for a node."""
KEPT = ("weight", "position")
"""Columns of edges that tables keep, besides the split: those that a graph has, it has of all its relations."""


def hidden_nodes(graph: TypedGraph, seed: int, share: float = SHARE) -> np.ndarray:
    """bool [nodes]: a seeded part of the nodes that have a training edge."""
    rng = np.random.default_rng(seed)
    hidden: np.ndarray = (rng.random(graph.num_nodes) < share) & ~graph.cold_nodes()
    return hidden


def tables_of(graph: TypedGraph, nodes: np.ndarray, edges: np.ndarray, *, split: bool) -> IngestResult:
    """Nodes and edges (bool masks) of a graph as tables; ``split``: with the split of the edges."""
    place = np.cumsum(nodes) - 1
    offset = {t.name: t.offset for t in graph.node_types}
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("head", "tail", "relation", "split", *KEPT)}
    for relation in graph.relations:
        relation_edges = graph.edges(relation)
        parts["head"].append(np.asarray(relation_edges.src).astype(np.int64) + offset[relation.source])
        parts["tail"].append(np.asarray(relation_edges.dst).astype(np.int64) + offset[relation.target])
        parts["relation"].append(np.full(len(relation_edges.src), relation.index, np.int32))
        parts["split"].append(np.asarray(relation_edges.split))
        for name in KEPT:
            given = getattr(relation_edges, name)
            parts[name] += [] if given is None else [np.asarray(given)]
    column = {name: np.concatenate(each)[edges] for name, each in parts.items() if each}
    names = pa.DictionaryArray.from_arrays(pa.array(column["relation"]), pa.array([r.name for r in graph.relations]))
    names = names.cast(pa.string()).dictionary_encode()  # both directions of a relation have one name
    table = {
        "relation": names,
        "display_relation": names,
        "head": pa.array(place[column["head"]].astype(np.int32)),
        "tail": pa.array(place[column["tail"]].astype(np.int32)),
    }
    table |= {name: pa.array(column[name]) for name in KEPT if name in column}
    if split:
        table["split"] = pa.array(column["split"].astype(np.uint8))
    rows = graph.node_table().take(pa.array(np.flatnonzero(nodes)))
    return IngestResult(rows, pa.table(table), REJECTS.empty_table())


def ends_of(graph: TypedGraph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Heads and tails of all edges by global number, and their split."""
    offset = {t.name: t.offset for t in graph.node_types}
    edge_sets = [(graph.edges(r), r) for r in graph.relations]
    heads = np.concatenate([np.asarray(e.src) + np.int64(offset[r.source]) for e, r in edge_sets])
    tails = np.concatenate([np.asarray(e.dst) + np.int64(offset[r.target]) for e, r in edge_sets])
    return heads, tails, np.concatenate([np.asarray(e.split) for e, _ in edge_sets])


class LaterScorer:
    """Scores of a model on the graph that new nodes have joined, in the numbers of the whole graph."""

    def __init__(self, model: LinkModel, graph: TypedGraph) -> None:
        self.scorer, self.graph = model.scorer, graph
        known = {relation.key: relation.index for relation in model.graph.relations}
        self.relations = {r.index: known[r.key] for r in graph.relations if r.key in known}
        local = {}
        table = model.graph.node_table()
        offset = {t.name: t.offset for t in model.graph.node_types}
        for row, key in enumerate(zip(table["type"].to_pylist(), table["id"].to_pylist(), strict=True)):
            local[key] = row - offset[key[0]]
        table = graph.node_table()
        keys = zip(table["type"].to_pylist(), table["id"].to_pylist(), strict=True)
        rows = np.array([local.get(key, -1) for key in keys], np.int64)
        self.places = {t.name: rows[t.offset : t.offset + t.count] for t in graph.node_types}

    def score_targets(self, relation: int, heads: np.ndarray) -> torch.Tensor:
        """Local head numbers int64 [B] → fp32 [B, candidates]; a node without an edge scores below all."""
        whole_relation = self.graph.relations[relation]
        result = self.scorer.score_targets(self.relations[relation], self.places[whole_relation.source][heads])
        tails = self.places[whole_relation.target]
        result = result[:, np.maximum(tails, 0)]
        result[:, np.flatnonzero(tails < 0)] = -1e9
        return result


def mean_reciprocal_rank(scorer: Scorer, graph: TypedGraph, hidden: np.ndarray) -> tuple[float, int]:
    """Macro over relations, of the test links of hidden nodes; and how many they are."""
    offset = {t.name: t.offset for t in graph.node_types}
    means, total = [], 0
    for queries in link_queries(graph, "test").relations:
        relation = graph.relations[queries.relation]
        request = hidden[queries.heads + offset[relation.source]] | hidden[queries.tails + offset[relation.target]]
        if request.any():
            means.append(float(np.mean(1.0 / ranks_of(scorer, _only(queries, request)).realistic)))
            total += int(request.sum())
    return float(np.mean(means)), total


def _only(queries: RelationQueries, kept: np.ndarray) -> RelationQueries:
    known = np.repeat(np.arange(len(queries.known_indptr) - 1), np.diff(queries.known_indptr)), queries.known_tails
    degree = np.repeat(np.arange(queries.candidates), queries.train_degree)
    ends = queries.heads[kept], queries.tails[kept]
    sizes = len(queries.known_indptr) - 1, queries.candidates
    result = relation_queries(queries.relation, queries.name, ends, (degree[:0], degree[:0]), [known], *sizes)
    return result


def measure(graph: TypedGraph, values: dict[str, Any], folder: Path, seed: int = 0) -> dict[str, float]:
    """MRR of hidden nodes' test links by joining and by a retraining, how many they are, and seconds of both ways. What is
    in ``folder`` from before is used."""
    hidden = hidden_nodes(graph, seed)
    heads, tails, split = ends_of(graph)
    touched = hidden[heads] | hidden[tails]
    rest = tables_of(graph, ~hidden, ~touched, split=True)
    settings = GraphSettings(include_node_types=[t.name for t in graph.node_types], add_reverse="never")
    smaller = build_graph(rest.nodes, rest.edges, settings, folder / "smaller")
    before = restore(train({**values, "data": str(smaller.path)}, "later", root=str(folder / "before"))["run_dir"])
    later = np.zeros(graph.num_nodes, bool)
    used = touched & (split == TRAIN)
    to_known = used & ~(hidden[heads] & hidden[tails])
    later[heads[to_known]] = later[tails[to_known]] = True
    used &= later[heads] & later[tails]
    began = time.perf_counter()
    model = link_model_with(before, tables_of(graph, later, used, split=False), "the hidden nodes")
    joining = time.perf_counter() - began
    ours, queries = mean_reciprocal_rank(LaterScorer(model, graph), graph, hidden)
    began = time.perf_counter()
    whole = restore(train({**values, "data": str(graph.path)}, "later", root=str(folder / "after"))["run_dir"])
    retraining = time.perf_counter() - began
    theirs, _ = mean_reciprocal_rank(whole.system.scorer(whole.model), graph, hidden)
    return {"ours": ours, "theirs": theirs, "queries": queries, "joining": joining, "retraining": retraining}


def main() -> None:
    """Run and write results/later_nodes.json."""
    from benchmarks.link_quality import graph_of

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", nargs="+", choices=list(TARGETS), default=list(TARGETS), help="what is trained")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--work", default="", help="keep graphs and runs here, so that what was interrupted goes on")
    parser.add_argument("--json", action="store_true", help="write the results file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(options.work or temporary)
        graph = graph_of("kg_5k", 0, work)
        for system, seed in ((system, seed) for system in options.systems for seed in options.seeds):
            result = measure(graph, {"system": system}, work / f"{system}-{seed}", seed)
            note = f"test links of the hidden {SHARE:.0%} of the nodes, seed {seed}, {result['queries']:,} queries"
            name, rival = f"kg_5k split 0, {system}, seed {seed}", "retraining"
            ours, theirs = result["ours"], result["theirs"]
            rows = [
                card.row(name, "macro MRR", "", ours, rival=rival, theirs=theirs, target=TARGETS[system], note=note),
                card.row(name, "time", "s", result["joining"], rival=rival, theirs=result["retraining"]),
            ]
            print(rows, flush=True)
            for row in rows if options.json else []:
                card.store("later_nodes", row, "python -m benchmarks.fold_in nodes --json --seeds 0 1")


if __name__ == "__main__":
    main()
