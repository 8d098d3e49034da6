"""Interactions as one table that people can read and the graph can be built from.

The table is the reader's edges with the ids of both ends beside them. Every user and item has an interaction, so that
the nodes can be made again from it, in their order.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.ingest.interactions import ITEM, USER
from graphmill.ingest.tables import IngestResult

INTERACTION_COLUMNS = {
    "user_id": "the user's id, as written",
    "item_id": "the item's id, as written",
    "position": "place in the user's sequence, from 0; equal times in the order of the file",
    "timestamp": "seconds",
    "weight": "rating, plays, or what the file has",
    "relation": "the relation that the graph has for them",
    "display_relation": "interacted; interacted n for the n-th time with this item",
    "head": "number of the user",
    "tail": "number of the item, after those of the users",
    "source": "the file",
}


def interactions_table(result: IngestResult) -> pa.Table:
    """The edges of ``result`` with ``user_id``, ``item_id`` in front and ``source`` at the end."""
    ids, edges = result.nodes["id"].combine_chunks(), result.edges
    source = result.nodes["source"].combine_chunks()
    columns = {"user_id": ids.take(edges["head"].combine_chunks()), "item_id": ids.take(edges["tail"].combine_chunks())}
    rest = [name for name in INTERACTION_COLUMNS if name in edges.column_names]
    columns |= {name: edges[name] for name in rest}
    return pa.table(columns | {"source": source.take(edges["head"].combine_chunks())})


def graph_tables(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """``nodes`` and ``edges`` of the reader from :func:`interactions_table`."""
    users, items = _ids(table["head"], table["user_id"]), _ids(table["tail"], table["item_id"])
    ids = pa.concat_arrays([users, items.slice(len(users))])
    kinds = pa.DictionaryArray.from_arrays(
        pa.array((np.arange(len(ids)) >= len(users)).astype(np.int32)), pa.array([USER, ITEM])
    )
    source = table["source"].combine_chunks()
    first = source.take(pa.array(np.zeros(len(ids), np.int64)))
    nodes = pa.table({"index": pa.array(np.arange(len(ids))), "id": ids, "type": kinds, "name": ids, "source": first})
    given = ("relation", "display_relation", "head", "tail", "position", "timestamp", "weight")
    return nodes, table.select([name for name in given if name in table.column_names])


def lengths_table(table: pa.Table) -> list[dict[str, Any]]:
    """How many interactions users and items have: quantiles."""
    rows = []
    for who, column in (("interactions of a user", "head"), ("interactions of an item", "tail")):
        counts = np.unique(table[column].to_numpy(), return_counts=True)[1]
        least, quarter, half, three, most = np.quantile(counts, (0, 0.25, 0.5, 0.75, 1)).tolist()
        rows.append({"of": who, "least": least, "25 %": quarter, "median": half, "75 %": three, "most": most})
    return rows


def popular_items(table: pa.Table, count: int = 20) -> list[dict[str, Any]]:
    """The items with most interactions."""
    counted = pc.value_counts(table["item_id"]).to_pylist()
    best = sorted(counted, key=lambda row: (-row["counts"], row["values"]))[:count]
    total = max(table.num_rows, 1)
    return [
        {"item": row["values"], "interactions": row["counts"], "share": round(row["counts"] / total, 4)} for row in best
    ]


def _ids(numbers: pa.ChunkedArray, ids: pa.ChunkedArray) -> pa.Array:
    """Ids by number: entry n is the id that stands beside the number n (empty below the smallest)."""
    codes = numbers.to_numpy()
    where = np.full(int(codes.max()) + 1, -1, np.int64)
    where[codes[::-1]] = np.arange(len(codes))[::-1]  # the first row of each number
    return pc.if_else(pa.array(where >= 0), ids.combine_chunks().take(pa.array(np.maximum(where, 0))), "")
