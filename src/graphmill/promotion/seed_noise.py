"""Measures how much another seed changes a run's vectors, once per family of settings, and keeps it on disk.

A family is the fingerprint's content without seed, data and start. So the same settings on other data are not measured
again. The runs are trained like any other, resume after a stop, and are removed after the measurement.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphmill.atomic_files import write_atomically
from graphmill.evaluation.drift.noise import seed_noise
from graphmill.evaluation.drift.verdicts import SeedNoise
from graphmill.evaluation.embedding_files import Embeddings, read_embeddings
from graphmill.graph.graph_location import SNAPSHOTS, open_graph_of
from graphmill.promotion.versions import now
from graphmill.runs.export import export_run, restore
from graphmill.runs.messages import Outlet
from graphmill.runs.resolve import merge, stored_settings
from graphmill.runs.train import train
from graphmill.settings import identity_of
from graphmill.training.run_directory import RunDirectory
from graphmill.training.settings import ExportSettings
from graphmill.training.signals import StopRequest

FOLDER = "seed_noise"


def family_of(run: RunDirectory) -> str:
    """A hash (16 hex digits) of a run's identity settings without seed and start, and its batching, precision and system."""
    manifest = run.read_json("manifest.json")
    known = identity_of(stored_settings(run))
    for name in ("seed", "init_from"):
        del known["training"][name]
    known.pop("data", None)
    resolved = {name: manifest["resolved"][name] for name in ("batching", "precision")}
    content = {"identity": known, "version": manifest["algorithm_version"], **resolved}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def known_noise(run_dir: Path) -> SeedNoise | None:
    """Return the stored measurement of a run's family; None if there is none."""
    run = RunDirectory(run_dir)
    path = _folder(run) / f"{family_of(run)}.json"
    if not path.is_file():
        return None
    return SeedNoise(**json.loads(path.read_text(encoding="utf-8"))["noise"])


def _folder(run: RunDirectory) -> Path:
    """The folder of the measurements of a model. All snapshots of a dataset share it."""
    runs = run.path.resolve().parent
    return (runs.parents[2] / runs.name if runs.parents[1].name == SNAPSHOTS else runs) / FOLDER


def measured_noise(
    run_dir: Path, seeds: int, *, outlets: Sequence[Outlet] = (), stop: StopRequest | None = None
) -> SeedNoise:
    """:func:`known_noise`, or train ``seeds`` further seeds of the run's settings on its graph, and measure.

    Raises the errors of a training; the next call resumes the training.
    """
    if (known := known_noise(run_dir)) is not None:
        return known
    run = RunDirectory(run_dir)
    family, values, manifest = family_of(run), stored_settings(run).model_dump(), run.read_json("manifest.json")
    values["data"] = str(open_graph_of(run.path, manifest["data"]).path)
    root = _folder(run) / family
    embeddings: list[Embeddings] = [] if values["training"]["init_from"] else [read_embeddings(run.embeddings)]
    first = int(values["training"]["seed"])
    for number in range(1, max(seeds, 2 - len(embeddings)) + 1):
        for outlet in outlets:
            outlet.send({"kind": "note", "text": f"seed {first + number}: the unit of drift is measured, once"})
        embeddings.append(_another_seed(values, manifest, first + number, root, outlets, stop))
    noise = seed_noise(embeddings)
    about = {"family": family, "measured": now(), "data": manifest["data"]["content_hash"], "noise": noise.to_dict()}
    text = json.dumps(about, indent=2) + "\n"
    write_atomically(root.parent / f"{family}.json", text.encode())
    shutil.rmtree(root, ignore_errors=True)
    return noise


def _another_seed(
    values: dict[str, Any],
    manifest: dict[str, Any],
    seed: int,
    root: Path,
    outlets: Sequence[Outlet],
    stop: StopRequest | None,
) -> Embeddings:
    resolved = manifest["resolved"]
    if not values["training"]["epochs"]:  # embed only: the system's default is measured
        del values["training"]["epochs"]
    changed = {
        "preset": "none",
        "training": {"seed": seed, "init_from": ""},
        "acceleration": {"batching": resolved["batching"], "processes": 1, "resume": "auto"},
    }
    result = train(merge(values, changed), "the unit of drift", root=str(root), outlets=outlets, stop=stop)
    export_run(restore(result["run_dir"]), ExportSettings(csv=False, align="none"))
    return read_embeddings(Path(result["run_dir"]) / "embeddings")
