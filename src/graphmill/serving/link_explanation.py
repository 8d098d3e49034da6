"""Explains a version's predicted link: from its run and graph if they are on this machine, else from its table."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from graphmill.errors import GraphmillError
from graphmill.serving.problem import RequestError
from graphmill.serving.version_run import run_of

if TYPE_CHECKING:
    from graphmill.serving.open_version import OpenVersion

PATIENCE_SECONDS = 30.0
"""Seconds that a request waits for the one before it, because explanations are computed one at a time."""
_computing = threading.Lock()


def explain(opened: OpenVersion, row: int, relation: str, target: int, edges: int) -> dict[str, Any]:
    """Explain a link: ``from`` ("run" or "table"), ``method``, the computed ``edges``, ``paths`` and ``parts``,
    ``because`` (edges from the table), and ``why_not`` (why nothing was computed, or "").

    Raises :class:`RequestError`: 404 if there is neither a run nor a row of the table; 503 while others are computed.
    """
    link = opened.link(row, relation, target)
    reported = {
        "relation": link["key"][1],
        "target": opened.node(target),
        "because": link.get("because") or [],
        "score": None if link.get("score") is None else round(link["score"], 6),
    }
    none: dict[str, Any] = {"method": "", "edges": [], "paths": [], "parts": {}}
    try:
        return {**reported, "from": "run", "why_not": "", **_computed(opened, row, link["key"], target, edges)}
    except GraphmillError as error:
        if not reported["because"]:
            raise RequestError(404, f"{opened.name} cannot explain links: {error}") from None
        return {**reported, "from": "table", "why_not": str(error), **none}


def _computed(opened: OpenVersion, row: int, key: list[str], target: int, edges: int) -> dict[str, Any]:
    if not _computing.acquire(timeout=PATIENCE_SECONDS):
        raise RequestError(503, "another link is being explained; ask again in a minute")
    try:
        ids = opened.nodes.ids
        result = run_of(opened.version).explain(str(ids[row]), "|".join(key), str(ids[target]), edges)
    finally:
        _computing.release()
    wanted = ("score", "method", "edges", "paths", "parts")
    return {name: value for name, value in result.items() if name in wanted}
