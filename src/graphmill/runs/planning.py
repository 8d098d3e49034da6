"""Fits a training to memory before it starts: chooses batching, chunks and gradient checkpointing.

The rungs are those of ``training/ladder.py``. The estimates come from the recipes' ``cost`` modules and
``training/planning.py``. docs/explanation/memory_planning.md explains the decisions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from graphmill.errors import ResourceError, SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.resolve import Job, resolve
from graphmill.systems import registry
from graphmill.training.allocator import Heap, allocator_environment, heaps
from graphmill.training.contract import Execution
from graphmill.training.ladder import shrink
from graphmill.training.memory import available_memory, device_memory, format_size, memory_limit, parse_size
from graphmill.training.planning import (
    Cost,
    Estimate,
    Machine,
    peak_memory_of,
    probe_machine,
    sharded_cost,
    step_seconds,
)

_MOST_CHUNKS = 64
"""Largest number of loss chunks that the planner chooses. Each chunk costs time, and beyond this number the rest of the
step needs more memory than the loss."""
_DOUBT = 1.25
"""Without a given budget, a run is refused if its predicted memory is more than this many times the available memory."""
_SHARE = 0.9
"""The fraction of a machine's memory that ``batching: auto`` plans with."""


@dataclass(frozen=True)
class Option:
    """One configuration of a training with its predicted memory and time."""

    batching: str
    loss_chunks: int
    checkpointing: bool
    heap: Heap
    estimate: Estimate


@dataclass(frozen=True)
class Plan:
    """The chosen option, its memory budget, and the reason. ``option`` is None if the recipe has no formulas."""

    batching: str
    option: Option | None
    budget: int
    reason: str

    def execution(self, job: Job) -> Execution:
        """The engine's sizes: the plan's, or those that the settings ask for."""
        if self.option is None:
            return _asked(job, self.batching)
        return Execution(self.option.loss_chunks, self.option.checkpointing)

    def to_json(self) -> dict[str, Any]:
        """Plain values for the manifest."""
        option = {} if self.option is None else asdict(self.option)
        return {"budget": self.budget, "reason": self.reason, **option}


def plan_run(job: Job, graph: TypedGraph, where: str, choice: Sequence[Heap] = ()) -> Plan:
    """Choose batching and rungs for a resolved job.

    With ``memory_budget``, they are fitted to the budget. Without it, ``batching: auto`` looks at the machine's total
    memory, so that the same settings always give the same training, whatever else runs. The rungs do not change the
    result, so they are fitted to the free memory. ``choice``: the possible modes of the heap; by default those of this
    process.

    Raises:
        SettingsError: ``memory_budget`` is given, and nothing fits it or the recipe has no formulas.
        ResourceError: nothing comes close to the available memory. Both messages give the figures and the setting to
            change.
    """
    acceleration = job.settings.acceleration
    wanted = acceleration.memory_budget
    explicit = parse_size(wanted, auto=0, name=f"{where}: acceleration.memory_budget")
    if not has_formulas(job.settings.recipe):
        if explicit:
            raise SettingsError(
                f"{where}: acceleration.memory_budget: there are no memory formulas for {job.settings.recipe} yet; leave it "
                "at auto and bound the memory with batch_size"
            )
        return Plan(job.batching, None, 0, f"{job.settings.recipe} has no memory formulas; nothing was planned")
    local = acceleration.processes if job.device.type == "cpu" else 1
    free = _free(job.device) // local
    if explicit:
        budget, source = explicit // local, f"memory_budget {wanted}"
        modes = batchings(job)
    else:
        batching, source = _by_machine(job, graph, local)
        budget, modes = free, [batching]
    best: Option | None = None
    for batching in modes:
        for option in options(job, graph, batching, choice or _heaps(job)):
            if option.estimate.peak <= budget:
                return Plan(batching, option, budget, f"{source}: {describe(option)} fits {format_size(budget)}")
            best = option if best is None or option.estimate.peak < best.estimate.peak else best
    assert best is not None
    parts = ", ".join(f"{name} {format_size(size)}" for name, size in best.estimate.parts.items())
    sentence = (
        f"nothing fits {format_size(budget)} ({source}): the least is {describe(best)}, of which {parts}; "
        f"{_remedy(job, best, budget)}"
    )
    if explicit:
        raise SettingsError(f"{where}: acceleration.memory_budget: {sentence}, or raise the budget")
    if best.estimate.peak > _DOUBT * budget:
        raise ResourceError(f"{sentence}, or free memory")
    return Plan(best.batching, best, budget, f"{source}: {describe(best)} is tight for {format_size(budget)}")


def has_formulas(recipe: str) -> bool:
    """Whether the recipe has memory formulas, that is, a module ``cost`` in its package."""
    return find_spec(f"{registry.RECIPES[recipe].module}.cost") is not None


