"""Merges several sources of one dataset: nodes with the same type and id become one node, and edges are concatenated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.catalogue import merged_nodes
from graphmill.ingest.id_coverage import coverage
from graphmill.ingest.interactions import ITEM
from graphmill.ingest.kg_mentions import text_of
from graphmill.ingest.tables import EDGE_NUMBERS, NO_PLACE, NO_TIME, IngestResult

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
