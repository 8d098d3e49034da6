"""Chooses the system for a graph: trains all that suit its data, cheapest first, within a budget.

Each is trained by its defaults, then by the other settings that its module lists as ``TRIES``, of which no value suits all
data.

All are measured on the same validation queries: links by the mean MRR of the relations, interactions by Recall@20, and
interactions in order, with one held out for each user, by NDCG@10 of the next item. The cheapest one that is level with
the best within chance, and has 99 % of its figure, is chosen; of equally cheap ones the best. The test split is read for
it alone. The trainings are ordinary runs, which are reused: the same call goes on after a kill, and with a larger budget.
A choice that is made stays until the data, the settings or the budget change.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from graphmill.atomic_files import write_atomically
from graphmill.errors import GraphmillError, InputError, ResourceError, SettingsError, StoppedError, TrainingError
from graphmill.evaluation.json_values import plain
from graphmill.evaluation.ranking.paired_difference import paired_bootstrap
from graphmill.evaluation.ranking.per_query import QueryValues
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import Restored, ScoresLinks, export_run, restore
from graphmill.runs.messages import Message, duration
from graphmill.runs.planning import estimate_run, plan_run
from graphmill.runs.resolve import merge, resolve
from graphmill.runs.train import prepare, train
from graphmill.systems import registry
from graphmill.systems.auto import AUTO, FILE, seconds_of
from graphmill.systems.closed_form import ClosedFormSystem
from graphmill.training.allocator import trim
from graphmill.training.run_directory import RunDirectory, prune_runs
from graphmill.training.signals import StopRequest
from graphmill.usage.choice import Candidate, Choice, chosen_of
from graphmill.usage.shared_queries import SharedQueries, all_of_them, shared_queries
from graphmill.version import __version__

HOPELESS = 0.5
"""A training ends early if its best figure, after a third of its epochs, is below this share of the best other one."""
ENDING = 0.02
"""Share of the budget that is kept for the end of a training: its last step and its checkpoint."""
RESERVE = 1.25
"""How much of the time that the test of the chosen one is expected to take is kept for it."""

Tell = Callable[[str], None]


def choose(
    graph: str | Path,
    budget: str = "10min",
    *,
    systems: Sequence[str] = (),
    root: str = "",
    overrides: Mapping[str, Any] | None = None,
    tell: Tell = lambda line: None,
    stop: StopRequest | None = None,
) -> Choice:
    """Train the systems that suit a graph, and choose one; writes ``which_model.json`` into the folder of the runs.

    For the same data and arguments that choice is returned, unless a system failed in it, which is then tried again.

    Args:
        graph: folder of the typed graph.
        budget: time for the trainings of this call, such as "90s", "10min" or "2h"; finished ones cost nothing.
        systems: only these; default: all that suit the data.
        root: folder of the runs; default: ``auto`` beside the graph.
        overrides: settings of all systems, such as ``{"acceleration": {"device": "cpu"}}``.
        tell: gets a line for each system.
        stop: a request to end, checked between and during trainings.

    Raises:
        InputError: there is no such graph, or it has no validation split.
        SettingsError: not a budget, an unknown system, one that cannot answer what the data ask, or an override that every
            system refuses.
        TrainingError: no system has finished; the message has the reasons.
        StoppedError: ``stop`` was requested; the same call goes on.
    """
    limit = _Limit(stop or StopRequest(), time.monotonic() + (1 - ENDING) * seconds_of(budget))
    systems = [registry.called(name) for name in systems]
    opened = TypedGraph.open(graph)
    shared, folder = shared_queries(opened), Path(root) if root else opened.path.parent / AUTO
    test: SharedQueries | None = None
    with suppress(InputError):  # nothing is held out for it
        test = shared_queries(opened, "test")
        # What recommends is measured on the shared queries and by its own evaluation.
        limit.test_share = (RESERVE + test.recommends) * test.total / shared.total
    given = merge(overrides or {}, {"data": str(graph)})
    made_of = plain(
        {"data": opened.content_hash, "budget": budget, "systems": list(systems), "version": __version__}
        | dict(overrides or {})
    )
    kept = Choice.read(folder / FILE)
    reusable = kept is not None and kept.made_of == made_of and all(each.state != "failed" for each in kept.candidates)
    if kept is not None and reusable and (Path(kept.run) / "report.json").is_file():
        tell(f"{kept.system}: the data have not changed since it was chosen")
        return kept
    candidates: list[Candidate] = []
    measured: dict[str, QueryValues] = {}
    for planned in _candidates(opened, shared, systems, given, limit, tell, candidates):
        limit.poll()
        limit.patient = not measured and registry.entry(str(planned.settings.system)).closed_form
        best = max((each.figure or 0.0 for each in candidates), default=0.0)
        candidate, values = _tried(planned, shared, best, folder, limit)
        trim()
        in_time = f"{shared.metric} {candidate.figure:.4f} in {duration(candidate.seconds)}" if values else ""
        tell(f"{candidate.name}: {candidate.reason or in_time}")
        candidates.append(candidate)
        if values is not None:
            limit.enforced, measured[candidate.run] = True, values
    if not measured:
        tried = [each for each in candidates if each.state != "does not suit"] or candidates
        more = f"; and {len(tried) - 2} more, each with its reason above" if len(tried) > 2 else ""
        reasons = "; ".join(f"{each.system}: {each.reason}" for each in tried[:2])
        raise TrainingError(f"no system has finished: {reasons}{more}")
    choice = replace(chosen_of(candidates, measured), folder=str(folder), made_of=made_of)
    choice = replace(choice, test=_test(choice, test, limit))
    # Runs of earlier data go; those that a larger budget would go on with are among the newest.
    prune_runs(folder, 2 * len(candidates), {Path(each.run).name for each in candidates if each.run})
    write_atomically(folder / FILE, (json.dumps(choice.to_json(), indent=1, ensure_ascii=False) + "\n").encode())
    return choice


class _Limit:
    """Stands for a :class:`StopRequest`: the user's, or the end of the budget, or of a training far below the others.

    ``patient``: the budget does not count, for the first closed form, so that there always is a choice. ``test``: seconds
    that are kept for the test of the chosen one; ``test_share``: those over the seconds of a measurement on validation.
    ``enforced``: such a measurement ends with the budget too, since another one is finished.
    """

    def __init__(self, user: StopRequest, until: float) -> None:
        self.user, self.until, self.hopeless, self.patient = user, until, "", False
        self.test, self.test_share, self.enforced = 0.0, 0.0, False

    @property
    def left(self) -> float:
        """Seconds left of the budget."""
        return math.inf if self.patient else max(self.until - self.test - time.monotonic(), 0.0)

    @property
    def requested(self) -> bool:
        """Whether to stop now."""
        return self.user.requested or bool(self.hopeless) or not self.left

    @property
    def reason(self) -> str:
        """Why."""
        return self.user.reason or self.hopeless or "the budget is used up"

    def poll(self) -> None:
        """Raise :class:`StoppedError` if the user requests a stop."""
        if self.user.requested:
            raise StoppedError(f"stopped ({self.user.reason}); the same command goes on")

    def measured_by(self, measure: Callable[[Callable[[], None]], QueryValues]) -> QueryValues:
        """What ``measure``, which gets a function to poll, returns; then the time of its test is kept too.

        Raises:
            StoppedError: the user requests a stop, or the measurement and its test take longer than is left.
        """
        began, before = time.monotonic(), self.test

        def poll() -> None:
            self.poll()
            self.test = max(before, self.test_share * (time.monotonic() - began))
            if self.enforced and not self.left:
                raise StoppedError(self.reason)

        try:
            values = measure(poll)
            poll()
        except StoppedError:
            self.test = before
            raise
        return values


class _Watch:
    """An outlet that ends a training whose figures are far below the ``best`` other one."""

    def __init__(self, limit: _Limit, metric: str, epochs: int, best: float) -> None:
        self.limit, self.metric, self.epochs, self.best, self.highest = limit, metric, epochs, best, 0.0

    def send(self, message: Message) -> None:
        """Look at the validation metrics of an epoch."""
        figure = (message.get("valid") or {}).get(self.metric)
        if figure is None or message["epochs"] != self.epochs:  # those of a part say little about the whole
            return
        self.highest, epoch = max(self.highest, float(figure)), int(message["epoch"])
        if self.epochs > epoch >= self.epochs / 3 and self.highest < HOPELESS * self.best:
            self.limit.hopeless = f"{self.metric} {self.highest:.4f} at epoch {epoch}; the best has {self.best:.4f}"

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class Planned:
    """A system that suits the graph and fits into memory: its settings as ``values`` and parsed, the estimated seconds of
    its training (0 for a closed form that takes seconds, whose memory orders it), the planned bytes, and what differs from
    its defaults."""

    values: Mapping[str, Any]
    settings: Any
    seconds: float
    memory: int
    differs: str = ""


def _candidates(
    graph: TypedGraph,
    shared: SharedQueries,
    systems: Sequence[str],
    given: Mapping[str, Any],
    limit: _Limit,
    tell: Tell,
    others: list[Candidate],
) -> Iterator[Planned]:
    """The systems that can be tried, cheapest first; the others go with their reasons into ``others``.

    Closed forms come first: to estimate the rest takes a part of the budget, so that something is there when it ends.
    """
    refused: list[SettingsError] = []
    names = [name for name, entry in registry.SYSTEMS.items() if entry.recommends == shared.recommends]
    for name in systems:
        if registry.entry(name).recommends != shared.recommends:
            raise SettingsError(f"systems: {name} has no answer for these data; choose among {', '.join(names)}")
    names = list(systems) or names
    for closed_form in (True, False):
        fitting: list[Planned] = []
        for name in (each for each in names if registry.entry(each).closed_form is closed_form):
            limit.poll()
            if not (closed_form or limit.left):
                others.append(Candidate(name, "no time", "the budget was used up before its time could be estimated"))
                continue
            try:
                fitting += _planned(name, graph, shared, given, limit)
            except GraphmillError as error:
                state = "too large" if isinstance(error, ResourceError) else "does not suit"
                tell(f"{name} {state}: {error}")
                others.append(Candidate(name, state, str(error)))
                refused += [error] if isinstance(error, SettingsError) else []
        if len(refused) == len(names):
            raise refused[0]
        yield from sorted(fitting, key=lambda each: (each.seconds, each.memory))


def _planned(
    name: str, graph: TypedGraph, shared: SharedQueries, given: Mapping[str, Any], limit: _Limit
) -> Iterator[Planned]:
    """The system by its defaults, then by the other settings that are tried.

    Raises:
        GraphmillError: it does not suit the graph, or does not fit into memory.
    """
    values = {**given, "system": name}
    kind: Any = registry.settings_model(name).model_fields["evaluation"].annotation
    if shared.cut and "recall" in kind.AT_K:
        values = merge(values, {"evaluation": {"selection_metric": f"recall@{shared.cut}", "top_k": [shared.cut]}})
    job, seconds = resolve(values, AUTO), 0.0
    if registry.entry(name).closed_form:
        try:
            plan = plan_run(job, graph, AUTO)
        except SettingsError as error:  # memory_budget
            raise ResourceError(str(error)) from None
        system = cast(ClosedFormSystem, registry.create(name, graph, job.settings, plan.batching))
        option, seconds = plan.option, system.sampled_seconds() if limit.left else 0.0
    else:
        run = estimate_run(job, graph, AUTO)
        if run.chosen is None:
            raise ResourceError(run.sentence)
        option, seconds = run.chosen, run.steps * run.seconds_per_step
    yield Planned(values, job.settings, seconds, option.estimate.peak)
    for tried in registry.tries(name):
        other = merge(values, tried)
        settings = resolve(other, AUTO).settings
        if registry.entry(name).closed_form:
            try:
                registry.create(name, graph, settings, option.batching)
            except SettingsError:  # the data lack what it reads, such as times
                continue
        differs = ", ".join(f"{part}.{key}={value}" for part in tried for key, value in tried[part].items())
        yield Planned(other, settings, seconds, option.estimate.peak, differs)


def _tried(
    planned: Planned, shared: SharedQueries, best: float, folder: Path, limit: _Limit
) -> tuple[Candidate, QueryValues | None]:
    """Train one system, or reuse its run, and measure it. ``best``: the best figure so far."""
    settings, seconds = planned.settings, planned.seconds
    candidate = partial(Candidate, str(settings.system), settings=planned.differs)
    least = seconds * min(1.0, (settings.training.patience_epochs or math.inf) / max(settings.training.epochs, 1))
    run = prepare(planned.values, AUTO, root=str(folder)).run if least >= limit.left else None
    if run and not (run.path / "report.json").is_file():  # a finished one is reused
        reason = f"takes {duration(least)} or more, and {duration(limit.left)} of the budget are left"
        return candidate("no time", reason if limit.left else "the budget was used up before it began"), None
    # Another metric that chooses its epochs cannot be compared while it trains.
    best = best if settings.evaluation.selection_metric == shared.metric else 0.0
    watch, limit.hopeless = _Watch(limit, shared.metric, settings.training.epochs, best), ""
    try:
        result = train(
            planned.values, AUTO, root=str(folder), outlets=[watch], stop=cast(StopRequest, limit), splits=[]
        )
        restored = restore(result["run_dir"])
        values = limit.measured_by(lambda poll: shared.values(restored.system, restored.model, all_of_them, poll))
    except StoppedError:
        limit.poll()
        reason = f"takes about {duration(seconds)}, and the budget is used up; a larger one goes on"
        return candidate("ended early" if limit.hopeless else "no time", limit.hopeless or reason), None
    except GraphmillError as error:
        return candidate("failed", str(error)), None
    alone = paired_bootstrap(values.values, np.zeros_like(values.values), groups=values.groups, units=values.units)
    report = restored.run.read_json("report.json")
    report["metrics"] |= {f"valid_{shared.metric}": values.mean}
    restored.run.write_json("report.json", report)
    figures = values.mean, alone.low, alone.high, None, float(report["seconds"]), planned.memory
    abilities, path = _abilities(restored), str(restored.run.path)
    return candidate("finished", "", *figures, _size(restored), abilities, path), values


def _test(choice: Choice, test: SharedQueries | None, limit: _Limit) -> dict[str, float]:
    """The test metrics of the chosen run, which is exported, and the figure of the choice; a later call reads them from its
    report."""
    report = RunDirectory(Path(choice.run)).read_json("report.json")
    if not any(name.startswith("test_") for name in report["metrics"]):
        restored = restore(choice.run)
        export_run(restored)
        measured = restored.system.evaluate(restored.model, "test", final=True, poll=limit.poll)
        # A system of items measures the next item by what it was trained on; the choice by the whole history.
        if test and measured and (restored.entry.recommends or choice.metric not in measured):
            measured[choice.metric] = test.values(restored.system, restored.model, all_of_them, limit.poll).mean
        report["metrics"] |= {f"test_{name}": value for name, value in measured.items()}
        restored.run.write_json("report.json", report)
    return {name[5:]: value for name, value in report["metrics"].items() if name.startswith("test_")}


def _size(restored: Restored) -> int:
    """Bytes of what an export holds: vectors and the arrays that score with them, or weights."""
    system = restored.system
    if not restored.entry.vectors:
        return sum(tensor.numel() * tensor.element_size() for tensor in restored.model.state_dict().values())
    arrays = cast(ScoresLinks, system).scoring(restored.model).values() if restored.entry.scores_exported else ()
    return int(4 * system.embedding_width * restored.graph.num_nodes + sum(array.nbytes for array in arrays))


def _abilities(restored: Restored) -> tuple[str, ...]:
    entry = restored.entry
    known = {
        "vectors": entry.vectors,
        "items for users" if entry.recommends else "links": True,
        "new users": entry.recommends,
        "new nodes": entry.new_nodes or entry.folds_in or entry.scores_later,
        "influence": entry.traces,
    }
    return tuple(name for name, has in known.items() if has)
