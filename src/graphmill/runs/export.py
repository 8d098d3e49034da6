"""Restores a finished run's model, exports its embeddings and evaluates it. Each step can be repeated by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch

from graphmill.atomic_files import writing
from graphmill.export.alignment import ALIGNED, fit_alignment, rotated, write_aligned
from graphmill.export.embeddings import SCORING, export_embeddings
from graphmill.export.manifests import SCORER
from graphmill.export.weights import export_weights
from graphmill.graph.graph_location import open_graph_of
from graphmill.graph.typed_graph import TypedGraph
from graphmill.reports.card import write_card
from graphmill.reports.card_files import graph_facts
from graphmill.runs.champion import champion_reference
from graphmill.runs.fallback import KEY
from graphmill.runs.resolve import Job, merge, resolve, stored_settings
from graphmill.runs.tracker import send_soon
from graphmill.systems import registry
from graphmill.systems.entry import Entry
from graphmill.training.checkpoint import CheckpointStore, Loaded
from graphmill.training.contract import EmbeddingBlock, StepSizes, System
from graphmill.training.device import configure_torch, here
from graphmill.training.run_directory import RunDirectory
from graphmill.training.run_state import load_model, schedules_of
from graphmill.training.schedule import named
from graphmill.training.settings import ExportSettings
from graphmill.verified_files import MANIFEST as EXPORT_MANIFEST
from graphmill.verified_files import Verify, describe_file


def best_epoch(run: RunDirectory) -> int | None:
    """Return the best epoch of a finished run; None if no epoch was chosen or the run has not ended."""
    if not (run.path / "report.json").is_file():
        return None
    report = run.read_json("report.json")
    return None if report.get("best_metric") is None else int(report["best_epoch"])


def passed_over(run: RunDirectory, loaded: Loaded, best: int | None) -> list[str]:
    """The store's notes on damaged files. If ``loaded`` is not of the epoch ``best``, a note that names both epochs is
    added."""
    if best is None or loaded.epoch == best:
        return list(loaded.notes)
    damaged = any(run.checkpoints.glob(f"e{best:05d}-*.damaged"))
    return [
        *loaded.notes,
        f"the best epoch is {best}, but its checkpoint {'is damaged' if damaged else 'is not there any more'}: epoch "
        f"{loaded.epoch} is used in its place, and metrics and vectors come from that epoch",
    ]


@dataclass
class Restored:
    """A run's model with the weights of one checkpoint, in eval mode."""

    run: RunDirectory
    job: Job
    graph: TypedGraph
    system: System
    model: torch.nn.Module
    epoch: int
    manifest: dict[str, Any]
    fingerprint: str
    """Of the run, with the schedules up to this epoch (:func:`graphmill.training.schedule.named`)."""
    notes: list[str] = field(default_factory=list)
    """Notes on the choice of this epoch: damaged files that were skipped, and the best epoch if this is another one."""

    @property
    def used(self) -> dict[str, Any]:
        """The epoch for reports; if it is not the best one, also the best one and the reason."""
        other = {"best_epoch": best_epoch(self.run), "notes": self.notes} if self.notes else {}
        return {"epoch": self.epoch} | other

    @property
    def entry(self) -> Entry:
        """What the system can do."""
        return registry.entry(self.system.name)

    @property
    def export_folder(self) -> Path:
        """The folder of the export in the run."""
        return self.run.embeddings if self.entry.vectors else self.run.path / SCORER

    @property
    def selected_on(self) -> str:
        """The split that chose its epoch, from the settings file itself: a preset would fill in what it does not name."""
        return str(self.run.read_json("settings.json")["evaluation"].get("selection_split", "valid"))


def restore(run_dir: str | Path, checkpoint: str | int = "", verify: Verify | None = None) -> Restored:
    """The model of a run at the given epoch; by default at its best epoch, or at the last one if none was chosen.

    ``verify``: which files of its graph are hashed, if not those of the run's setting ``acceleration.verify_graph``.

    If the best epoch's checkpoint is damaged or missing, the next best is taken, and the run's log and ``notes`` say
    so.

    Raises:
        InputError: not a run, no such checkpoint, or the graph is not the one on which it was trained.
    """
    run = RunDirectory(Path(run_dir))
    manifest = run.read_json("manifest.json")
    job, graph = job_of(run, manifest, verify)
    system = registry.create(job.settings.system, graph, job.settings, job.batching)
    configure_torch(job.device, 1)
    system.to(job.device)
    model = system.build(StepSizes())
    store = CheckpointStore(run.checkpoints)
    which = checkpoint or ("best" if any("best" in info.roles for info in store.list()) else "last")
    loaded = store.load(which)
    load_model(loaded.snapshot.tensors, model, str(loaded.path))
    model.to(job.device).eval()
    notes = passed_over(run, loaded, best_epoch(run) if checkpoint in ("", "best") else None)
    for note in notes:
        run.log("train").warning(note)
    fingerprint = named(manifest["fingerprint"], schedules_of(loaded.snapshot.state))
    return Restored(run, job, graph, system, model, loaded.epoch, manifest, fingerprint, notes)


