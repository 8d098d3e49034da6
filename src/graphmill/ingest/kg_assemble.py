"""Combines blocks of edges into one node table and one edge table: numbering, contradictions, ``limit_nodes``.

Memory holds the nodes, the numbers of the edges, and the texts of one block at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.ingest.column_maps import EdgeSource
from graphmill.ingest.node_tables import codes_of, first_filled, first_rows
from graphmill.ingest.tables import EDGE_NUMBERS, EDGES, EVIDENCE, MAX_SHOWN, NO_TIME, NODES, Reject

_PENDING_MENTIONS = 1_000_000
_PARTS = ("index", "id", "type", "name", "source")
"""What rows say of a node at their ends."""
_BETWEEN = "\0"
"""Stands between the parts of a node in one text. No cell has it."""
_NOTHING: dict[str, Any] = {"timestamp": NO_TIME, "unit": 0, EVIDENCE: ""} | EDGE_NUMBERS
"""What stands in optional columns where a file has none."""


def ends_of(heads: Mapping[str, pa.Array], tails: Mapping[str, pa.Array]) -> pa.DictionaryArray:
    """The nodes at the ends of edges, head and tail in turn: all that a row says of one as a text, each text once.

    ``heads``, ``tails``: the columns of both ends by part; those that are missing are blank.
    """
    blank = pa.scalar("", pa.large_string())
    between = pa.scalar(_BETWEEN, pa.large_string())  # made when this module is read, it would import pandas
    texts = [
        pc.binary_join_element_wise(
            *(end[part].cast(pa.large_string()) if part in end else blank for part in _PARTS), between
        )
        for end in (heads, tails)
    ]
    order = np.arange(2 * len(texts[0])).reshape(2, -1).T.reshape(-1)
    return pa.concat_arrays(texts).take(pa.array(order)).dictionary_encode()


@dataclass(frozen=True)
class Assembled:
    """The tables of one graph. ``renamed``, ``resourced``, ``unnamed``: number of nodes with a second name, with a second
    source, and without a name. ``units``: of the edges' times; None if no column has times."""

    nodes: pa.Table
    edges: pa.Table
    rejects: list[Reject]
    renamed: int
    resourced: int
    unnamed: int
    units: np.ndarray | None = None


