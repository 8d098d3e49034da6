"""The health report of exported embeddings, from a file or a run. With a graph it includes the ranking of links by
cosine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import GraphmillError, InputError
from graphmill.evaluation.baselines.links import SimilarityScorer
from graphmill.evaluation.embedding_files import Embeddings, read_embeddings
from graphmill.evaluation.health.check import setting_names
from graphmill.evaluation.health.checks import HealthThresholds
from graphmill.evaluation.health.report import HealthReport, health_report
from graphmill.evaluation.ranking.links import LinkRanking, rank_links
from graphmill.evaluation.ranking.queries import link_queries
from graphmill.export.manifests import read_manifest
from graphmill.graph.co_occurrence import neighbourhood_groups
from graphmill.graph.graph_location import open_graph_of
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.interactions import ITEM, USER
from graphmill.training.run_directory import RunDirectory
from graphmill.verified_files import MANIFEST

HEALTH = "validation/health.json"
SIGNAL_QUERIES = 200
"""Links of each relation that are ranked by cosine: enough to detect shuffled ids within seconds."""
PROBE = "validation/probe.json"


def of_export(run_dir: Path) -> list[str]:
    """The hashes of a run's exported files, by which a result is known to be of these vectors."""
    folder = run_dir / "embeddings"
    exported = read_manifest(folder)["files"] if (folder / MANIFEST).is_file() else {}
    return sorted(entry["sha256"] for entry in exported.values())


def write_health(run_dir: Path, report: HealthReport) -> Path:
    """Write the report to the run directory, with the hashes of the exported files that it describes; returns its path.

    Raises:
        ResourceError: it cannot be written.
    """
    return RunDirectory(run_dir).write_json(HEALTH, {**report.to_dict(), "of": of_export(run_dir)})


def validate_file(path: Path, graph: TypedGraph | None = None) -> HealthReport:
    """Validate a file or run. With ``graph``, links are also ranked by cosine, which shows whether rows belong to their
    ids."""
    return validate(read_embeddings(path), graph, _settings_of(path), graph or graph_of(path))


def validate(
    embeddings: Embeddings,
    graph: TypedGraph | None = None,
    settings: Collection[str] | None = None,
    trained_on: TypedGraph | None = None,
    thresholds: HealthThresholds | None = None,
) -> HealthReport:
    """:func:`graphmill.evaluation.health.report.health_report` for embeddings read from a file, without node types that have
    no vectors.

    ``graph``: its links are ranked by cosine. ``trained_on``: the graph whose edges say which rows may be zero or equal.
    """
    ranking = None if graph is None else _ranking(embeddings, graph)
    part = with_vectors(embeddings)
    known = None if trained_on is None else _neighbourhoods(part, trained_on)
    how: dict[str, Any] = {"thresholds": thresholds, "settings": settings, "neighbourhoods": known}
    return health_report(part.vectors, part.types, list(part.type_names), ranking=ranking, **how)


def with_vectors(embeddings: Embeddings) -> Embeddings:
    """The rows of node types that have vectors (:func:`types_without_vectors`)."""
    names = embeddings.type_names
    without = types_without_vectors(embeddings.types, names, embeddings.vectors)
    if not without:
        return embeddings
    kept = ~np.isin(np.array(names, dtype=object)[embeddings.types], without)
    rest = [name for name in names if name not in without]
    number = np.array([rest.index(name) if name in rest else -1 for name in names], np.int32)
    return Embeddings(
        embeddings.ids[kept],
        embeddings.names[kept],
        number[embeddings.types[kept]],
        tuple(rest),
        embeddings.vectors[kept],
        embeddings.index[kept],
    )


def types_without_vectors(types: NDArray[np.integer], names: Sequence[str], vectors: NDArray[np.float32]) -> list[str]:
    """Node types, except users and items, whose rows are all zero: a recommender may have no vectors for them.

    ``types``: int codes (n) into ``names``; ``vectors``: float32 (n × d).
    """
    if not {USER, ITEM} <= set(names):
        return []
    others = [number for number, name in enumerate(names) if name not in (USER, ITEM)]
    return [names[number] for number in others if not vectors[types == number].any()]


def _ranking(embeddings: Embeddings, graph: TypedGraph) -> LinkRanking | None:
    """The ranking of held-out links by cosine, or None if there are none."""
    nodes = graph.node_table()
    order = embeddings.rows_of(nodes.column("type").to_pylist(), nodes.column("id").to_pylist())
    if (order < 0).any():
        raise InputError(
            f"{int((order < 0).sum())} nodes of {graph.path} have no embedding; they are of different data"
        )
    try:
        queries = link_queries(graph, "test", max_per_relation=SIGNAL_QUERIES)
    except InputError:
        return None
    return rank_links(SimilarityScorer(np.asarray(embeddings.vectors)[order], graph), queries)


def graph_of(path: Path) -> TypedGraph | None:
    """The graph of a run or export, if it is on this machine and has not changed since; else None."""
    for folder, manifest in _manifests(path):
        with suppress(GraphmillError, OSError):
            data = manifest.get("data") or {}
            if {"path", "content_hash"} <= data.keys():
                return open_graph_of(folder, data)
    return None


def _manifests(path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The manifests of exports at a path, in its folder for vectors, and beside it; not of other programs."""
    for folder in (path, path / "embeddings", path.parent):
        with suppress(GraphmillError, OSError):
            yield folder, read_manifest(folder)


def _neighbourhoods(embeddings: Embeddings, graph: TypedGraph) -> NDArray[np.int64]:
    """The groups of nodes of each row; a row that the graph does not have is alone."""
    nodes = graph.node_table()
    rows = embeddings.rows_of(nodes.column("type").to_pylist(), nodes.column("id").to_pylist())
    groups = -1 - np.arange(len(embeddings.vectors))
    groups[rows[rows >= 0]] = neighbourhood_groups(graph)[rows >= 0]
    return groups


def _settings_of(path: Path) -> Collection[str] | None:
    """The names of the settings of an export, from the manifest beside it; None if there is none."""
    every = (manifest.get("settings") for _, manifest in _manifests(path))
    return next((setting_names(values) for values in every if isinstance(values, Mapping)), None)
