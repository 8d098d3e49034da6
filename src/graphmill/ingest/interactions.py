"""Turns interactions (user, item, time, weight) into nodes and edges: users and items, and one relation, in order.

This module is shared by all formats of interactions. Their readers read the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.ingest.rejects import Reject, reject_table
from graphmill.ingest.tables import IngestResult
from graphmill.ingest.times import Times, unit_notes
from graphmill.ingest.user_items import ITEM, RELATION, USER, Ids, node_table


@dataclass(frozen=True)
class Interactions:
    """Columns of E interactions in the order of the file.

    ``user`` and ``item`` are codes (int64) into ``users`` and ``items`` (ids, string). ``times``, and ``weight``
    (float32), may be None.
    """

    users: pa.Array
    items: pa.Array
    user: np.ndarray
    item: np.ndarray
    times: Times | None
    weight: np.ndarray | None

    def take(self, rows: np.ndarray) -> Interactions:
        """The interactions ``rows`` (mask or numbers), with the remaining ids in order of first appearance."""
        (users, user), (items, item) = _coded(pa.array(self.user[rows])), _coded(pa.array(self.item[rows]))
        times = None if self.times is None else self.times.take(rows)
        weight = None if self.weight is None else self.weight[rows]
        return Interactions(self.users.take(users), self.items.take(items), user, item, times, weight)


def encode(users: pa.Array, items: pa.Array, times: Times | None, weight: np.ndarray | None) -> Interactions:
    """Ids as codes, in order of first appearance."""
    (users, user), (items, item) = _coded(users), _coded(items)
    return Interactions(users.cast(pa.string()), items.cast(pa.string()), user, item, times, weight)


def _coded(values: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The distinct values in order of first appearance, and each one's number (int64)."""
    encoded = values.dictionary_encode()
    return encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def interaction_tables(
    interactions: Interactions,
    name: str,
    settings: Any,
    *,
    rejects: Sequence[Reject],
    rows: int,
    ordered: bool = True,
) -> IngestResult:
    """Nodes and edges of one source, by its ``k_core``, ``strict`` and ``max_rejects`` among the ``settings``.

    Edges have, beyond the standard columns, ``position`` int32 (index in the user's sequence: by time to the
    nanosecond, ties in the order of the file), ``timestamp`` (int64, whole seconds) and ``weight``, if there are any. A
    user's n-th interaction with one item has the display_relation "interacted n", so that repetitions are separate
    edges. ``k_core``: keep users and items with at least this many interactions each, repeated until all have them.
    ``rows``: number of rows of the file, for the counts. ``ordered`` False: the order of the file has no meaning, and
    there are no positions.

    Raises :class:`InputError` if nothing is left, for more than ``max_rejects`` rejects (0: no limit), and with
    ``strict`` for the first reject or duplicate row.
    """
    first, k_core = _first(rejects), settings.k_core
    if 0 < settings.max_rejects < len(rejects):
        raise InputError(
            f"{name}: {len(rejects)} rows cannot be used, more than max_rejects ({settings.max_rejects}), the first "
            f"{first}; is this the right format? Raise max_rejects to continue without them"
        )
    if settings.strict and rejects:
        raise InputError(f"{name}: {first}; mend the file, or set strict: false to leave such rows out")
    if not len(interactions.user):
        because = f": {len(rejects)} rows were refused, the first {first}" if rejects else ""
        raise InputError(f"{name} has no usable interaction{because}")
    before = len(interactions.user)
    mixed, notes = (0, []) if interactions.times is None else unit_notes(interactions.times, name)
    if k_core > 1:
        interactions = _core(interactions, k_core)
        if not len(interactions.user):
            raise InputError(f"{name}: no user and item have {k_core} interactions each; reduce k_core")
    order, position = _sequence(interactions)
    repeat = _repetition(interactions, order)
    counts = {
        "rows": rows,
        "rejects": len(rejects),
        "interactions": len(interactions.user),
        "users": len(interactions.users),
        "items": len(interactions.items),
        "times_of_another_unit": mixed,
        "dropped_by_k_core": before - len(interactions.user),
        **_oddities(interactions, order, repeat),
    }
    for odd, words in (
        ("duplicate_rows", "repeat a user, item and time"),
        ("times_of_another_unit", "have a time of another unit"),
    ):
        if settings.strict and counts[odd]:
            raise InputError(f"{name}: {counts[odd]} rows {words}; mend them, or set strict: false")
    notes += [text.format(counts[name]) for name, text in _SENTENCES.items() if counts[name]]
    return IngestResult(
        nodes=node_table([(USER, Ids(interactions.users)), (ITEM, Ids(interactions.items))], name.rsplit("/")[-1]),
        edges=_edges(interactions, order, position if ordered else None, repeat),
        rejects=reject_table((name, reject) for reject in rejects),
        counts=counts,
        notes=notes,
    )


