"""Estimates beyond one process: whether a training fits if it is sharded by rows, with how many workers and which
launcher; and the memory and disk space of reading files and building a graph.

Sharding follows ADR 2: a rank holds its rows of the tables, their moments and the edges into them, and gathers each
layer's features. This module divides the recipes' formulas for one process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from graphmill.errors import InputError
from graphmill.graph.large import disk_of_build, memory_of_build
from graphmill.graph.settings import GraphSettings
from graphmill.graph.storage import MANIFEST
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.engine import Need, fits_in_memory, need_of
from graphmill.ingest.formats import FORMATS
from graphmill.ingest.report import recognised
from graphmill.memory import available_memory, format_size
from graphmill.runs.planning import Option, RunEstimate, cost_of, estimate_run, layer_widths
from graphmill.runs.resolve import Job, resolve
from graphmill.settings import parse
from graphmill.training.allocator import Heap, heaps
from graphmill.training.contract import Execution
from graphmill.training.planning import peak_memory_of, sharded_bytes, sharded_cost

WORKERS = (2, 4, 8, 16, 32, 64)
BOUNDED = 2_000_000_000
"""Bound in bytes of the memory that reading and building out of core take, for graphs with a few million nodes."""


@dataclass(frozen=True)
class Shard:
    """A sharded training over ``workers`` ranks: peak bytes of each, and bytes that each sends in a step."""

    workers: int
    peak: int
    sent: int


def shards_of(job: Job, graph: TypedGraph, option: Option) -> list[Shard]:
    """The cost for each number of workers, on the rung of ``option``; [] if the system cannot be sharded."""
    if not job.settings.shards_rows:
        return []
    cost = cost_of(job, graph, "full", Execution(option.micro_batches, option.checkpointing))
    widths, optimizer = layer_widths(job.settings), job.settings.training.OPTIMIZER
    found: list[Shard] = []
    heap: Heap = "returned" if "returned" in heaps() else option.heap  # the mode of each worker
    for workers in WORKERS:
        own = sharded_cost(cost, workers, graph.num_nodes, widths)
        peak, _ = peak_memory_of(own, optimizer, heap=heap, device=job.device.type)
        found.append(Shard(workers, peak, sharded_bytes(workers, graph.num_nodes, widths)))
    return found


@dataclass(frozen=True)
class Scaling:
    """The result of ``graphmill estimate`` beyond one process: the shards, and advice in one sentence."""

    run: RunEstimate
    shards: list[Shard]
    advice: str

    @property
    def rows(self) -> list[list[str]]:
        """One line per number of workers."""
        return [[str(s.workers), format_size(s.peak), format_size(s.sent)] for s in self.shards]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**self.run.to_json(), "sharded": [asdict(shard) for shard in self.shards], "advice": self.advice}


def estimate_training(values: Mapping[str, Any], where: str) -> Scaling:
    """:func:`graphmill.runs.planning.estimate_run`, and the estimate for several processes."""
    run = estimate_run(values, where)
    job = resolve(values, where)
    full = [option for option in run.options if option.batching == "full"]
    shards: list[Shard] = []
    if full:
        least = min(full, key=lambda option: option.estimate.peak)
        shards = shards_of(job, TypedGraph.open(Path(job.settings.data)), least)
    return Scaling(run, shards, _advice(job, run, shards, _room(job)))


def _room(job: Job) -> int:
    from graphmill.runs.planning import _free

    return int(_free(job.device))


def _advice(job: Job, run: RunEstimate, shards: Sequence[Shard], room: int) -> str:
    if run.chosen is not None:
        count = job.settings.acceleration.processes
        return f"It fits here: launcher: {'torchrun' if count > 1 else 'local'}, {count} process{'es' * (count > 1)}."
    fitting = next((shard for shard in shards if shard.peak <= room), None)
    sampled = [option for option in run.options if option.batching != "full" and option.estimate.peak <= room]
    if sampled:
        least = min(sampled, key=lambda option: option.estimate.peak)
        return f"It fits in one process with acceleration.batching: {least.batching}; launcher: local."
    if fitting is not None:
        where = (
            "which this machine has: launcher: torchrun"
            if fitting.workers * fitting.peak <= room
            else f"on {fitting.workers} machines or cards like this one: launcher: ray, or torchrun on each machine "
            "(docs/how-to/processes.md); launcher: k8s puts all workers on one node"
        )
        return (
            f"It does not fit in one process; sharded by rows (acceleration.sharding: rows, processes: {fitting.workers}) "
            f"each worker takes {format_size(fitting.peak)} and sends {format_size(fitting.sent)} a step, {where}."
        )
    if shards:
        return (
            f"It fits neither in one process nor sharded over {WORKERS[-1]} workers, each of which gathers the features of "
            "all nodes; choose sampled batching, a smaller width, or a larger machine: launcher: ray, k8s or slurm."
        )
    return "It fits in one process of a machine with more memory: launcher: ray, k8s or slurm."


# -- files -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DataEstimate:
    """The memory and disk space of reading a file (or folder) and building its graph. ``room``: free memory in bytes."""

    path: str
    format: str
    need: Need
    build: int
    build_disk: int
    room: int
    engine: str
    large_build: bool

    def rows(self) -> list[list[str]]:
        """One line for reading and one for building: memory needed in memory, whether that fits, and the method."""
        out = []
        for part, memory, large, disk in (
            ("reading", self.need.memory, self.engine == "duckdb", self.need.disk),
            ("building the graph", self.build, self.large_build, self.build_disk),
        ):
            how = (
                f"out of core: under {format_size(BOUNDED)}, {format_size(disk)} of temporary files"
                if large
                else "in memory"
            )
            out.append([part, format_size(memory), "yes" if memory <= self.room else "no", how])
        return out

    @property
    def sentence(self) -> str:
        """A summary, and the next step."""
        return (
            f"{self.path} is read as {self.format}: about {self.need.rows:,} rows, {format_size(self.need.text)} of text; "
            f"{format_size(self.room)} of memory is free. Once the graph is built, `graphmill estimate SYSTEM --set "
            "data=GRAPH` says whether a training fits."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        about = {"path": self.path, "format": self.format, "rows": self.need.rows, "text_bytes": self.need.text}
        reading = {"memory": self.need.memory, "engine": self.engine, "disk": self.need.disk}
        return {
            **about,
            "free": self.room,
            "reading": reading,
            "build": {"memory": self.build, "large": self.large_build, "disk": self.build_disk},
        }


def estimate_data(path: str) -> DataEstimate:
    """Estimate from the size and the first megabyte of the files at ``path``. Nothing else is read.

    Raises:
        InputError: their format is not known.
    """
    if (Path(path) / MANIFEST).is_file():
        raise InputError(f"{path} is a graph that is built; ask `graphmill estimate SYSTEM --set data={path}`")
    formats = recognised(path)
    if not formats:
        raise InputError(f"{path} has no known format; `graphmill ingest-report {path}` shows what was tried")
    format = FORMATS[formats[0]]
    files = [path]
    if format.files is not None:
        found = format.files(path, parse(format.settings, {}, path))
        files = [str(file) for role, file in found.items() if format.is_data(role)]
    need, room = need_of(files), available_memory()
    settings = GraphSettings.model_validate(dict(format.graph))
    out_of_core = format.out_of_core
    build = memory_of_build(need.rows, settings)
    large = out_of_core and not fits_in_memory(build, room)
    engine = "duckdb" if out_of_core and not fits_in_memory(need.memory, room) else "memory"
    disk = disk_of_build(need.rows, settings)
    return DataEstimate(path, format.name, need, build, disk, room, engine, large)
