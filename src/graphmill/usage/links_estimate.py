"""How long a table of links takes and how much memory, before it is made."""

from __future__ import annotations

import time
import timeit
from functools import partial
from pathlib import Path
from typing import Any

import torch

from graphmill.errors import ResourceError
from graphmill.memory import format_size
from graphmill.predictions.selection import Nodes, selected_links
from graphmill.predictions.settings import LinkSettings
from graphmill.runs.export import job_of
from graphmill.runs.planning import free_memory, parts_of
from graphmill.sampling.keyed import sampled
from graphmill.training.contract import StepSizes
from graphmill.training.planning import LIBRARIES_BYTES
from graphmill.training.run_directory import RunDirectory
from graphmill.usage.links import LinkModel

clock = time.perf_counter
"""The clock of the estimate, in seconds."""
SAMPLE = 16
"""Heads of each relation that are scored, three times, to measure the time."""


def scoring_bytes(run: str | Path) -> int:
    """The memory of a process that scores links with a run, by the system's table of parts, or with an export, which is
    read whole.

    Raises:
        ResourceError: that is more than is free.
    """
    path, device = Path(run), torch.device("cpu")
    if (path / "checkpoints").is_dir():
        directory = RunDirectory(path)
        job, graph = job_of(directory, directory.read_json("manifest.json"))
        parts, device = parts_of(job, graph, job.batching), job.device
        in_use = sum(part.bytes(StepSizes()) for part in parts if part.when in ("weights", "always", "evaluation"))
    else:
        in_use = sum(file.stat().st_size for file in path.glob("*") if file.is_file())
    needed, free = LIBRARIES_BYTES + int(in_use), free_memory(device)
    if needed > free:
        raise ResourceError(
            f"{path}: scoring its links takes {format_size(needed)} of memory, and {format_size(free)} are free; free "
            "memory, or take a machine with more"
        )
    return needed


def estimate_links(model: LinkModel, settings: LinkSettings, peak_bytes: int, root: Path = Path()) -> dict[str, Any]:
    """Score a sample of the heads of each relation, and extrapolate the time to all of them. The search for paths and
    edges, of a fixed number of links, is not in it.

    Returns ``relations`` (each with its ``heads`` to predict tails for, ``others`` scored for median ranks and
    probabilities, at most, and ``seconds``), the ``seconds`` of all, and ``peak_bytes``, the memory of the whole process.
    """
    relations = []
    for selected in selected_links(Nodes(model.graph), settings.selection(root), root):
        heads = sampled(selected.heads, SAMPLE, "links-estimate", settings.seed, selected.relation.index)
        # The shortest of three: the first one compiles, and others may wait for other programs.
        score = partial(model.scorer.score_targets, selected.relation.index, heads)
        seconds = min(timeit.repeat(score, timer=clock, number=1, repeat=3)) / len(heads)
        others = settings.median_heads + settings.probability_heads
        every = len(selected.heads) + min(others, 2 * model.graph.node_type(selected.relation.source).count)
        name, counts = " | ".join(selected.relation.key), {"heads": len(selected.heads), "others": others}
        relations.append({"relation": name, **counts, "seconds": seconds * every})
    return {"relations": relations, "peak_bytes": peak_bytes, "seconds": sum(each["seconds"] for each in relations)}
