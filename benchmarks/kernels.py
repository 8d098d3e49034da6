"""What each compiled CPU kernel is worth to a user: a whole training step or evaluation with and without it.

``python -m benchmarks.kernels --json`` trains shipped systems on public data, and in each training some steps are done with
everything compiled, the next ones with one family's plain torch form, then with another's, in turn, round after round. A
family stays where a step or an evaluation is at least 1.25 times as fast with it. ``--only FAMILY`` measures some. Results:
``results/kernels.json``, a row for each family and workload.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.parts import card

TARGET = "ratio <= 0.8"
"""Of the time with the kernel to the time without: at least 1.25 times as fast."""
K = "graphmill.kernels."


@dataclass(frozen=True)
class Family:
    """``off``: the functions, by module, that say no where the family is left out. ``on``: the workloads it serves."""

    off: dict[str, tuple[str, ...]]
    on: tuple[str, ...]
    measures: tuple[str, ...] = ("step",)


def _without(*modules: str) -> dict[str, tuple[str, ...]]:
    return {K + module: ("has_numba",) for module in modules}


FAMILIES = {
    "oneDNN's products": Family({K + "products": ("onednn_is_faster",)}, ("hgt", "conve", "mmgcn", "sasrec")),
    "pair losses": Family(_without("pair_losses"), ("mf", "kgat", "dragon")),
    "top-k": Family(_without("top_k"), ("mf", "sasrec", "lightgcn"), ("evaluation",)),
    "ranks": Family(_without("rank_counts"), ("conve", "hgt", "sasrec", "tisasrec"), ("evaluation",)),
    "frontier": Family(_without("frontier", "frontier.messages"), ("nbfnet",)),
    "everything": Family(
        {},
        ("hgt", "hgt sampled", "conve", "sasrec", "tisasrec", "kgat", "mmgcn", "dragon", "lightgcn", "mf"),
        ("step", "evaluation"),
    ),
}


@dataclass(frozen=True)
class Workload:
    """A shipped system with its defaults on a public data set; ``settings`` say what differs."""

    system: str
    data: str
    settings: dict[str, Any]


def _with(**sections: dict[str, Any]) -> dict[str, Any]:
    return {"training": {"epochs": 1}, "export": {"csv": False}} | sections


WORKLOADS = {
    "hgt": Workload("hgt", "hetionet", _with(acceleration={"batching": "full"})),
    "hgt contrastive": Workload(
        "hgt", "hetionet", _with(objective={"loss": "link_contrastive"}, acceleration={"batching": "full"})
    ),
    "hgt sampled": Workload("hgt", "hetionet", _with(acceleration={"batching": "edge_sampled"})),
    "lightgcn": Workload("lightgcn", "tiktok", _with()),
    "dragon": Workload("dragon", "tiktok", _with()),
    "mmgcn": Workload("mmgcn", "tiktok", _with()),
    "sasrec": Workload("sasrec", "amazon-sports-seq", _with()),
    "tisasrec": Workload("tisasrec", "ml-latest-small", _with()),
    "kgat": Workload("kgat", "last-fm-hetrec", _with()),
    "conve": Workload("conve", "FB15k-237", _with()),
    "mf": Workload("mf", "tiktok", _with()),
    "nbfnet": Workload("nbfnet", "UMLS", _with()),
}
SEQUENCES = {
    "amazon-sports-seq": "amazon-sports-seq/Sports.sasrec.txt.gz",
    "ml-latest-small": "ml-latest-small/ml-latest-small.txt.gz",
}


def build(data: str, folder: Path) -> Path:
    """The typed graph of a public data set."""
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.interactions_csv import read_sequence
    from graphmill.ingest.kg_csv import read_kg_csv
    from graphmill.ingest.kgat_files import read_kgat
    from graphmill.ingest.triples import read_triples

    if data == "tiktok":
        from benchmarks.recommenders import graph_of

        return graph_of(data, folder)
    settings = GraphSettings(add_reverse="never")
    if data == "hetionet":
        from benchmarks.parts.hetionet import TYPES

        tables: Any = read_kg_csv(card.DATASETS / "hetionet" / "kg_5k.csv.gz")
        settings = GraphSettings(include_node_types=TYPES)
    elif data in SEQUENCES:
        tables = read_sequence(card.DATASETS / SEQUENCES[data])
    elif data == "last-fm-hetrec":
        tables = read_kgat(card.DATASETS / data / "kgat")
    else:
        tables = read_triples(card.DATASETS / data)
    return build_graph(tables.nodes, tables.edges, settings, folder).path


class _MeasuredError(Exception):
    """Ends a training once it has been measured."""


def no(*_: Any) -> bool:
    """What a kernel's dispatch is told where its family is left out."""
    return False


