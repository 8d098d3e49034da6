"""Maps the ends of edges to nodes, and checks whether the file describes each node in the same way everywhere.

A row *mentions* two nodes. The thread that parsed a block reduces its mentions to distinct ones (:func:`digest`). The
distinct mentions of all blocks are merged into nodes one block at a time (:class:`NodeTable`), so that the strings of
the whole file are never in memory at once. Both steps gather the first mention's string and test for equality, which
takes a fraction of the time of hashing.
"""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.ingest.csv_blocks import CsvBlock, Lines
from graphmill.ingest.kg_columns import KgLayout, Side
from graphmill.ingest.tables import NO_TIME
from graphmill.ingest.times import parse_time


@dataclass(frozen=True)
class Mentions:
    """Distinct mentions of nodes, in the order of their first appearance; all columns have the same length.

    Two mentions are the same if ``index``, ``id`` and ``type`` are equal (``index``: int64, empty if nodes have none).
    ``name`` and ``source`` are the first that is not empty, found at ``name_at`` and ``source_at`` (int64, growing
    through the file); ``renamed`` and ``resourced`` are the positions of a later, different one. ``line`` is the line
    of the first appearance in the file.
    """

    index: np.ndarray
    id: pa.StringArray
    type: pa.StringArray
    name: pa.StringArray
    source: pa.StringArray
    name_at: np.ndarray
    source_at: np.ndarray
    renamed: np.ndarray
    resourced: np.ndarray
    line: np.ndarray

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True)
class EdgeRows:
    """Edges of one block: ``head`` and ``tail`` (int32) are numbers of mentions. ``lines``: the lines of its rows.

    If the file has times: ``timestamp`` int64 seconds (:data:`NO_TIME`: none), ``unit`` uint8 (index into
    :data:`graphmill.ingest.times.UNITS`), and ``bad_times``: invalid values by row.
    """

    head: np.ndarray
    tail: np.ndarray
    relation: pa.DictionaryArray
    display_relation: pa.DictionaryArray
    lines: Lines
    timestamp: np.ndarray | None = None
    unit: np.ndarray | None = None
    bad_times: dict[int, str] = field(default_factory=dict)


def digest(block: CsvBlock, layout: KgLayout) -> tuple[Mentions, EdgeRows]:
    """The distinct mentions of nodes in ``block``, and its edges by their numbers among these."""
    relation = category_of(block.table, layout.relation, layout.relation_constant)
    display = category_of(block.table, layout.display_relation) if layout.display_relation else relation
    heads, head, first_of_head = _side(block, layout.head, 0, layout.indexed)
    tails, tail, first_of_tail = _side(block, layout.tail, 1, layout.indexed)
    order = np.argsort(np.concatenate((2 * first_of_head.astype(np.int64), 2 * first_of_tail.astype(np.int64) + 1)))
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    head, tail = rank[: len(heads)][head], rank[len(heads) :][tail]
    times = edge_times(block.table, layout.timestamp) if layout.timestamp else (None, None, {})
    return take(concat([heads, tails]), order), EdgeRows(head, tail, relation, display, block.lines, *times)


def edge_times(table: pa.Table, name: str) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
    """Seconds of each row (int64; :data:`NO_TIME`: the cell is blank or invalid), units (uint8), and the invalid values."""
    column = category_of(table, name)
    texts = [text.strip() for text in column.dictionary.to_pylist()]
    parsed = [parse_time(text) if text else None for text in texts]
    seconds = np.array([NO_TIME if time is None else time.second for time in parsed], np.int64)
    units = np.array([0 if time is None else time.unit for time in parsed], np.uint8)
    wrong = np.array([bool(text) and time is None for text, time in zip(texts, parsed, strict=True)], bool)
    codes = column.indices.to_numpy()
    return seconds[codes], units[codes], {int(row): texts[codes[row]] for row in np.flatnonzero(wrong[codes])}


def _side(block: CsvBlock, side: Side, number: int, indexed: bool) -> tuple[Mentions, np.ndarray, np.ndarray]:
    """The distinct mentions at one end (``number`` 0 or 1) of the edges, the mention of each row, each one's first row."""
    table, lines = block.table, block.lines.of(np.arange(block.table.num_rows))
    index = table[side.index].combine_chunks().to_numpy() if indexed else np.zeros(0, dtype=np.int64)
    key = text_of(table, side.id), text_of(table, side.type, side.constant)
    told = text_of(table, side.name), text_of(table, side.source)
    at, none = 2 * lines + number, np.zeros(len(lines), dtype=bool)
    return _merged(Mentions(index, *key, *told, at, at, none, none, lines), indexed)


