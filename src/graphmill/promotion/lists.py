"""The best items or tails of a sample of users or heads, by which two models without vectors are compared."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa

from graphmill.evaluation.drift.figures import BEST, Lists
from graphmill.graph.splits import TRAIN, node_keys
from graphmill.ingest.interactions import USER
from graphmill.parquet import ParquetTable
from graphmill.predictions.top_tails import Candidates, best_tails
from graphmill.runs.export import Restored
from graphmill.usage.recommendations import Recommends
from graphmill.verified_files import verified_file

LISTS = "lists.parquet"
SAMPLE, LEAST = 500, 10
"""The number of lists in all, and the least of a relation, if it has so many heads."""
SCHEMA = pa.schema([("relation", pa.string()), ("head_id", pa.string()), ("tail_ids", pa.list_(pa.string()))])


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
        users, items, _ = cast(Recommends, restored.system).recommend(restored.model, BEST)
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
