"""Writes the best items of users as a Parquet file: of all users of a run, or of those of a file of histories, who may
have joined after the training, as may items. Nothing is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from graphmill.atomic_files import replacing, writing
from graphmill.errors import InputError, SettingsError
from graphmill.evaluation.ranking.recommendation import ExcludeSeen
from graphmill.graph.histories import Histories
from graphmill.graph.interactions import CsrPattern, disliked_pairs, interaction_relation, to_rows
from graphmill.graph.typed_graph import RelationEdges, TypedGraph
from graphmill.ingest.interactions import DISLIKED
from graphmill.ingest.tables import IngestResult, weights_of
from graphmill.parquet import write_parquet
from graphmill.runs.export import Restored

FILE, OF_HISTORY = "recommendations.parquet", "recommendations_of_history.parquet"
_TEXT = pa.string()
SCHEMA = pa.schema(
    [
        ("user_id", _TEXT), ("user_name", _TEXT), ("rank", pa.int32()),
        ("item_id", _TEXT), ("item_name", _TEXT), ("score", pa.float32()),
    ]
)  # fmt: skip
"""The columns of :data:`FILE`."""


Texts = tuple[list[str], list[str]]
Met = tuple[Histories, Texts, Texts]
"""A history file in the model's item numbers, with the ids and names of the users [U], and of the new items."""


def recommend_run(restored: Restored, k: int = 20, exclude_seen: str = "auto") -> dict[str, Any]:
    """Write ``recommendations.parquet`` into the run; returns a report.

    Columns: user_id, user_name, rank (from 1), item_id, item_name, score; items best first. ``exclude_seen`` leaves out
    items of the training: always, never, or auto (it depends on whether users of the system's data repeat items).

    Raises :class:`SettingsError` for a system that does not recommend.
    """
    table, users = recommendation_table(restored, k, exclude_seen)
    return {**write_table(restored.run.path / FILE, table), "users": users, "k": k}


def recommendation_table(restored: Restored, k: int = 20, exclude_seen: str = "auto") -> tuple[pa.Table, int]:
    """The table that :func:`recommend_run` writes, and the number of users; raises as it does."""
    require_counts(restored, k, exclude_seen)
    users, items, scores = cast(Any, restored.system).recommend(restored.model, k, exclude_seen)
    nodes = restored.graph.node_table()
    ids, names = (nodes[name].to_numpy(zero_copy_only=False) for name in ("id", "name"))
    return as_table((ids[users], names[users]), (ids, names), items, scores), len(users)


def require_counts(restored: Restored, k: int, exclude_seen: str) -> None:
    """Raise :class:`SettingsError` for a system that does not recommend, and for a wrong ``k`` or ``exclude_seen``."""
    if not restored.entry.recommends:
        raise SettingsError(
            f"{restored.system.name} does not recommend items but predicts links: graphmill links (run.links) gives them"
        )
    if exclude_seen not in get_args(ExcludeSeen):
        raise SettingsError(f"exclude_seen {exclude_seen!r}; it is one of {', '.join(get_args(ExcludeSeen))}")
    if k < 1:
        raise SettingsError(f"k = {k} recommendations a user; it must be 1 or more")


def as_table(
    users: tuple[NDArray[np.object_], NDArray[np.object_]],
    items: tuple[NDArray[np.object_], NDArray[np.object_]],
    best: NDArray[np.int64],
    scores: NDArray[np.float64],
) -> pa.Table:
    """Build the table of :func:`recommend_run`.

    ``users``: ids and names [U]; ``items``: ids and names of all items; ``best`` [U, k]: rows of ``items``, best
    first, −1 for none.
    """
    row, place = np.nonzero(best >= 0)
    chosen = best[row, place]
    return pa.table(
        {
            "user_id": users[0][row],
            "user_name": users[1][row],
            "rank": (place + 1).astype(np.int32),
            "item_id": items[0][chosen],
            "item_name": items[1][chosen],
            "score": scores[row, place].astype(np.float32),
        },
        SCHEMA,
    )


