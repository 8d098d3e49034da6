"""Turns interactions of users with items into nodes and edges: users and items, and one relation.

All formats of interactions share it. Numeric ids are rows of feature files, so a gap between them is also an item.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.id_columns import coverage
from graphmill.ingest.node_tables import merged_nodes, text_of
from graphmill.ingest.tables import (
    EDGE_NUMBERS,
    EDGES,
    NO_PLACE,
    NO_TIME,
    NODES,
    IngestResult,
    Reading,
    as_column,
    sentences,
)
from graphmill.ingest.times import Time, unit_notes

USER, ITEM, RELATION = "user", "item", "interacted"
DISLIKED = "disliked"
"""The relation of pairs whose weight counts as no liking: such an item is never recommended to the user."""
ENTITY = "entity"
SPLITS = ("train", "valid", "test")
EDGES_WITH_SPLIT = EDGES.append(pa.field("split", pa.uint8()))


def numbers(count: int) -> pa.StringArray:
    """Ids "0" to ``count - 1``."""
    return pa.array(np.arange(count)).cast(pa.string())


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


def node_table(parts: Sequence[tuple[Any, ...]], source: str) -> pa.Table:
    """The nodes of all (type, ids) or (type, ids, names), one type after the other. Nodes without names have their ids."""
    sizes = [len(part[1]) for part in parts]
    kinds = as_column(np.repeat(np.arange(len(parts), dtype=np.int32), sizes), [part[0] for part in parts])
    label = as_column(np.zeros(len(kinds), np.int32), [source])
    texts = [pa.concat_arrays([part[place] for part in parts]) for place in (1, -1)]
    return pa.table([pa.array(np.arange(len(kinds))), texts[0], kinds, texts[1], label], NODES)


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


def _coded(table: pa.Table, name: str) -> tuple[pa.Array, np.ndarray]:
    """The distinct texts of a column in order of first appearance, and each one's number (int64)."""
    encoded = text_of(table, name).dictionary_encode()
    return encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def interaction_tables(
    table: pa.Table, reading: Reading, k_core: int, *, rows: int, ordered: bool = True
) -> IngestResult:
    """Nodes and edges of one source: ``table`` has ``user`` and ``item``, and, if they are known, ``second``, ``nano`` and
    ``unit`` of the time, and ``weight``.

    Edges have, beyond the standard columns, ``position`` int32 (index in the user's sequence: by time to the
    nanosecond, ties in the order of the file), ``timestamp`` (int64, whole seconds) and ``weight``, if there are any. A
    user's n-th interaction with one item has the display_relation "interacted n", so that repetitions are separate
    edges. ``k_core``: keep users and items with at least this many interactions each, repeated until all have them.
    ``rows``: number of rows of the file, for the counts. ``ordered`` False: the order of the file has no meaning, and
    there are no positions.

    Raises :class:`InputError` if nothing is left.
    """
    import pandas as pd

    before, name, timed = table.num_rows, reading.name, "second" in table.column_names
    if not before:
        raise InputError(f"{name} has no usable interaction{reading.first_reject}")
    mixed, notes = unit_notes(name, *(table[part].to_numpy() for part in Time._fields)) if timed else (0, [])
    (users, user), (items, item) = _coded(table, "user"), _coded(table, "item")
    if k_core > 1:
        table = table.filter(pa.array(_core(user, item, k_core)))
        if not table.num_rows:
            raise InputError(f"{name}: no user and item have {k_core} interactions each; reduce k_core")
        (users, user), (items, item) = _coded(table, "user"), _coded(table, "item")
    times = [table[part].to_numpy() for part in ("nano", "second") if timed]
    order = np.lexsort([*times, user])  # stable: ties keep the order of the file
    others = table.drop_columns(["user", "item"]).take(pa.array(order))
    user, item = user[order], item[order]
    pair = pd.Series(user * np.int64(len(items)) + item)
    repeat = np.asarray(pair.groupby(pair).cumcount())
    counts = {
        "rows": rows,
        "rejected_rows": reading.refused,
        "interactions": len(user),
        "users": len(users),
        "items": len(items),
        "times_of_another_unit": mixed,
        "dropped_by_k_core": before - len(user),
        **_oddities(user, item, others, order, repeat),
    }
    return IngestResult(
        nodes=node_table([(USER, users), (ITEM, items)], name.rsplit("/")[-1]),
        edges=_edges(user, item + len(users), others, repeat, ordered=ordered),
        rejects=reading.table(),
        counts=counts,
        notes=[*notes, *sentences(counts, SENTENCES)],
    )


