"""Merges several sources of one dataset: nodes with the same type and id become one node, and edges are concatenated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.catalogue import joined_keys, places_in
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
    keys = [joined_keys(text_of(table, "type"), text_of(table, "id")) for table in (first, second)]
    place = places_in(keys[1], keys[0])
    new = place < 0
    of_items = [pc.equal(t["type"].cast(pa.string()), ITEM).to_numpy(zero_copy_only=False) for t in (first, second)]
    both = all(mask.any() for mask in of_items)
    asked = of_items[1] if both else np.ones(len(new), bool)
    ids = [
        text_of(t, "id").filter(pa.array(mask | (not both))) for t, mask in zip((first, second), of_items, strict=True)
    ]
    matches = coverage(name, ids[1], "the interactions", ids[0])
    if new[asked].all():
        kinds = ITEM if of_items[0].any() and of_items[1].any() else ", ".join(second["type"].unique().to_pylist())
        example = int(np.flatnonzero(of_items[0])[-1]) if of_items[0].any() else first.num_rows - 1
        other = int(np.flatnonzero(asked)[-1])
        raise InputError(
            f"no node of {name} ({kinds}) is among the nodes of the interactions: their types and ids must be the same, and "
            f"here is {first['type'][example].as_py()} {first['id'][example].as_py()!r}, there "
            f"{second['type'][other].as_py()} {second['id'][other].as_py()!r} (of kgat files ids are the numbers, remap_id)"
            + (f"; {matches.repair}" if matches.repair else "")
        )
    row = np.where(new, first.num_rows + np.cumsum(new) - 1, place).astype(np.int32)
    added = second.filter(pa.array(new))
    added = added.set_column(0, "index", pa.array(np.arange(first.num_rows, first.num_rows + added.num_rows)))
    nodes = pa.concat_tables([_with_names(first, second, place), added]).unify_dictionaries().combine_chunks()
    edges = knowledge.edges
    if "split" in edges.column_names:
        # Facts are in train, whatever their file held out. Interactions whose split is still to be drawn have none yet.
        edges = edges.drop_columns("split")
    for column in ("head", "tail"):
        edges = edges.set_column(edges.schema.get_field_index(column), column, pa.array(row[edges[column].to_numpy()]))
    unmet = int((new & of_items[1]).sum())
    own = [f"{unmet:,} items have no interaction; they are there to be recommended as well"] if unmet else []
    return replace(
        result,
        nodes=nodes,
        edges=_stacked(result.edges, edges),
        rejects=pa.concat_tables([result.rejects, knowledge.rejects]),
        counts=result.counts
        | {f"{name}: {key}": value for key, value in (knowledge.counts | {"new_items": unmet}).items()},
        coverage=[*result.coverage, *knowledge.coverage, matches],
        notes=result.notes + [f"{name}: {note}" for note in [*knowledge.notes, *own]],
    )


def _with_names(first: pa.Table, second: pa.Table, place: np.ndarray) -> pa.Table:
    """The first table's nodes, with the second table's name if the first has only the id."""
    names = first["name"].to_pylist()
    for row, number in enumerate(place.tolist()):
        if number >= 0 and names[number] == first["id"][number].as_py():
            names[number] = second["name"][row].as_py()
    return first.set_column(first.column_names.index("name"), "name", pa.array(names, pa.string()))


def _stacked(a: pa.Table, b: pa.Table) -> pa.Table:
    joined = pa.concat_tables([a, b], promote_options="default").unify_dictionaries().combine_chunks()
    for place, name in enumerate(joined.column_names):
        if joined[name].null_count:
            # Links, some of which have a time, have no position.
            untimed = name == "timestamp" and "position" not in joined.column_names
            joined = joined.set_column(place, name, joined[name].fill_null(NO_TIME if untimed else FILLED[name][0]))
    return joined
