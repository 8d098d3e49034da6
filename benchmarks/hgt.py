"""``python -m benchmarks.hgt --json``: HGT's targets, graphmill beside the products and PyTorch Geometric, in turn.

Each figure comes from a fresh process (``benchmarks.hgt_step``); seconds are the median of the steps after the first three,
and over the products the medians of steps and products in turn. ``--only ROW`` measures one row and leaves the others of
``benchmarks/results/hgt.json`` as they are; ``--missing`` leaves
out those that are there, so that an interrupted measurement goes on. Time is compared with the tuned rival (the allocator
keeps its heap), which is how our worker runs as well; memory with the rival as installed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.card import RESULTS, Row, fresh, machine, replace_rows, row
from benchmarks.hgt_estimate import ACCELERATIONS, LARGE, RECOMMENDERS, WORKLOADS
from graphmill.systems.hgt.settings import HgtAcceleration
from graphmill.training.allocator import KEEP_HEAP

TARGETS_RATE = 127
"""GFLOP/s at which 67k's products take the four seconds that the factor over them was set for."""
SMALL = "kg_5k"
"""The graph on which every acceleration is measured."""
STEP, ESTIMATE = "benchmarks.hgt_step", "benchmarks.hgt_estimate"
IN_TURN = ("--products", "5")
"""After its first steps a process makes more of them with the products measured after each, five of which count."""
Run = dict[str, Any]


@dataclass
class Device:
    """Where steps run (``--device``), and, once one has, which model it is."""

    name: str = "cpu"
    model: str = ""


DEVICE = Device()

WARM_UP = 3
"""Steps that do not count where there are more: a heap that is kept grows for a few, until all has found its place."""


def step(graph: str, variant: str, steps: int = 8, *, tuned: bool = True, more: Sequence[str] = ()) -> Run:
    """One process; adds ``s``, the median of its steps after :data:`WARM_UP` (of fewer: after the first; of one: that)."""
    arguments = ["--graph", graph, "--variant", variant, "--steps", str(steps), *more]
    if DEVICE.name != "cpu":
        arguments += ["--device", DEVICE.name]
    found = fresh(STEP, arguments, KEEP_HEAP if tuned else {})
    if "device_gb" in found:
        found |= {"peak_gb": found["device_gb"], "imported_gb": 0.0}
        DEVICE.model = found["device"]
    found["s"] = median(found["seconds"][WARM_UP:] or found["seconds"][1:] or found["seconds"])
    found["own_gb"] = found["peak_gb"] - found["imported_gb"]
    return found


def product_rows() -> Iterator[Row]:
    """67k / 200k / 30: our step over its own products' time, and memory: of these processes, and of one with the allocator
    as installed."""
    for variant, limit, memory_limit in (("ours", 1.25, 2.7), ("ours,checkpoint", 1.6, 2.0)):
        runs = [step("67k", variant, 4, more=IN_TURN) for _ in range(2)]
        yield from _over_products(f"67k/200k/30 {variant}", runs, limit)
        peak = max(r["peak_gb"] for r in runs)
        name, target = f"67k/200k/30 {variant}", f"ours <= {memory_limit}"
        note = "whole process, the one whose steps are timed: the heap is kept"
        yield row(name, "peak memory, heap kept", "GB", peak, target=target, note=note)
        stock = step("67k", variant, 3, tuned=False, more=IN_TURN)
        taken, products = (median(stock[key]) for key in ("in_turn", "products_in_turn"))
        as_installed = f"{name}, allocator as installed"
        yield _timed(
            as_installed, taken, "products", products, f"ratio <= {limit}" if peak > memory_limit else "", [stock]
        )
        note = f"whole process, allocator as installed; its step {taken:.3g} s"
        yield row(name, "peak memory", "GB", stock["peak_gb"], target=target, note=note)


