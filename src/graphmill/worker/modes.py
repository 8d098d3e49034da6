"""The worker's modes: what a job ``{"mode": NAME, ...}`` does, as functions of the job and its :class:`Control`.

Each imports what it needs itself, since a training must not wait for what only other modes use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from graphmill.errors import InputError, StoppedError
from graphmill.settings import parse

Job = Mapping[str, Any]
Result = dict[str, Any]


@dataclass(frozen=True)
class Control:
    """Where a mode sends its messages, and how it learns that it is to stop.

    ``stop``: a :class:`graphmill.training.signals.StopRequest`; ``outlets``: :class:`graphmill.runs.messages.Outlet`.
    """

    outlets: list[Any]
    stop: Any

    def note(self, text: str) -> None:
        """Send a sentence for a person to all outlets."""
        for outlet in self.outlets:
            outlet.send({"kind": "note", "text": text})

    def poll(self, what: str = "the same command does it again") -> None:
        """Raise :class:`StoppedError` if a stop was requested; its message says ``what`` follows."""
        if self.stop.requested:
            raise StoppedError(f"stopped ({self.stop.reason}); {what}")


def _train(job: Job, control: Control) -> Result:
    """``settings``, ``run_root``, ``splits``, ``note``."""
    from graphmill.runs.train import SPLITS, train

    how = {"root": job.get("run_root", ""), "splits": job.get("splits", SPLITS), "note": job.get("note", "")}
    return train(job["settings"], _origin(job), outlets=control.outlets, stop=control.stop, **how)


def _export(job: Job, control: Control) -> Result:
    """``run_dir``, ``checkpoint``."""
    from graphmill.runs.export import export_run

    restored = _restored(job, control)
    return {**restored.used, **export_run(restored)}


def _recommend(job: Job, control: Control) -> Result:
    """``run_dir``, ``k``, ``exclude_seen``."""
    from graphmill.usage.recommendations import recommend_run

    restored = _restored(job, control)
    return {**restored.used, **recommend_run(restored, int(job.get("k", 20)), job.get("exclude_seen", "auto"))}


def _rank(job: Job, control: Control) -> Result:
    """``run_dir``, ``split``, ``rank``."""
    from graphmill.predictions.settings import RankSettings
    from graphmill.usage.ranking import rank_any

    restored, split = _restored(job, control), job.get("split", "test")
    settings = parse(RankSettings, dict(job.get("rank", {})), _origin(job))
    return rank_any(restored, split, settings, outlets=control.outlets, poll=control.poll, stop=control.stop)


def _influence(job: Job, control: Control) -> Result:
    """``run_dir``, ``influence``."""
    from graphmill.influence.settings import InfluenceSettings
    from graphmill.usage.explain import trace_influence

    settings = parse(InfluenceSettings, dict(job.get("influence", {})), _origin(job))
    report = trace_influence(job["run_dir"], settings, poll=control.poll, note=control.note)
    return {"explained": report["num_test_triples"], "checkpoints": len(report["checkpoints"])}


def _links(job: Job, control: Control) -> Result:
    """``run_dir``, ``links``."""
    from graphmill.predictions.settings import LinkSettings
    from graphmill.usage.links import link_model, write_links

    settings = parse(LinkSettings, dict(job.get("links", {})), _origin(job))
    report = write_links(link_model(job["run_dir"]), settings, outlets=control.outlets, poll=control.poll)
    return {"rows": report["rows"], "relations": len(report["relations"])}


def _promote(job: Job, control: Control) -> Result:
    """``run_dir``, ``folder`` (of the model's versions), ``promote``, ``by``, ``failed_checks``, ``drift``, ``snapshot``."""
    from graphmill.promotion.policy import PromotionSettings
    from graphmill.promotion.promote import promote_run
    from graphmill.promotion.versions import Versions

    settings = parse(PromotionSettings, dict(job["promote"]), _origin(job))
    versions, checks = Versions(job["folder"]), job["failed_checks"]
    return promote_run(
        job["run_dir"],
        versions,
        settings,
        by=job["by"],
        failed_checks=checks,
        drift=job.get("drift"),
        snapshot=job.get("snapshot", ""),
        poll=partial(control.poll, "nothing was promoted"),
    )


def _drift(job: Job, control: Control) -> Result:
    """``run_dir``, ``folder``, ``drift``. The details on the graph and on single nodes are only in the file."""
    from graphmill.evaluation.drift.verdicts import DriftThresholds
    from graphmill.promotion.drift import drift_of_run
    from graphmill.promotion.versions import Versions

    bounds = parse(DriftThresholds, dict(job["drift"]), _origin(job))
    report = drift_of_run(job["run_dir"], Versions(job["folder"]), bounds)
    return {name: report[name] for name in ("against", "name", "status", "changed")}


def _choose(job: Job, control: Control) -> Result:
    """``settings`` of the choice, ``run_root``. Returns the report of the chosen run, as a training of it would."""
    from graphmill.systems.auto import AutoSettings
    from graphmill.training.run_directory import RunDirectory
    from graphmill.usage.choose import choose

    settings = parse(AutoSettings, dict(job["settings"]), _origin(job))
    how: dict[str, Any] = {"systems": settings.systems, "root": job["run_root"], "overrides": settings.shared}
    choice = choose(settings.data, settings.budget, **how, tell=control.note, stop=control.stop)
    return {**RunDirectory(Path(choice.run)).read_json("report.json"), "run_dir": choice.run}


MODES: dict[str, Callable[[Job, Control], Result]] = {
    "train": _train,
    "export": _export,
    "rank": _rank,
    "recommend": _recommend,
    "links": _links,
    "influence": _influence,
    "promote": _promote,
    "drift": _drift,
    "choose": _choose,
}


def run_mode(job: Job, outlets: list[Any], stop: Any) -> Result:
    """Do the job, and return its result for the process that started this one.

    Raises:
        InputError: there is no such mode; or what the mode itself raises.
    """
    name = str(job.get("mode", "train"))
    control = Control(outlets, stop)
    if name not in MODES:
        raise InputError(f"the worker has no mode '{name}' (there are: {', '.join(MODES)})")
    from graphmill.runs.messages import say_compiling

    # A training says it by its listener.
    with nullcontext() if name == "train" else say_compiling(control.note):
        result = MODES[name](job, control)
    return {"kind": "result", **result} if result else {}


def _restored(job: Job, control: Control) -> Any:
    from graphmill.runs.export import restore

    restored = restore(job["run_dir"], job.get("checkpoint", ""))
    for note in restored.notes:
        control.note(note)
    return restored


def _origin(job: Job) -> str:
    """Where the settings come from, for messages."""
    return str(job.get("where", "run config"))
