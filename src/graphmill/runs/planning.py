"""Fits a training to memory before it starts: chooses batching, chunks and gradient checkpointing.

Each system's ``memory_parts`` lists what a training holds, and ``training/planning.py`` adds it up.
docs/explanation/memory_planning.md explains the decisions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import psutil

from graphmill.errors import ResourceError, SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.memory import available_memory
from graphmill.runs.resolve import Job, resolve
from graphmill.systems import registry
from graphmill.training.allocator import Heap, allocator_environment, heaps
from graphmill.training.contract import StepSizes
from graphmill.training.ladder import describe as describe_sizes
from graphmill.training.memory import device_memory, format_size, memory_limit, parse_size
from graphmill.training.planning import Estimate, Part, Setup, estimate_of
from graphmill.training.run_state import TrainingListener

_MOST_CHUNKS = 64
"""Largest number of loss chunks that the planner chooses. Each chunk costs time, and beyond this number the rest of the
step needs more memory than the loss."""
TOLERANCE = 1.25
"""Without a given budget, a run is refused if its predicted memory is more than this many times the available memory."""
_SHARE = 0.9
"""The fraction of a machine's memory that ``batching: auto`` plans with."""


@dataclass(frozen=True)
class Option:
    """One configuration of a training with its predicted memory."""

    batching: str
    micro_batches: int
    checkpointing: bool
    heap: Heap
    estimate: Estimate

    def step_sizes(self) -> StepSizes:
        """The engine's sizes."""
        return StepSizes(self.micro_batches, self.checkpointing)

    def __str__(self) -> str:
        how = [self.batching]
        if self.micro_batches > 1 or self.checkpointing:
            how.append(describe_sizes(self.step_sizes()))
        if self.heap == "returned":
            how.append("large blocks handed back")
        return f"{', '.join(how)} at {format_size(self.estimate.peak)}"