def write_table(path: Path, table: pa.Table) -> dict[str, Any]:
    """Write the table atomically; returns the file and the number of rows."""
    with writing(path), replacing(path) as part:
        write_parquet(table, part.file)
    return {"file": str(path), "rows": table.num_rows}


def recommend_history(
    restored: Restored,
    history: IngestResult | Sequence[str],
    source: str,
    k: int = 20,
    exclude_seen: str = "auto",
    output: Path | None = None,
) -> dict[str, Any]:
    """Write the ``k`` best items of every user in ``history``; returns a report.

    ``history``: interactions as a reader gives them, or the item ids of one user, oldest first. The training
    interactions of known users are used too. Factor models also recommend new items of which ``history`` has
    interactions with known users; sequence models leave new items out. Columns are those of
    ``recommendations.parquet``.

    Raises:
        SettingsError: the system does not recommend.
        InputError: no user in it has an interaction with an item that the model knows (or can fold in).
    """
    require_counts(restored, k, exclude_seen)
    read = _of_tables if isinstance(history, IngestResult) else _one_user
    histories, people, new_items = read(restored, history)  # type: ignore[arg-type]
    usable = _usable(restored, histories, source)
    items, scores, about = cast(Any, restored.system).fold_in(restored.model, usable, k, exclude_seen)
    graph = restored.graph
    kind = graph.node_type(interaction_relation(graph).target)
    nodes = graph.node_table().slice(kind.offset, kind.count)
    ids, names = (
        np.array([*nodes[name].to_pylist(), *new], dtype=object)
        for name, new in zip(("id", "name"), new_items, strict=True)
    )
    users = tuple(np.array(each, dtype=object) for each in people)
    table = as_table((users[0], users[1]), (ids, names), items, scores)
    written = write_table(output or restored.run.path / OF_HISTORY, table)
    known = int((usable.known >= 0).sum())
    left_out = len(histories.items) - len(usable.items)
    counts = {"users": len(usable.known), "known_users": known, "interactions_left_out": left_out}
    without = counts["users_without_list"] = int((items < 0).all(axis=1).sum())
    said = {}
    if without:
        said["note"] = (
            f"{without} of {len(items)} users get no list: they have met nothing that the training "
            "knows, or nothing new is left"
        )
    return {**written, "k": k, **counts, **about, **said}


def _usable(restored: Restored, h: Histories, source: str) -> Histories:
    """The histories without items that are unknown to the model and, for factor models, have no interaction with a
    known user."""
    graph = restored.graph
    items = graph.node_type(interaction_relation(graph).target).count
    reached = np.zeros(items + h.new_items, bool)
    reached[:items] = True
    if restored.system.folds_in_items:  # a new item gets its vector from its known users
        reached[h.items[h.known[h.users] >= 0]] = True
    result = h.take(reached[h.items])
    if not len(result.items):
        raise InputError(
            f"{source}: none of its {len(h.items):,} interactions is with an item that the model knows; items go by the ids "
            "that they had in the training"
        )
    return result


def _one_user(restored: Restored, items: Sequence[str]) -> Met:
    """The history of one unknown user."""
    graph = restored.graph
    if isinstance(items, str) or not len(items):
        raise InputError("history: give a file of interactions, or a list of item ids, at least one")
    numbers = graph.numbers_of(interaction_relation(graph).target, [str(item) for item in items])
    if lost := [item for item, number in zip(items, numbers, strict=True) if number < 0]:
        raise InputError(f"history: the model has no item '{lost[0]}' ({len(lost)} of {len(items)} are unknown to it)")
    result = Histories(np.array([0, len(numbers)], np.int64), numbers, np.array([-1], np.int64))
    return result, ([""], [""]), ([], [])