def returned_rows() -> Iterator[Row]:
    """Where memory is short the planner lets large blocks be handed back at once (``training/allocator.py``).

    67k with checkpointing, and PrimeKG's shape over samples of its edges in four micro-batches: whole process, and time.
    """
    found = step("67k", "ours,checkpoint,returned", 3, more=IN_TURN, tuned=False)
    name = "67k/200k/30 ours,checkpoint, large blocks handed back"
    yield _timed(name, median(found["in_turn"]), "products", median(found["products_in_turn"]), "ratio <= 1.6", [found])
    yield row(name, "peak memory", "GB", found["peak_gb"], target="ours <= 2.0", note="whole process")
    for options in ("edge_sampled", "edge_sampled,checkpoint"):
        found = step("primekg", f"ours,{options},returned", tuned=False)
        kept = step("primekg", f"ours,{options}")
        name = f"primekg five types ours,{options}, large blocks handed back"
        note = f"whole process, four micro-batches of 1,250 edges a relation; heap kept {kept['peak_gb']:.3g} GB"
        yield row(name, "peak memory", "GB", found["peak_gb"], target="ours <= 2.0", note=note)
        yield _timed(name, found["s"], "heap kept", kept["s"], "", [found])


def bf16_row() -> Iterator[Row]:
    """The same under bfloat16 autocast, against our float32."""
    yield from _against("67k", "ours,bf16", "ours", "ratio <= 0.6")


def pyg_rows() -> Iterator[Row]:
    """Against PyTorch Geometric with its loop repaired: time tuned, memory stock, above the imports."""
    yield from _against("67k", "ours", "pyg,repaired", "ratio <= 0.303")
    yield _memory("67k", "ours", "pyg,repaired", "ratio <= 0.5")


def limits_rows() -> Iterator[Row]:
    """What part of the device's best rate of products a step reaches, and what is no product as bytes that would have been
    copied meanwhile: both limits measured in the step's own process."""
    for variant, kind in (("ours", "fp32"), ("ours,bf16", "bf16")):
        found = step("67k", variant, more=("--limits",))
        best, rate = found["limits"], found["gflop"] / found["s"]
        others = ", ".join(f"{name} {value:.4g}" for name, value in best.items())
        note = f"limits, GFLOP/s and GB/s: {others}; step {found['s']:.3g} s"
        name, rival = f"67k {variant}", f"the rate of torch's products of {kind}"
        yield row(name, "products a second", "GFLOP/s", rate, rival=rival, theirs=best[kind], note=note)
        beside = (found["s"] - found["gflop"] / best[kind]) * best["copy"]
        yield row(name, "beside the products, at the rate of a copy", "GB", beside, note="read and written")


def near_rows() -> Iterator[Row]:
    """What of a step the way of the relations' rows through memory takes: beside one whose relations join few nodes."""
    for variant in ("ours", "ours,bf16"):
        pairs = [(step("67k", variant), step("67k", variant, more=("--near", "256"))) for _ in range(2)]
        far, near = (median(s for pair in pairs for s in pair[n]["seconds"][WARM_UP:]) for n in (0, 1))
        note = "the same products and passes over the first 256 nodes of each type, whose rows stay in the cache"
        yield row(f"67k {variant}", "step", "s", far, rival="rows in the cache", theirs=near, note=note)


def stock_rows() -> Iterator[Row]:
    """Against PyTorch Geometric as installed: one step, quadratic in the number of relations."""
    ours, theirs = step("20k", "ours", tuned=False), step("20k", "pyg", 1, tuned=False)
    note = "HGTConv's in-place slices clone whole gradients; its repaired figure is in the 67k rows"
    yield _timed("20k/60k/30 as installed", ours["s"], "pyg, one step", theirs["s"], "ratio <= 0.01", [ours], note)


def kg_5k_rows() -> Iterator[Row]:
    """Hetionet's sample, all ten types."""
    yield from _against("kg_5k", "ours", "pyg,repaired", "ratio <= 0.3")
    yield row(
        "kg_5k", "peak memory", "GB", step("kg_5k", "ours", 3)["peak_gb"], target="ours <= 2.5", note="whole process"
    )


def primekg_rows() -> Iterator[Row]:
    """PrimeKG's five-type shape, full graph: torch's sparse operators, which a CPU without numba has, and compiled ones."""
    for variant, limit in (("ours,sparse,alone", 2.3), ("ours", 1.8)):
        runs = [step("primekg", variant, 3, more=IN_TURN) for _ in range(2)]
        yield from _over_products(f"primekg five types {variant}", runs, limit)
        peak = max(r["peak_gb"] for r in runs)
        yield row(f"primekg five types {variant}", "peak memory", "GB", peak, target="ours <= 4", note="whole process")


