"""Writes a typed graph that has only interactions, for trainings to read.

It turns :class:`graphmill.graph.interactions.CsrPattern` rows into a graph directory. ``interactions`` reads such
graphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from graphmill.graph.build import build_graph
from graphmill.graph.interactions import CsrPattern
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import SPLIT_NAMES
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.interactions import ITEM, RELATION, USER
from graphmill.ingest.user_items import interaction_edges, node_table, numbers


def write_interactions(splits: Mapping[str, CsrPattern], num_items: int, out: Path) -> TypedGraph:
    """Write the graph of ``splits`` ("train", "valid", "test" → items of each user, [U] rows) to ``out`` and open it.

    :func:`graphmill.graph.interactions.interaction_view` reads the same rows back, with users and items in their order.
    Ids are the numbers of users and items. There are no features and no other relations. Like every graph it is written
    atomically, and an existing graph with the same rows is not changed.

    Raises :class:`RunLockedError` while another process builds the same graph.
    """
    num_users = max(len(rows.counts) for rows in splits.values())
    nodes = node_table([(USER, numbers(num_users)), (ITEM, numbers(num_items))], RELATION)
    split = np.repeat([SPLIT_NAMES.index(name) for name in splits], [len(rows) for rows in splits.values()])
    users, items = (np.concatenate([getattr(rows, end) for rows in splits.values()]) for end in ("row", "columns"))
    edges = interaction_edges(users, items, split, num_users)
    return build_graph(nodes, edges, GraphSettings(add_reverse="never"), out)
