"""What each compiled CPU kernel is worth to a user: a whole training step or evaluation with and without it.

``python -m benchmarks.kernels --json`` trains shipped recipes on public data, for every family of kernels once with
everything compiled and once with that family's plain torch form, in turn, each in a fresh process. A family stays where
a step or an evaluation is at least 1.25 times as fast with it. ``--only FAMILY`` measures some. Results:
``results/kernels.json``, a row for each family and workload.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks import card
from benchmarks.recommender_data import root

TARGET = "ratio <= 0.8"
"""Of the time with the kernel to the time without: at least 1.25 times as fast."""
K = "graphmill.kernels."


@dataclass(frozen=True)
class Family:
    """``off``: the functions, by module, that say no where the family is left out. ``on``: the workloads it serves."""

    off: dict[str, tuple[str, ...]]
    on: tuple[str, ...]
    measure: str = "step"


def _without(*modules: str) -> dict[str, tuple[str, ...]]:
    return {K + module: ("has_numba",) for module in modules}


FAMILIES = {
    "hgt edges and passes": Family(_without("hgt"), ("hgt", "hgt sampled")),
    "hgt passes in one call": Family({K + "hgt_relations": ("own_blocks",)}, ("hgt",)),
    "own fp32 products": Family({K + "products": ("own_products",)}, ("hgt", "conve", "mmgcn", "sasrec")),
    "own bf16 products": Family({K + "products": ("own_pairs",)}, ("hgt bf16", "conve bf16", "mmgcn bf16")),
    "sequence attention": Family(_without("sequence_attention"), ("sasrec", "tisasrec")),
    "sub-layers": Family(_without("sublayers"), ("sasrec", "tisasrec")),
    "layer norm": Family(_without("layer_norm"), ("sasrec", "hgt")),
    "input embedding": Family(_without("input_embedding"), ("sasrec",)),
    "hyper-connections": Family(_without("hyper_connections"), ("sasrec mhc",)),
    "KGAT layers": Family(_without("bi_interaction", "row_norm"), ("kgat",)),
    "TransR projections and facts": Family(
        {K + "translation": ("own_blocks", "has_numba"), K + "fact_losses": ("has_numba",)}, ("kgat",)
    ),
    "MMGCN layers": Family(_without("combination"), ("mmgcn",)),
    "ConvE": Family(_without("normed_convolution", "one_to_n"), ("conve",)),
    "propagation": Family(_without("propagation"), ("dragon", "mmgcn", "kgat")),
    "pair losses": Family(_without("pair_losses"), ("bpr_mf", "kgat", "dragon")),
    "link losses": Family(_without("link_scores"), ("hgt",)),
    "next-item losses": Family(_without("next_item_losses"), ("sasrec", "tisasrec")),
    "dropout": Family(_without("dropout"), ("sasrec", "hgt", "conve")),
    "table rows": Family(_without("table_rows"), ("bpr_mf", "hgt sampled", "sasrec")),
    "neighbour picks": Family({"graphmill.sampling.neighbor_picks": ("has_numba",)}, ("hgt sampled",)),
    "top-k and hits": Family(_without("top_k", "hits"), ("bpr_mf", "sasrec"), "evaluation"),
    "ranks": Family(_without("rank_counts"), ("conve", "hgt"), "evaluation"),
    "everything": Family(
        {}, ("hgt", "hgt sampled", "conve", "sasrec", "tisasrec", "kgat", "mmgcn", "dragon", "bpr_mf")
    ),
}


@dataclass(frozen=True)
class Workload:
    """A shipped recipe with its defaults on a public data set; ``settings`` say what differs, and how long it trains."""

    recipe: str
    data: str
    settings: dict[str, dict[str, Any]]


def _steps(epochs: int, each: int = 0, **sections: dict[str, Any]) -> dict[str, dict[str, Any]]:
    training: dict[str, Any] = {"epochs": epochs, "patience_epochs": 0} | ({"steps_per_epoch": each} if each else {})
    evaluation = {"eval_every": epochs, "final_metrics": "same"}
    return {"training": training, "evaluation": evaluation, "export": {"csv": False}} | sections


BF16 = {"precision": "bf16"}
WORKLOADS = {
    "hgt": Workload("hgt", "hetionet", _steps(2, 8, acceleration={"batching": "full"})),
    "hgt bf16": Workload("hgt", "hetionet", _steps(2, 8, acceleration={"batching": "full"} | BF16)),
    "hgt sampled": Workload("hgt", "hetionet", _steps(2, 4, acceleration={"batching": "neighbor_sampled"})),
    "conve": Workload("conve", "FB15k-237", _steps(1, 30)),
    "conve bf16": Workload("conve", "FB15k-237", _steps(1, 30, acceleration=BF16)),
    "sasrec": Workload("sasrec", "amazon-sports-seq", _steps(1, 30)),
    "sasrec mhc": Workload("sasrec", "amazon-sports-seq", _steps(1, 30, model={"mhc": "lite"})),
    "tisasrec": Workload("tisasrec", "ml-latest-small", _steps(2)),
    "kgat": Workload("kgat", "last-fm-hetrec", _steps(1, 30)),
    "mmgcn": Workload("mmgcn", "tiktok", _steps(1, 30)),
    "mmgcn bf16": Workload("mmgcn", "tiktok", _steps(1, 30, acceleration=BF16)),
    "dragon": Workload("dragon", "tiktok", _steps(1, 30)),
    "bpr_mf": Workload("bpr_mf", "last-fm-hetrec", _steps(10)),
}
SEQUENCES = {
    "amazon-sports-seq": "amazon-sports-seq/Sports.sasrec.txt.gz",
    "ml-latest-small": "ml-latest-small/ml-latest-small.txt.gz",
}


def build(data: str, folder: Path) -> Path:
    """The typed graph of a public data set."""
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.kg_csv import read_kg_csv
    from graphmill.ingest.kgat_files import read_kgat
    from graphmill.ingest.sequence import read_sequence
    from graphmill.ingest.triples import read_triples

    if data == "tiktok":
        from benchmarks.recommender_data import graph_of

        return graph_of(data, folder).path
    settings = GraphSettings(add_reverse="never")
    if data == "hetionet":
        from benchmarks.hetionet import TYPES

        tables: Any = read_kg_csv(root() / "hetionet" / "kg_5k.csv.gz")
        settings = GraphSettings(include_node_types=TYPES)
    elif data in SEQUENCES:
        tables = read_sequence(root() / SEQUENCES[data])
    elif data == "last-fm-hetrec":
        tables = read_kgat(root() / data / "kgat")
    else:
        tables = read_triples(root() / data)
    return build_graph(tables.nodes, tables.edges, settings, folder).path


def _no() -> bool:
    return False


def say_no(family: str) -> None:
    """Leave a family's compiled form out of this process, or all of them."""
    off = FAMILIES[family].off
    if family == "everything":
        import importlib.util

        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, package=None: None if name == "numba" else find(name, package)
    for module, names in off.items():
        for name in names:
            if not hasattr(import_module(module), name):
                raise SystemExit(f"{module} has no {name}: bring FAMILIES up to date")
            setattr(import_module(module), name, _no)


