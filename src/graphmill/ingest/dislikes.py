"""Keeps which items users do not like: edges of a relation of their own, which no system trains on or is measured by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.ingest.disk import as_column
from graphmill.ingest.interactions import DISLIKED, USER
from graphmill.ingest.joined_sources import stacked
from graphmill.ingest.kg_mentions import text_of
from graphmill.ingest.tables import IngestResult


def with_dislikes(result: IngestResult, rows: pa.Table) -> IngestResult:
    """``result`` of interactions with an edge :data:`~graphmill.ingest.interactions.DISLIKED` for each pair of ``rows``
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