def batchings(job: Job) -> list[str]:
    """The possible values of ``batching``: the one asked for, or for auto all that the recipe has, the exact one first."""
    acceleration = job.settings.acceleration
    if acceleration.batching != "auto" or job.settings.recipe != "hgt":
        return [job.batching]
    out = ["full", "edge_sampled"]
    if len(job.settings.sampling.num_neighbors) == job.settings.model.num_layers:
        out.append("neighbor_sampled")
    return out


def options(
    job: Job, graph: TypedGraph, batching: str, choice: Sequence[Heap], machine: Machine | None = None
) -> Iterator[Option]:
    """The rungs of one batching, from the sizes in the settings to those with the least memory. Rungs without effect
    are left out.

    ``choice``: heap modes to try, the fastest first. If steps differ in size, every mode is tried on each rung.
    Otherwise the other modes are tried only on the last rung, because steps of equal size fragment the heap little.
    """
    execution, training = _asked(job, batching), job.settings.training
    limit = _MOST_CHUNKS if batching == "full" else 1
    last: Option | None = None

    def smaller(cost: Cost, heaps: Sequence[Heap]) -> Iterator[Option]:
        """The options with these heaps that need less memory than the last option."""
        nonlocal last
        for heap in heaps:
            peak, parts = peak_memory_of(cost, training.optimizer, heap=heap, device=job.device.type)
            if last is None or peak < 0.99 * last.estimate.peak:
                estimate = Estimate(peak, parts, step_seconds(cost, training.optimizer, machine) if machine else 0.0)
                last = Option(batching, execution.loss_chunks, execution.checkpointing, heap, estimate)
                yield last

    while True:
        cost, before = _own_cost(job, graph, batching, execution), last
        yield from smaller(cost, choice if cost.ragged else choice[:1])
        if last is before and last is not None:
            # Smaller chunks free nothing more: go on to the next rung.
            limit = execution.loss_chunks = last.loss_chunks
        if shrink(execution, max_loss_chunks=max(limit, execution.loss_chunks)) is None:
            break
    if last is not None and not cost.ragged:
        execution.loss_chunks, execution.checkpointing = last.loss_chunks, last.checkpointing
        yield from smaller(_own_cost(job, graph, batching, execution), choice[1:])


@dataclass(frozen=True)
class RunEstimate:
    """The result of ``graphmill estimate``: all options, the one that a training would take, and the reason."""

    options: list[Option]
    chosen: Option | None
    machine: Machine
    sentence: str
    refusal: bool
    steps: int

    columns = ("batching", "loss chunks", "checkpointing", "heap", "peak memory", "s a step", "s of all steps",
               "of the peak")  # fmt: skip
    """Headings of :meth:`rows`."""

    def rows(self) -> list[list[str]]:
        """One line per option. An arrow marks the one that a training would take."""
        out = []
        for o in self.options:
            mine = self.chosen is not None and _rungs(o) == _rungs(self.chosen)
            parts = ", ".join(f"{name} {format_size(size)}" for name, size in o.estimate.parts.items())
            seconds = o.estimate.seconds
            figures = [format_size(o.estimate.peak), f"{seconds:.3g}", f"{seconds * self.steps:.3g}", parts]
            rungs = [o.batching, str(o.loss_chunks), "yes" if o.checkpointing else "no", o.heap]
            out.append(["→" if mine else "", *rungs, *figures])
        return out

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"refused" if name == "refusal" else name: value for name, value in asdict(self).items()}


def estimate_run(values: Mapping[str, Any], where: str) -> RunEstimate:
    """Estimate memory and time of a training in every batching and on every rung, without starting it.

    Raises:
        SettingsError: ``data`` is missing, a setting is wrong, or the recipe has no formulas.
    """
    from graphmill.training.device import configure_torch

    job = resolve(values, where)
    name = job.settings.recipe
    if not has_formulas(name):
        raise SettingsError(
            f"{where}: there are no formulas for {name} yet; train with training.epochs: 1 and read report.json "
            "(seconds_per_step, peak_memory_bytes)"
        )
    graph = open_graph(job, where)
    configure_torch(job.settings.acceleration, job.device, job.settings.acceleration.processes)
    machine = probe_machine(job.device, job.precision)
    # A training starts with the allocator's environment, which this process may not have.
    choice = _heaps(job, {**os.environ, **allocator_environment()})
    every = [o for batching in batchings(job) for o in options(job, graph, batching, choice, machine)]
    chosen: Option | None = None
    try:
        plan = plan_run(job, graph, where, choice)
    except (SettingsError, ResourceError) as error:
        sentence = str(error)
    else:
        sentence = plan.reason
        # Take the same option from the list, because that one has its time: planning does not measure the machine.
        chosen = next((o for o in every if plan.option and _rungs(o) == _rungs(plan.option)), plan.option)
    phases = registry.create(name, graph, job.settings, every[0].batching).phases
    steps = job.settings.training.epochs * sum(phase.steps_per_epoch for phase in phases)
    return RunEstimate(every, chosen, machine, sentence, chosen is None, steps)


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


