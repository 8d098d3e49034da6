"""Pictures of run directories, read-only: what Dagster's asset pages show without a click."""

from __future__ import annotations

import io
import re
from pathlib import Path

from starlette.responses import Response

from graphmill.serving.answers import problem_answer

OUTPUTS = "data/06_models"
WIDEST = 4000
KEPT_SECONDS = 60
_PART = re.compile(r"[^./\\\x00][^/\\\x00]*")


def picture(root: Path, path: str, width: str) -> Response:
    """The PNG file ``path`` (relative to ``root``, below its outputs), at most ``width`` pixels wide; else 404."""
    none = problem_answer(404, "there is no such picture")
    outputs = (root / OUTPUTS).resolve()
    if not all(_PART.fullmatch(part) for part in path.split("/")):
        return none
    try:
        file = (root / path).resolve()
        if file.suffix != ".png" or not file.is_relative_to(outputs) or not file.is_file():
            return none
        data = file.read_bytes()
    except (OSError, ValueError):
        return none
    if width.isascii() and width.isdigit() and len(width) < 5 and 0 < int(width) <= WIDEST:
        data = scaled(data, int(width))
    return Response(data, media_type="image/png", headers={"cache-control": f"max-age={KEPT_SECONDS}"})


def scaled(png: bytes, width: int) -> bytes:
    """The picture at most ``width`` pixels wide."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        if image.width <= width:
            return png
        small = image.convert("RGB").resize((width, max(1, round(image.height * width / image.width))))
    buffer = io.BytesIO()
    small.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