@dataclass(frozen=True)
class Plan:
    """The chosen option, its memory budget, and the reason."""

    batching: str
    option: Option
    budget: int
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Plain values for the manifest."""
        return {"budget": self.budget, "reason": self.reason, **asdict(self.option)}


def plan_run(job: Job, graph: TypedGraph, where: str, choice: Sequence[Heap] = ()) -> Plan:
    """Choose batching and rungs for a resolved job.

    With ``memory_budget``, they are fitted to the budget. Without it, ``batching: auto`` looks at the machine's total
    memory, so that the same settings always give the same training, whatever else runs. The rungs do not change the
    result, so they are fitted to the free memory. ``choice``: the possible modes of the heap; by default those of this
    process.

    Raises:
        SettingsError: ``memory_budget`` is given, and nothing fits it.
        ResourceError: nothing comes close to the available memory. Both messages give the figures and the setting to
            change.
    """
    acceleration = job.settings.acceleration
    wanted = acceleration.memory_budget
    explicit = parse_size(wanted, auto=0, name=f"{where}: acceleration.memory_budget")
    local = acceleration.processes if job.device.type == "cpu" else 1
    modes = {mode: list(options(job, graph, mode, choice or _heaps(job))) for mode in batchings(job)}
    budget, source = (explicit or free_memory(job.device)) // local, f"memory_budget {wanted}"
    if not explicit and len(modes) == 1:
        source = "batching as asked for"
    elif not explicit:
        total = int(_total(job.device) * _SHARE) // local
        fitting = (mode for mode, rungs in modes.items() if any(o.estimate.peak <= total for o in rungs))
        chosen = next(fitting, list(modes)[-1])
        modes, source = {chosen: modes[chosen]}, f"auto took {chosen}, for this machine's {format_size(total)}"
    rungs = [option for mode in modes.values() for option in mode]
    if (first := next((o for o in rungs if o.estimate.peak <= budget), None)) is not None:
        return Plan(first.batching, first, budget, f"{source}: {first} fits {format_size(budget)}")
    least = min(rungs, key=lambda option: option.estimate.peak)
    sentence = (
        f"nothing fits {format_size(budget)} ({source}): the least is {least}, of which {_listed(least.estimate)}; "
        f"{least.estimate.remedy}"
    )
    if explicit:
        raise SettingsError(f"{where}: acceleration.memory_budget: {sentence}, or raise the budget")
    if least.estimate.peak > TOLERANCE * budget:
        raise ResourceError(f"{sentence}, or free memory")
    return Plan(least.batching, least, budget, f"{source}: {least} is tight for {format_size(budget)}")


def batchings(job: Job) -> list[str]:
    """The possible values of ``batching``: the one asked for, or for auto all that the system has, the exact one first."""
    acceleration = job.settings.acceleration
    if acceleration.batching != "auto":
        return [job.batching]
    return [choice for choice in get_args(type(acceleration).model_fields["batching"].annotation) if choice != "auto"]


def options(job: Job, graph: TypedGraph, batching: str, choice: Sequence[Heap]) -> Iterator[Option]:
    """The rungs of one batching, from the sizes in the settings to those with the least memory. Rungs without effect
    are left out.

    ``choice``: heap modes to try, the fastest first. Only the last rung is tried in the others.
    """
    parts, acceleration = parts_of(job, graph, batching), job.settings.acceleration
    step_sizes = StepSizes(acceleration.micro_batches if batching == "full" else 1, acceleration.gradient_checkpointing)
    limit = _MOST_CHUNKS if batching == "full" else 1

    def option(heap: Heap) -> Option:
        how = {"heap": heap, "device": job.device.type}
        estimate = estimate_of(parts, job.settings.training.OPTIMIZER, step_sizes, **how)
        return Option(batching, step_sizes.micro_batches, step_sizes.checkpointing, heap, estimate)

    last = option(choice[0])
    yield last
    while shrink(step_sizes, most_micro_batches=max(limit, step_sizes.micro_batches)) is not None:
        if (smaller := option(choice[0])).estimate.peak < 0.99 * last.estimate.peak:
            last = smaller
            yield last
        else:  # smaller chunks free nothing more: go on to the next rung
            limit = step_sizes.micro_batches = last.micro_batches
    step_sizes = last.step_sizes()
    for heap in choice[1:]:
        if (smaller := option(heap)).estimate.peak < 0.99 * last.estimate.peak:
            yield smaller


@dataclass(frozen=True)
class RunEstimate:
    """The result of ``graphmill estimate``: all options, the one that a training would take, and the reason.

    ``steps``: of the whole training. ``seconds_per_step``: measured, by three steps in this process that write nothing; a
    blend's one step has the trainings of its parts in it.
    Both are 0 if no option fits, and the seconds if several processes train.
    """

    options: list[Option]
    chosen: Option | None
    sentence: str
    steps: int = 0
    seconds_per_step: float = 0.0

    columns = ("batching", "loss chunks", "checkpointing", "heap", "peak memory", "of the peak")
    """Headings of :meth:`rows`."""

    def rows(self) -> list[list[str]]:
        """One line per option. An arrow marks the one that a training would take."""
        return [
            [
                "→" if o == self.chosen else "",
                *(o.batching, str(o.micro_batches), "yes" if o.checkpointing else "no", o.heap),
                format_size(o.estimate.peak),
                _listed(o.estimate),
            ]
            for o in self.options
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "refused": self.chosen is None}


def estimate_run(job: Job, graph: TypedGraph, where: str) -> RunEstimate:
    """Estimate the memory of a training in every batching and on every rung, and measure the time of its steps.

    Raises:
        SettingsError: ``data`` is missing, or a setting is wrong.
    """
    from graphmill.training.device import configure_torch
    from graphmill.training.engine import Engine

    # A training starts with the allocator's environment, which this process may not have.
    choice = _heaps(job, {**os.environ, **allocator_environment()})
    every = [o for batching in batchings(job) for o in options(job, graph, batching, choice)]
    try:
        plan = plan_run(job, graph, where, choice)
    except (SettingsError, ResourceError) as error:
        return RunEstimate(every, None, str(error))
    settings = job.settings
    configure_torch(job.device, settings.acceleration.processes)
    system = registry.create(settings.system, graph, settings, plan.batching)
    steps = settings.training.epochs * sum(phase.steps_per_epoch for phase in system.phases)
    seconds = 0.0
    if settings.acceleration.processes == 1:
        engine = Engine(
            system,
            settings.training,
            settings.acceleration,
            settings.evaluation,
            device=job.device,
            precision=job.precision,
            step_sizes=plan.option.step_sizes(),
            listener=TrainingListener(),
        )
        seconds = engine.seconds_per_step()
        for values in system.part_runs().values():
            part = estimate_run(resolve(values, where), graph, where)
            seconds += part.steps * part.seconds_per_step
    return RunEstimate(every, plan.option, plan.reason, steps, seconds)


def open_graph(job: Job, where: str) -> TypedGraph:
    """Open the graph that a job names.

    Raises:
        SettingsError: it names none.
    """
    if not job.settings.data:
        raise SettingsError(
            f"{where}: 'data' is missing: the directory of a typed graph, such as data/06_models/biomed/graph"
        )
    return TypedGraph.open(Path(job.settings.data), job.settings.acceleration.verify_graph)


def parts_of(job: Job, graph: TypedGraph, batching: str) -> list[Part]:
    """The parts of one process's memory; its share of them if tables are divided by rows."""
    module = registry.system_module(job.settings.system)
    parts: list[Part] = module.memory_parts(graph, job.settings, Setup(batching, job.precision, job.device))
    acceleration = job.settings.acceleration
    if acceleration.sharding == "none":
        return parts
    ranks = int(os.environ.get("WORLD_SIZE", acceleration.processes))  # over all machines
    return sharded(parts, ranks, graph.num_nodes, job.settings.layer_widths)


