"""JSON responses, and the error that ends a request."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response

from graphmill.errors import InputError, one_line


class RequestError(Exception):
    """Ends a request with ``status``; its text says what is wrong and what to do."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def json_answer(content: Any, status: int = 200) -> Response:
    """``content`` as a JSON response."""
    headers = {"www-authenticate": "Bearer"} if status == 401 else {"allow": "GET, HEAD"} if status == 405 else {}
    try:
        return Response(orjson.dumps(content), status, headers, "application/json")
    except orjson.JSONEncodeError as error:  # a number beyond 64 bits, or half a character, from a version's file
        raise InputError(
            f"the version's files hold what is no JSON ({one_line(error)}); promote the run again"
        ) from None


def problem_answer(status: int, sentence: str) -> Response:
    """An error response, ``{"error": sentence}``."""
    return json_answer({"error": sentence}, status)
