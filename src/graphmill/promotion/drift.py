"""Drift between runs, versions and files: finds their vectors, or the best lists of systems without vectors, and the
summaries of their graphs, and writes the report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.evaluation.drift.figures import BEST, Lists, drift_figures, list_figures
from graphmill.evaluation.drift.verdicts import DriftReport, DriftThresholds, drift_report
from graphmill.evaluation.embedding_files import read_embeddings
from graphmill.export.alignment import aligned_file
from graphmill.export.manifests import export_folder, read_manifest, read_version
from graphmill.graph.graph_location import open_graph_of
from graphmill.graph.splits import TRAIN, node_keys
from graphmill.graph.summary import GraphSummary, graph_difference, summarise
from graphmill.ingest.interactions import USER
from graphmill.parquet import ParquetTable
from graphmill.predictions.top_tails import Candidates, best_tails
from graphmill.promotion.versions import Versions, folder_of
from graphmill.runs.export import Restored, restore
from graphmill.training.run_directory import RunDirectory
from graphmill.verified_files import VERSION, verified_file

FOLDER = "drift"
REPORT = "drift.json"
LISTS = "lists.parquet"
SAMPLE, LEAST = 500, 10
"""The number of lists in all, and the least of a relation, if it has so many heads."""
SCHEMA = pa.schema([("relation", pa.string()), ("head_id", pa.string()), ("tail_ids", pa.list_(pa.string()))])


@dataclass(frozen=True)
class Side:
    """One of the two compared models. ``vectors`` is None for a system without; ``path``: its version or run. ``graph`` is
    None if it is not known; ``run`` is None for plain files; ``system`` is "" for them."""

    name: str
    path: Path
    vectors: Path | None
    graph: GraphSummary | None = None
    run: Path | None = None
    system: str = ""


def side_of(what: str, folder: Path) -> Side:
    """A run directory, a version (its folder, ``D/M`` for the live one, ``D/M/VERSION``), or a file of embeddings.

    ``folder``: the folder of the versions of all models. Raises :class:`InputError` for anything else.
    """
    path = folder_of(what, folder)
    if (path / VERSION).is_file():
        return _version(path)
    if (folder := export_folder(path)) != path and (path / "manifest.json").is_file():
        system = RunDirectory(path).read_json("manifest.json")["system"]
        return Side(what, path, _vectors(folder), _graph_of(path), path, system)
    return Side(what, path, path)


def _vectors(export: Path) -> Path | None:
    return aligned_file(export) if read_manifest(export)["dim"] else None


def _version(path: Path) -> Side:
    about = read_version(path)
    run = Path(about["run_dir"])
    kept = run if (run / "settings.json").is_file() else None
    return Side(path.name, path, _vectors(path), GraphSummary.load(path), kept, about["system"])


def _graph_of(run: Path) -> GraphSummary | None:
    """The summary of the graph on which a run was trained, if the graph still exists."""
    try:
        return summarise(open_graph_of(run, RunDirectory(run).read_json("manifest.json")["data"]))
    except InputError:
        return None


def compare_sides(before: Side, after: Side, thresholds: DriftThresholds | None = None) -> DriftReport:
    """The drift report of ``after`` against ``before``: of their vectors, or of the best lists where one has none or they
    are of two systems."""
    changed = graph_difference(before.graph, after.graph) if before.graph and after.graph else None
    two_systems = before.system and after.system and before.system != after.system
    if two_systems or before.vectors is None or after.vectors is None:
        if not (before.system and after.system):
            raise InputError(f"of {before.name} and {after.name}, one has vectors and the other has none: no drift")
        lists = _lists(before)
        return drift_report(list_figures(lists, _lists(after, lists)), changed, thresholds)
    figures = drift_figures(read_embeddings(before.vectors), read_embeddings(after.vectors))
    return drift_report(figures, changed, thresholds)


def _lists(side: Side, like: Lists | None = None) -> Lists:
    """The lists of a version, or of a run; of a run those of the users and heads of ``like``."""
    if (side.path / VERSION).is_file():
        return read_lists(side.path)
    return best_lists(restore(side.path), like or ())


def drift_of_run(run_dir: str | Path, store: Versions, thresholds: DriftThresholds | None = None) -> dict[str, Any]:
    """Compare a run's export with the live version; writes ``drift/drift.json`` into the run.

    Returns the report's values, with the version's name as ``against``. Raises :class:`InputError` if nothing is live.
    """
    live = store.current()
    if live is None:
        raise InputError(f"{store.label} has no live version to compare with")
    run = Path(run_dir)
    report = compare_sides(_version(live.path), side_of(str(run), store.path), thresholds)
    values = {"against": live.name, **report.to_dict()}
    write_report(values, run / FOLDER)
    return values


def write_report(values: dict[str, Any], folder: Path) -> None:
    """Write ``drift.json`` into ``folder``."""
    RunDirectory(folder).write_json(REPORT, values)


def best_lists(restored: Restored, wanted: Iterable[tuple[str, str]] = ()) -> Lists:
    """The ten best new items of users, or new tails of heads in each relation.

    ``wanted``: relations and ids of those that are asked for; default: those with a training link whose ids have the
    smallest hashes, so that a later graph with the same nodes gives the same sample.
    """
    requested: dict[str, set[str]] = {}
    for relation, head in wanted:
        requested.setdefault(relation, set()).add(head)
    graph = restored.graph
    ids = graph.node_table()["id"].to_numpy(zero_copy_only=False)
    lists: dict[tuple[str, str], list[str]] = {}
    if restored.entry.recommends:
        name = " | ".join(next(each.key for each in graph.relations if each.source == USER))
        users, items, _ = cast(Any, restored.system).recommend(restored.model, BEST)
        rows = {str(ids[user]): row for row, user in enumerate(users) if items[row, 0] >= 0}
        heads = requested.get(name, set()) & rows.keys() if requested else _smallest(USER, list(rows), SAMPLE)
        return {(name, user): [str(ids[item]) for item in items[rows[user]] if item >= 0] for user in heads}
    scorer = restored.system.scorer(restored.model)
    most = max(SAMPLE // max(len(graph.relations), 1), LEAST)
    for each in graph.relations:
        candidates, name = Candidates(graph, each, scorer), " | ".join(each.key)
        first, second = (graph.node_type(kind).offset for kind in (each.source, each.target))
        local = {str(ids[first + head]): head for head in np.unique(candidates.links_of(TRAIN)[0]).tolist()}
        chosen = requested.get(name, set()) & local.keys() if requested else _smallest(each.source, list(local), most)
        best = best_tails(candidates, np.sort(np.array([local[node] for node in chosen], np.int64)), BEST)
        for head, tail in zip(best.heads.tolist(), best.tails.tolist(), strict=True):
            lists.setdefault((name, str(ids[first + head])), []).append(str(ids[second + tail]))
    return lists


def table_of(lists: Lists) -> pa.Table:
    """The lists as a table, in the order of their keys."""
    keys = sorted(lists)
    rows = [[relation for relation, _ in keys], [head for _, head in keys], [list(lists[key]) for key in keys]]
    return pa.table(dict(zip(SCHEMA.names, rows, strict=True)), SCHEMA)


def read_lists(folder: Path) -> Lists:
    """The lists of a version. Raises :class:`InputError` if it has none, or they are damaged."""
    table = ParquetTable(verified_file(folder, LISTS), remedy="promote the run again")
    table.require(SCHEMA)
    return {(row["relation"], row["head_id"]): row["tail_ids"] for row in table.read(SCHEMA.names).to_pylist()}


def _smallest(kind: str, ids: list[str], count: int) -> list[str]:
    keys = node_keys([kind] * len(ids), ids, 0)
    return [ids[place] for place in np.argsort(keys, kind="stable")[:count]]