def describe(option: Option) -> str:
    """An option in a few words."""
    parts = [option.batching]
    if option.loss_chunks > 1:
        parts.append(f"loss in {option.loss_chunks} chunks")
    if option.checkpointing:
        parts.append("checkpointing")
    if option.heap == "returned":
        parts.append("large blocks handed back")
    return f"{' + '.join(parts)} at {format_size(option.estimate.peak)}"


def _rungs(option: Option) -> tuple[str, int, bool, Heap]:
    return option.batching, option.loss_chunks, option.checkpointing, option.heap


def cost_of(job: Job, graph: TypedGraph, batching: str, execution: Execution) -> Cost:
    """The cost by the recipe's formulas."""
    module = import_module(f"{registry.RECIPES[job.settings.recipe].module}.cost")
    cost: Cost = module.step_cost(graph, job.settings, batching, execution, job.precision)
    return cost


def layer_widths(settings: Any) -> list[int]:
    """Width of the features that each layer gathers if tables are divided by rows."""
    model = settings.model
    if settings.recipe == "kgat":
        return [model.embedding_dim, *model.layer_dims[:-1]]
    width = model.hidden_dim if settings.recipe == "hgt" else model.embedding_dim
    return [width] * model.num_layers


def _own_cost(job: Job, graph: TypedGraph, batching: str, execution: Execution) -> Cost:
    """:func:`cost_of`, or this process's share of it if tables are divided by rows."""
    cost, acceleration = cost_of(job, graph, batching, execution), job.settings.acceleration
    if acceleration.sharding == "none":
        return cost
    ranks = int(os.environ.get("WORLD_SIZE", acceleration.processes))  # over all machines
    return sharded_cost(cost, ranks, graph.num_nodes, layer_widths(job.settings))


def _heaps(job: Job, environment: Mapping[str, str] = os.environ) -> list[Heap]:
    """Heap modes to plan with. On an accelerator the heap does not matter. Divided tables use the mode with the least
    memory."""
    if job.device.type != "cpu":
        return ["stock"]
    found = heaps(environment)
    return ["returned"] if "returned" in found and job.settings.acceleration.sharding == "rows" else found


def _by_machine(job: Job, graph: TypedGraph, local: int) -> tuple[str, str]:
    """For ``batching: auto`` without a budget, the first batching that fits the machine's total memory."""
    modes = batchings(job)
    if len(modes) == 1:
        return modes[0], "batching as asked for"
    total = int(_total(job.device) * _SHARE) // local
    for batching in modes:
        if any(option.estimate.peak <= total for option in options(job, graph, batching, _heaps(job))):
            return batching, f"auto took {batching}, for this machine's {format_size(total)}"
    return modes[-1], "auto took the batching with the least memory"


def _asked(job: Job, batching: str) -> Execution:
    acceleration = job.settings.acceleration
    chunks = acceleration.loss_chunks if batching == "full" else 1
    return Execution(loss_chunks=chunks, checkpointing=acceleration.gradient_checkpointing)


def _remedy(job: Job, option: Option, budget: int) -> str:
    """The setting to change: one of the recipe's, for the part that takes the most memory."""
    parts, recipe = option.estimate.parts, job.settings.recipe
    if parts.get("libraries", 0) >= budget:
        return f"torch and the other libraries take {format_size(parts['libraries'])} of that whatever the settings"
    widths = ("hidden_dim", "embedding_dim")
    width = " or ".join(f"model.{name}" for name in widths if hasattr(job.settings.model, name))
    batch = "batch_size_per_device" if job.settings.acceleration.batch_size_per_device else "batch_size"
    length = " or model.max_length" if recipe in ("sasrec", "tisasrec") else ""
    # auto has tried edge_sampled, and it was not smaller.
    other = "" if job.settings.acceleration.batching == "auto" else "choose acceleration.batching: edge_sampled, or "
    steps = {
        "full": f"{other}lower {width}",
        "edge_sampled": "lower sampling.edge_sample_size, or raise sampling.accumulation_steps",
        "neighbor_sampled": "lower sampling.node_batch_size or sampling.num_neighbors",
    }
    remedies = {
        "weights and optimizer": f"lower {width}, or leave nodes out of the graph",
        "step": steps[option.batching] if recipe == "hgt" else f"lower acceleration.{batch}{length}, or {width}",
        "evaluation": f"lower {'acceleration.inference_rows or ' if recipe == 'hgt' else ''}{width}",
        "graph and sampler": "leave nodes or edges out of the graph",
    }
    return remedies[max(remedies, key=lambda name: parts.get(name, 0))]


def _free(device: Any) -> int:
    if device.type == "cpu":
        return available_memory() + int(psutil.Process().memory_info().rss)
    return device_memory(device).free


def _total(device: Any) -> int:
    return memory_limit() if device.type == "cpu" else device_memory(device).total
