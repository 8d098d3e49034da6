"""The finished runs beside the promoted versions: a list with metrics, settings and verdicts, and their reports."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.responses import Response

from graphmill.errors import GraphmillError
from graphmill.export.manifests import EMBEDDINGS, SCORER
from graphmill.graph.graph_location import SNAPSHOTS
from graphmill.reports.card_files import read_card_files
from graphmill.reports.report_html import REPORT
from graphmill.reports.verdict import card_verdict
from graphmill.runs.champion import model_of
from graphmill.serving.answers import problem_answer

OUTPUTS = "data/06_models"
MOST_RUNS = 500
"""Number of runs in the list: the newest."""
_NO_SCRIPTS = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_PART = re.compile(r"[^./\\\x00][^/\\\x00]*")
_kept: dict[tuple[Path, float], dict[str, Any]] = {}


def finished_runs(root: Path) -> list[dict[str, Any]]:
    """The exported runs below the project's outputs, the newest first: ``dataset``, ``model``, ``run``, ``when``,
    ``verdict``, ``metrics`` and ``settings``. Runs that cannot be read are left out."""
    folders, outputs = ("*/*/*", f"*/{SNAPSHOTS}/*/*/*"), root / OUTPUTS
    kinds = [f"{folder}/{kind}/manifest.json" for folder in folders for kind in (EMBEDDINGS, SCORER)]
    exports = [path for kind in kinds for path in outputs.glob(kind)]
    result = [(path.stat().st_mtime, path.parent) for path in exports]
    rows = []
    for made, export in sorted(result, reverse=True)[:MOST_RUNS]:
        run = export.parent
        key = run, max(path.stat().st_mtime for path in (run, export))  # reports are written by renaming
        if key not in _kept:
            try:
                _kept[key] = _row(root, run, made)
            except (GraphmillError, KeyError, TypeError, ValueError):
                continue
        rows.append(_kept[key])
    return rows


def _row(root: Path, run: Path, made: float) -> dict[str, Any]:
    files = read_card_files(run)
    dataset, model = model_of(run.parent)
    verdict = card_verdict(files)
    return {
        "dataset": dataset,
        "model": model,
        "run": run.relative_to(root).as_posix(),
        "when": datetime.fromtimestamp(made, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "verdict": verdict.to_dict(),
        "metrics": dict(files.metrics),
        "settings": {name: each for name, (each, _) in files.differences.items()},
    }


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
