"""How well a system's settings rank links, beside every simple baseline.

``python -m benchmarks.link_quality --json`` trains each of ``--systems`` (blend, HGT, NBFNet) by its defaults for each seed
on ``kg_5k`` with splits 0 and 1, on the whole Hetionet (one seed), FB15k-237, UMLS and Nations; ``--graphs`` takes some of
them, and the rows of others stay. The epoch is chosen on validation links and the test split is read once a run. Rows:
macro MRR over the best baseline's with the 95 % interval of the ratio (queries resampled within each relation), over that of
spectral vectors, each baseline, health checks, time. ``ablation`` as the first word: forms of HGT by validation links
(``parts/link_ablation.py``); ``parts``: what each part of a blend adds (``parts/blend_parts.py``).
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
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.parts import card
from benchmarks.parts.hetionet import hetionet
from benchmarks.parts.link_baselines import baseline_rankings
from graphmill.evaluation.ranking.comparison import mrr_ratio
from graphmill.evaluation.ranking.links import LinkRanking, rank_links
from graphmill.evaluation.ranking.queries import LinkQueries, link_queries
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.triples import read_triples
from graphmill.reports.validation import validate_file
from graphmill.runs.export import Restored, export_run, restore
from graphmill.runs.messages import Terminal
from graphmill.runs.resolve import merge
from graphmill.runs.train import train
from graphmill.systems.registry import SYSTEMS as SYSTEM_ENTRIES

SETTINGS = card.ROOT / "examples" / "hgt" / "hetionet_kg_5k.yaml"
SYSTEMS = ("blend", "hgt", "nbfnet")
GRAPHS = {"kg_5k": (0, 1), "kg": (0,), "FB15k-237": (0,), "UMLS": (0,), "Nations": (0,)}
TIME = "time to the figure"
WIDTH = 512
"""Of spectral vectors as a baseline."""
TARGETS = {"blend": "ratio >= 1.1", "hgt": "ratio >= 1", "nbfnet": "ratio >= 1"}
"""By system over what it is held against on :data:`HELD`; HGT is held against spectral vectors, others against the best."""
HELD = {"blend": ("kg_5k", "kg"), "hgt": ("kg_5k", "FB15k-237", "UMLS"), "nbfnet": ("kg_5k",)}


def graph_of(name: str, split_seed: int, folder: Path) -> TypedGraph:
    """The graph of a data set, built in ``folder``."""
    if name in ("kg", "kg_5k"):
        return hetionet(name, split_seed, folder)
    triples = read_triples(card.DATASETS / name)
    edges = with_inverses(triples.edges)
    return build_graph(triples.nodes, edges, GraphSettings(add_reverse="never"), folder / f"{name}-{split_seed}")


def with_inverses(edges: pa.Table) -> pa.Table:
    """Directed triples and a relation from tails to heads for each, in the same split: so every system ranks both ends."""
    names = pc.binary_join_element_wise("inverse of", edges["relation"].cast(pa.string()), " ").dictionary_encode()
    turned = {"relation": names, "display_relation": names, "head": edges["tail"], "tail": edges["head"]}
    inverses = pa.table({name: turned.get(name, edges[name]) for name in edges.column_names})
    return pa.concat_tables([edges, inverses]).unify_dictionaries()


def trained(
    graph: TypedGraph, root: Path, seed: int, changes: Any = None, system: str = "hgt"
) -> tuple[Restored, dict[str, Any]]:
    """A training by a system's defaults with ``changes``, restored at the best epoch by validation.

    A run that was stopped is begun anew: its time would be that of its end only.
    """
    for run in root.glob("[!.]*"):
        if not (run / "report.json").exists():
            shutil.rmtree(run)
    values = {"system": system, "data": str(graph.path), "training": {"seed": seed}, "export": {"csv": False}}
    result = train(merge(values, changes or {}), "the benchmark", root=str(root), outlets=[Terminal()])
    return restore(result["run_dir"]), result


def ranking_of(restored: Restored, queries: LinkQueries) -> LinkRanking:
    """The model's ranking, without AUCs."""
    return rank_links(restored.system.scorer(restored.model), queries)


