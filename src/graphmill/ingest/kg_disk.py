"""Combines blocks of edges into one node table and one edge table, without the edges or the nodes' names in memory.

The result is the same as that of :class:`graphmill.ingest.kg_assemble.Assembly` in memory, because the blocks come from
the same parser. Strings go to a DuckDB database in the folder for temporary files, which finds and numbers the distinct
nodes in bounded memory. Numbers are in arrays on disk. Memory holds the node table and one block at a time.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import require
from graphmill.ingest.csv_blocks import Lines
from graphmill.ingest.disk import DiskArray, as_column, disk_empty, let_go, pieces
from graphmill.ingest.kg_assemble import Assembled, Assembly, assembled, owners_of, rows_of_nodes
from graphmill.ingest.kg_columns import Side
from graphmill.ingest.kg_mentions import EdgeRows, Mentions, take
from graphmill.ingest.rejects import Reject
from graphmill.ingest.tables import MAX_SHOWN, NO_TIME
from graphmill.ingest.times import NO_TIME_THERE, Times
from graphmill.memory import available_memory

_LEAST, _MOST = 256 << 20, 512 << 20
"""Memory of the database in bytes; the node table and a block of the file are in addition to it."""
_LATEST = np.iinfo(np.int64).max
_KEY = {True: ("index", "id", "type"), False: ("id", "type")}


@dataclass(frozen=True)
class _Block:
    """The position of a block: its first mention and their number, its first row and their number, and their lines.

    ``exact``: index of its first row in the array of lines; -1: lines count up from ``line``.
    """

    mention: int
    mentions: int
    row: int
    rows: int
    line: int
    exact: int
    bad_times: dict[int, str] = field(default_factory=dict)


class DiskAssembly(Assembly):
    """Collects the blocks of one file in order; :meth:`finish` makes tables whose edges are mapped from files."""

    def __init__(self, indexed: bool, head: Side, tail: Side, timestamp: str = "") -> None:
        super().__init__(indexed, head, tail, timestamp)
        self._strings = _Strings(indexed)
        self._said = {name: DiskArray(np.int64) for name in ("index", "name_at", "source_at", "line")}
        self._said |= {name: DiskArray(bool) for name in ("named", "sourced", "renamed", "resourced")}
        self._edges = {name: DiskArray(np.int32) for name in ("head", "tail", "relation", "display_relation")}
        self._edges |= {"timestamp": DiskArray(np.int64), "unit": DiskArray(np.uint8)} if timestamp else {}
        self._exact = DiskArray(np.int64)
        self._names: dict[str, dict[str, int]] = {"relation": {}, "display_relation": {}}
        self._blocks: list[_Block] = []

    def add(self, mentions: Mentions, rows: EdgeRows) -> None:
        """Add the next block. ``rows`` refer to ``mentions``."""
        said, edges = self._said, self._edges
        exact = len(self._exact) if len(rows.lines.exact) else -1
        block = _Block(
            len(said["line"]),
            len(mentions),
            len(edges["head"]),
            len(rows.head),
            rows.lines.first,
            exact,
            rows.bad_times,
        )
        self._blocks.append(block)
        self._exact.append(rows.lines.exact)
        self._strings.add(block.mention, mentions)
        for name in ("index", "name_at", "source_at", "line", "renamed", "resourced"):
            said[name].append(getattr(mentions, name))
        for name, text in (("named", mentions.name), ("sourced", mentions.source)):
            said[name].append(pc.greater(pc.binary_length(text), 0).to_numpy(zero_copy_only=False))
        for name in edges.keys() - self._names.keys():
            edges[name].append(getattr(rows, name))
        for name, known in self._names.items():
            column = getattr(rows, name)
            codes = [known.setdefault(text, len(known)) for text in column.dictionary.to_pylist()]
            edges[name].append(np.array(codes, np.int32)[column.indices.to_numpy()])

    def finish(self) -> Assembled:
        """The tables, with nodes by index if the file has one, else in the order of their first appearance."""
        number = self._strings.numbers(len(self._said["line"]))
        mentions = self._mentions(number)
        self._strings.close()
        owner = owners_of(mentions, self._indexed)
        edges = {name: array.finish() for name, array in self._edges.items()}
        exact, rejects, used = self._exact.finish(), list[Reject](), np.zeros(len(mentions), bool)
        for block, rows, usable in self._numbered(edges, number, exact, owner):
            used[rows.head[usable]] = used[rows.tail[usable]] = True
            rejects += self._bad_times_of(block, rows)
            if not usable.all():
                rejects += self._contradictions(rows, mentions, owner)
        order, row_of = rows_of_nodes(mentions, used, self._indexed)
        out = {name: DiskArray(array.dtype) for name, array in edges.items()}
        seconds, units = DiskArray(np.int64), DiskArray(np.uint8)
        for block, rows, usable in self._numbered(edges, number, exact, owner):
            place = slice(block.row, block.row + block.rows)
            for name, codes in (("head", row_of[rows.head]), ("tail", row_of[rows.tail])):
                out[name].append(codes[usable])
            for name in out.keys() - {"head", "tail"}:
                out[name].append(edges[name][place][usable])
            if self._timestamp:
                timed = usable & (edges["timestamp"][place] != NO_TIME)
                seconds.append(edges["timestamp"][place][timed])
                units.append(edges["unit"][place][timed])
        columns = {name: as_column(out[name].finish(), list(known)) for name, known in self._names.items()}
        columns |= {
            name: as_column(out[name].finish()) for name in ("head", "tail", *(["timestamp"] * bool(self._timestamp)))
        }
        times = Times(seconds.finish(), np.broadcast_to(np.int32(0), len(seconds)), units.finish())
        whole = len(order) == len(mentions) and not self._indexed
        kept = mentions if whole else take(mentions, order)
        return assembled(kept, pa.table(columns), rejects, self._indexed, times if self._timestamp else None)

    def _numbered(
        self, edges: dict[str, np.ndarray], number: np.ndarray, exact: np.ndarray, owner: np.ndarray
    ) -> Iterator[tuple[_Block, EdgeRows, np.ndarray]]:
        """Yield each block, its rows with mention numbers of the whole file, and a mask (bool) of usable rows."""
        empty = pa.array([], pa.string()).dictionary_encode()
        for block in self._blocks:
            place = slice(block.row, block.row + block.rows)
            own = number[block.mention : block.mention + block.mentions]
            head, tail = own[edges["head"][place]], own[edges["tail"][place]]
            lines = exact[block.exact : block.exact + block.rows] if block.exact >= 0 else np.zeros(0, np.int64)
            usable = (owner[head] == head) & (owner[tail] == tail)
            usable[list(block.bad_times)] = False
            yield block, EdgeRows(head, tail, empty, empty, Lines(block.line, lines), bad_times=block.bad_times), usable
            let_go(number, exact, *edges.values())

    def _bad_times_of(self, block: _Block, rows: EdgeRows) -> list[Reject]:
        where = np.array(sorted(block.bad_times), np.int64)
        lines = rows.lines.of(where).tolist()
        return [
            Reject(line, self._timestamp, NO_TIME_THERE, block.bad_times[row][:MAX_SHOWN])
            for row, line in zip(where.tolist(), lines, strict=True)
        ]

    def _mentions(self, number: np.ndarray) -> Mentions:
        """The distinct mentions in the order of their numbers, as :class:`NodeTable` has them."""
        said = {name: array.finish() for name, array in self._said.items()}
        found, first = self._strings.nodes()
        count = len(first)
        at = {name: np.full(count, _LATEST) for name in ("name", "source")}
        for part in pieces(len(number), number, *said.values()):
            for text, filled in (("name", "named"), ("source", "sourced")):
                full = said[filled][part]
                np.minimum.at(at[text], number[part][full], said[f"{text}_at"][part][full])
        chosen = {name: first.copy() for name in at}
        for part in reversed(list(pieces(len(number), number, *said.values()))):
            rows = np.arange(part.start, part.stop)
            for text, filled in (("name", "named"), ("source", "sourced")):
                best = said[filled][part] & (said[f"{text}_at"][part] == at[text][number[part]])
                chosen[text][number[part][best][::-1]] = rows[best][::-1]
        # Skip the look-up for columns that no mention fills, which is usual for sources.
        blank = pa.repeat(pa.scalar("", pa.string()), count)
        filled_ones = {name: places for name, places in chosen.items() if (at[name] != _LATEST).any()}
        texts = dict.fromkeys(chosen, blank) | self._strings.texts(filled_ones)
        differs = {name: np.zeros(count, bool) for name in chosen}
        for name in filled_ones:
            differs[name] = self._strings.different(name, number, count)
            flag = {"name": "renamed", "source": "resourced"}[name]
            for part in pieces(len(number), number, *said.values()):
                differs[name][number[part][said[flag][part]]] = True
        index = said["index"][first] if self._indexed else np.zeros(0, np.int64)
        return Mentions(
            index, found["id"], found["type"], texts["name"], texts["source"], said["name_at"][chosen["name"]],
            said["source_at"][chosen["source"]], differs["name"], differs["source"], said["line"][first],
        )  # fmt: skip


class _Strings:
    """The strings of all mentions in a DuckDB database on disk."""

    def __init__(self, indexed: bool) -> None:
        require("duckdb", "duckdb", "duckdb")
        import duckdb

        self._folder = tempfile.TemporaryDirectory(prefix="graphmill-")
        self._key, self._indexed = _KEY[indexed], indexed
        memory = min(max(available_memory() // 3, _LEAST), _MOST)
        self._database = duckdb.connect(
            str(Path(self._folder.name) / "strings.duckdb"),
            config={
                "memory_limit": f"{memory >> 20}MiB",
                "temp_directory": self._folder.name,
                "threads": str(min(4, os.cpu_count() or 1)),
                "preserve_insertion_order": "false",
                "autoinstall_known_extensions": "false",
            },
        )
        columns = "place BIGINT, index BIGINT, id VARCHAR, type VARCHAR, name VARCHAR, source VARCHAR"
        self._database.execute(f"CREATE TABLE mention ({columns})")

    def add(self, first: int, mentions: Mentions) -> None:
        """Store the strings of ``mentions``; the first of them has the number ``first`` among all."""
        count = len(mentions)
        index = mentions.index if self._indexed else np.zeros(count, np.int64)
        columns = {"place": np.arange(first, first + count), "index": index}
        texts = {name: getattr(mentions, name) for name in ("id", "type", "name", "source")}
        self._database.register("block", pa.table({**columns, **texts}))
        self._database.execute("INSERT INTO mention SELECT * FROM block")
        self._database.unregister("block")

    def numbers(self, count: int) -> np.ndarray:
        """The number of each of ``count`` mentions (int32). Distinct mentions are numbered in the order of first
        appearance."""
        key, database = ", ".join(self._key), self._database
        database.execute(
            f"CREATE TABLE node AS SELECT (row_number() OVER (ORDER BY first) - 1)::INTEGER AS number, first, {key} "
            f"FROM (SELECT {key}, min(place) AS first FROM mention GROUP BY {key})"
        )
        number = disk_empty(count, np.int32)
        for batch in self._batches(f"SELECT place, number FROM mention JOIN node USING ({key})"):
            number[batch["place"].to_numpy()] = batch["number"].to_numpy()
            let_go(number)
        return number

    def nodes(self) -> tuple[dict[str, pa.StringArray], np.ndarray]:
        """Id and type of each number, and the index of its first mention (int64)."""
        table = self._table("SELECT first, id, type FROM node ORDER BY number")
        return {name: _whole(table[name]) for name in ("id", "type")}, table["first"].to_numpy()

    def texts(self, chosen: dict[str, np.ndarray]) -> dict[str, pa.StringArray]:
        """Name and source of each number, from the mentions ``chosen``; only the requested ones."""
        if not chosen:
            return {}
        wanted = pa.table({"place": np.unique(np.concatenate(list(chosen.values())))})
        self._database.register("wanted", wanted)
        table = self._table("SELECT place, name, source FROM mention JOIN wanted USING (place) ORDER BY place")
        self._database.unregister("wanted")
        places = wanted["place"].to_numpy()
        return {name: _whole(table[name]).take(pa.array(np.searchsorted(places, at))) for name, at in chosen.items()}

    def different(self, name: str, number: np.ndarray, count: int) -> np.ndarray:
        """Mask (bool) of the ``count`` numbers whose mentions differ in ``name`` (or source); blank ones are ignored.

        It compares 64-bit hashes of the strings: two texts have the same hash with probability 2⁻⁶⁴.
        """
        least, most = np.full(count, 2**64 - 1, np.uint64), np.zeros(count, np.uint64)
        for batch in self._batches(f"SELECT place, hash({name}) AS hash FROM mention WHERE {name} <> ''"):
            of, hashes = number[batch["place"].to_numpy()], batch["hash"].to_numpy()
            np.minimum.at(least, of, hashes)
            np.maximum.at(most, of, hashes)
            let_go(number)
        different: np.ndarray = least < most
        return different

    def _batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """The result batches, in any order."""
        found = self._database.sql(query)
        yield from (getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader)(1 << 20)

    def _table(self, query: str) -> pa.Table:
        table: pa.Table = self._database.sql(query).to_arrow_table()
        return table

    def close(self) -> None:
        """Remove the database."""
        self._database.close()
        self._folder.cleanup()


def _whole(column: pa.ChunkedArray) -> pa.StringArray:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays([chunk.cast(pa.string()) for chunk in column.chunks] or [pa.array([], pa.string())])