def job_of(run: RunDirectory, manifest: Mapping[str, Any], verify: Verify | None = None) -> tuple[Job, TypedGraph]:
    """The job of a run, as it can be computed here, and its graph (``verify``: :func:`restore`)."""
    values = stored_settings(run).model_dump()
    graph = open_graph_of(run.path, manifest["data"], verify or values["acceleration"]["verify_graph"])
    resolved = manifest["resolved"]
    # Nothing is trained here, so nothing is compiled, and a run that was trained elsewhere needs not its device.
    acceleration = {
        "batching": resolved["batching"],
        "compile": "none",
        # The device on which the training failed is not taken again.
        "device": "cpu" if KEY in resolved else here(values["acceleration"]["device"]),
    }
    taken = {"preset": resolved["preset"], "acceleration": acceleration, "data": str(graph.path)}
    return resolve(merge(values, taken), str(run.path / "settings.json")), graph


class ScoresLinks(Protocol):
    """A system whose links can be scored from the exported vectors and a few further arrays."""

    def scoring(self, model: torch.nn.Module) -> dict[str, np.ndarray]:
        """The arrays by name; ``graphmill.usage.exported`` reads them."""


def export_run(restored: Restored, formats: ExportSettings | None = None) -> dict[str, Any]:
    """Write the run's embeddings, the arrays that score links (if the system has them), and the run's card. For a system
    without vectors, its weights instead of embeddings.

    Returns the export's manifest (files, rows, fingerprint, settings, versions).
    """
    settings = restored.job.settings
    about: dict[str, Any] = {
        "fingerprint": restored.fingerprint,
        "system": restored.manifest["system"],
        **restored.used,
        "data": restored.manifest["data"],
        "settings": settings.model_dump() | {"data": restored.manifest["data"]["path"]},
        "versions": restored.manifest["versions"],
        "graph": graph_facts(restored.graph),
    }
    report_file = restored.run.path / "report.json"
    if restored.notes and report_file.is_file():
        # It is to say which epoch is exported, and the reason if it is not the best one.
        report = restored.run.read_json("report.json")
        added = [note for note in restored.notes if note not in report["notes"]]
        report |= {"exported_epoch": restored.epoch, "notes": [*report["notes"], *added]}
        restored.run.write_json("report.json", report)
    extra = {}
    if restored.entry.scores_exported:
        about["relations"] = [list(relation.key) for relation in restored.graph.relations]
        extra[SCORING] = cast(ScoresLinks, restored.system).scoring(restored.model)
    if not restored.entry.vectors:
        exported = export_weights(restored.model, restored.graph, restored.export_folder, about)
        return _exported(restored, exported)
    formats, nodes = formats or settings.export, restored.graph.node_table()
    width = restored.system.embedding_width
    folder = restored.run.embeddings
    with writing(folder):
        (folder / ALIGNED).unlink(missing_ok=True)
    blocks: Iterable[EmbeddingBlock] = restored.system.embeddings(restored.model)
    reference = None
    if formats.align == "champion":
        reference = champion_reference(restored.run.path, about["system"], about["fingerprint"], restored.epoch)
    if reference is not None:
        blocks = list(blocks)
        rotation, entry = fit_alignment(reference, blocks, nodes)
        in_place = bool(getattr(restored.system, "rotation_keeps_scores", False))
        about["alignment"] = entry if rotation is None else {**entry, "in_place": in_place}
        if rotation is not None and in_place:
            blocks = rotated(blocks, rotation)
        elif rotation is not None:
            with writing(folder):
                (folder / EXPORT_MANIFEST).unlink(missing_ok=True)  # it describes an older copy
                copy = write_aligned(rotated(blocks, rotation), nodes, width, folder)
                about["aligned"] = {copy.name: describe_file(copy)}
    return _exported(restored, export_embeddings(blocks, nodes, width, folder, formats, about, extra))


def _exported(restored: Restored, exported: dict[str, Any]) -> dict[str, Any]:
    """Renew the card and tell the tracker; returns the export's manifest."""
    write_card(restored.run.path)
    if (restored.run.path / "report.json").is_file() and (problem := send_soon(restored.run.path)):
        restored.run.log("train").warning(f"tracker: {problem}")
    return exported


def evaluate_run(restored: Restored) -> dict[str, Any]:
    """All metrics of the restored weights on the splits valid and test."""
    about = {"run_dir": str(restored.run.path), **restored.used, "selected_on": restored.selected_on}
    evaluate = restored.system.evaluate
    return about | {s: evaluate(restored.model, s, final=True, poll=lambda: None) for s in ("valid", "test")}
