"""Combines blocks of edges into one node table and one edge table: numbering, contradictions, ``limit_nodes``."""

from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.disk import pieces
from graphmill.ingest.kg_columns import Side
from graphmill.ingest.kg_mentions import EdgeRows, Mentions, NodeTable, codes_of, first_rows, take
from graphmill.ingest.oddities import edge_oddities, node_oddities
from graphmill.ingest.rejects import Reject
from graphmill.ingest.tables import EDGES, MAX_SHOWN, NO_TIME, NODES
from graphmill.ingest.times import NO_TIME_THERE, Times

_PENDING_MENTIONS = 1_000_000
_EMPTY = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True)
class Assembled:
    """The tables of one file. ``renamed`` and ``resourced``: number of nodes with a second name, or a second source.

    ``times``: times of the edges that have one, in seconds and with their units; None if no column has times.
    """

    nodes: pa.Table
    edges: pa.Table
    rejects: list[Reject]
    renamed: int
    resourced: int
    unnamed: int
    times: Times | None = None


def counts_of(made: Assembled, nodes: pa.Table, edges: pa.Table, rejected: int, indexed: bool) -> dict[str, int]:
    """Counts of rows and of what is unusual. ``indexed``: whether the index of nodes comes from the source."""
    relation = edges["relation"].chunk(0).indices.to_numpy()
    head, tail = (edges[end].to_numpy() for end in ("head", "tail"))
    return {
        "rows": edges.num_rows + rejected,
        "rejected_rows": rejected,
        **asdict(edge_oddities(relation, head, tail, nodes.num_rows)),
        **asdict(node_oddities(nodes, indexed)),
        "nodes_with_two_names": made.renamed,
        "nodes_with_two_sources": made.resourced,
    }


class Assembly:
    """Collects the blocks of one file in order; :meth:`finish` makes the tables."""

    def __init__(self, indexed: bool, head: Side, tail: Side, timestamp: str = "") -> None:
        self._indexed, self._sides, self._timestamp = indexed, (head, tail), timestamp
        self._table = NodeTable(indexed)
        self._pending: list[tuple[Mentions, EdgeRows]] = []
        self._rows: list[EdgeRows] = []

    def add(self, mentions: Mentions, rows: EdgeRows) -> None:
        """Add the next block. ``rows`` refer to ``mentions``."""
        self._pending.append((mentions, rows))
        if sum(len(m) for m, _ in self._pending) > max(_PENDING_MENTIONS, len(self._table.mentions)):
            self._settle()

    def _settle(self) -> None:
        """Number the pending blocks' mentions over the whole file, and free their strings."""
        numbers = self._table.add([mentions for mentions, _ in self._pending])
        for (_, rows), number in zip(self._pending, numbers, strict=True):
            self._rows.append(replace(rows, head=number[rows.head], tail=number[rows.tail]))
        self._pending = []

    def finish(self) -> Assembled:
        """The tables, with nodes by index if the file has one, else in the order of their first appearance."""
        self._settle()
        mentions = self._table.mentions
        owner = owners_of(mentions, self._indexed)
        foreign = owner != np.arange(len(owner))
        head, tail = self._ends("head"), self._ends("tail")
        relation, display = self._column("relation"), self._column("display_relation")
        zeros = np.zeros(len(head), np.int32)
        times = Times(self._ends("timestamp"), zeros, self._ends("unit")) if self._timestamp else None
        bad, rejects = self._bad_times()
        usable = ~(foreign[head] | foreign[tail] | bad)
        if foreign.any():
            for rows in self._rows:
                rejects += self._contradictions(rows, mentions, owner)
        self._rows = []
        if not usable.all():
            head, tail = head[usable], tail[usable]
            relation, display = relation.filter(pa.array(usable)), display.filter(pa.array(usable))
            times = None if times is None else times.take(usable)
        used = np.zeros(len(mentions), dtype=bool)
        used[head] = used[tail] = True
        order, row_of = rows_of_nodes(mentions, used, self._indexed)
        edges = pa.table([relation, display, pa.array(row_of[head]), pa.array(row_of[tail])], EDGES)
        if times is not None:
            edges = edges.append_column("timestamp", pa.array(times.second, pa.int64()))
            times = times.take(times.second != NO_TIME)
        return assembled(take(mentions, order), edges, rejects, self._indexed, times)

    def _ends(self, end: str) -> np.ndarray:
        return np.concatenate([getattr(rows, end) for rows in self._rows] or [_EMPTY])

    def _column(self, name: str) -> pa.DictionaryArray:
        chunks = [getattr(rows, name) for rows in self._rows]
        return pa.chunked_array(chunks, EDGES.field(name).type).unify_dictionaries().combine_chunks()

    def _bad_times(self) -> tuple[np.ndarray, list[Reject]]:
        """Mask (bool) of all rows with an invalid time, and a reject for each."""
        bad, rejects, end = np.zeros(sum(len(rows.head) for rows in self._rows), bool), [], 0
        for rows in self._rows:
            begin, end = end, end + len(rows.head)
            where = np.array(sorted(rows.bad_times), np.int64)
            bad[begin + where] = True
            for row, line in zip(where.tolist(), rows.lines.of(where).tolist(), strict=True):
                rejects.append(Reject(line, self._timestamp, NO_TIME_THERE, rows.bad_times[row][:MAX_SHOWN]))
        return bad, rejects

    def _contradictions(self, rows: EdgeRows, mentions: Mentions, owner: np.ndarray) -> list[Reject]:
        """A reject for each row in which an index means another node than at its first appearance."""
        rejects = []
        bad = np.flatnonzero((owner[rows.head] != rows.head) | (owner[rows.tail] != rows.tail))
        bad = bad[~np.isin(bad, list(rows.bad_times))]  # at most one reject per row
        for row, line in zip(bad.tolist(), rows.lines.of(bad).tolist(), strict=True):
            at_head = owner[rows.head[row]] != rows.head[row]
            mention = int(rows.head[row] if at_head else rows.tail[row])
            first, side = int(owner[mention]), self._sides[0 if at_head else 1]
            here, there = ((mentions.type[m].as_py(), mentions.id[m].as_py()) for m in (mention, first))
            column, value = (side.type, here[0]) if here[0] != there[0] else (side.id, here[1])
            reason = (
                f"index {mentions.index[mention]} is {here[0]} '{here[1]}' here, "
                f"but {there[0]} '{there[1]}' on line {mentions.line[first]}"
            )
            rejects.append(Reject(line, column, reason, value[:MAX_SHOWN]))
        return rejects