def torch_rows() -> Iterator[Row]:
    """The three ways to do the edges, in turn: dense operators alone, which cuda and mps have as well, torch's sparse ones
    and compiled ones. The first two are without numba, for products too. No CPU takes the first by itself, but for fp16."""
    for graph in ("67k", "primekg"):
        ways = {
            way: step(graph, f"ours{way}", 1, more=("--products", "3")) for way in (",torch,alone", ",sparse,alone", "")
        }
        for way, found in ways.items():
            taken, products = (median(found[key]) for key in ("in_turn", "products_in_turn"))
            note = f"{found['peak_gb']:.3g} GB, whole process"
            dense = (graph, way) == ("primekg", ",torch,alone")
            name = f"{graph} ours{way}, by ways"
            yield _timed(name, taken, "products", products, "ratio <= 2.3" if dense else "", [found], note)
            parts = {"products": products} | found["rest"]
            note = "s: " + ", ".join(f"{part} {s:.3g}" for part, s in parts.items())
            rival, least = "products and what is moved beside them", sum(parts.values())
            yield _timed(name, taken, rival, least, "", [found], note)


def compiled_rows() -> Iterator[Row]:
    """A compiled block beside our own functions: GELU and the output's product in each layer."""
    yield from _against("67k", "ours,compiled", "ours", "")


def profile_rows() -> Iterator[Row]:
    """What a step consists of, by torch's profiler: the operators that take the most time of their own."""
    compiled = [(graph, "ours") for graph in ("67k", "kg_5k", "primekg*0.02403", "primekg*1.92205")]
    for graph, variant in (*compiled, ("primekg", "ours,torch,alone")):
        found = step(graph, variant, 1, more=("--profile",))
        parts = ", ".join(f"{name} {ms / 1e3:.3g}" for name, ms in found["parts"].items())
        yield row(
            f"profile {graph}{variant.removeprefix('ours')}", "step", "s", found["total"] / 1e3, note="s: " + parts
        )


def growth_rows() -> Iterator[Row]:
    """PrimeKG's shape with 10⁵ to 8·10⁶ edges: is the time a + b·E?

    Not quite: few edges touch few of the nodes, and a relation's matrices are applied to nodes that occur. So the products
    grow with the edges too, until all nodes occur. The last row takes them into account, and the first is of a graph in
    which all nodes occur in every relation at every size, so that nothing but the edges grows.
    """
    edges = np.array([1e5, 5e5, 1e6, 2e6, 4e6, 8e6])
    # Two types of 5,000 nodes and four relations: at 10⁵ edges every node occurs in each already.
    dense = np.array([run["s"] for run in _shortest([f"dense*{e:.0f}" for e in edges])])
    slope, start = np.polyfit(edges, dense, 1)
    left = dense - (start + slope * edges)
    r2 = 1 - (left**2).sum() / ((dense - dense.mean()) ** 2).sum()
    note = "s: " + ", ".join(f"{e:.0e} {s:.3g}" for e, s in zip(edges, dense, strict=True))
    yield row("growth, all nodes occur", "R² of a + b·E", "", float(r2), target="ours >= 0.98", note=note)
    residual = abs(float(left[-1] / dense[-1]))
    yield row("growth, all nodes occur", "residual at the top", "", residual, target="ours <= 0.1", note=note)
    runs = _shortest([f"primekg*{e / 4_162_300:.5f}" for e in edges])
    seconds, gflop = (np.array([r[key] for r in runs]) for key in ("s", "gflop"))
    slope, start = np.polyfit(edges, seconds, 1)
    fitted = start + slope * edges
    r2 = 1 - ((seconds - fitted) ** 2).sum() / ((seconds - seconds.mean()) ** 2).sum()
    note = "s: " + ", ".join(f"{e:.0e} {s:.3g}" for e, s in zip(edges, seconds, strict=True))
    yield row("growth", "R² of a + b·E", "", float(r2), target="ours >= 0.98", note=note)
    residual = abs(float(seconds[-1] - fitted[-1]) / float(seconds[-1]))
    yield row("growth", "residual at the top", "", residual, target="ours <= 0.1", note=note)
    terms = np.stack([np.ones_like(edges), edges, gflop], axis=1)
    left = seconds - (terms / terms.max(0)) @ np.linalg.lstsq(terms / terms.max(0), seconds, rcond=None)[0]
    r2 = 1 - (left**2).sum() / ((seconds - seconds.mean()) ** 2).sum()
    note = "products, GFLOP: " + ", ".join(f"{e:.0e} {g:.0f}" for e, g in zip(edges, gflop, strict=True))
    yield row("growth", "R² of a + b·E + c·(products)", "", float(r2), target="ours >= 0.98", note=note)


