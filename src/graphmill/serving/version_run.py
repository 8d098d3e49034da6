"""The run that a version was made from, where it is on this machine: it explains links, and scores those of a system without
vectors. A link that it cannot explain is explained by the version's table."""

from __future__ import annotations

import threading
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.errors import GraphmillError, InputError
from graphmill.explain.explanation import ExplainSettings
from graphmill.graph.graph_location import SNAPSHOTS
from graphmill.graph.training_links import TrainingLinks
from graphmill.promotion.versions import Version
from graphmill.serving.answers import RequestError

if TYPE_CHECKING:
    from torch import Tensor

    from graphmill.evaluation.ranking.ranks import Scorer
    from graphmill.runs.export import Restored
    from graphmill.serving.open_version import OpenVersion

PATIENCE_SECONDS = 30.0
"""Seconds that a request waits for the one before it, because explanations are computed one at a time."""
_computing = threading.Lock()


@lru_cache(maxsize=2)  # not more, because a model and its graph are large
def run_of(version: Version) -> VersionRun:
    """The version's run, kept from the last question if it is one of the last used."""
    return VersionRun(version)


def run_folder(version: Version) -> Path | None:
    """The directory of the version's run; None where it is not on this machine. A relative path is looked for below each
    folder above the version, and below the working directory."""
    path, run = version.path.absolute(), Path(version.about["run_dir"])
    above = path.parents[2:]  # the folder of versions, and those above
    outputs = above[min(2, len(above) - 1)] / "data" / "06_models" / path.parts[-3]
    runs = outputs / SNAPSHOTS / version.about["snapshot"] if version.about["snapshot"] else outputs
    places = [*(folder / run for folder in (*above, Path.cwd())), runs / path.parts[-2] / run.name]
    return next((each for each in places if (each / "manifest.json").is_file()), None)


class VersionRun:
    """The run that a version was made from. Its model is restored at the first question and kept."""

    def __init__(self, version: Version) -> None:
        self.version = version

    def explain(self, head: str, relation: str, tail: str, edges: int) -> dict[str, Any]:
        """Return the explanation of a link."""
        from graphmill.usage.explain import explain_link

        settings = ExplainSettings(edges=edges, paths=min(edges, 5))
        return explain_link(self._restored, head, relation, tail, settings).to_dict()

    @cached_property
    def scorer(self) -> Scorer:
        """The scorer of links."""
        result: Scorer = self._restored.system.scorer(self._restored.model)
        return result

    @cached_property
    def links(self) -> TrainingLinks:
        """The links of the graph that the run was trained on."""
        return TrainingLinks.of_graph(self._restored.graph)

    @cached_property
    def _restored(self) -> Restored:
        """Raises :class:`graphmill.errors.InputError` where the run is no longer here, or has been trained on."""
        from graphmill.runs.export import restore

        folder, about = run_folder(self.version), self.version.about
        run = Path(about["run_dir"])
        if folder is None:
            raise InputError(f"its run {run.name} is not on this machine, and this needs its model and its graph")
        restored = restore(folder)
        if (restored.fingerprint, restored.epoch) != (about["fingerprint"], about["epoch"]):
            raise InputError(f"its run {run.name} has been trained on since: promote it again")
        return restored


class RunScorer:
    """Scores links by a version's run, which is restored at the first question."""

    def __init__(self, version: Version) -> None:
        self.version = version

    @property
    def links(self) -> TrainingLinks:
        """The training links. Raises as :meth:`score_targets`."""
        return run_of(self.version).links

    def score_targets(self, relation: int, heads: np.ndarray) -> Tensor:
        """Heads int64 [B], local numbers → scores of all targets [B, T] on the CPU.

        Raises :class:`graphmill.errors.InputError` where the run is no longer here, or has been trained on.
        """
        return run_of(self.version).scorer.score_targets(relation, heads).detach().float().cpu()


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
