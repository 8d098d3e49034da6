"""Time per optimizer step of MMGCN and DRAGON, and peak memory, against plain implementations, in turn.

``python -m benchmarks.recommenders_step [--json]`` runs the table below; with ``--variant`` it measures one cell in this
process and prints a JSON line. A step is everything from the drawing of negatives to the update of the weights, batch
2048, width 64, Adam, on the same interactions and features:

* tiktok: 9,308 users, 6,710 items, 59,541 training pairs, its image and audio features (128 wide)
* baby: 19,445 users, 7,050 items, 119,674 training pairs, random features (4096 and 384 wide): for time only
* music4all: that data set's shape, everything random: memory, and the time over batch sizes

``naive`` is :mod:`benchmarks.naive.multimodal`, which does what the public implementations do; both run with the allocator
settings of graphmill's worker ("tuned"), on all threads. Equal work for MMGCN is ``trainable_embeddings: false``, what
public code runs and what ``tiktok_mmgcn.yaml`` asks for; ``trained`` is our default, which has more to differentiate.
``ours`` of DRAGON is its defaults, which the plain form computes as well; ``checked`` is the form whose quality is measured,
``tiktok_dragon.yaml`` (eight negatives, a softmax, two item layers, no graph of users), beside the plain form as it stands.

On tiktok both also stand beside the time that the public code itself was recorded to take, scaled to this run's machine
(:mod:`benchmarks.rates`, measured in turn with them).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import benchmarks.rates
from benchmarks.card import Row, as_a_worker, in_turn, peak_rss, row, store, typical, typical_ratio
from benchmarks.kgat_step import sections_of
from benchmarks.rates import recorded_rows, seconds_of

BATCH, LARGE_BATCH = 2048, 16384
PAIRS = {"tiktok": 59_541, "baby": 119_674}
TARGETS = {"mmgcn": 2.5, "dragon": 3.5}
MEMORY_GIB = 8.0
MUSIC = "mmgcn-music4all"
"""Measured over batch sizes, beside nothing."""
VARIANTS = ("ours", "trained", "checked", "naive", "rates")
CHECKED = {"dragon-tiktok": "tiktok_dragon"}
"""Workload to the settings file whose quality is measured, where that is another form than ``ours``."""
Runs = dict[str, list[dict[str, Any]]]
"""Variant to the results of its rounds."""


def recipe_of(system: str, data: str, folder: Path, **sections: dict[str, Any]) -> Any:
    """Our recipe on a data set of :mod:`benchmarks.recommender_data`."""
    from benchmarks.recommender_data import graph_of
    from graphmill.settings import parse
    from graphmill.systems import registry

    values = {"recipe": system, "data": "benchmark", "preset": "none", **sections}
    # The features of the first modality go through a layer, those of the second enter as they are, as published.
    model: dict[str, Any] = {"modalities": _names(data), **sections.get("model", {})}
    settings = parse(registry.settings_model(system), values | {"model": model}, "benchmark")
    return registry.create(system, graph_of(data, folder), settings, "full")


def _names(data: str) -> list[str]:
    return {"tiktok": ["image", "audio"], "baby": ["image", "text"], "music4all": ["audio", "text"]}[data]


def ours(recipe: Any, steps: int, precision: str) -> list[float]:
    """Batch, forward, backward, norm and update, as in the engine."""
    from graphmill.training.contract import Execution
    from graphmill.training.precision import Precision
    from graphmill.training.processes import Ranks
    from graphmill.training.step import compute_gradient

    device = torch.device("cpu")
    recipe.to(device)
    model = recipe.build(Execution()).train()
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    phase, arithmetic = recipe.phases[0], Precision(precision, device)

    def step(number: int) -> None:
        epoch, index = divmod(number, max(phase.steps_per_epoch - 1, 1))  # whole batches only
        compute_gradient(
            recipe,
            model,
            parameters,
            recipe.step(phase, epoch, index),
            execution=Execution(),
            precision=arithmetic,
            ranks=Ranks(),
            seed_parts=(0, epoch, index),
        )
        optimizer.step()
        for p in parameters:
            p.grad = None

    return timed(step, steps)


def naive(recipe: Any, system: str, steps: int) -> list[float]:
    """The plain model on the same graph."""
    from benchmarks.naive import multimodal

    view = recipe.view
    pairs = torch.from_numpy(np.stack((view.train.row, view.train.columns)).astype(np.int64))
    features = recipe.features()
    model: torch.nn.Module
    if system == "mmgcn":
        model = multimodal.MMGCN(view.num_users, view.num_items, pairs, features, recipe.latent_dims)
    else:
        model = multimodal.Dragon(view.num_users, view.num_items, pairs, features, *_graphs(recipe))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rng = random.Random(0)
    seen: list[set[int]] = [set() for _ in range(view.num_users)]
    for user, item in zip(*(a.tolist() for a in (view.train.row, view.train.columns)), strict=True):
        seen[user].add(item)
    known = np.unique(view.train.columns).tolist()
    order = np.random.default_rng(0).permutation(pairs.shape[1])

    def step(number: int) -> None:
        rows = torch.from_numpy(order[number * BATCH % (len(order) - BATCH) :][:BATCH])
        users, items = pairs[0, rows], pairs[1, rows]
        negatives = torch.tensor(multimodal.negatives(users.tolist(), seen, known, rng))
        optimizer.zero_grad()
        model.loss(users, items, negatives, 1e-4).backward()
        optimizer.step()

    return timed(step, steps)


def _graphs(recipe: Any) -> tuple[torch.Tensor, list[list[int]], torch.Tensor]:
    """Our homogeneous graphs in the public implementation's forms: sparse COO, and padded lists of neighbours."""
    items, users = recipe.similar_items, recipe.similar_users
    rows = items.forward
    sparse = torch.sparse_coo_tensor(torch.stack((rows.row, rows.column)), rows.value, items.shape).coalesce()
    k = recipe.settings.model.user_neighbours
    indptr, column, value = (t.numpy() for t in (users.forward.indptr, users.forward.column, users.forward.value))
    lists, weights = [], np.zeros((len(indptr) - 1, 1, k), np.float32)
    for user, (first, last) in enumerate(pairwise(indptr)):
        lists.append(column[first:last].tolist() + [0] * (k - (last - first)))
        weights[user, 0, : last - first] = value[first:last]
    return sparse, lists, torch.from_numpy(weights)