def free_memory(device: Any) -> int:
    """Bytes that a training may take on the device: what is free, and on the CPU what this process holds."""
    if device.type == "cpu":
        return available_memory() + int(psutil.Process().memory_info().rss)
    return device_memory(device).free


def _heaps(job: Job, environment: Mapping[str, str] = os.environ) -> list[Heap]:
    """Heap modes to plan with. On an accelerator the heap does not matter. Divided tables use the mode with the least
    memory."""
    if job.device.type != "cpu":
        return ["stock"]
    possible = heaps(environment)
    divided = job.settings.acceleration.sharding == "rows"
    return ["returned"] if "returned" in possible and divided else possible


def _listed(estimate: Estimate) -> str:
    return ", ".join(f"{name} {format_size(size)}" for name, size in estimate.parts.items() if size >= 1 << 20)


def _total(device: Any) -> int:
    return memory_limit() if device.type == "cpu" else device_memory(device).total


def shrink(step_sizes: StepSizes, *, most_micro_batches: int) -> str | None:
    """Take the planner's next rung, in place. Returns its description, or None if no rung is left.

    Order: halve the loss chunk, turn on checkpointing. Propagation has no rung: its kernels process edges in chunks
    that fit the cache, so smaller chunks would free nothing.
    """
    if step_sizes.micro_batches < most_micro_batches:
        step_sizes.micro_batches = min(step_sizes.micro_batches * 2, most_micro_batches)
    elif step_sizes.can_checkpoint and not step_sizes.checkpointing:
        step_sizes.checkpointing = True
    else:
        return None
    return describe_sizes(step_sizes)


def sharded(parts: Sequence[Part], ranks: int, nodes: int, widths: Sequence[int]) -> list[Part]:
    """One rank's parts in full-graph training that is sharded by rows.

    It has its share of all parts. It also gathers the features of all nodes and their gradient for the widest layer."""
    gathered = nodes * max(widths, default=0)
    remedy = "lower the width of the layers"
    return [
        *(
            replace(p, count=p.count / ranks, recomputed=None if p.recomputed is None else p.recomputed / ranks)
            for p in parts
        ),
        Part("features of all nodes and their gradient", "kept", 2 * gathered, remedy=remedy),
        Part("features of all nodes", "evaluation", gathered, remedy=remedy),
    ]