def owners_of(mentions: Mentions, indexed: bool) -> np.ndarray:
    """For each mention, the first one with the same key (int32): itself, unless an index has two meanings."""
    if not indexed:
        return np.arange(len(mentions), dtype=np.int32)
    key = codes_of(pa.array(mentions.index))
    return first_rows(key)[key]


def rows_of_nodes(mentions: Mentions, used: np.ndarray, indexed: bool) -> tuple[np.ndarray, np.ndarray]:
    """The mentions that become nodes, in the order of the table; and each mention's row in the table (int32, -1 for
    none)."""
    order = np.flatnonzero(used)
    if indexed:
        order = order[np.argsort(mentions.index[order])]
    if len(order) > np.iinfo(np.int32).max:
        raise InputError(f"the file has {len(order):,} nodes; at most {np.iinfo(np.int32).max:,} are supported")
    row_of = np.full(len(mentions), -1, dtype=np.int32)
    row_of[order] = np.arange(len(order), dtype=np.int32)
    return order, row_of


def assembled(kept: Mentions, edges: pa.Table, rejects: list[Reject], indexed: bool, times: Times | None) -> Assembled:
    """The tables of the mentions that become nodes, and of the edges between them."""
    unnamed = pc.equal(pc.binary_length(kept.name), 0)
    index = pa.array(kept.index if indexed else np.arange(len(kept), dtype=np.int64))
    name, source = pc.if_else(unnamed, kept.id, kept.name), kept.source.dictionary_encode()
    nodes = pa.table([index, kept.id, kept.type.dictionary_encode(), name, source], NODES)
    renamed, resourced = int(kept.renamed.sum()), int(kept.resourced.sum())
    return Assembled(nodes, edges, rejects, renamed, resourced, int(pc.sum(unnamed).as_py() or 0), times)


def first_nodes(nodes: pa.Table, edges: pa.Table, limit: int) -> tuple[pa.Table, pa.Table]:
    """The ``limit`` nodes that appear first in ``edges`` (row by row, head before tail) and the edges among them.

    ``edges`` refers to rows of ``nodes``, before and after. The order of ``nodes`` does not change.
    """
    if limit >= nodes.num_rows:
        return nodes, edges
    head, tail = edges["head"].to_numpy(), edges["tail"].to_numpy()
    first = np.full(nodes.num_rows, 2 * len(head), dtype=np.int64)
    for part in reversed(list(pieces(len(head), head, tail))):
        ends = np.stack([head[part], tail[part]], axis=1).reshape(-1)
        first[ends[::-1]] = 2 * part.start + np.arange(len(ends) - 1, -1, -1)
    kept = np.sort(np.argsort(first, kind="stable")[:limit])
    row_of = np.full(nodes.num_rows, -1, dtype=np.int32)
    row_of[kept] = np.arange(limit, dtype=np.int32)
    inside = (row_of[head] >= 0) & (row_of[tail] >= 0)
    among = edges.filter(pa.array(inside))
    for end, rows in (("head", head), ("tail", tail)):
        at = among.schema.get_field_index(end)
        among = among.set_column(at, among.schema.field(at), pa.array(row_of[rows[inside]]))
    return nodes.take(pa.array(kept)).combine_chunks(), among.combine_chunks()
