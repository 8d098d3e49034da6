"""Blocks of edges become one node table and one edge table: numbering, contradictions, ``limit_nodes``."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.kg_columns import Side
from graphmill.ingest.kg_mentions import EdgeRows, Mentions, NodeTable, take
from graphmill.ingest.rejects import Reject
from graphmill.ingest.tables import EDGES, MAX_SHOWN, NODES

_PENDING_MENTIONS = 1_000_000
_EMPTY = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True)
class Assembled:
    """The tables of one file; ``renamed`` and ``resourced``: how many nodes have a second name, or a second source."""

    nodes: pa.Table
    edges: pa.Table
    rejects: list[Reject]
    renamed: int
    resourced: int
    unnamed: int


class Assembly:
    """Takes in the blocks of one file in order; :meth:`finish` makes the tables."""

    def __init__(self, indexed: bool, head: Side, tail: Side) -> None:
        self._indexed, self._sides = indexed, (head, tail)
        self._table = NodeTable(indexed)
        self._pending: list[tuple[Mentions, EdgeRows]] = []
        self._rows: list[EdgeRows] = []

    def add(self, mentions: Mentions, rows: EdgeRows) -> None:
        """Take in the next block: ``rows`` refer to ``mentions``."""
        self._pending.append((mentions, rows))
        if sum(len(m) for m, _ in self._pending) > max(_PENDING_MENTIONS, len(self._table.mentions)):
            self._settle()

    def _settle(self) -> None:
        """Number the pending blocks' mentions over the whole file, and let go of their strings."""
        numbers = self._table.add([mentions for mentions, _ in self._pending])
        for (_, rows), number in zip(self._pending, numbers, strict=True):
            self._rows.append(replace(rows, head=number[rows.head], tail=number[rows.tail]))
        self._pending = []

    def finish(self) -> Assembled:
        """The tables, nodes by index where the file has one, else in the order of their first appearance."""
        self._settle()
        mentions = self._table.mentions
        owner = self._table.owners()
        foreign = owner != np.arange(len(owner))
        rejects = self._contradictions(mentions, owner, foreign) if foreign.any() else []
        head, tail = self._ends("head"), self._ends("tail")
        relation, display = self._column("relation"), self._column("display_relation")
        self._rows = []
        if foreign.any():
            usable = ~(foreign[head] | foreign[tail])
            head, tail = head[usable], tail[usable]
            relation, display = relation.filter(pa.array(usable)), display.filter(pa.array(usable))
        used = np.zeros(len(mentions), dtype=bool)
        used[head] = used[tail] = True
        order = np.flatnonzero(used)
        if self._indexed:
            order = order[np.argsort(mentions.index[order])]
        if len(order) > np.iinfo(np.int32).max:
            raise InputError(f"the file has {len(order):,} nodes; at most {np.iinfo(np.int32).max:,} are supported")
        row_of = np.full(len(mentions), -1, dtype=np.int32)
        row_of[order] = np.arange(len(order), dtype=np.int32)
        edges = pa.table([relation, display, pa.array(row_of[head]), pa.array(row_of[tail])], EDGES)
        kept = take(mentions, order)
        unnamed = pc.equal(pc.binary_length(kept.name), 0)
        return Assembled(
            _node_table(kept, unnamed, self._indexed),
            edges,
            rejects,
            int(kept.renamed.sum()),
            int(kept.resourced.sum()),
            int(pc.sum(unnamed).as_py() or 0),
        )

    def _ends(self, end: str) -> np.ndarray:
        return np.concatenate([getattr(rows, end) for rows in self._rows] or [_EMPTY])

    def _column(self, name: str) -> pa.DictionaryArray:
        chunks = [getattr(rows, name) for rows in self._rows]
        return pa.chunked_array(chunks, EDGES.field(name).type).unify_dictionaries().combine_chunks()

    def _contradictions(self, mentions: Mentions, owner: np.ndarray, foreign: np.ndarray) -> list[Reject]:
        """A reject for each row in which an index stands for another node than where it first appeared."""
        rejects = []
        for rows in self._rows:
            bad = np.flatnonzero(foreign[rows.head] | foreign[rows.tail])
            for row, line in zip(bad.tolist(), rows.lines.of(bad).tolist(), strict=True):
                at_head = foreign[rows.head[row]]
                mention = int(rows.head[row] if at_head else rows.tail[row])
                side = self._sides[0 if at_head else 1]
                rejects.append(_contradiction(mentions, mention, int(owner[mention]), side, line))
        return rejects


def _contradiction(mentions: Mentions, mention: int, first: int, side: Side, line: int) -> Reject:
    here = mentions.type[mention].as_py(), mentions.id[mention].as_py()
    there = mentions.type[first].as_py(), mentions.id[first].as_py()
    column, value = (side.type, here[0]) if here[0] != there[0] else (side.id, here[1])
    reason = (
        f"index {mentions.index[mention]} is {here[0]} '{here[1]}' here, "
        f"but {there[0]} '{there[1]}' on line {mentions.line[first]}"
    )
    return Reject(line, column, reason, value[:MAX_SHOWN])


def _node_table(kept: Mentions, unnamed: pa.BooleanArray, indexed: bool) -> pa.Table:
    index = kept.index if indexed else np.arange(len(kept), dtype=np.int64)
    name = pc.if_else(unnamed, kept.id, kept.name)
    return pa.table(
        [pa.array(index), kept.id, kept.type.dictionary_encode(), name, kept.source.dictionary_encode()], NODES
    )


def first_nodes(nodes: pa.Table, edges: pa.Table, limit: int) -> tuple[pa.Table, pa.Table]:
    """The ``limit`` nodes that appear first in ``edges`` (row by row, head before tail) and the edges among them.

    ``edges`` refers to rows of ``nodes`` before and after. The order of ``nodes`` stays.
    """
    if limit >= nodes.num_rows:
        return nodes, edges
    head, tail = edges["head"].to_numpy(), edges["tail"].to_numpy()
    ends = np.stack([head, tail], axis=1).reshape(-1)
    first = np.full(nodes.num_rows, len(ends), dtype=np.int64)
    first[ends[::-1]] = np.arange(len(ends) - 1, -1, -1)
    kept = np.sort(np.argsort(first, kind="stable")[:limit])
    row_of = np.full(nodes.num_rows, -1, dtype=np.int32)
    row_of[kept] = np.arange(limit, dtype=np.int32)
    inside = (row_of[head] >= 0) & (row_of[tail] >= 0)
    among = edges.filter(pa.array(inside))
    columns = [among["relation"], among["display_relation"], row_of[head[inside]], row_of[tail[inside]]]
    chosen = nodes.take(pa.array(kept)).combine_chunks()
    return chosen, pa.table(columns, EDGES).combine_chunks()