def _first(rejects: Sequence[Reject]) -> str:
    """The place and the error of the first reject."""
    return next(
        (f"on line {r.line}{f', {r.column}' if r.column else ''}: {r.reason} ({r.value!r})" for r in rejects), ""
    )


def _core(interactions: Interactions, k: int) -> Interactions:
    keep = np.ones(len(interactions.user), bool)
    while True:
        users = np.bincount(interactions.user[keep], minlength=len(interactions.users))
        items = np.bincount(interactions.item[keep], minlength=len(interactions.items))
        fewer = keep & (users[interactions.user] >= k) & (items[interactions.item] >= k)
        if fewer.sum() == keep.sum():
            return interactions.take(keep)
        keep = fewer


def _sequence(interactions: Interactions) -> tuple[np.ndarray, np.ndarray]:
    """Rows by user, then time, then order in the file; and each row's position in its user's sequence."""
    times = interactions.times
    keys = [interactions.user] if times is None else [times.nano, times.second, interactions.user]
    order = np.lexsort(keys)  # stable: ties keep the order of the file
    user = interactions.user[order]
    starts = np.concatenate(([0], np.cumsum(np.bincount(user))))
    return order, (np.arange(len(user)) - starts[user]).astype(np.int32)


def _repetition(interactions: Interactions, order: np.ndarray) -> np.ndarray:
    """For each row of ``order``, the number of earlier interactions of its user with its item."""
    import pandas as pd

    key = (interactions.user * np.int64(len(interactions.items)) + interactions.item)[order]
    return np.asarray(pd.Series(key).groupby(key).cumcount())


def _oddities(interactions: Interactions, order: np.ndarray, repeat: np.ndarray) -> dict[str, int]:
    lengths = np.bincount(interactions.user)
    counts = {
        "repeated_pairs": int((repeat > 0).sum()),
        "single_interaction_users": int((lengths == 1).sum()),
        "short_sequences": int((lengths < 3).sum()),
        "duplicate_rows": 0,
        "same_time": 0,
        "users_out_of_order": 0,
    }
    if interactions.times is None:
        return counts
    # A number for each distinct time, in ascending order.
    places = np.lexsort((interactions.times.nano, interactions.times.second))
    there = interactions.times.take(places)
    times = np.empty(len(places), np.int64)
    times[places] = np.cumsum(
        (np.diff(there.second, prepend=there.second[0]) != 0) | (np.diff(there.nano, prepend=there.nano[0]) != 0)
    )
    user, item, time = interactions.user[order], interactions.item[order], times[order]
    same = (user[1:] == user[:-1]) & (time[1:] == time[:-1])
    counts["same_time"] = int(same.sum())
    rows = np.stack((user, item, time))[:, np.lexsort((item, time, user))]
    counts["duplicate_rows"] = int((rows[:, 1:] == rows[:, :-1]).all(axis=0).sum())
    in_file = np.argsort(interactions.user, kind="stable")
    back = (interactions.user[in_file][1:] == interactions.user[in_file][:-1]) & (np.diff(times[in_file]) < 0)
    counts["users_out_of_order"] = len(np.unique(interactions.user[in_file][1:][back]))
    return counts


_SENTENCES = {
    "rejects": "{} rows cannot be used; see the rejects",
    "dropped_by_k_core": "{} interactions of rare users and items were left out (k_core)",
    "repeated_pairs": "{} interactions repeat an item that the user had met before; they are kept",
    "duplicate_rows": "{} rows repeat a user, item and time; they are kept",
    "same_time": "{} interactions share their time with the user's one before; there the file's order counts",
    "users_out_of_order": "{} users are not in time order in the file; they were sorted",
    "short_sequences": "{} users have fewer than 3 interactions; they are trained on, not evaluated",
}


def _edges(interactions: Interactions, order: np.ndarray, position: np.ndarray | None, repeat: np.ndarray) -> pa.Table:
    relation = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(order), np.int32)), pa.array([RELATION]))
    names = [RELATION, *(f"{RELATION} {n}" for n in range(2, int(repeat.max(initial=0)) + 2))]
    columns: dict[str, Any] = {
        "relation": relation,
        "display_relation": pa.DictionaryArray.from_arrays(pa.array(repeat.astype(np.int32)), pa.array(names)),
        "head": pa.array(interactions.user[order].astype(np.int32)),
        "tail": pa.array((interactions.item[order] + len(interactions.users)).astype(np.int32)),
    }
    if position is not None:
        columns["position"] = pa.array(position)
    if interactions.times is not None:
        columns["timestamp"] = pa.array(interactions.times.second[order])
    if interactions.weight is not None:
        columns["weight"] = pa.array(interactions.weight[order])
    return pa.table(columns)
