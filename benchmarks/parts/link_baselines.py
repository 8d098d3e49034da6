"""The baselines of link rankings on Hetionet: how strong they are, in which time and memory.

``python -m benchmarks.link_quality baselines --json`` ranks the test links of ``hetionet/kg_5k.csv.gz`` (the five node types
of ``hetionet.py``) by degree, kNN, spectral vectors at each of ``--widths`` and ComplEx, with settings chosen on
validation links; ``--graph kg`` takes the whole file, ``--split-seed N`` another split, ``--baselines`` some of them.
:func:`baseline_rankings` is what other benchmarks hold a model against.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.parts import card
from benchmarks.parts.hetionet import hetionet
from graphmill.evaluation.baselines.links import DegreeScorer
from graphmill.evaluation.ranking.links import LinkRanking, rank_links
from graphmill.evaluation.ranking.queries import link_queries
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.messages import Terminal
from graphmill.training.settings import LINK_BASELINES
from graphmill.usage.baselines import LinkBaselines

os.environ.setdefault("OMP_NUM_THREADS", "1")  # all its figures are of one thread


TARGETS = {"knn": 0.130, "spectral 512": 0.132, "complex": 0.105}
"""Test macro MRR on kg_5k, split 0."""


def baseline_rankings(
    graph: TypedGraph,
    split: str,
    width: int,
    folder: Path,
    names: Sequence[str] = LINK_BASELINES,
    *,
    seed: int = 0,
) -> dict[str, LinkRanking]:
    """Degree and the named baselines of the links of ``split``, each at its best settings by validation.

    ``width``: of the spectral vectors. What is computed is kept in ``folder`` and found again.
    """
    baselines = of(graph, split, width, folder, seed=seed)
    degree = rank_links(DegreeScorer(baselines.queries), baselines.queries)
    return {"degree": degree, **baselines.rankings(names)}


def of(graph: TypedGraph, split: str, width: int, folder: Path, *, seed: int = 0) -> LinkBaselines:
    """The baselines of a split, on one thread, with their progress on the terminal."""
    return LinkBaselines(graph, link_queries(graph, split), folder, width, seed=seed, outlets=[Terminal()])


def main() -> None:
    """Run and write results/link_baselines.json (kg_5k) or link_baselines_kg.json, with _splitN for another split."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graph", choices=["kg_5k", "kg"], default="kg_5k")
    parser.add_argument("--split-seed", type=int, default=0)
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--baselines", nargs="+", choices=LINK_BASELINES, default=list(LINK_BASELINES))
    parser.add_argument("--work", default="", help="keep graph and baselines here, so that another run finds them")
    parser.add_argument("--json", action="store_true", help="write the results file")
    options = parser.parse_args()
    which = options.graph + (f"-split{options.split_seed}" if options.split_seed else "")
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.work or temporary)
        graph = hetionet(options.graph, options.split_seed, folder)
        wanted: list[tuple[str, list[str], int]] = [("degree", [], options.widths[0])]
        for name in options.baselines:
            widths = options.widths if name == "spectral" else options.widths[:1]
            wanted += [(f"{name} {w}" if name == "spectral" else name, [name], w) for w in widths]
        for label, names, width in wanted:
            baselines = of(graph, "test", width, folder / f"baselines-{which}")
            if names:
                ranking, about = baselines.ranking(names[0])
            else:
                ranking, about = rank_links(DegreeScorer(baselines.queries), baselines.queries), {}
            at_least = TARGETS.get(label) if which == "kg_5k" else None
            target = f"ours >= {at_least:g}" if at_least else ""
            note = f"{label}; micro {ranking.micro['mrr']:.4f}, {ranking.queries:,} queries"
            rows.append(
                card.row(
                    f"hetionet {which}", f"macro MRR of {label}", "", ranking.macro["mrr"], target=target, note=note
                )
            )
            if about:
                seconds = about.pop("cpu_seconds")
                note = ", ".join(f"{key} {value}" for key, value in about.items())
                rows.append(card.row(f"hetionet {which}", f"time of {label}", "CPU s", seconds, note=note))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        bound = "ours <= 3" if options.graph == "kg" else ""
        rows.append(card.row(f"hetionet {which}", "peak memory", "GiB", peak, target=bound, note="of all of them"))
    if options.json:
        command = f"python -m benchmarks.link_quality baselines --json --graph {options.graph}"
        command += f" --split-seed {options.split_seed}"
        command += f" --widths {' '.join(map(str, options.widths))} --baselines {' '.join(options.baselines)}"
        name = "link_baselines" + ("" if options.graph == "kg_5k" else "_kg")
        print(card.write(name + (f"_split{options.split_seed}" if options.split_seed else ""), rows, command))


if __name__ == "__main__":
    main()
