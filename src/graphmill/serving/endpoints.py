"""The endpoints of a version: one function each, with its parameters and the fields of its answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from graphmill.reports.report_html import STYLE
from graphmill.serving.answers import RequestError
from graphmill.serving.open_version import OpenVersion
from graphmill.serving.version_run import explain

ABOUT = (
    "system",
    "made",
    "rows",
    "dim",
    "epoch",
    "selection_metric",
    "metrics",
    "graph",
    "software",
    "run_dir",
    "verdict",
)
"""What a report says of its version."""
Answer = dict[str, Any]
MOST_TEXT = 512
MOST_ROWS = 1000
"""Largest k. Paging reaches 10 times as many rows."""


@dataclass(frozen=True)
class Parameter:
    """One query parameter. ``low``, ``high``: bounds of a number."""

    name: str
    about: str
    kind: Literal["text", "number", "flag"] = "text"
    default: str | int | bool = ""
    low: int = 0
    high: int = 0

    def read(self, text: str) -> str | int | bool:
        """Parse the value. Raises :class:`RequestError` 400 for an invalid one."""
        if self.kind == "text":
            if len(text) > MOST_TEXT:
                raise RequestError(400, f"{self.name} has {len(text)} characters; at most {MOST_TEXT} are read")
            return text
        if self.kind == "flag":
            if text not in ("true", "false"):
                raise RequestError(400, f"{self.name}={text[:40]}: it is true or false")
            return text == "true"
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        if not self.low <= number <= self.high:
            raise RequestError(400, f"{self.name}={text[:40]}: it is a whole number from {self.low} to {self.high}")
        return number


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


@dataclass(frozen=True)
class Endpoint:
    """``GET /v1/{dataset}/{model}/{version}/<name>``."""

    name: str
    parameters: tuple[Parameter, ...]
    answer: Callable[[OpenVersion, dict[str, Any]], Answer]


def _vector(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    row = opened.find(query["id"], query["name"], query["type"])
    vector = opened.vector(row)
    return {"node": opened.node(row), "dimensions": len(vector), "vector": [float(value) for value in vector]}


def _neighbors(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    row = opened.find(query["id"], query["name"], query["type"])
    result = opened.neighbors(row, query["offset"] + query["k"] + 1, query["among"])
    return {"node": opened.node(row), **_paged("neighbors", result, query)}


def _links(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    row = opened.find(query["id"], query["name"], query["type"])
    if query["offset"] and not query["relation"]:
        raise RequestError(400, "offset needs one relation: give it with relation=…")
    wanted = query["offset"] + query["k"] + (1 if query["relation"] else 0)
    result = opened.links(row, query["relation"], wanted, query["known"])
    paged = _paged("links", result, query) if query["relation"] else {"links": result, "next": None}
    links = [{**link, "paths": opened.paths(row, link, query["paths"])} for link in paged["links"] or ()]
    return {"node": opened.node(row), **paged, "links": links}


def _edges(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    row = opened.find(query["id"], query["name"], query["type"])
    return {"node": opened.node(row), **_paged("edges", opened.known_edges(row), query)}


def _explain(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    if not query["relation"]:
        raise RequestError(400, "give the relation: relation=…")
    row = opened.find(query["id"], query["name"], query["type"])
    if not query["target"]:
        raise RequestError(400, "give the id of the link's target node: target=…")
    target = opened.find(query["target"], "", query["target_type"])
    return {"node": opened.node(row), **explain(opened, row, query["relation"], target, query["edges"])}


def _recommendations(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    row = opened.find(query["id"], query["name"], query["type"])
    return {"node": opened.node(row), **_paged("recommendations", opened.recommendations(row), query)}


def _search(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    return {"nodes": opened.search(query["q"], query["type"], query["k"])}


def _report(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    about = opened.version.about
    # The page of the service allows the style sheet of this release, and no other.
    style = re.compile("<style>.*?</style>", re.DOTALL)
    return {
        "about": {name: about.get(name) for name in ABOUT} | {"answers": opened.answers},
        "html": None if opened.report is None else style.sub(f"<style>{STYLE}</style>", opened.report, 1),
    }


def _paged(name: str, result: list[Any], query: dict[str, Any]) -> Answer:
    start, stop = query["offset"], query["offset"] + query["k"]
    return {name: result[start:stop], "next": stop if len(result) > stop else None}


ENDPOINTS = (
    Endpoint("vector", NODE, _vector),
    Endpoint("neighbors", (*NODE, *page(), Parameter("among", "Only neighbours of this type")), _neighbors),
    Endpoint("edges", (*NODE, *page()), _edges),
    Endpoint(
        "links",
        (
            *NODE,
            Parameter(
                "relation",
                "A relation's name, or source|name|target. Without it, every relation that begins at the node",
            ),
            *page(),
            Parameter("known", "Include links that the model was trained on", "flag", False),
            Parameter(
                "paths", "Maximum number of supporting paths (of length 2 or 3) for each link", "number", 3, 0, 10
            ),
        ),
        _links,
    ),
    Endpoint(
        "explain",
        (
            *NODE,
            Parameter("relation", "A relation's name, or source|name|target"),
            Parameter("target", "The id of the node that the link leads to"),
            Parameter("target_type", "The type of that node. Needed only if nodes of several types have this id"),
            Parameter("edges", "Maximum number of edges in the answer", "number", 10, 1, 100),
        ),
        _explain,
    ),
    Endpoint("recommendations", (*NODE, *page(20)), _recommendations),
    Endpoint(
        "search",
        (
            Parameter("q", "The text to look for"),
            Parameter("type", "Only nodes of this type"),
            Parameter("k", "Maximum number of nodes in the answer", "number", 10, 1, 100),
        ),
        _search,
    ),
    Endpoint("report", (), _report),
)
