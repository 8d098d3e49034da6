"""Maps the ends of edges to nodes, and checks whether the file describes each node in the same way everywhere.

A row *mentions* two nodes. The thread that parsed a block reduces its mentions to distinct ones (:func:`distinct`). The
distinct mentions of all blocks are merged into nodes one block at a time (:class:`NodeTable`), so that the strings of
the whole file are never in memory at once. Both steps gather the first mention's string and test for equality, which
takes a fraction of the time of hashing.

A table of mentions has the strings ``id``, ``type``, ``name`` and ``source``; ``renamed`` and ``resourced`` (bool): whether
a later mention has another name or source; and, if nodes have an index, ``index`` and ``line`` (int64; of the first
appearance in the file). Two mentions are the same if ``index``, ``id`` and ``type`` are equal. ``name`` and ``source`` are
the first that is not empty.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError

_MOST_NODES = 2**31 - 1


def mentions_of(heads: dict[str, pa.Array], tails: dict[str, pa.Array]) -> pa.Table:
    """The mentions of edges, head and tail in turn, from the columns of their ends; those that are missing are blank."""
    count = len(heads["id"])
    order = pa.array(np.arange(2 * count).reshape(2, -1).T.reshape(-1))
    columns = {name: pa.concat_arrays([heads[name], tails[name]]).take(order) for name in heads}
    blank, no = pa.repeat(pa.scalar("", pa.string()), 2 * count), pa.array(np.zeros(2 * count, bool))
    return pa.table({"type": blank, "name": blank, "source": blank} | columns | {"renamed": no, "resourced": no})


def distinct(every: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """The distinct ones of mentions that may repeat, in the order of their first appearance, and the number (int32) of each
    mention's own. Of :func:`mentions_of` edges, the even ones are the heads."""
    every = every.combine_chunks()
    key, *others = [text_of(every, name) for name in ("index", "id", "type") if name in every.column_names]
    code = codes_of(key)
    # Where one key tells nodes apart, a second hash table is not needed: it would take the most memory of all.
    if not all(_agrees(other, first_rows(code)[code]) for other in others):
        code = codes_of(key, *others)
    first = first_rows(code)
    mentions = every.take(pa.array(first))
    for name, flag in (("name", "renamed"), ("source", "resourced")):
        rows, different = first_filled(text_of(every, name), code, first)
        different[code[np.asarray(every[flag], bool)]] = True
        for column, values in ((name, every[name].take(pa.array(rows))), (flag, pa.array(different))):
            mentions = mentions.set_column(mentions.schema.get_field_index(column), column, values)
    return mentions, code


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


def parsed_cells(
    column: pa.DictionaryArray, parse: Callable[[str], Any]
) -> tuple[list[Any], np.ndarray, list[tuple[int, str]]]:
    """What ``parse`` makes of the distinct texts without white space around them; the place of each row's among them; and
    row and text of each cell that it cannot read, for which it returns None."""
    texts, codes = column.dictionary.to_pylist(), column.indices.to_numpy(zero_copy_only=False)
    read = [parse(text.strip()) for text in texts]
    wrong = np.array([value is None for value in read], bool)
    return read, codes, [(row, texts[codes[row]]) for row in np.flatnonzero(wrong[codes]).tolist()]


class NodeTable:
    """All distinct mentions so far, numbered in the order of first appearance. Numbers never change."""

    def __init__(self, *, indexed: bool) -> None:
        numbers = dict.fromkeys(("index", "line") if indexed else (), pa.array([], pa.int64()))
        none = {"id": pa.array([], pa.string()), **numbers}
        self.mentions = mentions_of(none, none)

    def add(self, blocks: list[pa.Table]) -> list[np.ndarray]:
        """Add the mentions of ``blocks``, which is emptied; returns, for each block, the number (int32) of each of its
        mentions."""
        sizes = [self.mentions.num_rows, *(block.num_rows for block in blocks)]
        every = pa.concat_tables([self.mentions, *blocks])
        if every.num_rows > _MOST_NODES:
            raise InputError(f"the files have about {every.num_rows:,} nodes; at most {_MOST_NODES:,} are supported")
        self.mentions = every  # so that the strings of nodes are not in memory twice
        blocks.clear()
        self.mentions, code = distinct(every)
        return [code[start:end] for start, end in pairwise(np.cumsum(sizes))]
