"""How well HGT's default ranks links, beside every simple baseline and its own form without messages.

``python -m benchmarks.link_quality --json`` trains ``examples/hgt/hetionet_softmax.yaml`` for each seed on ``kg_5k`` with
splits 0 and 1, on the whole Hetionet (one seed), FB15k-237 and UMLS; ``--graphs`` takes some of them, and the rows
of others stay. The epoch is chosen on validation links and the test split is read once a run. Rows: macro MRR over the best
baseline's with the 95 % interval of the ratio (queries resampled within each relation), each baseline, a form without
messages (on ``kg_5k`` the one that validation ranks best), health checks, time. ``ablation`` as the first word: parts of the
default by validation links (``parts/link_ablation.py``).
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

SETTINGS = card.ROOT / "examples" / "hgt" / "hetionet_softmax.yaml"
GRAPHS = {"kg_5k": (0, 1), "kg": (0,), "FB15k-237": (0,), "UMLS": (0,), "Nations": (0,)}
NO_MESSAGES: tuple[dict[str, Any], ...] = (
    {},
    {"model": {"complex_dim": 0}},
    {"model": {"complex_dim": 0}, "training": {"epochs": 20}},
    {"model": {"complex_dim": 0, "learned_share": 1.0}, "training": {"epochs": 20}},
)
"""Forms without message passing: spectral vectors with ComplEx beside, alone, by more steps; and tables by more steps."""
TIME = "time to the figure"
TARGETS = {"kg_5k": "ratio >= 1.05", "kg": "ratio >= 1.1"}


def graph_of(name: str, split_seed: int, folder: Path) -> TypedGraph:
    """The graph of a data set, built in ``folder``."""
    if name in ("kg", "kg_5k"):
        return hetionet(name, split_seed, folder)
    triples = read_triples(card.DATASETS / name)
    out = folder / f"{name}-{split_seed}"
    return build_graph(triples.nodes, triples.edges, GraphSettings(add_reverse="inverse"), out)


def trained(graph: TypedGraph, root: Path, seed: int, changes: Any = None) -> tuple[Restored, dict[str, Any]]:
    """A training by the example's settings with ``changes``, restored at the best epoch by validation.

    A run that was stopped is begun anew: its time would be that of its end only.
    """
    for run in root.glob("runs/*"):
        if not (run / "report.json").exists():
            shutil.rmtree(run)
    values = merge(read_settings(SETTINGS), {"data": str(graph.path), "training": {"seed": seed}})
    result = train(merge(values, changes or {}), str(SETTINGS), root=str(root), outlets=[Terminal()])
    return restore(result["run_dir"]), result


def folder_of(root: Path, changes: dict[str, Any]) -> Path:
    """Where a form's runs are: a longer training would go on with the shorter one's run, and change its figures."""
    return root / "longer" if "training" in changes else root


def without_messages(name: str, graph: TypedGraph, root: Path, seed: int) -> dict[str, Any]:
    """The form without layers, sums and pair features that validation ranks best: what to change for it.

    On graphs other than ``kg_5k`` the form of the default's few steps: there the others would take hours.
    """
    best: tuple[float, dict[str, Any]] = (-1.0, {})
    none = {"model": {"num_layers": 0, "neighbour_sums": False, "pair_features": False}}
    if not name.startswith("kg_5k"):
        return none
    for more in NO_MESSAGES:
        changes = merge(none, more)
        _, result = trained(graph, folder_of(root, changes), seed, changes)
        best = max(best, (result["metrics"]["valid_mrr"], changes), key=lambda found: found[0])
    return best[1]


def ranking_of(restored: Restored, queries: LinkQueries) -> LinkRanking:
    """The model's ranking, without AUCs."""
    return rank_links(restored.system.scorer(restored.model), queries, auc_negatives=0)


def baselines_of(graph: TypedGraph, folder: Path, width: int) -> dict[str, LinkRanking]:
    """Degree, kNN, spectral vectors of the model's width and ComplEx, each at its best settings by validation."""
    return baseline_rankings(graph, "test", width, folder)


def rows_of(name: str, graph: TypedGraph, seeds: Sequence[int], folder: Path) -> list[card.Row]:
    """The rows of one graph and split."""
    queries, rows, means = link_queries(graph, "test"), [], []
    width = parse_settings(read_settings(SETTINGS), str(SETTINGS)).model.embedding_dim  # type: ignore[attr-defined]
    rankings = baselines_of(graph, folder / "baselines", width)
    baselines = {k: r.macro["mrr"] for k, r in rankings.items()}
    rival, best = max(baselines.items(), key=lambda item: item[1])
    target = TARGETS.get(name.split()[0], "")
    plain = without_messages(name, graph, folder / "without", seeds[0])
    for seed in seeds:
        began = time.perf_counter()
        restored, result = trained(graph, folder / "runs", seed)
        seconds = time.perf_counter() - began
        mine = ranking_of(restored, queries)
        macro, against = mine.macro["mrr"], mrr_ratio(mine, rankings[rival])
        means.append(macro)
        note = f"seed {seed}, micro {mine.micro['mrr']:.4f}; ratio {against.low:.3f} to {against.high:.3f}"
        rows.append(card.row(name, "macro MRR", "", macro, rival=rival, theirs=best, target=target, note=note))
        other = ranking_of(trained(graph, folder_of(folder / "without", plain), seed, plain)[0], queries)
        against = mrr_ratio(mine, other)
        rows.append(
            card.row(
                name,
                "macro MRR",
                "",
                macro,
                rival="no message passing",
                theirs=other.macro["mrr"],
                target="ratio >= 1.05",
                note=f"seed {seed}, ratio {against.low:.3f} to {against.high:.3f}; its form: {plain}",
            )
        )
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
                rows += rows_of(label, graph, seeds, folder / f"{name}-{split}-runs")
    if options.json:
        command = f"python -m benchmarks.link_quality --json --graphs {' '.join(options.graphs)}"
        command += f" --seeds {' '.join(map(str, options.seeds))}"
        command += f" --splits {' '.join(map(str, options.splits))}" if options.splits else ""
        new, timed = {row.workload for row in rows}, {(row.workload, row.note) for row in rows if row.metric == TIME}

        def outdated(row: card.Row) -> bool:
            return row.workload in new and (row.metric != TIME or (row.workload, row.note) in timed)

        print(card.replace_rows("link_quality", rows, command, outdated))


if __name__ == "__main__":
    main()