def _merged(every: Mentions, indexed: bool) -> tuple[Mentions, np.ndarray, np.ndarray]:
    """The distinct ones of mentions that may repeat, the number of each mention's own, and each one's first row (int32)."""
    code, first = _distinct(pa.array(every.index), every.id, every.type, indexed)
    named, renamed = first_filled(every.name, code, first, every.name_at)
    sourced, resourced = first_filled(every.source, code, first, every.source_at)
    renamed[code[every.renamed]] = True
    resourced[code[every.resourced]] = True
    mentions = replace(
        take(every, first),
        name=every.name.take(pa.array(named)),
        source=every.source.take(pa.array(sourced)),
        name_at=every.name_at[named],
        source_at=every.source_at[sourced],
        renamed=renamed,
        resourced=resourced,
    )
    return mentions, code, first


def _distinct(
    index: pa.Int64Array, ids: pa.StringArray, types: pa.StringArray, indexed: bool
) -> tuple[np.ndarray, np.ndarray]:
    """A number for each distinct (index, id, type), in order of first appearance, and the first row of each (int32)."""
    if not indexed:
        code = codes_of(ids, types)
        return code, first_rows(code)
    code = codes_of(index)
    first = first_rows(code)
    if not all(_agrees(column, first[code]) for column in (ids, types)):
        code = codes_of(index, ids, types)
        first = first_rows(code)
    return code, first


def codes_of(*columns: pa.Array) -> np.ndarray:
    """A number (int32) for each distinct row of ``columns``, counting up in the order of first appearance."""
    code: np.ndarray | None = None
    for column in columns:
        encoded = column.dictionary_encode()
        found = encoded.indices.to_numpy()
        if code is not None:
            pairs = code.astype(np.int64) * max(len(encoded.dictionary), 1) + found
            found = pa.array(pairs).dictionary_encode().indices.to_numpy()
        code = found
    assert code is not None
    return code


def first_rows(code: np.ndarray) -> np.ndarray:
    """The first row (int32) with each code."""
    first = np.zeros(int(code.max(initial=-1)) + 1, dtype=np.int32)
    # The last assignment wins, so assigning backwards leaves the first row.
    first[code[::-1]] = np.arange(len(code) - 1, -1, -1, dtype=np.int32)
    return first


def first_filled(
    text: pa.StringArray, code: np.ndarray, first: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each code, the row of its first nonempty string (by ``at``), and whether another string differs (bool).

    ``first`` has the first row of each code, which is the result if all its strings are empty.
    """
    if _agrees(text, first[code]):
        return first, np.zeros(len(first), dtype=bool)
    filled = np.flatnonzero(pc.greater(pc.binary_length(text), 0).to_numpy(zero_copy_only=False))
    filled = filled[np.argsort(at[filled], kind="stable")]
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


def concat(parts: list[Mentions]) -> Mentions:
    """The mentions of all ``parts``, one after the other."""
    columns = [[getattr(p, name) for p in parts] for name in Mentions.__dataclass_fields__]
    joined = [np.concatenate(c) if isinstance(c[0], np.ndarray) else pa.concat_arrays(c) for c in columns]
    return Mentions(*joined)


def take(mentions: Mentions, rows: np.ndarray) -> Mentions:
    """The mentions ``rows``, in that order."""
    where = pa.array(rows)
    columns = [getattr(mentions, name) for name in Mentions.__dataclass_fields__]
    return Mentions(*[(c[rows] if len(c) else c) if isinstance(c, np.ndarray) else c.take(where) for c in columns])


class NodeTable:
    """All distinct mentions so far, numbered in the order of first appearance. Numbers never change."""

    def __init__(self, indexed: bool) -> None:
        text, flags, numbers = pa.nulls(0, pa.string()), np.zeros(0, dtype=bool), np.zeros(0, dtype=np.int64)
        self.indexed = indexed
        self.mentions = Mentions(numbers, text, text, text, text, numbers, numbers, flags, flags, numbers)

    def add(self, blocks: list[Mentions]) -> list[np.ndarray]:
        """Add the mentions of ``blocks``; returns, for each block, the number of each of its mentions (int32)."""
        self.mentions, code, _ = _merged(concat([self.mentions, *blocks]), self.indexed)
        ends = np.cumsum([len(code) - sum(map(len, blocks)), *map(len, blocks)])
        return [code[start:end] for start, end in pairwise(ends)]
