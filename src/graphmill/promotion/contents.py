"""Fills a version's folder with the run's export, weights, settings and card, and a summary of its graph.

With the weights and the summary, the version can be compared with a later run even if its own run directory and graph
are gone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from graphmill.arrays import save_safetensors
from graphmill.errors import InputError
from graphmill.evaluation.health.report import HealthReport
from graphmill.export.manifests import VERSION_FORMAT, read_manifest
from graphmill.graph.summary import GraphSummary, summarise
from graphmill.graph.typed_graph import TypedGraph
from graphmill.parquet import write_parquet
from graphmill.promotion.departures import departures, nodes_of
from graphmill.promotion.drift import LISTS, best_lists, table_of
from graphmill.promotion.policy import PromotionSettings
from graphmill.promotion.versions import Version
from graphmill.reports.card import write_card
from graphmill.reports.card_files import read_card_files
from graphmill.reports.report_html import REPORT, report_html, with_health
from graphmill.reports.validation import PROBE
from graphmill.reports.verdict import card_verdict
from graphmill.runs.export import Restored
from graphmill.runs.resolve import merge, resolve
from graphmill.runs.warm_start import ROWS_FILE, WEIGHTS_FILE, read_champion, read_weights
from graphmill.systems import registry
from graphmill.training.contract import OldRows, StepSizes, System
from graphmill.training.run_files import RunSettings, shaped
from graphmill.usage.links import FOLDER as LINKS_FOLDER
from graphmill.usage.links import REPORT as LINKS_REPORT
from graphmill.usage.links import TABLE as LINKS_TABLE
from graphmill.usage.ranking import ANSWER
from graphmill.usage.recommendations import FILE as RECOMMENDATIONS
from graphmill.usage.recommendations import recommendation_table
from graphmill.verified_files import MANIFEST as EXPORT
from graphmill.verified_files import REMEDIES, describe_file, read_json_file, verified_file

SETTINGS = "settings.json"
HEALTH, RANKING, DRIFT = "health.json", "ranking.json", "drift.json"
_COPIED = {
    RANKING: RANKING,
    ANSWER: ANSWER,
    f"validation/{HEALTH}": HEALTH,
    PROBE: Path(PROBE).name,
    f"drift/{DRIFT}": DRIFT,
    "report.json": "report.json",
}
"""Files that a run may have besides its export → their names in the version. ``graphmill serve`` shows them."""


def fill_from(
    restored: Restored,
    settings: PromotionSettings | None = None,
    health: HealthReport | None = None,
    *,
    live: Version | None = None,
    snapshot: str = "",
) -> Callable[[Path], dict[str, Any]]:
    """Return a function that writes a run's version into a folder and returns the entries of ``version.json``.

    ``health``: the health report of the export, for a run without one. ``live``: the version before it. ``snapshot``: the
    name of the snapshot of the run's graph.
    """
    wanted = settings or PromotionSettings()

    def fill(folder: Path) -> dict[str, Any]:
        exported = _copy_export(restored, folder)
        if restored.entry.vectors:  # else the weights are the export
            tensors = {name: t.detach().cpu().contiguous().clone() for name, t in restored.model.state_dict().items()}
            save_safetensors(folder / WEIGHTS_FILE, tensors, "torch")
        rows = restored.system.row_keys(restored.model)
        (folder / ROWS_FILE).write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
        values = restored.job.settings.model_dump(mode="json") | {"data": restored.manifest["data"]["path"]}
        _write(folder / SETTINGS, values)
        graph = summarise(restored.graph)
        graph.save(folder)
        report = restored.run.read_json("report.json")
        _copy_links(restored, folder)
        before = {path.name for path in folder.iterdir()}
        _derive(restored, folder, wanted, health)
        return {
            "system": restored.manifest["system"],
            "run_dir": str(restored.run.path),
            "fingerprint": restored.fingerprint,
            "epoch": restored.epoch,
            "snapshot": snapshot,
            "left": departures(live, restored.graph, graph) if live else {},
            "rows": exported["rows"],
            "dim": exported["dim"],
            "selection_metric": str(restored.job.settings.evaluation.selection_metric),
            "verdict": card_verdict(read_card_files(folder)).to_dict(),
            "metrics": {n: v for n, v in report["metrics"].items() if isinstance(v, int | float)},
            "graph": {
                "content_hash": graph.content_hash,
                "nodes": graph.node_types,
                "relations": graph.relations,
                "split": restored.graph.describe()["split"],
            },
            "resolved": {"batching": restored.job.batching, "precision": restored.job.precision},
            "software": restored.manifest["versions"],
            "derived": sorted({path.name for path in folder.iterdir()} - before),
        }

    return fill


def _copy_links(restored: Restored, folder: Path) -> None:
    """Copy the table of predicted links, if the run has one of the promoted epoch."""
    links = restored.run.path / LINKS_FOLDER
    if (links / LINKS_REPORT).is_file() and _read(links / LINKS_REPORT)["epoch"] == restored.epoch:
        for name in (LINKS_TABLE, LINKS_REPORT):
            shutil.copyfile(links / name, folder / name)


def _derive(restored: Restored, folder: Path, wanted: PromotionSettings, health: HealthReport | None) -> None:
    """Write the derived files, which the service shows and queries."""
    for source, name in _COPIED.items():
        if (restored.run.path / source).is_file():
            shutil.copyfile(restored.run.path / source, folder / name)
    if health is not None and not (folder / HEALTH).exists():
        _write(folder / HEALTH, health.to_dict())
    computed = health.to_dict() if health is not None else {}
    write_card(restored.run.path, folder, computed)
    (folder / REPORT).write_text(
        report_html(with_health(read_card_files(restored.run.path), computed)), encoding="utf-8"
    )
    if wanted.recommendations and restored.entry.recommends:
        write_parquet(recommendation_table(restored, wanted.recommendations)[0], folder / RECOMMENDATIONS)
    write_parquet(table_of(best_lists(restored)), folder / LISTS)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _write(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _copy_export(restored: Restored, folder: Path) -> dict[str, Any]:
    """Copy every file in the export's manifest, byte for byte. Raises :class:`InputError` if one is damaged."""
    source = restored.export_folder
    exported = read_manifest(source)
    if exported["fingerprint"] != restored.fingerprint or exported["epoch"] != restored.epoch:
        raise InputError(
            f"{source} is of epoch {exported['epoch']}, the run's best is {restored.epoch}: export it again"
        )
    for name, expected in {**exported["files"], **exported.get("aligned", {})}.items():
        if not (source / name).is_file():
            raise InputError(f"{source / name} is missing, though the export's manifest lists it: export the run again")
        shutil.copyfile(source / name, folder / name)
        if describe_file(folder / name) != expected:
            raise InputError(f"{source / name} has changed since the export: export the run again")
    shutil.copyfile(source / EXPORT, folder / EXPORT)  # so that readers of a run's export can read a version
    return exported


