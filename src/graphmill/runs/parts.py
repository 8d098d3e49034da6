"""Trains the parts of a run: runs of their own in ``<run>/parts/NAME``, or copies of finished ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import restore
from graphmill.runs.messages import Message, Outlet
from graphmill.runs.resolve import fingerprint, resolve
from graphmill.systems import registry
from graphmill.training.run_directory import RunDirectory
from graphmill.training.schedule import SHORT
from graphmill.training.signals import StopRequest

if TYPE_CHECKING:
    from graphmill.runs.train import Prepared

PARTS = "parts"
Train = Callable[..., Message]


class PartOutlet:
    """Passes on what a run sends while one of its parts is trained, but not that this part began or ended."""

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet

    def send(self, message: Message) -> None:
        """Pass on progress and notes."""
        if message["kind"] in ("progress", "note"):
            self.outlet.send(message)

    def close(self) -> None:
        """The run closes its outlets."""


def train_parts(
    prepared: Prepared, train: Train, outlets: Sequence[Outlet], stop: StopRequest | None
) -> dict[str, nn.Module]:
    """The models of :meth:`System.part_runs`, trained, resumed or copied; by name."""
    outcome, run, anew = {}, prepared.run, prepared.job.settings.acceleration.resume == "never"
    for name, values in prepared.system.part_runs().items():
        where, root = f"the part {name}", run.path / PARTS / name
        if anew:
            shutil.rmtree(root, ignore_errors=True)
        taken = (
            None if anew else finished_run(prepared.graph, values, where, [root, *roots_beside(run.path.parent, name)])
        )
        if taken is not None and taken.parent != root:
            copy(taken, root / taken.name)
        passed = [PartOutlet(outlet) for outlet in outlets]
        result = train(
            values, where, root=str(root), outlets=passed, stop=stop, splits=()
        )  # the run is what is measured
        outcome[name] = restore(result["run_dir"]).model
    return outcome


def seconds_of_parts(run: Path) -> float:
    """Seconds of the trainings of a run's parts, copied ones included."""
    reports = run.glob(f"{PARTS}/*/*/report.json")
    return sum(float(RunDirectory(report.parent).read_json("report.json")["seconds"]) for report in reports)


def roots_beside(root: Path, name: str) -> Iterator[Path]:
    """Folders that may hold runs of the system ``name``: its own beside ``root``, baselines, and parts of other runs."""
    yield root.parent / name
    for other in sorted(path for path in root.parent.glob("*") if path.is_dir()):
        yield other / "baselines" / name
        yield from sorted(other.glob(f"*/{PARTS}/{name}"))


def finished_run(graph: TypedGraph, values: Mapping[str, Any], where: str, roots: Sequence[Path]) -> Path | None:
    """A finished run with these settings in one of ``roots``; None if there is none."""
    job = resolve(values, where)
    system = registry.create(job.settings.system, graph, job.settings, job.batching)
    digest = fingerprint(job, graph.content_hash, system.algorithm_version)
    return next((p for root in roots if _finished(p := root / digest[:SHORT], digest, job.settings)), None)


def _finished(run: Path, digest: str, settings: Any) -> bool:
    if not (run / "report.json").is_file():
        return False
    try:
        report = RunDirectory(run).read_json("report.json")
    except Exception:
        return False
    return report["fingerprint"] == digest and report["epochs_done"] >= settings.training.epochs


def copy(run: Path, to: Path) -> None:
    """Copy a finished run. What a killed copy leaves is no run."""
    partial = to.with_name(f".copy-{to.name}")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(run, partial, ignore=shutil.ignore_patterns(".lock", "embeddings", "scorer", "tensorboard", PARTS))
    if to.is_dir():
        shutil.rmtree(to)
    partial.rename(to)