def timed(step: Callable[[int], None], steps: int) -> list[float]:
    """Seconds of each step after two that warm up."""
    seconds = []
    for number in range(steps + 2):
        started = time.perf_counter()
        step(number)
        seconds.append(time.perf_counter() - started)
    return seconds[2:]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """One cell, in this process: median seconds a step, and GiB of peak memory above what was in use before."""
    trained = arguments.variant == "trained"
    sections: dict[str, Any] = {"acceleration": {"batch_size": arguments.batch}}
    if arguments.system == "mmgcn":
        sections["model"] = {"trainable_embeddings": trained}
    if arguments.variant == "checked":
        sections |= sections_of(CHECKED[f"{arguments.system}-{arguments.data}"])
    with tempfile.TemporaryDirectory() as folder:
        import graphmill.systems.recommenders.multimodal  # noqa: F401  (imports are not what is measured)

        base = peak_rss()
        recipe = recipe_of(arguments.system, arguments.data, Path(folder) / "graph", **sections)
        prepared = peak_rss()
        if arguments.variant == "naive":
            seconds = naive(recipe, arguments.system, arguments.steps)
        else:
            seconds = ours(recipe, arguments.steps, arguments.precision)
    return {
        "seconds": statistics.median(seconds),
        "fastest": min(seconds),
        "peak_gib": peak_rss() - base,
        "prepared_gib": prepared - base,
        "threads": torch.get_num_threads(),
    }


def cell(
    system: str, data: str, variant: str, *, batch: int = BATCH, steps: int = 5, precision: str = "fp32"
) -> list[str]:
    """Arguments of one cell."""
    numbers = ["--batch", str(batch), "--steps", str(steps)]
    return ["--system", system, "--data", data, "--variant", variant, "--precision", precision, *numbers]


def compare(rounds: int, workload: str) -> list[Row]:
    """The rows of one system on one data set."""
    system, data = workload.split("-")
    variants = {v: cell(system, data, v) for v in ("rates", "naive", "ours")}
    variants["bf16"] = cell(system, data, "ours", precision="bf16")
    variants["large"] = cell(system, data, "ours", batch=LARGE_BATCH)
    if system == "mmgcn":
        variants["trained"] = cell(system, data, "trained")
    if workload in CHECKED:
        variants["checked"] = cell(system, data, "checked")
        variants["checked large"] = cell(system, data, "checked", batch=LARGE_BATCH)
    found = in_turn("benchmarks.recommenders_step", variants, rounds, as_a_worker())
    rows = [
        _step_row(workload, variant, found) for variant in ("ours", "bf16", "trained", "checked") if variant in found
    ]
    rows += [_epoch_row(workload, variant, found) for variant in ("large", "checked large") if variant in found]
    rows += [_memory_row(workload, variant, found) for variant in ("ours", "checked") if variant in found]
    if f"{system} {data}" in benchmarks.rates.RECORDED:
        target = _target(system)
        forms = {
            _form(workload, variant): (
                f"{system} {data}, {_form(workload, variant)}",
                seconds_of(found[variant], "seconds"),
                "ratio <= 1.2" if variant == "naive" else target,
            )
            for variant in ("naive", "ours", "checked")
            if variant in found
        }
        rows += recorded_rows("step", f"{system} {data}", forms, found["rates"])
    return rows


