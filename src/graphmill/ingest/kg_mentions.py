"""Maps the ends of edges to nodes, and checks whether the file describes each node in the same way everywhere.

A row *mentions* two nodes. The thread that parsed a block reduces its mentions to distinct ones (:func:`digest`). The
distinct mentions of all blocks are merged into nodes one block at a time (:class:`NodeTable`), so that the strings of
the whole file are never in memory at once. Both steps gather the first mention's string and test for equality, which
takes a fraction of the time of hashing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError

_MOST_NODES = 2**31 - 1


@dataclass(frozen=True)
class Mentions:
    """Mentions of nodes; all columns have the same length.

    Two mentions are the same if ``index``, ``id`` and ``type`` are equal. ``index`` int64, and ``line`` int64 (of the
    first appearance in the file), are empty if nodes have no index. ``name`` and ``source`` are the first that is not
    empty; ``renamed`` and ``resourced`` (bool): whether a later one differs.
    """

    index: np.ndarray
    id: pa.StringArray
    type: pa.StringArray
    name: pa.StringArray
    source: pa.StringArray
    renamed: np.ndarray
    resourced: np.ndarray
    line: np.ndarray

    def __len__(self) -> int:
        return len(self.id)


def digest(ends: Mentions) -> tuple[Mentions, np.ndarray, np.ndarray]:
    """The distinct mentions among the ends of edges, in the order of their first appearance, and the number of each
    edge's head and tail (int32).

    ``ends``: the heads of n edges, then their tails.
    """
    in_order = np.arange(len(ends)).reshape(2, -1).T.reshape(-1)
    mentions, number = _merged(ends, in_order)
    head, tail = number.reshape(2, -1)
    return mentions, head, tail


def _merged(every: Mentions, in_order: np.ndarray | None = None) -> tuple[Mentions, np.ndarray]:
    """The distinct ones of mentions that may repeat, and the number (int32) of each mention's own.

    ``in_order``: the mentions in the order of the file; None: as they stand.
    """
    code = _codes(every)
    if in_order is None:
        first = first_rows(code)
    else:
        first = in_order[first_rows(code[in_order])]
        appearance = np.empty(len(every), np.int32)
        appearance[in_order] = np.arange(len(every), dtype=np.int32)
        order = np.argsort(appearance[first])
        rank = np.empty(len(first), np.int32)
        rank[order] = np.arange(len(first), dtype=np.int32)
        code, first = rank[code], first[order]
    named, renamed = first_filled(every.name, code, first, in_order)
    sourced, resourced = first_filled(every.source, code, first, in_order)
    renamed[code[every.renamed]] = True
    resourced[code[every.resourced]] = True
    names = {"name": every.name.take(pa.array(named)), "source": every.source.take(pa.array(sourced))}
    return replace(take(every, first), **names, renamed=renamed, resourced=resourced), code


def _codes(every: Mentions) -> np.ndarray:
    """A number (int32) for each distinct mention, counting up in the order in which they stand."""
    key, *others = [pa.array(every.index)] * bool(len(every.index)) + [every.id, every.type]
    code = codes_of(key)
    first = first_rows(code)[code]
    # Where one key tells nodes apart, a second hash table is not needed: it would take the most memory of all.
    return code if all(_agrees(other, first) for other in others) else codes_of(key, *others)


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


def first_filled(
    text: pa.StringArray, code: np.ndarray, first: np.ndarray, in_order: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """For each code, the row of its first nonempty string, and whether another string differs (bool).

    ``first`` has the first row of each code, which is the result if all its strings are empty. ``in_order``: the rows
    in their order; None: as they stand.
    """
    if _agrees(text, first[code]):
        return first, np.zeros(len(first), dtype=bool)
    full = pc.greater(pc.binary_length(text), 0).to_numpy(zero_copy_only=False)
    filled = np.flatnonzero(full) if in_order is None else in_order[full[in_order]]
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

    def __init__(self) -> None:
        text, flags, numbers = pa.nulls(0, pa.string()), np.zeros(0, dtype=bool), np.zeros(0, dtype=np.int64)
        self.mentions = Mentions(numbers, text, text, text, text, flags, flags, numbers)

    def add(self, blocks: list[Mentions]) -> list[np.ndarray]:
        """Add the mentions of ``blocks``, which is emptied; returns, for each block, the number (int32) of each of its
        mentions."""
        every = concat([self.mentions, *blocks])
        if len(every) > _MOST_NODES:
            raise InputError(f"the files have about {len(every):,} nodes; at most {_MOST_NODES:,} are supported")
        sizes = [len(self.mentions), *map(len, blocks)]
        self.mentions = every  # so that the strings of nodes are not in memory twice
        blocks.clear()
        self.mentions, code = _merged(every)
        ends = np.cumsum(sizes)
        return [code[start:end] for start, end in pairwise(ends)]
