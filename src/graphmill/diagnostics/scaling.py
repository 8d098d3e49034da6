"""Estimates beyond one process: whether a training fits if it is sharded by rows, with how many workers and which
launcher; and the memory and disk space of reading files and building a graph.

Sharding follows ADR 2: a rank holds its rows of the tables, their moments and the edges into them, and gathers each
layer's features.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from graphmill.errors import InputError
from graphmill.graph.build import disk_of_build
from graphmill.graph.settings import GraphSettings
from graphmill.graph.storage import MANIFEST
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.formats import FORMATS
from graphmill.ingest.report import recognised
from graphmill.ingest.sizes import Size, size_of
from graphmill.memory import available_memory, format_size
from graphmill.runs.planning import RunEstimate, estimate_run, free_memory, layer_widths, open_graph, parts_of
from graphmill.runs.resolve import Job, resolve
from graphmill.settings import parse
from graphmill.training.allocator import Heap, heaps
from graphmill.training.planning import estimate_of, sharded, sharded_bytes

WORKERS = (2, 4, 8, 16, 32, 64)
BOUNDED = 2_000_000_000
"""Bound in bytes of the memory that reading and building take, for graphs with a few million nodes: edges are in files."""
_A_ROW, _OF_TEXT = 80, 0.5
"""Bytes of memory per row, and per byte of text, of readers that hold all rows."""
_A_STORED_ROW = 32
"""Bytes of temporary files per row of an edge table that is read."""
_AN_EDGE = 120
"""Bytes of memory per edge of a graph whose split is drawn in memory."""


@dataclass(frozen=True)
class Shard:
    """A sharded training over ``workers`` ranks: peak bytes of each, and bytes that each sends in a step."""

    workers: int
    peak: int
    sent: int


def shards_of(job: Job, graph: TypedGraph, run: RunEstimate) -> list[Shard]:
    """The cost for each number of workers, with the least sizes of a step; [] if the system cannot be sharded."""
    full = [option for option in run.options if option.batching == "full"]
    if not (full and job.settings.shards_rows) or job.settings.acceleration.sharding != "none":
        return []
    least = min(full, key=lambda option: option.estimate.peak)
    parts, widths = parts_of(job, graph, "full"), layer_widths(job.settings)
    heap: Heap = "returned" if "returned" in heaps() else least.heap  # the mode of each worker
    out: list[Shard] = []
    for workers in WORKERS:
        own = sharded(parts, workers, graph.num_nodes, widths)
        optimizer, device = job.settings.training.OPTIMIZER, job.device.type
        peak = estimate_of(own, optimizer, least.step_sizes(), heap=heap, device=device).peak
        out.append(Shard(workers, peak, sharded_bytes(workers, graph.num_nodes, widths)))
    return out


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
    job = resolve(values, where)
    graph = open_graph(job, where)
    run = estimate_run(job, graph, where)
    shards = shards_of(job, graph, run)
    return Scaling(run, shards, _advice(job, run, shards, free_memory(job.device)))


def _advice(job: Job, run: RunEstimate, shards: list[Shard], room: int) -> str:
    if run.chosen is not None:
        count = job.settings.acceleration.processes
        return f"It fits here: launcher: local, {count} process{'es' * (count > 1)}."
    sampled = [option for option in run.options if option.batching != "full" and option.estimate.peak <= room]
    if sampled:
        least = min(sampled, key=lambda option: option.estimate.peak)
        return f"It fits in one process with acceleration.batching: {least.batching}; launcher: local."
    fitting = next((shard for shard in shards if shard.peak <= room), None)
    if fitting is not None:
        where = (
            "which this machine has: launcher: local"
            if fitting.workers * fitting.peak <= room
            else f"on {fitting.workers} machines or cards like this one: torchrun on each machine "
            "(graphmill train --nodes); launcher: k8s, ray or slurm puts all workers on one node"
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
    """The memory and the temporary files, in bytes, of reading a file (or folder) and of building its graph. ``room``:
    free memory in bytes."""

    path: str
    format: str
    size: Size
    reading: int
    reading_disk: int
    build: int
    build_disk: int
    room: int

    def rows(self) -> list[list[str]]:
        """One line for reading and one for building: memory needed, whether that fits, and temporary files."""
        parts = (("reading", self.reading, self.reading_disk), ("building the graph", self.build, self.build_disk))
        return [
            [
                part,
                format_size(memory),
                "yes" if memory <= self.room else "no",
                f"{format_size(disk)} of temporary files",
            ]
            for part, memory, disk in parts
        ]

    @property
    def sentence(self) -> str:
        """A summary, and the next step."""
        return (
            f"{self.path} is read as {self.format}: about {self.size.rows:,} rows, {format_size(self.size.text)} of text; "
            f"{format_size(self.room)} of memory is free. Once the graph is built, `graphmill estimate SYSTEM --set "
            "data=GRAPH` says whether a training fits."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        about = {"path": self.path, "format": self.format, "rows": self.size.rows, "text_bytes": self.size.text}
        return {
            **about,
            "free": self.room,
            "reading": {"memory": self.reading, "disk": self.reading_disk},
            "build": {"memory": self.build, "disk": self.build_disk},
        }


def estimate_data(path: str) -> DataEstimate:
    """Estimate from the size and the first megabyte of the files at ``path``. Nothing else is read.

    Raises:
        InputError: their format is not known.
    """
    if (Path(path) / MANIFEST).is_file():
        raise InputError(
            f"{path} is a graph that is built; ask `graphmill estimate SYSTEM --set {shlex.quote(f'data={path}')}`"
        )
    formats = recognised(path)
    if not formats:
        raise InputError(f"{path} has no known format; `graphmill ingest-report {path}` shows what was tried")
    format = FORMATS[formats[0]]
    files = [path]
    if format.files is not None:
        result = format.files(path, parse(format.settings, {}, path))
        files = [str(file) for role, file in result.items() if format.is_data(role)]
    size, settings = size_of(files), GraphSettings.model_validate(dict(format.graph))
    reading, build = (
        int(_A_ROW * size.rows + _OF_TEXT * size.text),
        _AN_EDGE * size.rows * (1 if settings.add_reverse == "never" else 2),
    )
    if format.gives == "edges":
        reading, build = min(reading, BOUNDED), min(build, BOUNDED)
    disk = _A_STORED_ROW * size.rows, disk_of_build(size.rows, settings)
    return DataEstimate(path, format.name, size, reading, disk[0], build, disk[1], available_memory())