def _of_tables(restored: Restored, tables: IngestResult) -> Met:
    """The users in order of appearance. Each history begins with the user's training interactions."""
    graph = restored.graph
    relation = interaction_relation(graph)
    user_type, item_type = graph.node_type(relation.source), graph.node_type(relation.target)
    ids, names = tables.nodes["id"].to_pylist(), tables.nodes["name"].to_pylist()
    of_file = pc.equal(tables.edges["relation"].cast(pa.string()), DISLIKED)
    edges, dislikes = tables.edges.filter(pc.invert(of_file)), tables.edges.filter(of_file)
    (head, tail), (disliking, refused) = ((t["head"].to_numpy(), t["tail"].to_numpy()) for t in (edges, dislikes))
    requested, user = np.unique(head, return_inverse=True)
    known = graph.numbers_of(user_type.name, [ids[row] for row in requested])
    items, rows = np.full(len(ids), -1, np.int64), np.unique(np.concatenate([tail, refused]))
    items[rows] = graph.numbers_of(item_type.name, [ids[row] for row in rows])
    new = np.unique(tail[items[tail] < 0])
    items[new] = item_type.count + np.arange(len(new))
    times = edges["timestamp"].to_numpy() if "timestamp" in edges.column_names else None
    place = np.arange(len(user)) if "position" not in edges.column_names else edges["position"].to_numpy()
    trained = graph.edges(relation)
    before, mine = _before(trained, known, user_type.count)
    when = None if times is None or trained.timestamp is None else np.asarray(trained.timestamp)[mine]
    times = None if when is None else times
    user, item = np.concatenate([before, user]), np.concatenate([np.asarray(trained.dst)[mine], items[tail]])
    place = np.concatenate([np.arange(len(before)) - len(before), place])
    order = np.lexsort((place, user) if times is None else (place, np.concatenate([when, times]), user))
    indptr = np.concatenate(([0], np.cumsum(np.bincount(user, minlength=len(requested))))).astype(np.int64)
    all_times = None if times is None else np.concatenate([when, times])[order]
    counted = np.isin(disliking, requested) & (items[refused] >= 0)
    of_user = np.searchsorted(requested, disliking[counted])
    disliked = _disliked(graph, known, of_user, items[refused[counted]], item_type.count + len(new))
    weights = trained.relative_weights()
    if weights is not None:
        weights = np.concatenate([weights[mine], np.asarray(trained.relative_weights(weights_of(edges)))])[order]
    histories = Histories(indptr, item[order], known, len(new), all_times, disliked, weights)
    users_of_file, new_items = (([ids[row] for row in rows], [names[row] for row in rows]) for rows in (requested, new))
    return histories, users_of_file, new_items


def _disliked(graph: TypedGraph, known: np.ndarray, user: np.ndarray, item: np.ndarray, items: int) -> CsrPattern:
    """What the users do not like: pairs ``user``, ``item`` of the file, and what the graph has of users it knows."""
    before = disliked_pairs(graph, interaction_relation(graph))
    place = _places(known, len(before.counts))
    mine = place[before.row] >= 0
    users = np.concatenate((place[before.row[mine]], user))
    return to_rows(users, np.concatenate((before.columns[mine], item)), len(known), items)


def _before(edges: RelationEdges, known: np.ndarray, users: int) -> tuple[np.ndarray, np.ndarray]:
    """The interactions that known users had before, int64: the user's index in ``known``, and the number of the edge; in
    the order of a sequence or of the times, if there is one. ``users``: of the model."""
    place = _places(known, users)
    mine = np.flatnonzero(place[np.asarray(edges.src)] >= 0)
    within = edges.position if edges.position is not None else edges.timestamp
    if within is not None:
        mine = mine[np.argsort(np.asarray(within)[mine], kind="stable")]
    return place[np.asarray(edges.src)[mine]], mine


def _places(known: np.ndarray, users: int) -> np.ndarray:
    """int64 [at least ``users``]: the index in ``known`` of each user of the model, −1 for one that is not in it."""
    place = np.full(max(users, int(known.max(initial=-1)) + 1), -1, np.int64)
    place[known[known >= 0]] = np.flatnonzero(known >= 0)
    return place
