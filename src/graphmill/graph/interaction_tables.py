"""Interactions as one table, which is readable and from which the graph can be built.

The table has the reader's edges between users and items, with the ids of both ends. If every user and item has an
interaction, the nodes can be reconstructed from it, in their order.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.graph.sorted_unique import sorted_unique
from graphmill.ingest.interactions import DISLIKED, ITEM, RELATION, USER, stacked
from graphmill.ingest.tables import EDGES, IngestResult

INTERACTION_COLUMNS = {
    "user_id": "the user's id, unchanged",
    "item_id": "the item's id, unchanged",
    "position": "place in the user's sequence, from 0; interactions with equal times are in the order of the file",
    "timestamp": "seconds",
    "weight": "the file's weight, such as a rating or a number of plays",
    "split": "the split that came with the data: 0 train, 1 valid, 2 test",
    "relation": "the graph's relation for interactions; disliked: a weight that counts as no liking",
    "display_relation": "interacted; interacted n for the n-th time with this item",
    "head": "number of the user",
    "tail": "number of the item; items are numbered after the users",
    "source": "the file",
}


def interactions_table(result: IngestResult) -> pa.Table:
    """The interactions of ``result``, with ``user_id`` and ``item_id`` first and ``source`` last."""
    ids, edges = result.nodes["id"].combine_chunks(), _parts(result.edges)[0]
    source = result.nodes["source"].combine_chunks()
    columns = {"user_id": ids.take(edges["head"].combine_chunks()), "item_id": ids.take(edges["tail"].combine_chunks())}
    columns |= {name: edges[name] for name in INTERACTION_COLUMNS if name in edges.column_names}
    return pa.table(columns | {"source": source.take(edges["head"].combine_chunks())})


def knowledge_edges(edges: pa.Table) -> pa.Table:
    """The edges that are not interactions, with the standard columns."""
    return _parts(edges)[1].select(EDGES.names)


def graph_tables(
    table: pa.Table, nodes: pa.Table | None = None, knowledge: pa.Table | None = None
) -> tuple[pa.Table, pa.Table]:
    """The reader's ``nodes`` and ``edges``, from the table of :func:`interactions_table` and the other tables.

    Without ``nodes``, the nodes are the users and items of the table. Facts of ``knowledge`` are in train.
    """
    given = ("relation", "display_relation", "head", "tail", "split", "position", "timestamp", "weight")
    edges = table.select([name for name in given if name in table.column_names])
    if knowledge is not None:
        edges = stacked(edges, knowledge)
    return nodes if nodes is not None else _nodes(table), edges


def _parts(edges: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Separate the interactions, liked and disliked, from all other edges."""
    of_users = pc.is_in(edges["relation"].cast(pa.string()), pa.array([RELATION, DISLIKED]))
    return edges.filter(of_users).combine_chunks(), edges.filter(pc.invert(of_users)).combine_chunks()


def _nodes(table: pa.Table) -> pa.Table:
    """The users and items, each in the order of their numbers."""
    users, items = (
        table.group_by(end, use_threads=False)
        .aggregate([(name, "first")])
        .sort_by(end)[f"{name}_first"]
        .combine_chunks()
        for end, name in (("head", "user_id"), ("tail", "item_id"))
    )
    ids = pa.concat_arrays([users, items])
    kinds = pa.DictionaryArray.from_arrays(
        pa.array((np.arange(len(ids)) >= len(users)).astype(np.int32)), pa.array([USER, ITEM])
    )
    first = table["source"].combine_chunks().take(pa.array(np.zeros(len(ids), np.int64)))
    return pa.table({"index": pa.array(np.arange(len(ids))), "id": ids, "type": kinds, "name": ids, "source": first})


def liked_rows(table: pa.Table) -> pa.Table:
    """The rows of :func:`interactions_table` that are no dislikes."""
    return table.filter(pc.equal(table["relation"].cast(pa.string()), RELATION))


def evaluated_users(table: pa.Table) -> tuple[int, int]:
    """The numbers of users who can be evaluated (in the given test split, else with three interactions), and of all
    users."""
    users = table["head"].to_numpy()
    if "split" in table.column_names:
        return len(sorted_unique(users[table["split"].to_numpy() == 2])), len(sorted_unique(users))
    counts = np.unique(users, return_counts=True)[1]
    return int((counts >= 3).sum()), len(counts)
