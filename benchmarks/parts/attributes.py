"""What attributes and features of nodes are worth by the defaults, each beside the same without them.

``python -m benchmarks.fold_in attributes --json``: ml-latest-small (titles and genres; item-kNN and blend), tiktok (image
and audio features; item-kNN, and DRAGON, which needs features: without means those of another item) and Hetionet's
``kg_5k`` (names; blend and HGT). A twentieth of the nodes that have attributes are hidden whole: all of their links are in
the test, so that of them the attributes alone are known. Encoders of attributes are fitted on them too.

A seed draws the split (but tiktok's), the hidden nodes and the weights. Everything is chosen on validation, and the test
is read once: the MRR among all other nodes of the type (macro over relations) of the links without a hidden end, of those
of them whose target has at most two training links, and of the links with a hidden end.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.parts import card
from benchmarks.parts.later_nodes import ends_of, tables_of
from graphmill.graph.splits import TEST
from graphmill.graph.typed_graph import TypedGraph

SYSTEMS = {"ml": ("item_knn", "blend"), "tiktok": ("item_knn", "dragon"), "hetionet": ("hgt", "blend")}
TARGETS = {"all": "ratio >= 0.99", "rare": "ratio >= 1.15", "hidden": "ratio >= 1.15"}
NAMES = {"all": "MRR", "rare": "MRR, targets of at most two links", "hidden": "MRR, hidden nodes"}
FEW, HIDDEN, CUT = 2, 0.05, 20
COMMAND = "python -m benchmarks.fold_in attributes --json"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def plain_graph(data: str, seed: int, folder: Path) -> TypedGraph:
    """The graph of one of :data:`SYSTEMS` without attributes; tiktok's with its features and its split."""
    from benchmarks.parts.hetionet import hetionet
    from graphmill.api import build_graph, read_interactions
    from graphmill.ingest.mmrec import read_mmrec

    if data == "hetionet":
        return hetionet("kg_5k", seed, folder)
    if data == "tiktok":
        return build_graph(read_mmrec(card.DATASETS / data), folder / data, add_reverse="never")
    tables = read_interactions(card.DATASETS / "ml-latest-small" / "ratings.csv.gz", "interactions_csv")
    split = {"method": "random", "valid": 0.1, "test": 0.1, "seed": seed}
    return build_graph(tables, folder / data, add_reverse="never", split=split)


def graph_of(data: str, seed: int, kind: str, folder: Path) -> tuple[TypedGraph, np.ndarray]:
    """The graph ``with`` attributes, ``without``, or with ``another``'s; and its hidden nodes, bool [nodes]."""
    from graphmill.api import build_graph, read_attributes

    plain, rng = plain_graph(data, seed, folder), np.random.default_rng(seed)
    described = [t for t in plain.node_types if data == "hetionet" or t.name == "item"]
    hidden = np.zeros(plain.num_nodes, bool)
    for t in described:
        hidden[t.offset : t.offset + t.count] = rng.random(t.count) < HIDDEN
    tables = whole_tables(plain, hidden)
    if kind != "without":
        tables = replace(tables, features=features_of(plain, rng if kind == "another" else None))
    if kind == "with" and data == "hetionet":
        nodes = plain.node_table()
        for t in described:
            names = nodes.filter(pc.equal(nodes["type"].cast(pa.string()), t.name)).select(["id", "name"])
            tables = read_attributes(tables, names, t.name, id="id", name="text")
    elif kind == "with" and data == "ml":
        movies = card.DATASETS / "ml-latest-small" / "movies.csv.gz"
        tables = read_attributes(tables, movies, "item", id="movieId", title="text", genres="list")
    types = [t.name for t in plain.node_types]
    return build_graph(tables, folder / kind, add_reverse="never", include_node_types=types), hidden


def whole_tables(graph: TypedGraph, hidden: np.ndarray) -> Any:
    """All nodes and edges of a graph; those at a ``hidden`` node, bool [nodes], are in the test."""
    from graphmill.api import Tables

    heads, tails, split = ends_of(graph)
    tables = tables_of(graph, np.ones(graph.num_nodes, bool), np.ones(len(heads), bool), split=True)
    split = np.where(hidden[heads] | hidden[tails], TEST, split).astype(np.uint8)
    edges = tables.edges.set_column(tables.edges.schema.get_field_index("split"), "split", pa.array(split))
    return Tables(tables.nodes, edges, tables.rejects)


def features_of(graph: TypedGraph, rng: np.random.Generator | None) -> Mapping[str, pa.Table]:
    """The feature tables of a graph; with ``rng`` a node that has features gets those of another one of its type."""
    from graphmill.ingest.tables import feature_key, feature_table

    tables, orders = {}, {}
    for t, name in [(kind, name) for kind in graph.node_types for name in graph.feature_sets(kind.name)]:
        values, present = graph.features(t.name, name), graph.feature_mask(t.name, name)
        assert values is not None
        assert present is not None
        rows = np.flatnonzero(present)
        if rng is not None and (t.name, len(rows)) not in orders:  # the sets of a node stay together
            orders[t.name, len(rows)] = rng.permutation(len(rows))
        taken = rows[orders[t.name, len(rows)]] if rng is not None else rows
        tables[feature_key(t.name, name)] = feature_table((rows + t.offset).astype(np.int32), values[taken])
    return tables