def _target(system: str) -> str:
    return f"ratio <= {1 / TARGETS[system]:.3f}"


def _form(workload: str, variant: str) -> str:
    """What a row calls a variant: the form whose quality is measured by its file."""
    return f"{CHECKED[workload]}.yaml" if variant.startswith("checked") else variant


def _step_row(workload: str, variant: str, found: Runs) -> Row:
    system, data = workload.split("-")
    (seconds, note), (theirs, their_note) = (typical(found[v], "seconds") for v in (variant, "naive"))
    times = 1.0 / typical_ratio(found[variant], found["naive"], "seconds")
    form = _form(workload, variant)
    return row(
        f"{system} {data}, {form}",
        "step",
        "s",
        seconds,
        rival="naive",
        theirs=theirs,
        target=_target(system) if variant in ("ours", "checked") else "",
        note=f"{form}: {times:.2f} × as fast, pair by pair; {note}; rival {their_note}",
    )


def _epoch_row(workload: str, variant: str, found: Runs) -> Row:
    system, data = workload.split("-")
    steps, few = (-(-PAIRS[data] // size) for size in (BATCH, LARGE_BATCH))
    (seconds, note), (theirs, their_note) = (typical(found[v], "seconds") for v in (variant, "naive"))
    form = "" if variant == "large" else f"{_form(workload, variant)}, "
    return row(
        f"{system} {data}, {form}batch {LARGE_BATCH}",
        "epoch",
        "s",
        few * seconds,
        rival="naive, batch 2048",
        theirs=steps * theirs,
        target="ratio <= 0.125",
        note=f"{few} steps and {steps}; a step {note}; rival's {their_note}",
    )


def _memory_row(workload: str, variant: str, found: Runs) -> Row:
    system, data = workload.split("-")
    (memory, note), (theirs, their_note) = (typical(found[v], "peak_gib") for v in (variant, "naive"))
    note = f"above the imports, the building of the graph included; {note}; rival {their_note}"
    name = f"{system} {data}, {_form(workload, variant)}"
    return row(name, "peak memory", "GiB", memory, rival="naive", theirs=theirs, note=note)


def over_batches(rounds: int, sizes: tuple[int, ...] = (2048, 16384, 65536)) -> list[Row]:
    """MMGCN as trained by default at Music4All's shape: memory, and the time of a step over batch sizes."""
    variants = {str(size): cell("mmgcn", "music4all", "trained", batch=size, steps=3) for size in sizes}
    found = in_turn("benchmarks.recommenders_step", variants, rounds, as_a_worker())
    first, first_note = typical(found[str(sizes[0])], "seconds")
    rows = []
    for size in sizes:
        seconds, note = typical(found[str(size)], "seconds")
        memory, memory_note = typical(found[str(size)], "peak_gib")
        rows.append(
            row(
                f"mmgcn music4all, batch {size}",
                "step",
                "s",
                seconds,
                rival=f"batch {sizes[0]}",
                theirs=first,
                target="ratio <= 1.25" if size != sizes[0] else "",
                note=f"trained; {note}; beside {first_note}",
            )
        )
        rows.append(
            row(
                f"mmgcn music4all, batch {size}",
                "peak memory",
                "GiB",
                memory,
                target=f"ours <= {MEMORY_GIB}",
                note=f"above the imports, the building of the graph included; {memory_note}",
            )
        )
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--json", action="store_true", help="put the rows into benchmarks/results/recommenders_step.json"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--workloads",
        nargs="*",
        default=["mmgcn-tiktok", "dragon-tiktok", "mmgcn-baby", "dragon-baby", MUSIC],
    )
    parser.add_argument("--system", choices=["mmgcn", "dragon"], default="mmgcn")
    parser.add_argument("--data", choices=["tiktok", "baby", "music4all"], default="tiktok")
    parser.add_argument("--variant", choices=["", *VARIANTS], default="", help="one cell, here")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    if arguments.variant == "rates":
        print(json.dumps(benchmarks.rates.rates()))
        return
    if arguments.variant:
        if arguments.profile:
            with torch.profiler.profile() as profile:
                measure(arguments)
            print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=40))
            return
        print(json.dumps(measure(arguments)))
        return
    for workload in arguments.workloads:
        found = over_batches(arguments.rounds) if workload == MUSIC else compare(arguments.rounds, workload)
        report(found, arguments.json)


def report(rows: list[Row], keep: bool) -> None:
    """Print rows; with ``keep`` put them into the results, in place of those of the same name."""
    for r in rows:
        print(
            f"{r.workload:34} {r.metric:12} {r.ours:8.3f} {r.unit:5} {r.theirs or 0:8.3f} {r.holds} {r.note}",
            flush=True,
        )
    if not keep:
        return
    for one in rows:
        store("recommenders_step", one, "python -m benchmarks.recommenders_step --json")


if __name__ == "__main__":
    main()
