"""Serves the reports of run directories, read-only. Dagster's asset pages link to them."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.responses import Response

from graphmill.reports.report_html import REPORT
from graphmill.serving.answers import problem_answer

OUTPUTS = "data/06_models"
_NO_SCRIPTS = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_PART = re.compile(r"[^./\\\x00][^/\\\x00]*")


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
