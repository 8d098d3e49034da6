"""``python -m benchmarks.parts.hgt_estimate --workload full``: memory as planned, and taken.

Six workloads on synthetic data of real shapes. ``--build DIR`` writes a workload's graph; ``--graph DIR`` trains on it
through the worker for a few steps in this process. One JSON line: predicted and measured peak memory of the whole process
(GB), seconds per step by the clock, and the processor's seconds of the whole training.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.parts import hgt_graphs

STEPS = 6
_NAMES = {"gene": "gene/protein"}


def kg_graph(name: str, out: Path) -> Path:
    """A benchmark graph as a typed graph: ``67k``, ``primekg``, ..."""
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings

    counts, relations = hgt_graphs.load(name)
    five = [_NAMES.get(t, t) for t in hgt_graphs.FIVE_TYPES]
    types = five if name.startswith("primekg") else [f"type {t}" for t in range(len(counts))]
    first = np.concatenate([[0], np.cumsum(counts)])
    heads = np.concatenate([np.asarray(r.src) + first[r.source_type] for r in relations])
    tails = np.concatenate([np.asarray(r.dst) + first[r.target_type] for r in relations])
    number = np.repeat(np.arange(len(relations)), [len(r.src) for r in relations])
    names = pa.array([f"r{n}" for n in range(len(relations))])
    # Few held-out edges: the final ranking is no part of the figures, and takes minutes on millions of edges.
    settings = GraphSettings.model_validate({"split": {"valid": 0.001, "test": 0.001}})
    return _built(build_graph, settings, np.repeat(types, counts), heads, tails, number, names, out)


def triples_graph(entities: int, relations: int, triples: int, out: Path) -> Path:
    """Random triples of one entity type, split 90 / 5 / 5."""
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings

    rng = np.random.default_rng(0)
    heads, tails = (
        (rng.random(triples) ** 1.5 * entities).astype(np.int64),
        (rng.random(triples) ** 1.5 * entities).astype(np.int64),
    )
    number = rng.integers(0, relations, triples)
    names = pa.array([f"r{n}" for n in range(relations)])
    settings = GraphSettings.model_validate({"add_reverse": "never", "split": {"valid": 0.01, "test": 0.01}})
    return _built(build_graph, settings, np.repeat("entity", entities), heads, tails, number, names, out)


def _built(build: Any, settings: Any, types: Any, heads: Any, tails: Any, number: Any, names: Any, out: Path) -> Path:
    n = len(types)
    labels = pa.DictionaryArray.from_arrays(pa.array(number.astype(np.int32)), names)
    edges = pa.table(
        {
            "relation": labels,
            "display_relation": labels,
            "head": pa.array(heads.astype(np.int32)),
            "tail": pa.array(tails.astype(np.int32)),
        }
    )
    nodes = pa.table(
        {
            "index": pa.array(np.arange(n)),
            "id": pa.array([f"n{i}" for i in range(n)]),
            "type": pa.array(list(types)).dictionary_encode(),
            "name": pa.array([f"node {i}" for i in range(n)]),
            "source": pa.array(["synthetic"] * n).dictionary_encode(),
        }
    )
    return Path(build(nodes, edges, settings, out).path)


def watch_graph(users: int, items: int, mean: int, out: Path) -> Path:
    """Sequences of geometric length with times."""
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.interactions_csv import read_sequence

    rng = np.random.default_rng(0)
    path = out.with_suffix(".txt")
    with path.open("w") as file:
        for user in range(users):
            chosen = (rng.random(5 + rng.geometric(1 / mean)) ** 2 * items).astype(int)
            file.write("".join(f"u{user} i{item} {step}\n" for step, item in enumerate(chosen)))
    tables = read_sequence(path)
    return Path(build_graph(tables.nodes, tables.edges, GraphSettings(), out).path)


_SHORT = {"training": {"epochs": 1, "steps_per_epoch": STEPS}, "evaluation": {"metrics": ["mrr"]}}
_HGT = {"system": "hgt", **_SHORT}
WORKLOADS: dict[str, tuple[Any, dict[str, Any]]] = {
    "full": (lambda out: kg_graph("67k", out), {**_HGT, "acceleration": {"batching": "full"}}),
    "checkpointing": (
        lambda out: kg_graph("67k", out),
        {**_HGT, "acceleration": {"batching": "full", "gradient_checkpointing": True}},
    ),
    "edge_sampled": (lambda out: kg_graph("primekg", out), {**_HGT, "acceleration": {"batching": "edge_sampled"}}),
    "conve": (
        lambda out: triples_graph(14_541, 237, 310_116, out),
        {"system": "conve", "training": {"epochs": 1, "steps_per_epoch": 20}, "evaluation": {"metrics": ["mrr"]}},
    ),
    "sasrec": (
        lambda out: watch_graph(6040, 3416, 160, out),
        {
            "system": "sasrec",
            "model": {"max_length": 200},
            "training": {"epochs": 1, "steps_per_epoch": 12},
            "evaluation": {"metrics": ["ndcg"], "baselines": [], "selection_metric": "ndcg@10"},
        },
    ),
}


def recommender_graph(out: Path) -> Path:
    """The shape of book-crossing: users, items and what is known of the items."""
    from benchmarks.parts.recommender_data import knowledge_graph

    return Path(knowledge_graph("book", out).path)


_RECOMMENDER = {
    **_SHORT,
    "evaluation": {"metrics": ["recall"], "top_k": [20], "selection_metric": "recall@20", "baselines": []},
}
RECOMMENDERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "kgat": (recommender_graph, {"system": "kgat", **_RECOMMENDER}),
    "mf": (recommender_graph, {"system": "mf", **_RECOMMENDER}),
}
ALL = WORKLOADS | RECOMMENDERS


def measure(workload: str, graph: Path, folder: Path) -> dict[str, Any]:
    """Train the workload, and hold the prediction against it."""
    from graphmill.runs.resolve import merge
    from graphmill.runs.train import train
    from graphmill.training.memory import peak_memory

    about = {"preset": "none", "data": str(graph), "export": {"csv": False}}
    values = merge(ALL[workload][1], about)
    began = time.process_time()
    result = train(values, workload, root=str(folder))
    return {
        "workload": workload,
        "predicted_gb": result["planned_memory_bytes"] / 1e9,
        "peak_gb": peak_memory() / 1e9,
        "s": result["seconds_per_step"],
        "processor_s": time.process_time() - began,
        "steps": result["steps_done"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=list(ALL), required=True)
    parser.add_argument("--build", default="", help="write the graph here, and stop")
    parser.add_argument("--graph", default="", help="the graph that --build wrote")
    args = parser.parse_args()
    if args.build:
        print(json.dumps({"graph": str(ALL[args.workload][0](Path(args.build)))}))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(args.workload, Path(args.graph), Path(folder))))


if __name__ == "__main__":
    main()
