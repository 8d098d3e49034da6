"""Combines blocks of edges into one node table and one edge table: numbering, contradictions, ``limit_nodes``.

Memory holds the nodes, the numbers of the edges, and the texts of one block at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.column_maps import EdgeEnd, EdgeSource
from graphmill.ingest.node_tables import codes_of, distinct, first_rows, mentions_of, text_of
from graphmill.ingest.tables import EDGE_NUMBERS, EDGES, EVIDENCE, MAX_SHOWN, NO_TIME, NODES, Reject, as_column

_PENDING_MENTIONS = 1_000_000
_MOST_NODES = 2**31 - 1
_CATEGORIES = ("relation", "display_relation")


_KINDS: dict[str, Any] = {
    "head": np.int32, "tail": np.int32, "relation": np.int32, "display_relation": np.int32, "line": np.int64,
    "split": np.uint8, "timestamp": np.int64, "unit": np.uint8, **dict.fromkeys(EDGE_NUMBERS, np.float32),
    EVIDENCE: np.int32,
}  # fmt: skip
"""Columns of edges: numbers of nodes, codes of texts, the line of each row if nodes have an index, and times with their
units (index into :data:`graphmill.ingest.times.UNITS`)."""
_NOTHING = {"timestamp": NO_TIME, "unit": 0, EVIDENCE: 0} | EDGE_NUMBERS
"""What stands in optional columns where a file has none."""


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

    ``sources``: the column maps of the files, which say what edges have: a time, a split, numbers, texts, and whether nodes
    have an index. ``relations``: the first relations, in their order.
    """

    def __init__(self, sources: Sequence[EdgeSource] = (), relations: Iterable[str] = ()) -> None:
        columns = {"head", "tail", *_CATEGORIES}
        for source in sources:
            columns |= {name for name in ("timestamp", *EDGE_NUMBERS, EVIDENCE) if getattr(source, name)}
            columns |= {"line"} if source.head.index else set()
            columns |= {"unit"} if source.timestamp else set()
            columns |= set() if source.split is None else {"split"}
        self._sources, self._indexed = sources, "line" in columns
        numbers = dict.fromkeys(("index", "line") if self._indexed else (), pa.array([], pa.int64()))
        none = {"id": pa.array([], pa.string()), **numbers}
        self._mentions = mentions_of(none, none)
        self._columns = {name: [np.empty(0, kind)] for name, kind in _KINDS.items() if name in columns}
        self._names = {name: {text: n for n, text in enumerate(relations)} for name in _CATEGORIES}
        self._names |= {EVIDENCE: {"": 0}} if EVIDENCE in columns else {}
        self._pending: list[pa.Table] = []
        self._rows: list[pa.Table] = []

    def add(self, mentions: pa.Table, rows: pa.Table) -> None:
        """Add the next block. ``rows``: columns of edges, whose ``head`` and ``tail`` (int32) refer to ``mentions``, and
        whose texts are dictionary columns."""
        self._pending.append(mentions)
        self._rows.append(rows)
        if sum(block.num_rows for block in self._pending) > max(_PENDING_MENTIONS, self._mentions.num_rows // 4):
            self._settle()

    def _settle(self) -> None:
        """Number the pending blocks' mentions over all files, and free their strings."""
        places = np.cumsum([self._mentions.num_rows, *(block.num_rows for block in self._pending)])
        if places[-1] > _MOST_NODES:
            raise InputError(f"the files have about {places[-1]:,} nodes; at most {_MOST_NODES:,} are supported")
        self._mentions = pa.concat_tables([self._mentions, *self._pending])  # not the strings of nodes twice in memory
        self._pending.clear()
        self._mentions, code = distinct(self._mentions)
        for rows, (start, end) in zip(self._rows, pairwise(places), strict=True):
            for name, parts in self._columns.items():
                parts.append(self._values(rows, name, code[start:end]).astype(_KINDS[name], copy=False))
        self._rows = []
        pa.default_memory_pool().release_unused()

    def _values(self, rows: pa.Table, name: str, number: np.ndarray) -> np.ndarray:
        if name not in rows.column_names:
            return np.full(rows.num_rows, _NOTHING[name])
        column = rows[name].combine_chunks()
        if (known := self._names.get(name)) is not None:
            codes = [known.setdefault(text, len(known)) for text in column.dictionary.to_pylist()]
            return np.array(codes, np.int32)[column.indices.to_numpy()]
        values = column.to_numpy()
        return number[values] if name in ("head", "tail") else values

    def finish(self) -> Assembled:
        """The tables, with nodes by index if the file has one, else in the order of their first appearance.

        A row whose index means another node than at its first appearance is a reject.
        """
        self._settle()
        columns = {name: np.concatenate(self._columns.pop(name)) for name in list(self._columns)}
        nodes, rejects = self._mentions, list[Reject]()
        if self._indexed:
            nodes, columns, rejects = _by_index(nodes, columns, self._sources[0].head, self._sources[0].tail)
        arrays = [as_column(columns[name], list(self._names[name])) for name in _CATEGORIES]
        edges = pa.table([*arrays, pa.array(columns["head"]), pa.array(columns["tail"])], EDGES)
        for name in ("split", "timestamp", *EDGE_NUMBERS):
            edges = edges.append_column(name, pa.array(columns[name])) if name in columns else edges
        if EVIDENCE in columns:
            edges = edges.append_column(EVIDENCE, as_column(columns[EVIDENCE], list(self._names[EVIDENCE])))
        texts = {name: text_of(nodes, name) for name in ("id", "type", "name", "source")}
        unnamed = pc.equal(texts["name"], "")
        index = nodes["index"] if self._indexed else pa.array(np.arange(nodes.num_rows))
        name = pc.if_else(unnamed, texts["id"], texts["name"])
        kinds = [texts[part].dictionary_encode() for part in ("type", "source")]
        table = pa.table([index, texts["id"], kinds[0], name, kinds[1]], NODES)
        renamed, resourced, blank = (
            int(pc.sum(each).as_py() or 0) for each in (nodes["renamed"], nodes["resourced"], unnamed)
        )
        return Assembled(table, edges, rejects, renamed, resourced, blank, columns.get("unit"))


def _by_index(
    mentions: pa.Table, columns: dict[str, np.ndarray], head: EdgeEnd, tail: EdgeEnd
) -> tuple[pa.Table, dict[str, np.ndarray], list[Reject]]:
    """The nodes in the order of their index, the edges between them, and a reject for each row in which an index means
    another node than at its first appearance."""
    index = mentions["index"].combine_chunks()
    key = codes_of(index)
    owner = first_rows(key)[key]
    heads, tails, used, rejects = columns["head"], columns["tail"], np.zeros(len(key), bool), list[Reject]()
    usable = (owner[heads] == heads) & (owner[tails] == tails)
    used[heads[usable]] = used[tails[usable]] = True
    for row in np.flatnonzero(~usable).tolist():
        at_head = owner[heads[row]] != heads[row]
        mention = int(heads[row] if at_head else tails[row])
        first, side = int(owner[mention]), head if at_head else tail
        here, before = ((mentions["type"][m].as_py(), mentions["id"][m].as_py()) for m in (mention, first))
        column, value = (side.type, here[0]) if here[0] != before[0] else (side.id, here[1])
        reason = (
            f"index {index[mention]} is {here[0]} '{here[1]}' here, "
            f"but {before[0]} '{before[1]}' on line {mentions['line'][first]}"
        )
        rejects.append(Reject(int(columns["line"][row]), column, reason, value[:MAX_SHOWN]))
    order = np.flatnonzero(used)
    order = order[np.argsort(index.to_numpy()[order])]
    row_of = np.full(len(key), -1, dtype=np.int32)
    row_of[order] = np.arange(len(order), dtype=np.int32)
    selected = {name: values[usable] for name, values in columns.items() if name != "line"}
    selected |= {end: row_of[selected[end]] for end in ("head", "tail")}
    return mentions.take(pa.array(order)), selected, rejects


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
    """The nodes ``kept`` (row numbers, ascending) and the edges among them, which refer to them."""
    head, tail = edges["head"].to_numpy(), edges["tail"].to_numpy()
    row_of = np.full(nodes.num_rows, -1, dtype=np.int32)
    row_of[kept] = np.arange(len(kept), dtype=np.int32)
    inside = (row_of[head] >= 0) & (row_of[tail] >= 0)
    among = edges.filter(pa.array(inside))
    for end, rows in (("head", head), ("tail", tail)):
        at = among.schema.get_field_index(end)
        among = among.set_column(at, among.schema.field(at), pa.array(row_of[rows[inside]]))
    return nodes.take(pa.array(kept)).combine_chunks(), among.combine_chunks()