class Assembly:
    """Collects the blocks of all files in order; :meth:`finish` makes the tables.

    ``sources``: the column maps of the files. ``relations``: the first relations, in their order.
    """

    def __init__(self, sources: Sequence[EdgeSource] = (), relations: Iterable[str] = ()) -> None:
        none, names = pa.array([], pa.int32()), pa.array(list(relations), pa.string())
        first = pa.DictionaryArray.from_arrays(none, names)
        self._rows = [pa.table({"relation": first, "display_relation": first})]
        self._ends = pa.DictionaryArray.from_arrays(none, pa.array([], pa.large_string()))
        self._pending: list[pa.DictionaryArray] = []
        self._sources = sources

    def add(self, ends: pa.DictionaryArray, rows: pa.Table) -> None:
        """Add the next block: the ``ends`` of its edges, and their other columns, whose texts are dictionary columns."""
        self._pending.append(ends)
        self._rows.append(rows)
        waiting = sum(len(block.dictionary) for block in self._pending)
        if waiting > max(_PENDING_MENTIONS, len(self._ends.dictionary) // 4):
            self._settle()

    def _settle(self) -> None:
        """Number the pending blocks' ends over all files, and free their texts."""
        every = pa.chunked_array([self._ends, *self._pending])
        self._pending.clear()
        self._ends = every.unify_dictionaries().combine_chunks()
        pa.default_memory_pool().release_unused()

    def finish(self) -> Assembled:
        """The tables, with nodes by index if the file has one, else in the order of their first appearance.

        A row whose index means another node than at its first appearance is a reject.
        """
        self._settle()
        rows = pa.concat_tables(self._rows, promote_options="default").unify_dictionaries().combine_chunks()
        self._rows = []
        for place, name in enumerate(rows.column_names):
            if rows[name].null_count:
                rows = rows.set_column(place, name, pc.fill_null(rows[name], _NOTHING[name]))
        nodes, node = _nodes(self._ends)
        rows = rows.append_column("head", pa.array(node[0::2])).append_column("tail", pa.array(node[1::2]))
        rejects = list[Reject]()
        if "line" in rows.column_names:
            nodes, rows, rejects = _by_index(nodes, node, rows, self._sources[0])
        else:
            nodes = nodes.set_column(0, "index", pa.array(np.arange(nodes.num_rows)))
        others = [name for name in ("split", "timestamp", *EDGE_NUMBERS, EVIDENCE) if name in rows.column_names]
        unnamed = pc.equal(nodes["name"], "")
        kinds = [nodes[part].combine_chunks().dictionary_encode() for part in ("type", "source")]
        names = pc.if_else(unnamed, nodes["id"], nodes["name"])
        table = pa.table([nodes["index"], nodes["id"], kinds[0], names, kinds[1]], NODES).combine_chunks()
        renamed, resourced, blank = (
            int(pc.sum(each).as_py() or 0) for each in (nodes["renamed"], nodes["resourced"], unnamed)
        )
        units = rows["unit"].to_numpy() if "unit" in rows.column_names else None
        return Assembled(table, rows.select([*EDGES.names, *others]), rejects, renamed, resourced, blank, units)


def _nodes(ends: pa.DictionaryArray) -> tuple[pa.Table, np.ndarray]:
    """The distinct nodes in the order of their first appearance, and the number (int32) of each end's.

    Two ends are one node if ``index``, ``id`` and ``type`` are equal; its ``name`` and ``source`` are the first that are not
    empty. ``renamed``, ``resourced`` (bool): whether a later end has another one.
    """
    split = pc.split_pattern(ends.dictionary, "\0")
    parts = {part: pc.list_element(split, place).cast(pa.string()) for place, part in enumerate(_PARTS)}
    code = codes_of(*(parts[part] for part in ("index", "id", "type")))
    first = first_rows(code)
    columns = {part: parts[part].take(pa.array(first)) for part in ("index", "id", "type")}
    for part, flag in (("name", "renamed"), ("source", "resourced")):
        rows, different = first_filled(parts[part], code, first)
        columns |= {part: parts[part].take(pa.array(rows)), flag: pa.array(different)}
    return pa.table(columns), code[ends.indices.to_numpy()]


def _by_index(
    nodes: pa.Table, node: np.ndarray, rows: pa.Table, source: EdgeSource
) -> tuple[pa.Table, pa.Table, list[Reject]]:
    """The nodes in the order of their index, the rows between them, and a reject for each row in which an index means
    another node than at its first appearance. ``node``: that of each end."""
    index = nodes["index"].cast(pa.int64()).combine_chunks()
    key = codes_of(index)
    owner, begins, line = first_rows(key)[key], first_rows(node), rows["line"].to_numpy()
    head, tail = rows["head"].to_numpy(), rows["tail"].to_numpy()
    usable = (owner[head] == head) & (owner[tail] == tail)
    used, rejects = np.zeros(len(key), bool), list[Reject]()
    used[head[usable]] = used[tail[usable]] = True
    for row in np.flatnonzero(~usable).tolist():
        at_head = owner[head[row]] != head[row]
        mention = int(head[row] if at_head else tail[row])
        first, side = int(owner[mention]), source.head if at_head else source.tail
        here, before = ((nodes["type"][n].as_py(), nodes["id"][n].as_py()) for n in (mention, first))
        column, value = (side.type, here[0]) if here[0] != before[0] else (side.id, here[1])
        reason = (
            f"index {index[mention]} is {here[0]} '{here[1]}' here, "
            f"but {before[0]} '{before[1]}' on line {line[begins[first] // 2]}"
        )
        rejects.append(Reject(int(line[row]), column, reason, value[:MAX_SHOWN]))
    order = np.flatnonzero(used)
    order = order[np.argsort(index.to_numpy()[order])]
    nodes = nodes.set_column(0, "index", index)
    return *_among(nodes, rows, order), rejects


def first_nodes(nodes: pa.Table, edges: pa.Table, limit: int) -> tuple[pa.Table, pa.Table]:
    """The ``limit`` nodes that appear first in ``edges`` (row by row, head before tail) and the edges among them."""
    if limit >= nodes.num_rows:
        return nodes, edges
    head, tail = edges["head"].to_numpy(), edges["tail"].to_numpy()
    first = np.full(nodes.num_rows, 2 * len(head), dtype=np.int64)
    ends = np.stack([head, tail], axis=1).reshape(-1)
    first[ends[::-1]] = np.arange(len(ends) - 1, -1, -1)
    return _among(nodes, edges, np.sort(np.argsort(first, kind="stable")[:limit]))


def without_nodes(
    nodes: pa.Table, edges: pa.Table, gone: np.ndarray, listed: np.ndarray
) -> tuple[pa.Table, pa.Table, int]:
    """The tables without the nodes ``gone`` (bool) and their edges, and the number of nodes in edges.

    Nodes that are in no edge then stay where they are ``listed`` (bool).
    """
    head, tail, used = edges["head"].to_numpy(), edges["tail"].to_numpy(), np.zeros(nodes.num_rows, bool)
    inside = ~(gone[head] | gone[tail])
    used[head[inside]] = used[tail[inside]] = True
    return *_among(nodes, edges, np.flatnonzero(~gone & (used | listed))), int(used.sum())


def _among(nodes: pa.Table, edges: pa.Table, kept: np.ndarray) -> tuple[pa.Table, pa.Table]:
    """The nodes ``kept`` (row numbers, in their new order) and the edges among them, which refer to them."""
    head, tail = edges["head"].to_numpy(), edges["tail"].to_numpy()
    row_of = np.full(nodes.num_rows, -1, dtype=np.int32)
    row_of[kept] = np.arange(len(kept), dtype=np.int32)
    inside = (row_of[head] >= 0) & (row_of[tail] >= 0)
    among = edges.filter(pa.array(inside))
    for end, rows in (("head", head), ("tail", tail)):
        at = among.schema.get_field_index(end)
        among = among.set_column(at, among.schema.field(at), pa.array(row_of[rows[inside]]))
    return nodes.take(pa.array(kept)).combine_chunks(), among.combine_chunks()
