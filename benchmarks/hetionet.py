"""HGT on a real biomedical graph: quality beside the baselines, health, time and memory, over seeds.

``python -m benchmarks.hetionet --json`` trains ``examples/hgt/hetionet_kg_5k.yaml`` (1,000 optimizer steps) for each seed on
the five node types of ``hetionet/kg_5k.csv.gz``, and the same without messages; ``--graph kg --seeds 0`` takes the
whole file, ``--split-seed N`` holds out other links than those that the settings were chosen on. Beside the targets:
every health figure, and MRR beside degree-only's for each relation, as means over the seeds. With two seeds or more the
health reports are held against the default thresholds as well (``results/health_calibration.json``).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import card
from benchmarks.calibration import calibrate
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings, SplitSettings
from graphmill.ingest.kg_csv import read_kg_csv
from graphmill.runs.export import export_run, restore
from graphmill.runs.messages import Terminal
from graphmill.runs.ranking import rank_run
from graphmill.runs.resolve import merge, read_settings
from graphmill.runs.train import train
from graphmill.runs.validation import validate_file

TYPES = ["drug", "disease", "gene/protein", "pathway", "biological_process"]
SETTINGS = card.ROOT / "examples" / "hgt" / "hetionet_kg_5k.yaml"


def one_seed(graph: Path, root: Path, seed: int) -> dict[str, Any]:
    """Train, export, validate and rank one seed."""
    values = merge(read_settings(SETTINGS), {"data": str(graph), "training": {"seed": seed}})
    result = train(values, str(SETTINGS), root=str(root), outlets=[Terminal()])
    restored = restore(result["run_dir"])
    export_run(restored)
    health = validate_file(Path(result["run_dir"]))
    ranked = rank_run(restored, "test", outlets=[Terminal()])
    relations = {r.name: (r.mrr["model"], r.mrr["degree"]) for r in ranked.comparison.relations}
    return {
        "result": result,
        "relations": relations,
        "health": health.to_dict(),
        "ratios": ranked.comparison.ratios,
        "mrr": ranked.mrr_beside_baselines(),
    }


def rows_of(name: str, seed: int, found: dict[str, Any]) -> list[card.Row]:
    """The rows of one seed."""
    result, mrr, ratios, note = found["result"], found["mrr"], found["ratios"], f"seed {seed}"
    bad = [v["name"] for v in found["health"]["verdicts"] if v["status"] != "pass"]
    macro, degree, without = mrr["model"], mrr["degree"], mrr["no_message"]
    return [
        card.row(
            name,
            "macro MRR over degree-only's",
            "",
            macro,
            rival="degree-only",
            theirs=degree,
            target="ratio >= 1.3",
            note=note,
        ),
        card.row(
            name,
            "share of relations above degree-only",
            "",
            ratios["share_above_degree"],
            target="ours >= 0.7",
            note=note,
        ),
        card.row(
            name, "macro MRR", "", macro, rival="no message passing", theirs=without, target="ratio > 1", note=note
        ),
        card.row(
            name,
            "health checks not passed",
            "",
            float(len(bad)),
            target="ours <= 0",
            note=f"{note} {', '.join(bad)}".strip(),
        ),
        card.row(name, "time per step", "s", result["seconds_per_step"], note=note),
        card.row(name, "time per epoch", "s", result["seconds_per_epoch"], note=note),
        card.row(name, "peak memory", "GiB", result["peak_memory_bytes"] / 2**30, note=note),
    ]


def means_of(name: str, found: Sequence[dict[str, Any]]) -> list[card.Row]:
    """Health figures and rankings per relation, as means over the seeds, with each seed's value in the note."""
    rows, seeds = [], f"mean of {len(found)} seeds: "
    for figure in found[0]["health"]["figures"]:
        values = [f["health"]["figures"][figure] for f in found]
        if all(isinstance(v, (int, float)) for v in values):
            note = seeds + ", ".join(f"{v:.4g}" for v in values)
            rows.append(card.row(name, f"health: {figure}", "", statistics.fmean(values), note=note))
    for relation in found[0]["relations"]:
        ours, degree = zip(*(f["relations"][relation] for f in found), strict=True)
        note = seeds + ", ".join(f"{v:.4f}" for v in ours)
        rows.append(
            card.row(
                name,
                f"MRR of {relation}",
                "",
                statistics.fmean(ours),
                rival="degree-only",
                theirs=statistics.fmean(degree),
                note=note,
            )
        )
    return rows


def write_calibration(found: Sequence[dict[str, Any]], command: str) -> Path:
    """The seeds' health figures beside the default thresholds: results/health_calibration.json."""
    calibrated = {"command": command, "machine": card.machine()} | calibrate([f["health"] for f in found])
    path = card.RESULTS / "health_calibration.json"
    path.write_text(json.dumps(calibrated, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def main() -> None:
    """Run and write results/hetionet.json (kg_5k) or results/hetionet_kg.json, with _splitN for another split."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graph", choices=["kg_5k", "kg"], default="kg_5k")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--split-seed", type=int, default=0, help="another split than the one that settings were chosen on"
    )
    parser.add_argument(
        "--work", default="", help="keep graphs and runs here, so that an interrupted benchmark goes on"
    )
    parser.add_argument("--json", action="store_true", help="write the results file")
    options = parser.parse_args()
    datasets = Path(os.environ.get("GRAPHMILL_DATASETS", card.ROOT.parent / "shared" / "datasets"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.work or temporary)
        tables = read_kg_csv(datasets / "hetionet" / f"{options.graph}.csv.gz")
        settings = GraphSettings(include_node_types=TYPES, split=SplitSettings(seed=options.split_seed))
        which = options.graph + (f"-split{options.split_seed}" if options.split_seed else "")
        graph = build_graph(tables.nodes, tables.edges, settings, folder / which)
        rows, seeds = [], []
        for seed in options.seeds:
            found = one_seed(graph.path, folder / f"runs-{which}", seed)
            seeds.append(found)
            rows += rows_of(f"hetionet {which}", seed, found)
            print({k: v for k, v in found.items() if k in ("ratios", "mrr")}, file=sys.stderr)
    steps = [r.ours for r in rows if r.metric == "time per step"]
    print(f"median time per step {statistics.median(steps):.3f} s")
    rows += means_of(f"hetionet {which}", seeds)
    if options.json:
        command = (
            f"python -m benchmarks.hetionet --json --graph {options.graph} --seeds {' '.join(map(str, options.seeds))}"
        ) + (f" --split-seed {options.split_seed}" if options.split_seed else "")
        if len(seeds) > 1 and not options.split_seed:
            print(write_calibration(seeds, command))
        name = ("hetionet" if options.graph == "kg_5k" else "hetionet_kg") + (
            which.removeprefix(options.graph).replace("-", "_")
        )
        print(card.write(name, rows, command))


if __name__ == "__main__":
    main()
