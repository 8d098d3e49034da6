"""MRR of a finished run over all test links, heads and tails: ``python -m benchmarks.parts.run_mrr RUN --data NAME --json``.

Micro is the mean over queries, macro the mean over relations and sides. For a run by an example's settings, which
``benchmarks.link_quality`` does not train.
"""

from __future__ import annotations

import argparse

from benchmarks.parts import card
from graphmill.evaluation.ranking.links import rank_links
from graphmill.evaluation.ranking.queries import both_sides
from graphmill.runs.export import restore

COMMAND = "python -m benchmarks.parts.run_mrr RUN --data NAME --json"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--data", required=True, help="name of the data, for the row")
    parser.add_argument("--json", action="store_true", help="write the results file")
    options = parser.parse_args()
    restored = restore(options.run)
    ranking = rank_links(restored.system.scorer(restored.model), both_sides(restored.graph, "test"))
    seconds = float(restored.run.read_json("report.json")["seconds"])
    note = f"macro {ranking.macro['mrr']:.4f}, {ranking.queries:,} queries, epoch {restored.epoch}, training {seconds:.0f} s"
    name = f"{options.data}, {restored.system.name} by an example"
    result = card.row(name, "micro MRR, both sides", "", float(ranking.micro["mrr"]), note=note)
    print(result, flush=True)
    if options.json:
        print(card.store("run_mrr", result, COMMAND), flush=True)


if __name__ == "__main__":
    main()