@contextmanager
def without(family: str) -> Iterator[None]:
    """Leave a family's compiled form out, or all of them; "" leaves none out."""
    modules = [m for n, m in sorted(sys.modules.items()) if n.startswith("graphmill.")]
    names = ("has_numba", "onednn_is_faster")
    if family == "everything":
        places = [(module, name) for module in modules for name in names if hasattr(module, name)]
    else:
        off = FAMILIES[family].off if family else {}
        places = [(import_module(module), name) for module, several in off.items() for name in several]
    before = [(module, name, getattr(module, name)) for module, name in places]
    for module, name in places:
        setattr(module, name, no)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


SECONDS, MOST_ROUNDS = 60.0, 40
"""Of quick steps there are more rounds than are asked for."""
STEPS = 3
"""Steps in a row of one variant. The first is not counted: its batch may have been made ahead, by the other one."""


def clock() -> float:
    """Seconds; with one thread those of the processor, which other work on the machine hardly changes."""
    import torch

    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def times_of_steps(engine: Any, variants: list[str], rounds: int) -> dict[str, float]:
    """Seconds of a step of each variant, in turn: the mean over an epoch's phases, and what comes before them.

    Of each the median; the smaller batch at an epoch's end is left out, which only some variants would meet.
    """
    phases = [phase for phase in engine.system.phases if phase.steps_per_epoch]
    result: dict[tuple[str, str], list[float]] = {(v, p.name): [] for v in variants for p in phases}
    begun: dict[str, list[float]] = {v: [] for v in variants}
    place = dict.fromkeys((p.name for p in phases), 0)
    number, enough = 0, time.perf_counter() + SECONDS
    while number <= rounds or (time.perf_counter() < enough and number <= MOST_ROUNDS):
        for variant in variants if number % 2 else variants[::-1]:
            with without(variant):
                began = clock()
                engine.system.begin_epoch(engine.model, number)
                begun[variant] += [clock() - began] if number else []
                for phase in phases:
                    for step in range(STEPS if number else 1):
                        began = clock()
                        engine._step(
                            phase, 0, place[phase.name] % max(1, phase.steps_per_epoch - 1)
                        )  # the last is smaller
                        place[phase.name] += 1
                        result[variant, phase.name] += [clock() - began] if step and number else []
        number += 1  # the first round compiles
    steps = sum(p.steps_per_epoch for p in phases)
    return {
        v: (sum(p.steps_per_epoch * median(result[v, p.name]) for p in phases) + median(begun[v])) / steps
        for v in variants
    }


def times_of_evaluations(engine: Any, variants: list[str], rounds: int) -> dict[str, float]:
    """Seconds of a ranking of the validation split by each variant, in turn; the shortest of some."""
    result: dict[str, list[float]] = {v: [] for v in variants}
    engine.model.eval()
    for number in range(rounds + 1):
        for variant in variants:
            with without(variant):
                began = clock()
                engine.system.evaluate(engine.model, "valid", final=True, poll=lambda: None)
                result[variant] += [clock() - began] if number else []
    return {v: min(times) for v, times in result.items()}


def measure(workload: str, graph: str, families: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Of each measure the seconds with all kernels, under "", and without each family. In one process, in turn."""
    from graphmill.runs.train import train
    from graphmill.training.engine import Engine

    results: dict[str, dict[str, float]] = {}

    def take_over(engine: Any) -> None:
        for name, function in (("step", times_of_steps), ("evaluation", times_of_evaluations)):
            variants = [f for f in families if name in FAMILIES[f].measures]
            if variants:
                results[name] = function(engine, ["", *variants], rounds)
        raise _MeasuredError

    wanted = WORKLOADS[workload]
    values = {"system": wanted.system, "data": graph, "preset": "none", **wanted.settings}
    Engine._epoch = take_over  # type: ignore[assignment, method-assign]
    with tempfile.TemporaryDirectory() as folder, suppress(_MeasuredError):
        train(values, workload, root=folder)
    return results


def rows(families: list[str], rounds: int, graphs: dict[str, Path]) -> Iterator[card.Row]:
    """A row for each workload and family."""
    for workload, about in WORKLOADS.items():
        served = [family for family in families if workload in FAMILIES[family].on]
        if not served:
            continue
        given = ["--workload", workload, "--graph", str(graphs[about.data]), "--rounds", str(rounds), "--only", *served]
        result = card.fresh("benchmarks.kernels", given, card.as_a_worker())
        threads = os.environ.get("OMP_NUM_THREADS", "all threads")
        for name, times in result.items():
            for family in served:
                if family in times:
                    yield card.row(
                        f"{workload}, {name}",
                        family,
                        "s",
                        times[""],
                        rival="its plain torch form",
                        theirs=times[family],
                        target=TARGET,
                        note=f"in turn, {rounds} rounds; "
                        + ("processor time of one thread" if threads == "1" else threads),
                    )


def main() -> None:
    """Measure, or be the measured process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", default="", help="keep the graphs here")
    parser.add_argument("--json", action="store_true", help="write the results file")
    parser.add_argument("--workload", choices=list(WORKLOADS), help=argparse.SUPPRESS)
    parser.add_argument("--graph", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.workload:
        print(json.dumps(measure(options.workload, options.graph, options.only, options.rounds)))
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