def rows_of(name: str, graph: TypedGraph, systems: Sequence[str], seeds: Sequence[int], folder: Path) -> list[card.Row]:
    """The rows of one graph and split."""
    rankings = baseline_rankings(graph, "test", WIDTH, folder / "baselines")
    baselines = {k: r.macro["mrr"] for k, r in rankings.items()}
    rows = [
        card.row(name, f"macro MRR of {k}", "", value, note=f"micro {rankings[k].micro['mrr']:.4f}")
        for k, value in baselines.items()
    ]
    best = max(baselines, key=lambda each: baselines[each])
    for system in systems:
        means = []
        for seed in seeds:
            restored, mine = _measured(name, graph, system, seed, folder, rows)
            against = mrr_ratio(mine, rankings[best])
            means.append(mine.macro["mrr"])
            note = f"seed {seed}, micro {mine.micro['mrr']:.4f}; ratio {against.low:.3f} to {against.high:.3f}"
            note += f"; epoch {restored.epoch}"
            rows.append(
                card.row(name, f"{system}: macro MRR", "", means[-1], rival=best, theirs=baselines[best], note=note)
            )
            print(rows[-3:], file=sys.stderr, flush=True)
        for rival in dict.fromkeys((best, "spectral")):
            held = name.split()[0] in HELD[system] and rival == ("spectral" if system == "hgt" else best)
            rows.append(
                card.row(
                    name,
                    f"{system}: mean macro MRR",
                    "",
                    float(np.mean(means)),
                    rival=rival,
                    theirs=baselines[rival],
                    target=TARGETS[system] if held else "",
                    note=f"{len(means)} seeds",
                )
            )
    return rows


def _measured(
    name: str, graph: TypedGraph, system: str, seed: int, folder: Path, rows: list[card.Row]
) -> tuple[Restored, LinkRanking]:
    """A run and its ranking of the test links; adds its rows of health and time."""
    began = time.perf_counter()
    restored, result = trained(graph, folder / system, seed, system=system)
    seconds = time.perf_counter() - began
    mine = ranking_of(restored, link_queries(graph, "test"))
    export_run(restored)
    if SYSTEM_ENTRIES[system].vectors:
        verdicts = validate_file(Path(result["run_dir"])).to_dict()["verdicts"]
        bad = [v["name"] for v in verdicts if v["status"] != "pass"]
        note = f"seed {seed} {', '.join(bad)}".strip()
        rows.append(card.row(name, f"{system}: health checks not passed", "", float(len(bad)), note=note))
    if not result["reused"]:  # else the row of when it was trained stays
        rows.append(card.row(name, f"{system}: {TIME}", "s", seconds, note=f"seed {seed}"))
    return restored, mine


def main() -> None:
    """Run and write results/link_quality.json."""
    if card.handed_over({"baselines": "link_baselines", "ablation": "link_ablation", "parts": "blend_parts"}):
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--splits", type=int, nargs="+", default=[], help="of kg_5k; default: 0 and 1")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="what is trained")
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
                rows += rows_of(label, graph, options.systems, seeds, folder / f"{name}-{split}-runs")
    if options.json:
        command = f"python -m benchmarks.link_quality --json --graphs {' '.join(options.graphs)}"
        command += f" --seeds {' '.join(map(str, options.seeds))}"
        command += f" --systems {' '.join(options.systems)}"
        command += f" --splits {' '.join(map(str, options.splits))}" if options.splits else ""
        new = {row.workload for row in rows}
        timed = {(row.workload, row.metric, row.note) for row in rows if TIME in row.metric}

        def outdated(row: card.Row) -> bool:
            if row.workload not in new or row.metric.split(":")[0] in set(SYSTEMS) - set(options.systems):
                return False
            return TIME not in row.metric or (row.workload, row.metric, row.note) in timed

        print(card.replace_rows("link_quality", rows, command, outdated))


if __name__ == "__main__":
    main()
