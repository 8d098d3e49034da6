"""Whether explanations of links name the edges that carry them: the deletion test on a real graph.

``python -m benchmarks.links explanations --json`` trains HGT by either loss for a few epochs on ``kg_5k``, explains the best
new disease of some drugs (``indication``), and scores each again by the whole model without the 5 edges that the explanation
names first, without 5 others at the two nodes, and without 5 others around them. Nothing is chosen on the test split.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.link_quality import SETTINGS, graph_of
from benchmarks.parts import card
from graphmill.explain.explanation import ExplainSettings
from graphmill.explain.links import explainer_of
from graphmill.runs.export import Restored, restore
from graphmill.runs.messages import Terminal
from graphmill.runs.resolve import merge, read_settings
from graphmill.runs.train import train
from graphmill.usage.explain import pairs_around

RELATION = ("drug", "indication", "disease")
EDGES = 5
LOSSES: dict[str, dict[str, Any]] = {
    "softmax": {},
    "link_contrastive": {
        "objective": {"loss": "link_contrastive"},
    },
}


def predicted(restored: Restored, count: int) -> list[tuple[int, int]]:
    """Rows of drugs with a known indication, drawn, and of the disease that each is likeliest to have beside."""
    graph = restored.graph
    relation = graph.relation(*RELATION)
    edges, offset = graph.edges(relation), graph.node_type("drug").offset
    heads = np.unique(np.asarray(edges.src)[np.asarray(edges.split) == 0])
    drawn = np.sort(np.random.default_rng(0).choice(heads, min(count, len(heads)), replace=False))
    scorer, result = restored.system.scorer(restored.model), []
    for head in drawn.tolist():
        scores = scorer.score_targets(relation.index, np.array([head]))[0].cpu().numpy().copy()
        scores[np.asarray(edges.dst)[np.asarray(edges.src) == head]] = -np.inf
        result.append((head + offset, int(scores.argmax()) + graph.node_type("disease").offset))
    return result


def falls(restored: Restored, links: list[tuple[int, int]]) -> tuple[np.ndarray, float, float]:
    """float64 [links, 3]: fall of the score without the named edges, others at the ends, others around; seconds; bounded."""
    relation, rng = restored.graph.relation(*RELATION).index, np.random.default_rng(1)
    explainer = explainer_of(restored.system, restored.model, ExplainSettings(edges=EDGES, paths=0))
    rows, seconds, whole = [], 0.0, 0
    for head, tail in links:
        began = time.perf_counter()
        why = explainer.explain(relation, head, tail)
        seconds += time.perf_counter() - began
        whole += why.whole
        named = np.array([e.pair for e in why.evidence], np.int64)
        sets = [named]
        for neighbors in (False, True):
            others = np.setdiff1d(pairs_around(restored.graph, head, tail, neighbors=neighbors), named)
            sets.append(rng.choice(others, min(len(named), len(others)), replace=False))

        def score(pairs: np.ndarray, head: int = head, tail: int = tail) -> float:
            return explainer.score_without(relation, head, tail, pairs)

        before = score(np.zeros(0, np.int64))
        rows.append([before - score(pairs) for pairs in sets])
        print(len(rows), rows[-1], file=sys.stderr, flush=True)
    return np.array(rows), seconds / len(links), whole / len(links)


def rows_of(loss: str, restored: Restored, count: int) -> list[card.Row]:
    """The rows of one loss."""
    result, seconds, whole = falls(restored, predicted(restored, count))
    name = f"kg_5k, HGT by {loss}"
    ours, at_ends, around = result.mean(0).tolist()
    note = f"{len(result)} predicted indications, {EDGES} edges each; epoch {restored.epoch}"
    rows = []
    for rival, theirs in (("others at the two nodes", at_ends), ("others around them", around)):
        metric = "mean fall of the score without the named edges"
        rows.append(card.row(name, metric, "", ours, rival=rival, theirs=theirs, target="ours > 0", note=note))
    better = (result[:, :1] > result[:, 1:]).mean(0)
    for rival, share in zip(("others at the two nodes", "others around them"), better.tolist(), strict=True):
        metric = "links whose score falls more than without others"
        rows.append(card.row(name, metric, "", share, rival=rival, target="ours >= 0.9", note=note))
    rows.append(
        card.row(name, "time of an explanation", "s", seconds, note=f"{whole:.0%} with the whole neighbourhood")
    )
    return rows


def main() -> None:
    """Run and write results/explanations.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--losses", nargs="+", choices=list(LOSSES), default=list(LOSSES))
    parser.add_argument("--links", type=int, default=30)
    parser.add_argument("--work", default="", help="keep graph and runs here, so that an interrupted benchmark goes on")
    parser.add_argument("--json", action="store_true", help="write the results file")
    options = parser.parse_args()
    rows: list[card.Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.work or temporary)
        graph = graph_of("kg_5k", 0, folder)
        for loss in options.losses:
            values = merge(merge(read_settings(SETTINGS), LOSSES[loss]), {"data": str(graph.path)})
            path = train(values, str(SETTINGS), root=str(folder / "runs"), outlets=[Terminal()])["run_dir"]
            rows += rows_of(loss, restore(path), options.links)
    for each in rows:
        print(each.workload, each.metric, each.rival, f"{each.ours:.4g}", each.theirs, each.holds)
    if options.json:
        command = f"python -m benchmarks.links explanations --json --links {options.links}"
        print(card.write("explanations", rows, command))


if __name__ == "__main__":
    main()
