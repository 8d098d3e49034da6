"""Writes a typed graph that has only interactions, for trainings to read.

It turns :class:`graphmill.graph.interactions.CsrPattern` rows into a graph directory. ``interactions`` reads such
graphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from graphmill.graph.build import build_graph
from graphmill.graph.interactions import CsrPattern
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import SPLIT_NAMES
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.interactions import ITEM, RELATION, USER


def write_interactions(splits: Mapping[str, CsrPattern], num_items: int, out: Path) -> TypedGraph:
    """Write the graph of ``splits`` ("train", "valid", "test" → items of each user, [U] rows) to ``out`` and open it.

    :func:`graphmill.graph.interactions.interaction_view` reads the same rows back, with users and items in their order.
    Ids are the numbers of users and items. There are no features and no other relations. Like every graph it is written
    atomically, and an existing graph with the same rows is not changed.

    Raises :class:`RunLockedError` while another process builds the same graph.
    """
    num_users = max(len(rows.counts) for rows in splits.values())
    numbers = [*range(num_users), *range(num_items)]
    ids = pa.array([str(number) for number in numbers])
    nodes = pa.table(
        {
            "index": pa.array(np.arange(len(numbers))),
            "id": ids,
            "type": pa.array([USER] * num_users + [ITEM] * num_items).dictionary_encode(),
            "name": ids,
            "source": pa.array([RELATION] * len(numbers)).dictionary_encode(),
        }
    )
    split = np.repeat([SPLIT_NAMES.index(name) for name in splits], [len(rows) for rows in splits.values()])
    relation = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(split), np.int32)), pa.array([RELATION]))
    edges = pa.table(
        {
            "relation": relation,
            "display_relation": relation,
            "head": pa.array(np.concatenate([rows.row for rows in splits.values()]).astype(np.int32)),
            "tail": pa.array(np.concatenate([rows.columns for rows in splits.values()]).astype(np.int32) + num_users),
            "split": pa.array(split.astype(np.uint8)),
        }
    )
    return build_graph(nodes, edges, GraphSettings(add_reverse="never"), out)
