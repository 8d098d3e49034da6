"""Turns interactions of users with items into nodes and edges: users and items, and one relation.

This module is shared by all formats of interactions. Their readers read the files. Interactions come with a time or an
order, or with a split. Numeric ids are rows of feature files, so a gap between them is also an item.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.ingest.disk import as_column
from graphmill.ingest.rejects import Reading, sentences
from graphmill.ingest.tables import EDGES, NODES, IngestResult
from graphmill.ingest.times import Times, unit_notes

USER, ITEM, RELATION = "user", "item", "interacted"
DISLIKED = "disliked"
"""The relation of pairs whose weight counts as no liking: such an item is never recommended to the user."""
ENTITY = "entity"
SPLITS = ("train", "valid", "test")
EDGES_WITH_SPLIT = EDGES.append(pa.field("split", pa.uint8()))


@dataclass(frozen=True)
class Ids:
    """Ids of one node type in the order of their numbers; ``names`` for people, or empty: the ids themselves."""

    ids: pa.Array
    names: Sequence[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)


def numbers(count: int, names: Sequence[str] = ()) -> Ids:
    """Ids "0" to ``count - 1``."""
    return Ids(pa.array(np.arange(count)).cast(pa.string()), list(names))


def as_numbers(ids: pa.Array) -> np.ndarray | None:
    """int64 numbers of ids that are all plain numbers ("7", not "07" or "+7"), if the gaps are no more than the ids."""
    try:
        numbers = ids.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    values = numbers.to_numpy(zero_copy_only=False)
    if len(values) == 0 or values.min() < 0 or not numbers.cast(pa.string()).equals(ids):
        return None
    return values if int(values.max()) + 1 <= 2 * len(values) else None


def node_table(parts: Sequence[tuple[str, Ids]], source: str) -> pa.Table:
    """The nodes of all (type, ids), one type after the other."""
    sizes = [len(ids) for _, ids in parts]
    kinds = as_column(np.repeat(np.arange(len(parts), dtype=np.int32), sizes), [kind for kind, _ in parts])
    label = as_column(np.zeros(len(kinds), np.int32), [source])
    names = [pa.array(part.names, pa.string()) if part.names else part.ids for _, part in parts]
    ids = pa.concat_arrays([part.ids.cast(pa.string()) for _, part in parts])
    named = pa.concat_arrays([name.cast(pa.string()) for name in names])
    return pa.table([pa.array(np.arange(len(kinds))), ids, kinds, named, label], NODES)


def edge_table(
    head: np.ndarray, tail: np.ndarray, split: np.ndarray, relation: np.ndarray, names: Sequence[str]
) -> pa.Table:
    """Edges between rows of the node table; ``relation`` (codes) is an index into ``names``."""
    category = as_column(relation.astype(np.int32), list(names))
    ends = [pa.array(end.astype(np.int32)) for end in (head, tail)]
    return pa.table([category, category, *ends, pa.array(split.astype(np.uint8))], EDGES_WITH_SPLIT)


def interaction_edges(user: np.ndarray, item: np.ndarray, split: np.ndarray, num_users: int) -> pa.Table:
    """Interactions as edges; users are the first rows of the node table, items the next."""
    return edge_table(user, item + num_users, split, np.zeros(len(user), np.int32), [RELATION])


def count_interactions(
    user: np.ndarray, item: np.ndarray, split: np.ndarray, num_users: int, num_items: int
) -> dict[str, int]:
    """Counts legal but unusual interactions with a split."""
    pair = user * np.int64(num_items) + item
    return {
        "interactions": len(user),
        "users": num_users,
        "items": num_items,
        **{name: int((split == number).sum()) for number, name in enumerate(SPLITS)},
        "duplicate_interactions": len(pair) - len(np.unique(pair * 3 + split)),
        "unused_user_numbers": num_users - len(np.unique(user)),
        "unused_item_numbers": num_items - len(np.unique(item)),
    }


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
    interactions: Interactions, reading: Reading, k_core: int, *, rows: int, ordered: bool = True
) -> IngestResult:
    """Nodes and edges of one source.

    Edges have, beyond the standard columns, ``position`` int32 (index in the user's sequence: by time to the
    nanosecond, ties in the order of the file), ``timestamp`` (int64, whole seconds) and ``weight``, if there are any. A
    user's n-th interaction with one item has the display_relation "interacted n", so that repetitions are separate
    edges. ``k_core``: keep users and items with at least this many interactions each, repeated until all have them.
    ``rows``: number of rows of the file, for the counts. ``ordered`` False: the order of the file has no meaning, and
    there are no positions.

    Raises :class:`InputError` if nothing is left.
    """
    import pandas as pd

    before, name = len(interactions.user), reading.name
    if not before:
        raise InputError(f"{name} has no usable interaction{reading.first_reject}")
    mixed, notes = (0, []) if interactions.times is None else unit_notes(interactions.times, name)
    if k_core > 1:
        interactions = _core(interactions, k_core)
        if not len(interactions.user):
            raise InputError(f"{name}: no user and item have {k_core} interactions each; reduce k_core")
    times = interactions.times
    keys = [interactions.user] if times is None else [times.nano, times.second, interactions.user]
    order = np.lexsort(keys)  # stable: ties keep the order of the file
    pair = pd.Series((interactions.user * np.int64(len(interactions.items)) + interactions.item)[order])
    repeat = np.asarray(pair.groupby(pair).cumcount())
    counts = {
        "rows": rows,
        "rejected_rows": reading.refused,
        "interactions": len(interactions.user),
        "users": len(interactions.users),
        "items": len(interactions.items),
        "times_of_another_unit": mixed,
        "dropped_by_k_core": before - len(interactions.user),
        **_oddities(interactions, order, repeat),
    }
    return IngestResult(
        nodes=node_table([(USER, Ids(interactions.users)), (ITEM, Ids(interactions.items))], name.rsplit("/")[-1]),
        edges=_edges(interactions, order, repeat, ordered=ordered),
        rejects=reading.table(),
        counts=counts,
        notes=[*notes, *sentences(counts, SENTENCES)],
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


def _oddities(interactions: Interactions, order: np.ndarray, repeat: np.ndarray) -> dict[str, int]:
    """Counts of what is unusual. ``order``: the rows by user, then time, then place in the file."""
    import pandas as pd

    lengths, times = np.bincount(interactions.user), interactions.times
    counts = {
        "repeated_pairs": int((repeat > 0).sum()),
        "single_interaction_users": int((lengths == 1).sum()),
        "short_sequences": int((lengths < 3).sum()),
        "duplicate_rows": 0,
        "same_time": 0,
        "users_out_of_order": 0,
    }
    if times is None:
        return counts
    user, item = interactions.user[order], interactions.item[order]
    second, nano = times.second[order], times.nano[order]
    before = user[1:] == user[:-1]
    counts["same_time"] = int((before & (second[1:] == second[:-1]) & (nano[1:] == nano[:-1])).sum())
    rows = pd.DataFrame({"user": user, "item": item, "second": second, "nano": nano})
    counts["duplicate_rows"] = int(rows.duplicated().sum())
    counts["users_out_of_order"] = len(np.unique(user[1:][before & (order[1:] < order[:-1])]))
    return counts


SENTENCES = {
    "rejected_rows": "{} rows cannot be used; see the rejects",
    "dropped_by_k_core": "{} interactions of rare users and items were left out (k_core)",
    "repeated_pairs": "{} interactions repeat an item that the user had met before; they are kept",
    "duplicate_rows": "{} rows repeat a user, item and time; they are kept",
    "same_time": "{} interactions share their time with the user's one before; there the file's order counts",
    "users_out_of_order": "{} users are not in time order in the file; they were sorted",
    "short_sequences": "{} users have fewer than 3 interactions; of theirs none is held out",
    "duplicate_interactions": "{} interactions repeat a user and item of the same split; the graph has each once",
    "unused_user_numbers": "{} user numbers have no interaction",
    "unused_item_numbers": "{} item numbers have no interaction (gaps); they are items all the same, for their features",
}
"""Sentences of counts."""


def _edges(interactions: Interactions, order: np.ndarray, repeat: np.ndarray, *, ordered: bool) -> pa.Table:
    relation = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(order), np.int32)), pa.array([RELATION]))
    names = [RELATION, *(f"{RELATION} {n}" for n in range(2, int(repeat.max(initial=0)) + 2))]
    columns: dict[str, Any] = {
        "relation": relation,
        "display_relation": pa.DictionaryArray.from_arrays(pa.array(repeat.astype(np.int32)), pa.array(names)),
        "head": pa.array(interactions.user[order].astype(np.int32)),
        "tail": pa.array((interactions.item[order] + len(interactions.users)).astype(np.int32)),
    }
    if ordered:
        user = interactions.user[order]
        starts = np.concatenate(([0], np.cumsum(np.bincount(user))))
        columns["position"] = pa.array((np.arange(len(user)) - starts[user]).astype(np.int32))
    if interactions.times is not None:
        columns["timestamp"] = pa.array(interactions.times.second[order])
    if interactions.weight is not None:
        columns["weight"] = pa.array(interactions.weight[order])
    return pa.table(columns)