def _core(user: np.ndarray, item: np.ndarray, k: int) -> np.ndarray:
    """The interactions (bool) whose users and items have at least ``k`` of them."""
    keep = np.ones(len(user), bool)
    while True:
        fewer = keep & (np.bincount(user, keep)[user] >= k) & (np.bincount(item, keep)[item] >= k)
        if fewer.sum() == keep.sum():
            return keep
        keep = fewer


def _oddities(
    user: np.ndarray, item: np.ndarray, others: pa.Table, order: np.ndarray, repeat: np.ndarray
) -> dict[str, int]:
    """Counts of what is unusual. ``order``: the rows of the file by user, then time, as the other arguments are."""
    import pandas as pd

    lengths = np.bincount(user)
    counts = {
        "repeated_pairs": int((repeat > 0).sum()),
        "single_interaction_users": int((lengths == 1).sum()),
        "short_sequences": int((lengths < 3).sum()),
        "duplicate_rows": 0,
        "same_time": 0,
        "users_out_of_order": 0,
    }
    if "second" not in others.column_names:
        return counts
    second, nano = others["second"].to_numpy(), others["nano"].to_numpy()
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
    "short_sequences": "{} users have fewer than 3 interactions; nothing is held out of them",
    "duplicate_interactions": "{} interactions repeat a user and item of the same split; the graph has each once",
    "unused_user_numbers": "{} user numbers have no interaction",
    "unused_item_numbers": "{} item numbers have no interaction (gaps); they are items all the same, for their features",
}
"""Sentences of counts."""


def _edges(user: np.ndarray, tail: np.ndarray, others: pa.Table, repeat: np.ndarray, *, ordered: bool) -> pa.Table:
    names = [RELATION, *(f"{RELATION} {n}" for n in range(2, int(repeat.max(initial=0)) + 2))]
    columns: dict[str, Any] = {
        "relation": as_column(np.zeros(len(user), np.int32), [RELATION]),
        "display_relation": as_column(repeat.astype(np.int32), names),
        "head": pa.array(user.astype(np.int32)),
        "tail": pa.array(tail.astype(np.int32)),
    }
    if ordered:
        starts = np.concatenate(([0], np.cumsum(np.bincount(user))))
        columns["position"] = pa.array((np.arange(len(user)) - starts[user]).astype(np.int32))
    for name, source, kind in (("timestamp", "second", pa.int64()), ("weight", "weight", pa.float32())):
        if source in others.column_names:
            columns[name] = others[source].combine_chunks().cast(kind)
    return pa.table(columns)


_FILLED = {"split": 0, "timestamp": 0, **EDGE_NUMBERS, "position": NO_PLACE}
"""Columns that edges of another source may lack, with their defaults: train, no time, weight 1, no position in a
sequence."""


def stacked(a: pa.Table, b: pa.Table) -> pa.Table:
    """The edges ``a``, then ``b``; a column that one of them lacks has its default of :data:`_FILLED`."""
    joined = pa.concat_tables([a, b], promote_options="default").unify_dictionaries().combine_chunks()
    for place, name in enumerate(joined.column_names):
        if joined[name].null_count and name in _FILLED:
            # Links, some of which have a time, have no position.
            untimed = name == "timestamp" and "position" not in joined.column_names
            joined = joined.set_column(place, name, joined[name].fill_null(NO_TIME if untimed else _FILLED[name]))
    return joined


