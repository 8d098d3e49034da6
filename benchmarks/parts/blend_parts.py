"""What each part of a blend is worth: ``python -m benchmarks.link_quality parts [--json]``.

A blend by its defaults; then each part is left out, and the weights of the others are chosen again. The macro MRR is that
of validation links, ten-fold by heads. The test split is not read.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.parts import card
from graphmill.evaluation.ranking.links import rank_links
from graphmill.evaluation.ranking.queries import LinkQueries, link_queries
from graphmill.systems.blend.mix import CrossFittedScorer, fitted_mixes
from graphmill.systems.blend.part import POPULARITY, BlendScorer, Part


def mrr_of(system: Any, parts: dict[str, Part], queries: LinkQueries, seed: int) -> float:
    """Macro MRR of these parts, each tenth of the heads by amounts that were chosen on the others."""
    empty = BlendScorer(system.links, parts, np.zeros((len(system.graph.relations), len(parts)), np.float32))
    mixes = fitted_mixes(empty, queries, system.folds, seed)
    return rank_links(CrossFittedScorer(system.links, parts, mixes[1:], system.folds), queries).macro["mrr"]


def _same(workload: str, row: card.Row) -> bool:
    return row.workload == workload


def main() -> None:
    """Run and write results/blend_parts.json."""
    from benchmarks.link_quality import GRAPHS, graph_of, trained

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=["kg_5k", "UMLS"])
    parser.add_argument("--splits", type=int, nargs="+", default=[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--queries", type=int, default=100, help="validation links of a relation, at most")
    parser.add_argument(
        "--parts", nargs="+", default=[], help="a blend of these parts alone; without it, the default ones"
    )
    parser.add_argument("--work", default="", help="keep graphs and runs here, as the benchmark of links does")
    parser.add_argument("--json", action="store_true", help="write the results file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.work or temporary)
        for name, split in ((n, s) for n in options.graphs for s in (options.splits if n == "kg_5k" else GRAPHS[n])):
            graph = graph_of(name, split, folder)
            result: dict[str, list[float]] = {}
            for seed in options.seeds:
                root = folder / f"{name}-{split}-runs" / "-".join(["blend", *options.parts])
                changes = {"model": {"parts": options.parts}} if options.parts else None
                restored, _ = trained(graph, root, seed, changes, system="blend")
                system: Any = restored.system
                parts, queries = (
                    system.parts_of(restored.model),
                    link_queries(graph, "valid", max_per_relation=options.queries),
                )
                for left_out in ("", *(part for part in parts if part != POPULARITY)):
                    kept = {part: each for part, each in parts.items() if part != left_out}
                    reached = mrr_of(system, kept, queries, seed)
                    result.setdefault(left_out, []).append(reached)
                    print(name, split, seed, f"without {left_out or 'none'}: {reached:.4f}", flush=True)
            whole = float(np.mean(result.pop("")))
            workload = f"{name} split {split}" if name == "kg_5k" else name
            workload += f", {' '.join(options.parts)}" if options.parts else ""
            note = f"{len(options.seeds)} seeds, ten-fold on up to {options.queries} validation links a relation"
            rows = [
                card.row(workload, f"blend beside the blend without {left_out}", "", whole, rival=f"without {left_out}",
                         theirs=float(np.mean(values)), note=note)
                for left_out, values in result.items()
            ]  # fmt: skip
            if options.json:
                command = "python -m benchmarks.link_quality parts --json"
                card.replace_rows("blend_parts", rows, command, partial(_same, workload))


if __name__ == "__main__":
    main()
