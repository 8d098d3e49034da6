"""How well a system's settings rank links, beside every simple baseline.

``python -m benchmarks.link_quality --json`` trains ``--settings`` (``examples/hgt/hetionet_kg_5k.yaml``, HGT's defaults) for
each seed on ``kg_5k`` with splits 0 and 1, on the whole Hetionet (one seed), FB15k-237 and UMLS; ``--graphs`` takes some of
them, and the rows of others stay. The epoch is chosen on validation links and the test split is read once a run. Rows: macro
MRR over the best baseline's with the 95 % interval of the ratio (queries resampled within each relation), each baseline,
health checks, time. ``ablation`` as the first word: forms of HGT by validation links (``parts/link_ablation.py``).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.parts import card
from benchmarks.parts.hetionet import hetionet
from benchmarks.parts.link_baselines import baseline_rankings
from graphmill.evaluation.ranking.links import LinkRanking, rank_links
from graphmill.evaluation.ranking.mrr_ratio import mrr_ratio
from graphmill.evaluation.ranking.queries import LinkQueries, link_queries
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.triples import read_triples
from graphmill.reports.validation import validate_file
from graphmill.runs.export import Restored, export_run, restore
from graphmill.runs.messages import Terminal
from graphmill.runs.resolve import merge, parse_settings, read_settings
from graphmill.runs.train import train

SETTINGS = card.ROOT / "examples" / "hgt" / "hetionet_kg_5k.yaml"
GRAPHS = {"kg_5k": (0, 1), "kg": (0,), "FB15k-237": (0,), "UMLS": (0,), "Nations": (0,)}
TIME = "time to the figure"
TARGETS = {"kg_5k": "ratio >= 1.05", "kg": "ratio >= 1.1"}


def graph_of(name: str, split_seed: int, folder: Path) -> TypedGraph:
    """The graph of a data set, built in ``folder``."""
    if name in ("kg", "kg_5k"):
        return hetionet(name, split_seed, folder)
    triples = read_triples(card.DATASETS / name)
    out = folder / f"{name}-{split_seed}"
    return build_graph(triples.nodes, triples.edges, GraphSettings(add_reverse="inverse"), out)


def trained(
    graph: TypedGraph, root: Path, seed: int, changes: Any = None, settings: Path = SETTINGS
) -> tuple[Restored, dict[str, Any]]:
    """A training by the settings with ``changes``, restored at the best epoch by validation.

    A run that was stopped is begun anew: its time would be that of its end only.
    """
    for run in root.glob("runs/*"):
        if not (run / "report.json").exists():
            shutil.rmtree(run)
    values = merge(read_settings(settings), {"data": str(graph.path), "training": {"seed": seed}})
    result = train(merge(values, changes or {}), str(settings), root=str(root), outlets=[Terminal()])
    return restore(result["run_dir"]), result


def ranking_of(restored: Restored, queries: LinkQueries) -> LinkRanking:
    """The model's ranking, without AUCs."""
    return rank_links(restored.system.scorer(restored.model), queries, auc_negatives=0)


def baselines_of(graph: TypedGraph, folder: Path, width: int) -> dict[str, LinkRanking]:
    """Degree, kNN, spectral vectors of the model's width and ComplEx, each at its best settings by validation."""
    return baseline_rankings(graph, "test", width, folder)


def rows_of(name: str, graph: TypedGraph, seeds: Sequence[int], folder: Path, settings: Path) -> list[card.Row]:
    """The rows of one graph and split."""
    queries, rows, means = link_queries(graph, "test"), [], []
    width = parse_settings(read_settings(settings), str(settings)).model.embedding_dim  # type: ignore[attr-defined]
    rankings = baselines_of(graph, folder / "baselines", width)
    baselines = {k: r.macro["mrr"] for k, r in rankings.items()}
    rival, best = max(baselines.items(), key=lambda item: item[1])
    target = TARGETS.get(name.split()[0], "")
    for seed in seeds:
        began = time.perf_counter()
        restored, result = trained(graph, folder / "runs", seed, settings=settings)
        seconds = time.perf_counter() - began
        mine = ranking_of(restored, queries)
        macro, against = mine.macro["mrr"], mrr_ratio(mine, rankings[rival])
        means.append(macro)
        note = f"seed {seed}, micro {mine.micro['mrr']:.4f}; ratio {against.low:.3f} to {against.high:.3f}"
        rows.append(card.row(name, "macro MRR", "", macro, rival=rival, theirs=best, target=target, note=note))
        export_run(restored)
        health = validate_file(Path(result["run_dir"])).to_dict()
        bad = [v["name"] for v in health["verdicts"] if v["status"] != "pass"]
        rows.append(
            card.row(
                name, "health checks not passed", "", float(len(bad)), note=f"seed {seed} {', '.join(bad)}".strip()
            )
        )
        if not result["reused"]:  # else the row of when it was trained stays
            rows.append(card.row(name, TIME, "s", seconds, note=f"seed {seed}"))
        print(rows[-3:], file=sys.stderr, flush=True)
    mean = float(np.mean(means))
    rows.append(card.row(name, "mean macro MRR", "", mean, rival=rival, theirs=best, note=f"{len(means)} seeds"))
    rows += [
        card.row(name, f"macro MRR of {k}", "", value, note=f"micro {rankings[k].micro['mrr']:.4f}")
        for k, value in baselines.items()
    ]
    return rows


def main() -> None:
    """Run and write results/link_quality.json."""
    if card.handed_over({"baselines": "link_baselines", "ablation": "link_ablation"}):
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--splits", type=int, nargs="+", default=[], help="of kg_5k; default: 0 and 1")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--settings", type=Path, default=SETTINGS, help="what is trained")
    parser.add_argument(
        "--work", default="", help="keep graphs and runs here, so that an interrupted benchmark goes on"
    )
    parser.add_argument("--json", action="store_true", help="write the results file")
    options = parser.parse_args()
    rows: list[card.Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.work or temporary)
        for name in options.graphs:
            for split in options.splits if options.splits and name == "kg_5k" else GRAPHS[name]:
                graph = graph_of(name, split, folder)
                label = f"{name} split {split}" if name == "kg_5k" else name
                seeds = options.seeds[:1] if name == "kg" else options.seeds
                rows += rows_of(label, graph, seeds, folder / f"{name}-{split}-runs", options.settings)
    if options.json:
        command = f"python -m benchmarks.link_quality --json --graphs {' '.join(options.graphs)}"
        command += f" --seeds {' '.join(map(str, options.seeds))}"
        command += f" --settings {options.settings.name}" if options.settings != SETTINGS else ""
        command += f" --splits {' '.join(map(str, options.splits))}" if options.splits else ""
        new, timed = {row.workload for row in rows}, {(row.workload, row.note) for row in rows if row.metric == TIME}

        def outdated(row: card.Row) -> bool:
            return row.workload in new and (row.metric != TIME or (row.workload, row.note) in timed)

        print(card.replace_rows("link_quality", rows, command, outdated))


if __name__ == "__main__":
    main()
