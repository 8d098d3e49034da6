"""Nodes that node files list, and how they and those of edges become one node for each type and id.

A listed node is identified by its id within its *space*: the node type, or what Neo4j calls an ID space. If it has several
types (categories, labels), a rule chooses its type in the graph (:func:`catalogue_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.tables import MAX_SHOWN, NODES


def codes_of(*columns: pa.Array) -> np.ndarray:
    """A number (int32) for each distinct row of ``columns``, counting up in the order of first appearance."""
    code: np.ndarray | None = None
    for column in columns:
        encoded = column.dictionary_encode()
        number = encoded.indices.to_numpy()
        if code is not None:
            pairs = code.astype(np.int64) * max(len(encoded.dictionary), 1) + number
            number = pa.array(pairs).dictionary_encode().indices.to_numpy()
        code = number
    assert code is not None
    return code


def first_rows(code: np.ndarray) -> np.ndarray:
    """The first row (int32) with each code."""
    first = np.zeros(int(code.max(initial=-1)) + 1, dtype=np.int32)
    # The last assignment wins, so assigning backwards leaves the first row.
    first[code[::-1]] = np.arange(len(code) - 1, -1, -1, dtype=np.int32)
    return first


def first_filled(text: pa.StringArray, code: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each code, the row of its first nonempty string, and whether another string differs (bool).

    ``first`` has the first row of each code, which is the result if all its strings are empty.
    """
    if _agrees(text, first[code]):
        return first, np.zeros(len(first), dtype=bool)
    filled = np.flatnonzero(pc.greater(pc.binary_length(text), 0).to_numpy(zero_copy_only=False))
    chosen = first.copy()
    chosen[code[filled][::-1]] = filled[::-1]
    same = pc.equal(text.take(pa.array(filled)), text.take(pa.array(chosen[code[filled]])))
    different = np.zeros(len(first), dtype=bool)
    different[code[filled[~same.to_numpy(zero_copy_only=False)]]] = True
    return chosen, different


def _agrees(column: pa.Array, rows: np.ndarray) -> bool:
    return bool(pc.all(pc.equal(column, column.take(pa.array(rows))), min_count=0).as_py())


def text_of(table: pa.Table, name: str, constant: str = "") -> pa.StringArray:
    """A column as strings; ``constant`` in every row if no column is given."""
    if not name:
        return pa.repeat(pa.scalar(constant, pa.string()), table.num_rows)
    array = table[name].combine_chunks()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def category_of(table: pa.Table, name: str, constant: str = "") -> pa.DictionaryArray:
    """A column as codes of its strings; ``constant`` in every row if no column is given."""
    if not name:
        codes = pa.array(np.zeros(table.num_rows, dtype=np.int32))
        return pa.DictionaryArray.from_arrays(codes, pa.repeat(pa.scalar(constant, pa.string()), 1))
    array = table[name].combine_chunks()
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


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

    Of several types, a node gets the one with the fewest nodes; of equals, the one that is written first most often.
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
    import pandas as pd

    encoded = types.dictionary_encode()
    kinds_of = [_split(cell, separators, prefix) for cell in encoded.dictionary.to_pylist()]
    cells = pd.DataFrame({"node": code, "cell": encoded.indices.to_numpy()}).drop_duplicates()
    cells["kind"] = [kinds_of[cell] for cell in cells["cell"]]
    rows = cells.explode("kind").dropna(subset="kind").drop_duplicates(["node", "kind"])
    rows["place"] = rows.groupby("node").cumcount()
    often = rows.groupby("kind")["place"].agg(["size", "mean"])
    rows = rows.join(often, on="kind").sort_values(["size", "mean", "kind"])
    chosen = rows.drop_duplicates("node").set_index("node")["kind"].reindex(range(count), fill_value=MISSING_TYPE)
    number = rows["node"].value_counts()
    return pa.array(chosen.tolist(), pa.string()), int((number > 1).sum()), count - len(number)


def _split(cell: str, separators: str, prefix: str) -> list[str]:
    for mark in separators[1:]:
        cell = cell.replace(mark, separators[0])
    parts = (part.strip() for part in (cell.split(separators[0]) if separators else [cell]))
    return [part.removeprefix(prefix) for part in parts if part.removeprefix(prefix)]


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