def with_dislikes(result: IngestResult, rows: pa.Table) -> IngestResult:
    """``result`` of interactions with an edge :data:`DISLIKED` for each pair of ``rows``
    (``user``, ``item``, ``weight``) whose user and item have interactions, but not with each other. Its edges are in train
    and in no sequence.
    """
    ids, kinds = text_of(result.nodes, "id"), text_of(result.nodes, "type")
    users = pc.sum(pc.equal(kinds, USER)).as_py()
    ends = [pc.index_in(text_of(rows, "user"), ids[:users]), pc.index_in(text_of(rows, "item"), ids[users:])]
    user, item = (end.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) for end in ends)
    liked = result.edges["head"].to_numpy().astype(np.int64) * len(ids) + result.edges["tail"].to_numpy()
    key = np.where((user >= 0) & (item >= 0), user * len(ids) + item + users, -1)
    pairs, first = np.unique(key, return_index=True)
    kept = (pairs >= 0) & ~np.isin(pairs, liked)
    pairs, first = pairs[kept], first[kept]
    if not len(pairs):
        return result
    name = as_column(np.zeros(len(pairs), np.int32), [DISLIKED])
    edges = {
        "relation": name,
        "display_relation": name,
        "head": pa.array((pairs // len(ids)).astype(np.int32)),
        "tail": pa.array((pairs % len(ids)).astype(np.int32)),
    }
    if "weight" in result.edges.column_names:
        edges["weight"] = rows["weight"].combine_chunks().take(pa.array(first)).cast(pa.float32())
    return replace(
        result,
        edges=stacked(result.edges, pa.table(edges)),
        counts=result.counts | {"disliked": len(pairs)},
        notes=[
            *result.notes,
            f"{len(pairs):,} pairs of user and item are dislikes: the item is never recommended to that user",
        ],
    )


def with_knowledge(result: IngestResult, knowledge: IngestResult, name: str = "knowledge") -> IngestResult:
    """``result`` with the nodes and edges of ``knowledge``; both are results of readers.

    Nodes are matched by type and id. If the interactions have a split, facts are in train, whatever their own split was;
    otherwise all get a split when the graph is built. Facts have no position in a sequence (:data:`NO_PLACE`). Counts and
    notes are added under ``name``.

    Raises :class:`InputError` if the two have no node in common, or if both have items but no common one: then no fact
    is about an item with interactions, and the ids are probably of different kinds.
    """
    first, second = result.nodes.combine_chunks(), knowledge.nodes.combine_chunks()
    nodes, (_, row) = merged_nodes(first, second)
    new = row >= first.num_rows
    of_items = [pc.equal(t["type"].cast(pa.string()), ITEM).to_numpy(zero_copy_only=False) for t in (first, second)]
    both = all(mask.any() for mask in of_items)
    required = of_items[1] if both else np.ones(len(new), bool)
    ids = [
        text_of(t, "id").filter(pa.array(mask | (not both))) for t, mask in zip((first, second), of_items, strict=True)
    ]
    matches = coverage(name, ids[1], "the interactions", ids[0])
    if new[required].all():
        kinds = ITEM if both else ", ".join(second["type"].unique().to_pylist())
        last = [np.flatnonzero(mask | (not both))[-1].item() for mask in of_items]
        first_node, second_node = (
            f"{t['type'][row].as_py()} {t['id'][row].as_py()!r}" for t, row in zip((first, second), last, strict=True)
        )
        raise InputError(
            f"no node of {name} ({kinds}) is among the nodes of the interactions: their types and ids must be the same, and "
            f"here is {first_node}, there {second_node} (of kgat files ids are the numbers, remap_id)"
            + (f"; {matches.repair}" if matches.repair else "")
        )
    edges = knowledge.edges
    if "split" in edges.column_names:
        # Facts are in train, whatever their file held out. Interactions whose split is still to be drawn have none yet.
        edges = edges.drop_columns("split")
    for column in ("head", "tail"):
        edges = edges.set_column(edges.schema.get_field_index(column), column, pa.array(row[edges[column].to_numpy()]))
    unmet = int((new & of_items[1]).sum())
    remarks = [f"{unmet:,} items have no interaction; they are there to be recommended as well"] if unmet else []
    return replace(
        result,
        nodes=nodes,
        edges=stacked(result.edges, edges),
        rejects=pa.concat_tables([result.rejects, knowledge.rejects]),
        counts=result.counts
        | {f"{name}: {key}": value for key, value in (knowledge.counts | {"new_items": unmet}).items()},
        coverage=[*result.coverage, *knowledge.coverage, matches],
        notes=result.notes + [f"{name}: {note}" for note in [*knowledge.notes, *remarks]],
    )