def figures(scorer: Any, graph: TypedGraph, hidden: np.ndarray) -> dict[str, float]:
    """By part of the test links (:data:`NAMES`) the MRR, the share of ranks up to :data:`CUT`, and the number of links."""
    from graphmill.evaluation.ranking.queries import link_queries
    from graphmill.evaluation.ranking.ranks import ranks_of

    offset, results = {t.name: t.offset for t in graph.node_types}, {}
    parts: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
    for queries in link_queries(graph, "test").relations:
        relation = graph.relations[queries.relation]
        at_hidden = hidden[queries.heads + offset[relation.source]] | hidden[queries.tails + offset[relation.target]]
        rare = ~at_hidden & (queries.train_degree[queries.tails] <= FEW)
        ranks = ranks_of(scorer, queries).realistic
        for name, chosen in (("all", ~at_hidden), ("rare", rare), ("hidden", at_hidden)):
            parts[name] += [ranks[chosen]] if chosen.any() else []
    for name, ranks_by_relation in parts.items():
        results[name] = float(np.mean([np.mean(1.0 / ranks) for ranks in ranks_by_relation]))
        results[f"{name} hits"] = float(np.mean([np.mean(ranks <= CUT) for ranks in ranks_by_relation]))
        results[f"{name} links"] = float(sum(map(len, ranks_by_relation)))
    return results


def measure(data: str, system: str, seed: int, kind: str, folder: Path) -> dict[str, float]:
    """:func:`figures` of a training by the defaults, begun in ``folder`` or gone on with there."""
    from graphmill.runs.export import restore
    from graphmill.runs.train import train

    values = {"system": system, "training": {"seed": seed}, "evaluation": {"baselines": []}, "export": {"csv": False}}
    with contextlib.redirect_stdout(sys.stderr):
        graph, hidden = graph_of(data, seed, kind, folder)
        report = train({**values, "data": str(graph.path)}, "benchmark", root=str(folder / f"runs-{kind}"))
        restored = restore(report["run_dir"])
        return figures(restored.system.scorer(restored.model), graph, hidden)


def cell(data: str, system: str, seed: int, kind: str, work: Path) -> dict[str, float]:
    """:func:`measure` in a fresh process of one thread; what ``work`` has already is read from there."""
    name = f"{data}-{system}-{seed}-{kind}"
    path = work / f"{name}.json"
    if not path.is_file():
        arguments = ["--one", data, "--systems", system, "--seeds", str(seed), "--kind", kind]
        results = card.fresh("benchmarks.parts.attributes", [*arguments, "--work", str(work / name)], ONE_THREAD)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results), encoding="utf-8")
    result: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    return result


def rows_of(data: str, system: str, runs: list[dict[str, float]], others: list[dict[str, float]]) -> list[card.Row]:
    """A row for each part of the links, of the means over seeds."""
    rival, rows = "features of another item" if system == "dragon" else "without attributes", []
    for part, target in TARGETS.items():
        ours, theirs = (mean(run[part] for run in each) for each in (runs, others))
        hits = " | ".join(f"{mean(run[f'{part} hits'] for run in each):.4f}" for each in (runs, others))
        note = f"{len(runs)} seeds, {runs[0][f'{part} links']:.0f} links; ranks up to {CUT}: {hits}; "
        note += f"{card.paired_difference(runs, others, part)}"
        where = f"{data}, {system}"
        rows.append(card.row(where, NAMES[part], "", ours, rival=rival, theirs=theirs, target=target, note=note))
    return rows


def main() -> None:
    """Run and write results/attributes.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--systems", nargs="+", default=[], help="of each data set's; without it, all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--work", default="", help="keep the figures and runs here, so that a killed measurement goes on"
    )
    parser.add_argument("--json", action="store_true", help="write the results file")
    parser.add_argument(
        "--one", choices=list(SYSTEMS), help="one training in this process, by the first seed and system"
    )
    parser.add_argument("--kind", choices=["with", "without", "another"], default="with", help="with --one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(options.work or temporary)
        if options.one:
            print(json.dumps(measure(options.one, options.systems[0], options.seeds[0], options.kind, work)))
            return
        for data, system in ((d, s) for d in options.data for s in SYSTEMS[d]):
            if options.systems and system not in options.systems:
                continue
            kinds = ("with", "another" if system == "dragon" else "without")
            cells = {key: cell(data, system, *key, work) for key in itertools.product(options.seeds, kinds)}
            runs, others = ([cells[seed, kind] for seed in options.seeds] for kind in kinds)
            for row in rows_of(data, system, runs, others):
                print(row, flush=True)
                if options.json:
                    card.store("attributes", row, COMMAND)


if __name__ == "__main__":
    main()
