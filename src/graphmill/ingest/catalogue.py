"""Merges the rows of node files into nodes: one node each, with one type, even if several rows or types describe it.

A node is identified by its id within its *space*: the node type, or what Neo4j calls an ID space. If a node has several
types (categories, labels), a rule chooses its type in the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.kg_mentions import codes_of, first_filled, first_rows, text_of
from graphmill.ingest.tables import MAX_SHOWN, NODES

MISSING_TYPE = "node"
"""The type of nodes for which no file has a type."""


LISTED = pa.schema(
    [*((name, pa.string()) for name in ("space", "id", "types", "name", "source")), ("withdrawn", pa.bool_())]
)
"""Rows of a node file: ``types`` as written, of which a cell may have several; ``space``: empty is the type, once it is
known; ``withdrawn``: the row says that its node is deprecated or the like."""


def listed_rows(id: pa.StringArray, **others: Any) -> pa.Table:
    """Rows with the schema :data:`LISTED`. Other columns are arrays, or a value of all rows; blank where not given."""
    columns = [id if name == "id" else others.get(name, "" if name != "withdrawn" else False) for name in LISTED.names]
    arrays = [
        each if isinstance(each, pa.Array) else pa.repeat(pa.scalar(each, kind), len(id))
        for each, kind in zip(columns, LISTED.types, strict=True)
    ]
    return pa.table(arrays, LISTED)


@dataclass(frozen=True)
class Catalogue:
    """The listed nodes, in the order of their first rows: ``space``, ``id``, ``type``, ``name``, ``source`` (strings).

    ``several``: number of nodes with more than one type. ``untyped``: nodes without a type. ``repeated``: rows after
    each node's first. ``withdrawn`` int64: the nodes of which a row says that they are deprecated or the like.
    """

    space: pa.StringArray
    id: pa.StringArray
    type: pa.StringArray
    name: pa.StringArray
    source: pa.StringArray
    several: int
    untyped: int
    repeated: int
    withdrawn: np.ndarray

    def __len__(self) -> int:
        return len(self.id)

    def table(self) -> pa.Table:
        """The columns ``id``, ``type``, ``name`` and ``source``."""
        return pa.table({name: getattr(self, name) for name in ("id", "type", "name", "source")})

    def find(self, space: pa.StringArray | None, ids: pa.StringArray) -> np.ndarray:
        """The node (int64) of each id in its space; −1 if there is none. Without ``space``, −2 for an id that is in
        several spaces."""
        if not len(self):
            return np.full(len(ids), -1, np.int64)
        if space is None:
            node = places_in(ids, self.id)
            code = codes_of(self.id)
            shared = np.bincount(code)[code] > 1
            return np.where((node >= 0) & shared[np.maximum(node, 0)], -2, node)
        return places_in(joined_keys(space, ids), joined_keys(self.space, self.id))


def catalogue_of(listed: Sequence[pa.Table], separators: str = "", prefix: str = "") -> Catalogue:
    """The nodes of all files, whose rows have the schema :data:`LISTED`. ``separators``: characters between types.
    ``prefix``: removed from each type.

    Of several types, a node gets the one with the fewest nodes, which is the most specific one if general types are listed,
    too; of equals, the one that is written first most often.

    Raises :class:`InputError` if two nodes would have the same type and id.
    """
    rows = pa.concat_tables([LISTED.empty_table(), *listed]).combine_chunks()
    spaces, ids, types, names, sources = (text_of(rows, name) for name in LISTED.names[:-1])
    code = codes_of(spaces, ids)
    first = first_rows(code)
    chosen, several, untyped = _types(code, len(first), types, separators, prefix)
    space = spaces.take(pa.array(first))
    merged = Catalogue(
        pc.if_else(pc.equal(space, ""), chosen, space),
        ids.take(pa.array(first)),
        chosen,
        names.take(pa.array(first_filled(names, code, first)[0])),
        sources.take(pa.array(first_filled(sources, code, first)[0])),
        several,
        untyped,
        len(code) - len(first),
        np.unique(code[rows["withdrawn"].to_numpy()]),
    )
    key = codes_of(merged.type, merged.id)
    twice = np.flatnonzero(np.bincount(key, minlength=1)[key] > 1)
    if len(twice):
        row = int(twice[0])
        raise InputError(
            f"two nodes have the type {merged.type[row].as_py()!r} and the id {merged.id[row].as_py()[:MAX_SHOWN]!r}; a "
            "node is known by type and id: give the files different types"
        )
    return merged


def _types(
    code: np.ndarray, count: int, types: pa.StringArray, separators: str, prefix: str
) -> tuple[pa.StringArray, int, int]:
    """The type of each node, the number of nodes with several types, and the number without one."""
    encoded = types.dictionary_encode()
    cells = [_split(cell, separators, prefix) for cell in encoded.dictionary.to_pylist()]
    pairs = np.unique(code.astype(np.int64) * max(len(cells), 1) + encoded.indices.to_numpy(), return_index=True)
    in_order = np.sort(pairs[1])
    of_node: list[dict[str, None]] = [{} for _ in range(count)]
    for node, cell in zip(code[in_order].tolist(), encoded.indices.to_numpy()[in_order].tolist(), strict=True):
        of_node[node] |= cells[cell]
    number: Counter[str] = Counter(kind for kinds_of_node in of_node for kind in kinds_of_node)
    place: Counter[str] = Counter()
    for kinds_of_node in of_node:
        for where, kind in enumerate(kinds_of_node):
            place[kind] += where
    keys = [tuple(kinds_of_node) for kinds_of_node in of_node]
    kinds = {
        key: min(key, key=lambda kind: (number[kind], place[kind] / number[kind], kind), default=MISSING_TYPE)
        for key in set(keys)
    }
    several = sum(len(key) > 1 for key in keys)
    return pa.array([kinds[key] for key in keys], pa.string()), several, keys.count(())


def _split(cell: str, separators: str, prefix: str) -> dict[str, None]:
    for mark in separators[1:]:
        cell = cell.replace(mark, separators[0])
    parts = (part.strip() for part in (cell.split(separators[0]) if separators else [cell]))
    return dict.fromkeys(part.removeprefix(prefix) for part in parts if part.removeprefix(prefix))


def merged_nodes(*tables: pa.Table) -> tuple[pa.Table, list[np.ndarray]]:
    """The nodes of several tables, one for each type and id, in the order of their first rows; and the row (int32) of each
    table's nodes among them.

    A node has the first name that is not its id, and the first source.
    """
    columns = ("id", "type", "name", "source")
    ids, types, names, sources = (pa.concat_arrays([text_of(table, name) for table in tables]) for name in columns)
    code = codes_of(types, ids)
    first = first_rows(code)
    names = pc.if_else(pc.equal(names, ids), "", names)
    names, sources = (text.take(pa.array(first_filled(text, code, first)[0])) for text in (names, sources))
    ids, types = (text.take(pa.array(first)) for text in (ids, types))
    names = pc.if_else(pc.equal(names, ""), ids, names)
    arrays = [pa.array(np.arange(len(first))), ids, types.dictionary_encode(), names, sources.dictionary_encode()]
    return pa.table(arrays, NODES), np.split(code, np.cumsum([table.num_rows for table in tables])[:-1])


def joined_keys(space: pa.StringArray, ids: pa.StringArray) -> pa.StringArray:
    """Space and id of each node as one string."""
    return pc.binary_join_element_wise(space, ids, "\x1f")


def places_in(wanted: pa.Array, held: pa.Array) -> np.ndarray:
    """The place (int64) of each of ``wanted`` in ``held``; −1 if there is none."""
    return np.asarray(pc.fill_null(pc.index_in(wanted, value_set=held), -1), np.int64)
