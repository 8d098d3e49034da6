"""Explains a version's predicted link: from its run and graph if they are on this machine, else from its table."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.errors import GraphmillError
from graphmill.explain.links import ExplainSettings
from graphmill.promotion.versions import Version
from graphmill.serving.problem import RequestError

if TYPE_CHECKING:
    from graphmill.runs.export import Restored
    from graphmill.serving.open_version import OpenVersion

PATIENCE_SECONDS = 30.0
"""Seconds that a request waits for the one before it, because explanations are computed one at a time."""
_computing = threading.Lock()
_restored: dict[str, Restored] = {}
"""The last run used, by its version's folder. Only one is kept, because a model and its graph are large."""


def explain(opened: OpenVersion, row: int, relation: str, target: int, edges: int) -> dict[str, Any]:
    """Explain a link: ``from`` ("run" or "table"), ``method``, the computed ``edges``, ``paths`` and ``parts``,
    ``because`` (edges from the table), and ``why_not`` (why nothing was computed, or "").

    Raises :class:`RequestError`: 404 if there is neither a run nor a row of the table; 503 while others are computed.
    """
    link = opened.link(row, relation, target)
    told = {
        "relation": link["key"][1],
        "target": opened.node(target),
        "because": link.get("because") or [],
        "score": None if link.get("score") is None else round(link["score"], 6),
    }
    none: dict[str, Any] = {"method": "", "edges": [], "paths": [], "parts": {}}
    try:
        return {**told, "from": "run", "why_not": "", **_computed(opened, row, link["key"], target, edges)}
    except GraphmillError as error:
        if not told["because"]:
            raise RequestError(404, f"{opened.name} cannot explain links: {error}") from None
        return {**told, "from": "table", "why_not": str(error), **none}


def _computed(opened: OpenVersion, row: int, key: list[str], target: int, edges: int) -> dict[str, Any]:
    from graphmill.runs.explain import explain_link

    if not _computing.acquire(timeout=PATIENCE_SECONDS):
        raise RequestError(503, "another link is being explained; ask again in a minute")
    try:
        restored = _run_of(opened.version)
        ids = opened.embeddings.ids
        found = explain_link(
            restored, str(ids[row]), "|".join(key), str(ids[target]), ExplainSettings(edges=edges, paths=min(edges, 5))
        )
    finally:
        _computing.release()
    wanted = ("score", "method", "edges", "paths", "parts")
    return {name: value for name, value in found.to_dict().items() if name in wanted}


def _run_of(version: Version) -> Restored:
    """The run from which a version was made. Raises :class:`graphmill.errors.InputError` if it is not on this machine."""
    from graphmill.errors import InputError
    from graphmill.runs.export import restore

    about, place = version.about, str(version.path)
    if place in _restored:
        return _restored[place]
    root, run = version.path.parents[4], Path(about["run_dir"])
    places = [root / run, root / "data" / "06_models" / version.path.parts[-3] / version.path.parts[-2] / run.name]
    folder = next((each for each in places if (each / "manifest.json").is_file()), None)
    if folder is None:
        raise InputError(f"its run {run.name} is not on this machine, and an explanation needs its model and its graph")
    restored = restore(folder)
    if (restored.manifest["fingerprint"], restored.epoch) != (about["fingerprint"], about["epoch"]):
        raise InputError(f"its run {run.name} has been trained on since: promote it again")
    _restored.clear()
    _restored[place] = restored
    return restored
