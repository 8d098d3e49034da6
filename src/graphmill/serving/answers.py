"""JSON responses."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response


def json_answer(content: Any, status: int = 200) -> Response:
    """``content`` as a JSON response."""
    headers = {"www-authenticate": "Bearer"} if status == 401 else {"allow": "GET, HEAD"} if status == 405 else {}
    return Response(orjson.dumps(content), status, headers, "application/json")


def problem_answer(status: int, sentence: str) -> Response:
    """An error response, ``{"error": sentence}``."""
    return json_answer({"error": sentence}, status)
