"""Whether drift is named rightly on real data: Hetionet's ``kg_5k``, trained again and on changed graphs.

``python -m benchmarks.health drift --json`` trains ComplEx (and HGT by spectral vectors alone), and compares the run with:
itself turned by a random rotation; with the ids of its nodes permuted; with one type's vectors all but the same; another
seed; graphs that have lost 5 % and 50 % of their node pairs; and a run on the last of these that starts from the first one
(``training.init_from``). Each verdict stands beside the one that it should be.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.parts import card
from benchmarks.parts.hetionet import TYPES
from graphmill.evaluation.drift.figures import drift_figures
from graphmill.evaluation.drift.verdicts import DriftReport, drift_report
from graphmill.evaluation.embedding_files import Embeddings, read_embeddings
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.summary import GraphSummary, graph_difference, summarise
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.kg_csv import read_kg_csv
from graphmill.runs.export import export_run, restore
from graphmill.runs.resolve import merge
from graphmill.runs.train import train

os.environ.setdefault("OMP_NUM_THREADS", "1")  # all its figures are of one thread


SYSTEMS: dict[str, dict[str, Any]] = {
    "complex": {"system": "complex", "model": {"embedding_dim": 64}, "training": {"epochs": 12}},
    "hgt": {"system": "hgt", "preset": "none", "objective": {"loss": "softmax"},
            "model": {"embedding_dim": 64, "hidden_dim": 32, "num_layers": 1}, "training": {"epochs": 4}},
}  # fmt: skip
COMMON = {"export": {"csv": False, "align": "none"}, "acceleration": {"device": "cpu"}}


def graph_with(share_lost: float, folder: Path) -> TypedGraph:
    """``kg_5k`` without a part of its node pairs; the nodes stay."""
    tables = read_kg_csv(card.DATASETS / "hetionet" / "kg_5k.csv.gz")
    ends = np.sort(np.stack([np.asarray(tables.edges[side]) for side in ("head", "tail")], 1), axis=1)
    pairs, of_edge = np.unique(ends, axis=0, return_inverse=True)  # the file has most of them in both directions
    kept = (np.random.default_rng(0).random(len(pairs)) >= share_lost)[of_edge.reshape(-1)]
    settings = GraphSettings(include_node_types=TYPES)
    return build_graph(tables.nodes, tables.edges.filter(pa.array(kept)), settings, folder / f"graph-{share_lost:g}")


def trained(values: dict[str, Any], graph: TypedGraph, root: Path, **training: Any) -> Path:
    """The exported run."""
    wanted = merge(merge(values, COMMON), {"data": str(graph.path), "training": training})
    run = Path(train(wanted, "drift", root=str(root))["run_dir"])
    export_run(restore(run))
    return run


def turned(embeddings: Embeddings) -> Embeddings:
    """By a random rotation."""
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((embeddings.vectors.shape[1],) * 2))[0]
    return replace(embeddings, vectors=(embeddings.vectors @ rotation).astype(np.float32))


def permuted(embeddings: Embeddings) -> Embeddings:
    """Within each type the ids of the rows in another order."""
    rng, order = np.random.default_rng(2), np.arange(len(embeddings.ids))
    for kind in np.unique(embeddings.types):
        ours = np.flatnonzero(embeddings.types == kind)
        order[ours] = rng.permutation(ours)
    return replace(embeddings, vectors=embeddings.vectors[order])


def measured(system: str, folder: Path) -> Iterator[card.Row]:
    """A row for each comparison."""
    values, runs = SYSTEMS[system], folder / system
    whole, little, half = (graph_with(share, folder) for share in (0.0, 0.05, 0.5))
    first = trained(values, whole, runs, seed=0)
    before = read_embeddings(first / "embeddings")
    same = summarise(whole)

    def of_run(graph: TypedGraph, **training: Any) -> tuple[Embeddings, GraphSummary]:
        return read_embeddings(trained(values, graph, runs, **training) / "embeddings"), summarise(graph)

    cases: list[tuple[str, tuple[str, ...], Callable[[], tuple[Embeddings, GraphSummary]]]] = [
        ("turned by a rotation", ("rotation_only",), lambda: (turned(before), same)),
        ("ids permuted within types", ("moved",), lambda: (permuted(before), same)),
        # Spectral vectors of one graph are the same with every seed, but for a rotation.
        ("another seed", ("moved_little", "rotation_only", "unchanged"), lambda: of_run(whole, seed=7)),
        ("5 % of the pairs lost", ("data_lost",), lambda: of_run(little, seed=0)),
        ("50 % of the pairs lost", ("data_lost",), lambda: of_run(half, seed=0)),
    ]
    if system == "complex":
        start = {"init_from": str(first), "epochs": 2, "seed": 0}
        cases.append(("50 % of the pairs lost, started from the run", ("data_lost",), lambda: of_run(half, **start)))
    for what, expected, made in cases:
        yield _row(system, what, expected, made(), before, same)


def _row(
    system: str,
    what: str,
    expected: tuple[str, ...],
    made: tuple[Embeddings, GraphSummary],
    before: Embeddings,
    same: GraphSummary,
) -> card.Row:
    after, graph = made
    result: DriftReport = drift_report(drift_figures(before, after), graph_difference(same, graph))
    overall, names = result.figures.overall, " + ".join(finding.name for finding in result.findings)
    note = f"{names}; overlap@10 {overall.overlap_10:.3f}, cosine after alignment {overall.cosine_aligned:.3f}"
    return card.row(
        f"kg_5k, {system}: {what}", "named rightly", "", float(result.name in expected), target="ours >= 1", note=note
    )


def main() -> None:
    """Run and write results/drift.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--json", action="store_true", help="write the results file")
    options = parser.parse_args()
    command = f"python -m benchmarks.health drift --json --systems {' '.join(options.systems)}"
    for system in options.systems:
        with tempfile.TemporaryDirectory() as folder:
            for each in measured(system, Path(folder)):
                print(f"{each.workload}: {each.note}", flush=True)
                if options.json:
                    print(card.store("drift", each, command))


if __name__ == "__main__":
    main()
