"""The query parameters of all endpoints in one table, for the service and for its OpenAPI description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from graphmill.serving.problem import RequestError

MOST_TEXT = 512
MOST_ROWS = 1000
"""Largest k. Paging reaches 10 times as many rows."""


@dataclass(frozen=True)
class Parameter:
    """One query parameter. ``low``, ``high``: bounds of a number. ``values``: allowed texts, () for any."""

    name: str
    about: str
    kind: Literal["text", "number", "flag"] = "text"
    default: str | int | bool = ""
    low: int = 0
    high: int = 0
    values: tuple[str, ...] = ()

    def read(self, text: str) -> str | int | bool:
        """Parse the value. Raises :class:`RequestError` 400 for an invalid one."""
        if self.kind == "text":
            if len(text) > MOST_TEXT:
                raise RequestError(400, f"{self.name} has {len(text)} characters; at most {MOST_TEXT} are read")
            if self.values and text not in self.values:
                raise RequestError(400, f"{self.name}={text}: it is one of {', '.join(self.values)}")
            return text
        if self.kind == "flag":
            if text not in ("true", "false"):
                raise RequestError(400, f"{self.name}={text[:40]}: it is true or false")
            return text == "true"
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        if not self.low <= number <= self.high:
            raise RequestError(400, f"{self.name}={text[:40]}: it is a whole number from {self.low} to {self.high}")
        return number

    def schema(self) -> dict[str, Any]:
        """The parameter's JSON schema."""
        if self.kind == "number":
            return {"type": "integer", "minimum": self.low, "maximum": self.high, "default": self.default}
        if self.kind == "flag":
            return {"type": "boolean", "default": self.default}
        result: dict[str, Any] = {"type": "string", "maxLength": MOST_TEXT}
        return result | ({"enum": list(self.values), "default": self.default} if self.values else {})


def read_query(allowed: Sequence[Parameter], given: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The value of every parameter, with defaults for missing ones.

    Raises :class:`RequestError` 400 for an unknown or repeated parameter, or a value out of bounds.
    """
    known: Mapping[str, Parameter] = {each.name: each for each in allowed}
    values: dict[str, Any] = {each.name: each.default for each in allowed}
    seen: set[str] = set()
    for name, text in given:
        if name not in known:
            raise RequestError(
                400, f"there is no parameter '{name[:40]}' here (there are: {', '.join(known) or 'none'})"
            )
        if name in seen:
            raise RequestError(400, f"{name} is given more than once")
        seen.add(name)
        values[name] = known[name].read(text)
    return values


NODE = (
    Parameter("id", "The node's id, as in the input files. Give this or `name`"),
    Parameter("name", "The node's name, in upper or lower case. Give this or `id`"),
    Parameter("type", "The node's type. Needed only if nodes of several types have this id or name"),
)


def page(default: int = 10) -> tuple[Parameter, ...]:
    """The parameters ``k`` and ``offset``."""
    return (
        Parameter("k", "Maximum number of rows in one answer", "number", default, 1, MOST_ROWS),
        Parameter(
            "offset",
            "How many rows to skip. For the next page, give `next` of the last answer",
            "number",
            0,
            0,
            9 * MOST_ROWS,
        ),
    )
