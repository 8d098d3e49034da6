"""Predicted links: how many held-out indications they find beside every baseline, and what a PrimeKG-sized graph takes.

``python -m benchmarks.links --json`` trains a blend by its defaults on each of ``--splits`` of Hetionet's ``kg_5k``, and
lists the best tails of every drug and of every disease that has a held-out ``indication`` link, without training and
validation links: recall@k is the part of the test links that are among them, of all splits together, with a 95 % interval
by Wilson. Baselines are at their best by validation.
Then a made-up graph of PrimeKG's node types and relations (129,375 nodes, 8.1 million edges) with an HGT export of the
default width, whose values are random: tables of indications and of drugs with drugs (2.7 million edges), in a new process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest
from tests.samples.biomed import NODE_COUNTS, RELATIONS

from benchmarks.link_quality import trained
from benchmarks.parts import card, made_up_graphs
from benchmarks.parts.hetionet import hetionet
from benchmarks.parts.link_baselines import of
from graphmill.evaluation.baselines.links import DegreeScorer
from graphmill.evaluation.ranking.queries import link_queries
from graphmill.evaluation.ranking.ranks import Scorer
from graphmill.export.embeddings import SCORING, export_embeddings
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.splits import TEST
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions.settings import LinkSettings
from graphmill.predictions.top_tails import Candidates, best_tails
from graphmill.systems.hgt.decoder import LinkDecoder
from graphmill.training.contract import EmbeddingBlock
from graphmill.training.settings import LINK_BASELINES, ExportSettings
from graphmill.usage.links import link_model, write_links

KS = (10, 50)
WIDTH = 512
ASKED = ["indication", "drug_drug"]


def recall_at(scorer: Scorer, graph: TypedGraph, source: str, name: str = "indication") -> dict[int, tuple[int, int]]:
    """k → (test links that are among their head's k best tails, test links) of the relation that begins at ``source``."""
    relation = next(each for each in graph.relations if (each.name, each.source) == (name, source))
    candidates = Candidates(graph, relation, scorer, (0, 1))
    heads, _ = candidates.links_of(TEST)
    best = best_tails(candidates, sorted_unique(heads), max(KS))
    return {k: (int(((best.known == TEST) & (best.ranks <= k)).sum()), len(heads)) for k in KS}


def quality(folder: Path, splits: Sequence[int]) -> list[card.Row]:
    """Recall@k of a blend and of every baseline, for drugs of a disease and diseases of a drug, over all ``splits``."""
    counts: dict[tuple[str, int, str], list[tuple[int, int]]] = {}
    for split in splits:
        graph, runs = hetionet("kg_5k", split, folder), folder / f"kg_5k-{split}-runs"
        restored, _ = trained(graph, runs / "blend", 0, system="blend")
        baselines = of(graph, "test", WIDTH, runs / "baselines")
        scorers: dict[str, Any] = {"blend": restored.system.scorer(restored.model)}
        scorers["degree"] = DegreeScorer(link_queries(graph, "test"))
        scorers |= {name: baselines.scorer(name)[0] for name in LINK_BASELINES}
        for source, what in (("disease", "drugs of a disease"), ("drug", "diseases of a drug")):
            for name, scorer in scorers.items():
                for k, count in recall_at(scorer, graph, source).items():
                    counts.setdefault((what, k, name), []).append(count)
                    print(split, what, k, name, *count, file=sys.stderr, flush=True)
    rows = []
    for what, k, name in counts:
        if name == "blend":
            continue
        (mine, total), (theirs, _) = (np.sum(counts[what, k, each], 0) for each in ("blend", name))
        low, high = binomtest(int(mine), int(total)).proportion_ci(method="wilson")
        note = f"{mine} and {theirs} of {total} held-out links of splits {', '.join(map(str, splits))}; seed 0; "
        note += f"{low:.3f} to {high:.3f}; by split {', '.join(str(count[0]) for count in counts[what, k, 'blend'])}"
        workload = f"hetionet kg_5k, {what}"
        rows.append(card.row(workload, f"recall@{k}", "", mine / total, rival=name, theirs=theirs / total, note=note))
    return rows


def made_up(folder: Path) -> None:
    """The graph of PrimeKG's shape, and beside it an export of HGT with random values."""
    rng, types = np.random.default_rng(0), NODE_COUNTS["paper"]
    total, first = sum(types.values()), dict(zip(types, np.cumsum([0, *types.values()][:-1]), strict=True))
    names: list[str] = []
    heads, tails = [], []
    for each in RELATIONS:
        # Distinct pairs, skewed as in the file; more are drawn than are needed.
        drawn = 3 * each.paper + 10
        head = made_up_graphs.ends(rng, types[each.head], drawn) + first[each.head]
        tail = made_up_graphs.ends(rng, types[each.tail], drawn) + first[each.tail]
        if each.head == each.tail:
            head, tail = np.minimum(head, tail), np.maximum(head, tail)
        pair = rng.permutation(sorted_unique((head * total + tail)[head != tail]))[: each.paper]
        names += [each.name] * len(pair)
        heads.append(pair // total)
        tails.append(pair % total)
    edges = made_up_graphs.edges(names, np.concatenate(heads), np.concatenate(tails))
    graph = build_graph(made_up_graphs.nodes(types), edges, GraphSettings(), folder / "graph")
    (folder / "run" / "checkpoints").mkdir(parents=True, exist_ok=True)
    vectors = rng.standard_normal((graph.num_nodes, WIDTH), dtype=np.float32) / np.float32(WIDTH**0.5)
    blocks = (EmbeddingBlock(start, vectors[start : start + 4096]) for start in range(0, len(vectors), 4096))
    decoder = LinkDecoder(len(graph.relations), WIDTH).state_dict()
    scoring = {name: value.numpy() for name, value in decoder.items()} | TrainingLinks.of_graph(graph).arrays()
    about = {
        "fingerprint": "made up",
        "system": "hgt",
        "epoch": 0,
        "data": {"path": str(graph.path), "content_hash": graph.content_hash},
        "relations": [list(relation.key) for relation in graph.relations],
    }
    formats = ExportSettings(csv=False)
    export_embeddings(
        blocks, graph.node_table(), WIDTH, folder / "run" / "embeddings", formats, about, {SCORING: scoring}
    )


def predicted(folder: Path) -> None:
    """The tables of :data:`ASKED`, as an asset writes them; the edges behind links need a training, and are left out."""
    torch.set_num_threads(1)
    model = link_model(folder / "run")
    report = write_links(model, LinkSettings(relations=ASKED, k=10, explained_links=0))
    result = {
        "nodes": model.graph.num_nodes,
        "edges": model.graph.num_edges,
        "rows": report["rows"],
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "seconds": time.process_time(),
    }
    print(json.dumps(result))


def size(folder: Path) -> list[card.Row]:
    """Peak memory and time, each stage in a process of its own."""

    def run(stage: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "benchmarks.links", "--stage", stage, "--work", str(folder)]
        finished = subprocess.run(command, cwd=card.ROOT, capture_output=True, text=True, check=False)
        if finished.returncode:
            raise SystemExit(finished.stderr[-2000:])
        result: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1]) if finished.stdout else {}
        return result

    if not (folder / "run" / "embeddings" / "manifest.json").is_file():
        run("graph")
    result = run("links")
    workload = f"PrimeKG's shape, {result['nodes']:,} nodes, {result['edges']:,} edges"
    note = f"{result['rows']:,} links of {', '.join(ASKED)} in both directions, k 10, width {WIDTH}"
    return [
        card.row(
            workload, "peak memory", "GiB", result["peak"], target="ours <= 3.72", note=f"{note}; 4 GB are 3.725 GiB"
        ),
        card.row(workload, "time", "CPU s", result["seconds"], note=f"{note}; one thread"),
    ]


def main() -> None:
    """Run and write results/links.json."""
    if card.handed_over({"explanations": "explanations"}):
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=["all", "quality", "size", "graph", "links"], default="all")
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="of kg_5k")
    parser.add_argument("--work", default="", help="keep graphs and runs here, as ``benchmarks.link_quality`` does")
    parser.add_argument("--json", action="store_true", help="write the results file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.work or temporary)
        if options.stage in ("graph", "links"):
            (made_up if options.stage == "graph" else predicted)(folder)
            return
        rows = []
        if options.stage in ("all", "quality"):
            rows += quality(folder, options.splits)
        if options.stage in ("all", "size"):
            rows += size(folder / "size")
    for row in rows:
        print(f"{row.workload} | {row.metric} | {row.ours:.4g} | {row.rival} {row.theirs or ''} | {row.note}")
    if options.json:
        command = "python -m benchmarks.links --json"
        print(card.replace_rows("links", rows, command, lambda old: any(old.workload == row.workload for row in rows)))


if __name__ == "__main__":
    main()
