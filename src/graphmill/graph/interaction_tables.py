"""Interactions as one table, which is readable: the reader's edges between users and items, with the ids of both ends."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.graph.sorted_unique import sorted_unique
from graphmill.ingest.interactions import DISLIKED, RELATION, stacked
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


def edges_of(table: pa.Table, knowledge: pa.Table | None = None) -> pa.Table:
    """The reader's edges, from the table of :func:`interactions_table` and that of :func:`knowledge_edges`. Facts are in
    train."""
    given = ("relation", "display_relation", "head", "tail", "split", "position", "timestamp", "weight")
    edges = table.select([name for name in given if name in table.column_names])
    return edges if knowledge is None else stacked(edges, knowledge)


def _parts(edges: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Separate the interactions, liked and disliked, from all other edges."""
    of_users = pc.is_in(edges["relation"].cast(pa.string()), pa.array([RELATION, DISLIKED]))
    return edges.filter(of_users).combine_chunks(), edges.filter(pc.invert(of_users)).combine_chunks()


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
