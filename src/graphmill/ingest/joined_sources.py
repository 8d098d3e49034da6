"""Merges several sources of one dataset: nodes with the same type and id become one node, and edges are concatenated.

Which items users do not like are edges of a relation of their own, which no system trains on or is measured by.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.catalogue import merged_nodes
from graphmill.ingest.id_coverage import coverage
from graphmill.ingest.interactions import DISLIKED, ITEM, USER
from graphmill.ingest.kg_mentions import text_of
from graphmill.ingest.tables import EDGE_NUMBERS, NO_PLACE, NO_TIME, IngestResult, as_column

FILLED: dict[str, tuple[float, pa.DataType]] = {
    "split": (0, pa.uint8()),
    "timestamp": (0, pa.int64()),
    **{name: (value, pa.float32()) for name, value in EDGE_NUMBERS.items()},
    "position": (NO_PLACE, pa.int32()),
}
"""Columns that edges of another source may lack, with their defaults: train, no time, weight 1, no position in a
sequence."""


def with_knowledge(result: IngestResult, knowledge: IngestResult, name: str = "knowledge") -> IngestResult:
    """``result`` with the nodes and edges of ``knowledge``; both are results of readers.

    Nodes are matched by type and id. A node keeps a name that is not its id; if both sources have one, the first
    source's. If the interactions have a split, facts are in train, whatever their own split was; otherwise all get a
    split when the graph is built. If interactions have a position in a sequence, facts have none (:data:`NO_PLACE`).
    Counts and notes are added under ``name``.

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
        kinds = ITEM if of_items[0].any() and of_items[1].any() else ", ".join(second["type"].unique().to_pylist())
        example = int(np.flatnonzero(of_items[0])[-1]) if of_items[0].any() else first.num_rows - 1
        other = int(np.flatnonzero(required)[-1])
        raise InputError(
            f"no node of {name} ({kinds}) is among the nodes of the interactions: their types and ids must be the same, and "
            f"here is {first['type'][example].as_py()} {first['id'][example].as_py()!r}, there "
            f"{second['type'][other].as_py()} {second['id'][other].as_py()!r} (of kgat files ids are the numbers, remap_id)"
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


def stacked(a: pa.Table, b: pa.Table) -> pa.Table:
    """The edges ``a``, then ``b``; a column that one of them lacks has its default of :data:`FILLED`."""
    joined = pa.concat_tables([a, b], promote_options="default").unify_dictionaries().combine_chunks()
    for place, name in enumerate(joined.column_names):
        if joined[name].null_count and name in FILLED:
            # Links, some of which have a time, have no position.
            untimed = name == "timestamp" and "position" not in joined.column_names
            joined = joined.set_column(place, name, joined[name].fill_null(NO_TIME if untimed else FILLED[name][0]))
    return joined


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
