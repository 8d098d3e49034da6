"""What each part of HGT is worth: ``python -m benchmarks.link_quality ablation [--json]``.

Hetionet's ``kg_5k``, split 0, or other graphs of the benchmark with ``--graphs`` and ``--splits``. Each form is the default
with one change; the last row has the default beside spectral vectors, its inputs: what the layers add. The figure is the
macro MRR of the validation links; the test split is not read for a decision.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.parts import card

FORMS: dict[str, dict[str, Any]] = {
    "the default": {},
    "one layer": {"model": {"num_layers": 1}},
    "tables as inputs": {"model": {"inputs": "tables"}},
    "link_contrastive": {"objective": {"loss": "link_contrastive"}},
    "link_contrastive, links only": {"objective": {"loss": "link_contrastive", "contrastive_weight": 0.0}},
    "width 256": {"model": {"embedding_dim": 256, "hidden_dim": 128}},
    "all candidates": {"objective": {"candidates": 1_000_000}},
    "five times the steps": {"training": {"epochs": 60}},
    "samples (batching: edge_sampled)": {"acceleration": {"batching": "edge_sampled"}},
}


def _same(new: card.Row, old: card.Row) -> bool:
    return (new.workload, new.metric) == (old.workload, old.metric)


def valid_mrr(result: dict[str, Any]) -> float:
    """Of a training, by its report."""
    return float(result["metrics"]["valid_mrr"])


def _shown(row: card.Row, options: argparse.Namespace) -> None:
    print(f"{row.workload}, {row.metric} {row.ours:.4f}, {row.rival} {row.theirs} {row.note}", flush=True)
    if options.json:
        command = "python -m benchmarks.link_quality ablation --json"
        card.replace_rows("link_ablation", [row], command, partial(_same, row))


def main() -> None:
    """Run and write results/link_ablation.json."""
    from benchmarks.link_quality import GRAPHS, graph_of, trained

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=["kg_5k"])
    parser.add_argument("--splits", type=int, nargs="+", default=[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--work", default="", help="keep the graph and the runs here, as the benchmark of links does")
    parser.add_argument("--json", action="store_true", help="write the results file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.work or temporary)
        for name, split in itertools.product(options.graphs, options.splits):
            graph, default = graph_of(name, split, folder), 0.0
            workload, root = f"{name} split {split}", folder / f"{name}-{split}-runs" / "runs"
            for form in options.forms:
                results = [valid_mrr(trained(graph, root, seed, FORMS[form])[1]) for seed in options.seeds]
                mean = float(np.mean(results))
                default = mean if form == "the default" else default
                note = "seeds " + ", ".join(f"{value:.4f}" for value in results)
                metric = f"valid macro MRR: {form}"
                _shown(
                    card.row(workload, metric, "", mean, rival="the default", theirs=default or None, note=note),
                    options,
                )
            if default:
                inputs = [valid_mrr(trained(graph, root, seed, {}, "spectral")[1]) for seed in options.seeds]
                theirs = float(np.mean(inputs))
                metric = "valid macro MRR: what the layers add"
                _shown(card.row(workload, metric, "", default, rival="spectral vectors", theirs=theirs), options)


if __name__ == "__main__":
    main()
