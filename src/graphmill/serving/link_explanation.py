"""Explains a version's predicted link: from its run and graph if they are on this machine, else from its table."""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.errors import GraphmillError
from graphmill.explain.explanation import ExplainSettings
from graphmill.promotion.versions import Version
from graphmill.runs.fallback import once_more_for_a_run
from graphmill.serving.problem import RequestError

if TYPE_CHECKING:
    from graphmill.runs.export import Restored
    from graphmill.serving.open_version import OpenVersion

PATIENCE_SECONDS = 30.0
"""Seconds that a request waits for the one before it, because explanations are computed one at a time."""
_computing = threading.Lock()
_asked: dict[str, _VersionsRun] = {}
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
    if not _computing.acquire(timeout=PATIENCE_SECONDS):
        raise RequestError(503, "another link is being explained; ask again in a minute")
    try:
        place, ids = str(opened.version.path), opened.embeddings.ids
        if place not in _asked:
            _asked.clear()
            _asked[place] = _VersionsRun(opened.version)
        found = _asked[place].explain(str(ids[row]), "|".join(key), str(ids[target]), edges)
    finally:
        _computing.release()
    wanted = ("score", "method", "edges", "paths", "parts")
    return {name: value for name, value in found.items() if name in wanted}


class _VersionsRun:
    """The run that a version was made from. Its model is restored at the first question and kept."""

    def __init__(self, version: Version) -> None:
        self.version = version

    @once_more_for_a_run
    def explain(self, head: str, relation: str, tail: str, edges: int) -> dict[str, Any]:
        """Return the explanation of a link; on the CPU from then on, if the run's device fails."""
        from graphmill.usage.explain import explain_link

        settings = ExplainSettings(edges=edges, paths=min(edges, 5))
        return explain_link(self._restored, head, relation, tail, settings).to_dict()

    @cached_property
    def _restored(self) -> Restored:
        """Raises :class:`graphmill.errors.InputError` where the run is no longer here, or has been trained on."""
        from graphmill.errors import InputError
        from graphmill.runs.export import restore

        path, about = self.version.path, self.version.about
        root, run = path.parents[4], Path(about["run_dir"])
        places = [root / run, root / "data" / "06_models" / path.parts[-3] / path.parts[-2] / run.name]
        folder = next((each for each in places if (each / "manifest.json").is_file()), None)
        if folder is None:
            raise InputError(
                f"its run {run.name} is not on this machine, and an explanation needs its model and its graph"
            )
        restored = restore(folder)
        if (restored.fingerprint, restored.epoch) != (about["fingerprint"], about["epoch"]):
            raise InputError(f"its run {run.name} has been trained on since: promote it again")
        return restored