def measure(workload: str, graph: str, what: str) -> dict[str, float]:
    """Seconds of an optimizer step (median), or of a ranking of the validation split (best of three)."""
    from graphmill.runs.export import restore
    from graphmill.runs.train import train

    wanted = WORKLOADS[workload]
    values: Any = {"recipe": wanted.recipe, "data": graph, "preset": "none", **wanted.settings}
    values["evaluation"] |= {"baselines": []} if wanted.recipe in ("hgt", "conve") else {"floors": False}
    with tempfile.TemporaryDirectory() as folder:
        result = train(values, workload, root=folder)
        if what == "step":
            return {"step": result["seconds_per_step"]}
        restored = restore(result["run_dir"])
        times = []
        for _ in range(3):
            began = time.perf_counter()
            restored.recipe.evaluate(restored.model, "valid", final=True, poll=lambda: None)
            times.append(time.perf_counter() - began)
    return {"evaluation": min(times)}


def rows(families: list[str], rounds: int, graphs: dict[str, Path]) -> Iterator[card.Row]:
    """A row for each family and workload."""
    for family in families:
        about = FAMILIES[family]
        for workload in about.on:
            common = ["--workload", workload, "--graph", str(graphs[WORKLOADS[workload].data])]
            common += ["--measure", about.measure]
            variants = {"with": common, "without": [*common, "--without", family]}
            found = card.in_turn("benchmarks.kernels", variants, rounds + 1, card.as_a_worker())
            on, off = found["with"][1:], found["without"][1:]  # the first round compiles
            ours, note = card.typical(on, about.measure)
            theirs, _ = card.typical(off, about.measure)
            yield card.row(
                f"{workload}, {about.measure}",
                family,
                "s",
                ours,
                rival="its plain torch form",
                theirs=theirs,
                target=TARGET,
                note=note,
            )


def main() -> None:
    """Measure, or be one of the measured processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", default="", help="keep the graphs here")
    parser.add_argument("--json", action="store_true", help="write the results file")
    parser.add_argument("--workload", choices=list(WORKLOADS), help=argparse.SUPPRESS)
    parser.add_argument("--graph", default="", help=argparse.SUPPRESS)
    parser.add_argument("--measure", default="step", help=argparse.SUPPRESS)
    parser.add_argument("--without", choices=list(FAMILIES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.workload:
        if options.without:
            say_no(options.without)
        print(json.dumps(measure(options.workload, options.graph, options.measure)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.work or temporary)
        wanted = {WORKLOADS[workload].data for family in options.only for workload in FAMILIES[family].on}
        graphs = {data: build(data, folder / data) for data in sorted(wanted)}
        command = "python -m benchmarks.kernels --json" + (
            f" --only {' '.join(repr(family) for family in options.only)}" if options.only != list(FAMILIES) else ""
        )
        for row in rows(options.only, options.rounds, graphs):
            print(row, file=sys.stderr, flush=True)
            if options.json:
                card.store("kernels", row, command)


if __name__ == "__main__":
    main()
