"""Serves pictures and reports of run directories, read-only. Dagster's asset pages show and link to them."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.responses import Response

from graphmill.evaluation.pictures.canvas import small_png
from graphmill.reports.report_html import REPORT
from graphmill.serving.answers import problem_answer

OUTPUTS = "data/06_models"
WIDEST = 4000
KEPT_SECONDS = 60
_NO_SCRIPTS = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_PART = re.compile(r"[^./\\\x00][^/\\\x00]*")


def picture(root: Path, path: str, width: str) -> Response:
    """The PNG file ``path`` (relative to ``root``, below its outputs), at most ``width`` pixels wide, or a run's
    ``report.html``; else 404.
    """
    none = problem_answer(404, "there is no such picture")
    outputs = (root / OUTPUTS).resolve()
    if not all(_PART.fullmatch(part) for part in path.split("/")):
        return none
    try:
        file = (root / path).resolve()
        wanted = file.suffix == ".png" or file.name == REPORT
        if not wanted or not file.is_relative_to(outputs) or not file.is_file():
            return none
        data = file.read_bytes()
    except (OSError, ValueError):
        return none
    if file.name == REPORT:
        return Response(data, media_type="text/html", headers={"content-security-policy": _NO_SCRIPTS})
    if width.isascii() and width.isdigit() and len(width) < 5 and 0 < int(width) <= WIDEST:
        try:
            data = small_png(data, int(width))
        except Exception:  # Pillow raises almost anything at a damaged picture
            return none
    return Response(data, media_type="image/png", headers={"cache-control": f"max-age={KEPT_SECONDS}"})