def _shortest(graphs: Sequence[str]) -> list[Run]:
    """A run of each: the sizes go through once upwards and once downwards, and of two medians the shorter counts, since
    neighbours on the machine only add."""
    up = [step(graph, "ours", 6) for graph in graphs]
    down = [step(graph, "ours", 6) for graph in reversed(graphs)][::-1]
    return [min(pair, key=lambda run: run["s"]) for pair in zip(up, down, strict=True)]


def inference_rows() -> Iterator[Row]:
    """All embeddings of PrimeKG's shape in chunks of receivers, against one forward pass without gradients."""
    default = HgtAcceleration().inference_rows
    sizes = (default, default // 2, default // 4)
    forward, *chunked = (step("primekg", "ours", 6, more=["--infer", str(n)]) for n in (0, *sizes))
    for size, chunks in zip(sizes, chunked, strict=True):
        name, target = f"primekg inference, chunks of {size:,}", "ratio <= 1.2" if size == default else ""
        yield _timed(name, chunks["s"], "one forward", forward["s"], target, [chunks])
        yield row(
            name, "peak memory", "GB", chunks["own_gb"], rival="one forward", theirs=forward["own_gb"],
            note="above the imports; tables included",
        )  # fmt: skip


def sampler_rows() -> Iterator[Row]:
    """The neighbour sampler on one core: sampled edges per second."""
    for name, options in (("numpy", []), ("budget sampler", ["--budget"])):
        found = fresh("benchmarks.hgt_sampler", options, {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"})
        note = f"PrimeKG's shape, 2,048 seeds, two hops; {median(found['edges']):,.0f} edges a sample"
        yield row(f"neighbour sampler, {name}", "sampled edges", "1/s", found["edges_per_second"], note=note)


def published_rows() -> Iterator[Row]:
    """The published table, in minutes: our step, over a few steps, times the steps of so many epochs."""
    per_epoch = 10
    for name, times in (
        ("published 5k", {20: (10, 4), 100: (50, 20)}),
        ("published 66k", {20: (90, 35), 100: (450, 175)}),
    ):
        found = _trained(name)
        for epochs, (on_cpu, on_mps) in times.items():
            minutes = found["s"] * per_epoch * epochs / 60
            note = f"{per_epoch} steps an epoch, {found['s']:.3g} s each; published: one step an epoch; on MPS {on_mps} min"
            yield row(
                f"{name} nodes, {epochs} epochs",
                "training",
                "min",
                minutes,
                rival="published, CPU",
                theirs=on_cpu,
                note=note,
            )


def acceleration_rows(workload: str) -> Iterator[Row]:
    """What each acceleration does in a training of the product, one at a time: rival = without it."""
    with TemporaryDirectory() as folder:

        def trained(name: str, environment: Mapping[str, str], of: str = workload) -> Run:
            more = json.dumps(ACCELERATIONS[name])
            return fresh(ESTIMATE, ["--workload", of, "--graph", f"{folder}/{of}", "--more", more], environment)

        for built in {workload, SMALL}:
            fresh(ESTIMATE, ["--workload", built, "--build", f"{folder}/{built}"])
        # What numba compiles on its first use takes memory that no later run does.
        for name in ("base", "precision: bf16", "edge_sampled", "neighbor_sampled"):
            trained(name, KEEP_HEAP, SMALL)
        names = [name for name in ACCELERATIONS if name != "base" and (workload == SMALL or name in LARGE)]
        cells = [(name, name, KEEP_HEAP) for name in names] + [("allocator as installed", "base", {})]
        # Neighbours come and go within minutes: each is compared with the runs without it that are nearest.
        before = trained("base", KEEP_HEAP)
        for start in range(0, len(cells), 3):
            found = [(label, trained(name, environment)) for label, name, environment in cells[start : start + 3]]
            after = trained("base", KEEP_HEAP)
            for label, run in found:
                seconds = (before["s"] + after["s"]) / 2
                note = f"hidden 256, out 512; without it {before['s']:.3g} s before and {after['s']:.3g} s after"
                name = f"{workload}, {label}"
                yield row(name, "step", "s", run["s"], rival="without it", theirs=seconds, note=note)
                yield row(name, "peak memory", "GB", run["peak_gb"], rival="without it", theirs=before["peak_gb"])
            before = after


def _trained(workload: str) -> Run:
    with TemporaryDirectory() as folder:
        place = f"{folder}/graph"
        fresh(ESTIMATE, ["--workload", workload, "--build", place])
        return fresh(ESTIMATE, ["--workload", workload, "--graph", place], KEEP_HEAP)


def estimate_rows() -> Iterator[Row]:
    """The planner's predictions beside what a short training takes: rival = predicted."""
    for workload in WORKLOADS | RECOMMENDERS:
        found = _trained(workload)
        name = f"estimate {workload}"
        for metric, unit, key, predicted, doubt in (
            ("peak memory", "GB", "peak_gb", "predicted_gb", 0.2),
            ("step", "s", "s", "predicted_s", 0.4),
        ):
            off = abs(found[predicted] / found[key] - 1)
            note = f"measured {found[key]:.3g}, predicted {found[predicted]:.3g}; {found['steps']} steps"
            yield row(name, f"{metric}, error of the prediction", unit, off, target=f"ours <= {doubt}", note=note)


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "products": product_rows,
    "returned": returned_rows,
    "bf16": bf16_row,
    "pyg": pyg_rows,
    "near": near_rows,
    "limits": limits_rows,
    "stock": stock_rows,
    "kg_5k": kg_5k_rows,
    "primekg": primekg_rows,
    "torch": torch_rows,
    "compiled": compiled_rows,
    "profile": profile_rows,
    "growth": growth_rows,
    "inference": inference_rows,
    "sampler": sampler_rows,
    "estimate": estimate_rows,
    "acceleration": partial(acceleration_rows, SMALL),
    "acceleration_67k": partial(acceleration_rows, "67k"),
    "acceleration_primekg": partial(acceleration_rows, "primekg"),
    "published": published_rows,
}


def _over_products(name: str, runs: Sequence[Run], limit: float) -> Iterator[Row]:
    """A step over its products, and over these and what it moves beside them (``benchmarks.hgt_rest``, no target).

    Medians of steps and of products that were measured in turn: neighbours on the machine make both longer, at random.
    """
    taken, products = (median(s for r in runs for s in r[key]) for key in ("in_turn", "products_in_turn"))
    spread = "products " + " | ".join(", ".join(f"{s:.3g}" for s in r["products_in_turn"]) for r in runs)
    yield _timed(name, taken, "products", products, f"ratio <= {limit}", runs, spread)
    shortest = min(r["products"] for r in runs)
    note = (
        "each product the best of three in a row, which finds some of its operands in the cache; best of two processes"
    )
    yield row(name, "step", "s", taken, rival="products, best of six", theirs=shortest, note=note)
    rest = {part: min(r["rest"][part] for r in runs) for part in runs[0]["rest"]}
    note = "s: " + ", ".join(f"{part} {s:.3g}" for part, s in ({"products": products} | rest).items())
    yield _timed(name, taken, "products and what is moved beside them", products + sum(rest.values()), "", runs, note)
    allowed = (limit - 1) * runs[0]["gflop"] / TARGETS_RATE
    note = f"{limit} × the products at {TARGETS_RATE} GFLOP/s would leave {allowed:.3g} s beside them"
    yield row(name, "beside the products", "s", taken - products, note=note)


def _against(graph: str, ours: str, rival: str, target: str) -> Iterator[Row]:
    """In turn; of three pairs the one with the middle ratio. Beside PyG, our process also times its products."""
    more = IN_TURN if rival.startswith("pyg") else ()
    pairs = [(step(graph, ours, more=more), step(graph, rival)) for _ in range(3)]
    mine, theirs = sorted(pairs, key=lambda p: p[0]["s"] / p[1]["s"])[1]
    spread = [{"seconds": own["seconds"]} for own, _ in pairs]
    yield _timed(f"{graph} {ours}", mine["s"], rival, theirs["s"], target, spread)
    if more:
        # Steps and products of all three processes, which followed each other: a neighbour slows both.
        in_turn, alone = ([s for own, _ in pairs for s in own[key]] for key in ("in_turn", "products_in_turn"))
        yield _by_products(graph, median(in_turn), median(alone), rival, median(other["s"] for _, other in pairs))


def _by_products(graph: str, ours: float, products: float, rival: str, theirs: float) -> Row:
    """PyG's step has the same products, so that with torch's no kernel's ratio is below their part of it.

    That part is a larger one where a processor multiplies slowly; 1.25 times it is what the factor over the products leaves.
    """
    note = f"products alone {products:.3g} s, {products / theirs:.3g} of PyG's step; the target is 1.25 × that"
    target = f"ratio <= {1.25 * products / theirs:.3f}"
    name = f"{graph} ours, target by the products"
    return row(name, "step", "s", ours, rival=rival, theirs=theirs, target=target, note=note)


def _memory(graph: str, ours: str, rival: str, target: str) -> Row:
    mine, theirs = step(graph, ours, 3), step(graph, rival, 2, tuned=False)
    note = "above the imports; ours with the heap kept, theirs as installed"
    return row(
        f"{graph} {ours}", "peak memory", "GB", mine["own_gb"], rival=rival, theirs=theirs["own_gb"], target=target,
        note=note,
    )  # fmt: skip


def _timed(
    workload: str, ours: float, rival: str, theirs: float, target: str, runs: Sequence[Run], note: str = ""
) -> Row:
    seconds = (r["in_turn" if "in_turn" in r else "seconds"] for r in runs)
    spread = "steps " + " | ".join(", ".join(f"{s:.3g}" for s in found) for found in seconds)
    return row(
        workload,
        "step",
        "s",
        ours,
        rival=rival,
        theirs=theirs,
        target=target,
        note="; ".join(filter(None, (note, spread))),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(ROWS), action="append", help="rows to measure; without it, all")
    parser.add_argument("--missing", action="store_true", help="leave out rows that the results file has")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/hgt.json")
    parser.add_argument("--device", default="cpu", help="where the kernel workload's steps run: cpu, cuda")
    args = parser.parse_args()
    DEVICE.name = args.device
    failed = []
    for name in args.only or ROWS:
        if args.missing and _label(name) in _done():
            continue
        start = time.perf_counter()
        try:
            found = list(ROWS[name]())
        except RuntimeError as error:  # a process that failed, for want of memory above all: the other rows go on
            print(f"{name}: {error}", file=sys.stderr)
            failed.append(name)
            continue
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        found = [_on_device(one) for one in found]
        for one in found:
            print(json.dumps(one.__dict__, ensure_ascii=False), flush=True)
        if args.json:
            _store(name, found)
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


def _on_device(found: Row) -> Row:
    if DEVICE.name == "cpu":
        return found
    return replace(found, workload=f"{found.workload}, on {DEVICE.name}", note=found.note)


def _label(name: str) -> str:
    """What a row's note begins with."""
    if DEVICE.name == "cpu":
        return name
    if not DEVICE.model:
        import torch

        # Which one it is, so that a file keeps the rows of several beside each other.
        DEVICE.model = torch.cuda.get_device_name() if DEVICE.name == "cuda" else DEVICE.name
    return f"{name} {DEVICE.model}"


def _done() -> set[str]:
    """Names of the rows that the results file has of this processor."""
    path = RESULTS / "hgt.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    mine = [r for r in rows if r["processor"] == machine()["processor"]]
    return {r["note"].partition("] ")[0].removeprefix("[") for r in mine}


def _store(name: str, found: Sequence[Row]) -> None:
    """Replace this processor's rows of this name, so that they can be measured one at a time; the note begins with it."""
    label = _label(name)
    new = [replace(r, note=f"[{label}] {r.note}") for r in found]
    replace_rows("hgt", new, "python -m benchmarks.hgt --json", lambda r: r.note.startswith(f"[{label}] "))


if __name__ == "__main__":
    main()