@dataclass(frozen=True)
class Champion:
    """A version's model on a graph. ``new_rows``: number of parameter rows that the version lacks, which keep their
    initial values."""

    system: System
    model: nn.Module
    graph: GraphSummary
    new_rows: int


def load_champion(version: Version, like: Restored) -> Champion:
    """Load the version's weights for the graph of the run ``like``, matched by node id and relation name.

    On its own training graph, the weights are exactly its own. On another graph, a node or relation that it does not
    know keeps its initial value.

    Raises:
        InputError: the current code cannot read the version.
    """
    path, remedy = verified_file(version.path, SETTINGS), REMEDIES[VERSION_FORMAT]
    values = shaped(RunSettings, read_json_file(path, f"{path} is missing", remedy), path, remedy)
    placed = {
        "preset": "none",
        "data": str(like.graph.path),
        "training": {"init_from": ""},
        "acceleration": {
            "batching": version.about["resolved"].get("batching", "auto"),
            "device": like.job.settings.acceleration.device,
            "compile": "none",
        },
    }
    job = resolve(merge(values, placed), str(path))
    system = registry.create(job.settings.system, like.graph, job.settings, job.batching)
    system.to(like.job.device)
    model = system.build(StepSizes())
    tensors = read_weights(version.path)
    summary = GraphSummary.load(version.path)
    new = 0
    if summary.content_hash == like.graph.content_hash:
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            raise InputError(f"{version.name} does not fit the code of today: {str(error).splitlines()[-1]}") from None
    else:
        if keys := system.row_keys(model):
            start = read_champion(version.path)
            start.applied_to(system)(model)
            new = start.total - start.copied
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in tensors and name not in keys and tensors[name].shape == buffer.shape:
                    buffer.copy_(tensors[name])
            new += system.carry_over(model, tensors, _old_rows(version, summary, like.graph))
            # Update what the system derives from its vectors for this graph (KGAT's attention).
            system.begin_epoch(model, max(int(version.about["epoch"]), 1))
    model.to(like.job.device).eval()
    return Champion(system, model, summary, new)


def _old_rows(version: Version, summary: GraphSummary, graph: TypedGraph) -> OldRows:
    """Where the nodes of ``graph`` are in the graph of a version."""
    before, here = nodes_of(version), graph.node_table()
    rows = before.rows_of(here["type"].to_pylist(), here["id"].to_pylist())
    first = np.unique(before.types, return_index=True)[1]
    of_type = np.where(rows < 0, rows, rows - first[before.types[rows]])
    return OldRows(rows, of_type, [" | ".join(each.key) for each in graph.relations] == list(summary.relations))
