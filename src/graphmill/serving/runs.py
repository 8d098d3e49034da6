"""The finished runs beside the promoted versions: a list with metrics, settings and verdicts, and their reports."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.responses import Response

from graphmill.errors import GraphmillError
from graphmill.export.manifests import EMBEDDINGS, SCORER, export_folder
from graphmill.graph.graph_location import SNAPSHOTS
from graphmill.reports.card_files import CardFiles, read_card_files
from graphmill.reports.report_html import REPORT
from graphmill.reports.verdict import card_verdict
from graphmill.runs.champion import model_of
from graphmill.serving.answers import problem_answer
from graphmill.training.run_files import read_run_file
from graphmill.verified_files import MANIFEST

OUTPUTS = "data/06_models"
MOST_RUNS = 500
"""Number of runs in the list: the newest."""
_NO_SCRIPTS = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_PART = re.compile(r"[^./\\\x00][^/\\\x00]*")
_kept: dict[tuple[Path, float], dict[str, Any]] = {}


def finished_runs(root: Path) -> list[dict[str, Any]]:
    """The finished runs below the project's outputs, the newest first: ``dataset``, ``model``, ``run``, ``system``,
    ``when``, ``verdict``, ``metrics`` and ``settings``. Runs that cannot be read are left out."""
    folders, outputs = ("*/*/*", f"*/{SNAPSHOTS}/*/*/*"), root / OUTPUTS
    reports = [path for folder in folders for path in outputs.glob(f"{folder}/report.json")]
    rows = []
    for made, run in sorted(((path.stat().st_mtime, path.parent) for path in reports), reverse=True)[:MOST_RUNS]:
        folders_of_run = [path for path in (run, run / EMBEDDINGS, run / SCORER) if path.is_dir()]
        key = run, max(path.stat().st_mtime for path in folders_of_run)  # reports are written by renaming
        if key not in _kept:
            try:
                _kept[key] = _row(root, run, made)
            except (GraphmillError, KeyError, TypeError, ValueError):
                continue
        rows.append(_kept[key])
    return rows


def _row(root: Path, run: Path, made: float) -> dict[str, Any]:
    exported = (export_folder(run) / MANIFEST).is_file()
    files = read_card_files(run) if exported else _not_exported(run)
    dataset, model = model_of(run.parent)
    verdict = card_verdict(files)
    return {
        "dataset": dataset,
        "model": model,
        "run": run.relative_to(root).as_posix(),
        "system": files.system,
        "when": datetime.fromtimestamp(made, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "verdict": verdict.to_dict(),
        "metrics": dict(files.metrics),
        "settings": {name: each for name, (each, _) in files.differences.items()},
    }


def _not_exported(run: Path) -> CardFiles:
    """What is known of a run without an export, such as a trial of a choice."""
    settings, manifest = (read_run_file(run, name) for name in ("settings.json", MANIFEST))
    return CardFiles(run, run, {**manifest, "settings": settings, "dim": 0}, report=read_run_file(run, "report.json"))


def report_page(root: Path, path: str) -> Response:
    """The ``report.html`` of a run; ``path``: its file, relative to ``root``, below its outputs. Else 404."""
    none = problem_answer(404, "there is no such report; `graphmill report RUN` writes one")
    outputs = (root / OUTPUTS).resolve()
    if not all(_PART.fullmatch(part) for part in path.split("/")):
        return none
    try:
        file = (root / path).resolve()
        if file.name != REPORT or not file.is_relative_to(outputs) or not file.is_file():
            return none
        return Response(file.read_bytes(), media_type="text/html", headers={"content-security-policy": _NO_SCRIPTS})
    except (OSError, ValueError):
        return none
