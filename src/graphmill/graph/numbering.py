"""Turns rows of the nodes table into global node numbers, contiguous by type, and edges into pairs of them.

This module decides which nodes and edges are in the graph. ``relations`` groups the edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.errors import InputError, SettingsError, listed
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.tables import EVIDENCE

IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Numbering:
    """The numbers of the nodes. Node ``g`` of the graph is row ``rows[g]`` of the nodes table.

    ``of_row`` (rows of the nodes table, int32) is the inverse, -1 for a node that is not in the graph. The nodes of
    type ``t`` are ``offsets[t] .. offsets[t + 1] - 1``. ``isolated`` counts, by type, nodes without an edge, whether
    kept or dropped.
    """

    types: tuple[str, ...]
    offsets: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    of_row: IntArray
    isolated: dict[str, int]
    excluded_nodes: int

    @property
    def num_nodes(self) -> int:
        """Nodes in the graph."""
        return len(self.rows)

    @property
    def counts(self) -> dict[str, int]:
        """Number of nodes of each type."""
        return dict(zip(self.types, np.diff(self.offsets).tolist(), strict=True))

    @property
    def first(self) -> dict[str, int]:
        """Number of the first node of each type."""
        return dict(zip(self.types, self.offsets.tolist(), strict=False))

    def type_of_node(self) -> IntArray:
        """(num_nodes,) int32: number of each node's type."""
        return np.repeat(np.arange(len(self.types), dtype=np.int32), np.diff(self.offsets))


@dataclass(frozen=True)
class EdgeColumns:
    """The edges table as arrays, (E,) each: rows of the nodes table, category codes, optional columns as given."""

    head: IntArray
    tail: IntArray
    relation: IntArray
    relation_names: list[str]
    display: IntArray | None
    split: npt.NDArray[np.uint8] | None
    attributes: dict[str, npt.NDArray[Any]]

    def take(self, keep: npt.NDArray[np.bool_]) -> EdgeColumns:
        """The edges for which ``keep`` (E,) is true."""
        if keep.all():
            return self
        columns = {name: getattr(self, name) for name in ("head", "tail", "relation", "display", "split")}
        kept: dict[str, Any] = {name: None if values is None else values[keep] for name, values in columns.items()}
        return replace(self, **kept, attributes={name: values[keep] for name, values in self.attributes.items()})


ATTRIBUTES = {"weight": pa.float32(), "confidence": pa.float32(), "timestamp": pa.int64(), "position": pa.int32()}
"""Optional columns of the edges table that are carried through to the graph, with their Arrow types."""


def categories(table: pa.Table, name: str, table_name: str) -> tuple[IntArray, list[str]]:
    """The codes (rows,) int32 of a text or dictionary column, and its names in order of first appearance.

    Raises :class:`InputError` if the column is missing or has empty cells.
    """
    column = _column(table, name, table_name)
    names = list(dict.fromkeys(column.unique().to_pylist()))  # a dictionary may have a text twice
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    array = column.unify_dictionaries().combine_chunks()
    place = {text: number for number, text in enumerate(names)}
    codes = np.array([place.get(text, -1) for text in array.dictionary.to_pylist()], np.int32)
    return codes[array.indices.to_numpy(zero_copy_only=False)], names


def read_edges(edges: pa.Table, num_rows: int) -> EdgeColumns:
    """The edges table as arrays. Raises :class:`InputError` for a cell that cannot be used, naming column and row."""
    relation, relations = categories(edges, "relation", "edges")
    ends = {name: _numbers(edges, name, pa.int32()) for name in ("head", "tail")}
    for name, values in ends.items():
        _refuse(name, values, (values < 0) | (values >= num_rows), f", but the nodes table has {num_rows} rows")
    split = display = None
    if "split" in edges.column_names:
        split = _numbers(edges, "split", pa.uint8())
        _refuse("split", split, split > 2, "; allowed are 0 (train), 1 (valid), 2 (test)")
    if "display_relation" in edges.column_names:
        display = categories(edges, "display_relation", "edges")[0]
    attributes = {name: _numbers(edges, name, kind) for name, kind in ATTRIBUTES.items() if name in edges.column_names}
    if "weight" in attributes:
        _refuse("weight", attributes["weight"], ~np.isfinite(attributes["weight"]), " is not finite")
    return EdgeColumns(ends["head"], ends["tail"], relation, relations, display, split, attributes)


def _refuse(name: str, values: npt.NDArray[Any], wrong: npt.NDArray[np.bool_], why: str) -> None:
    """Raise :class:`InputError` for the first row that is ``wrong``."""
    bad = np.flatnonzero(wrong)
    if len(bad):
        raise InputError(f"table 'edges', row {bad[0]}: {name} = {values[bad[0]]}{why}")


def _numbers(table: pa.Table, name: str, kind: pa.DataType) -> npt.NDArray[Any]:
    return _column(table, name, "edges", kind).to_numpy()


def _column(table: pa.Table, name: str, table_name: str, kind: pa.DataType | None = None) -> pa.ChunkedArray:
    """A column without empty cells, of the type ``kind`` if one is given. Raises :class:`InputError`."""
    if name not in table.column_names:
        raise InputError(f"table '{table_name}' has no column '{name}'; it has {listed(table.column_names)}")
    column = table.column(name)
    if kind is not None and column.type != kind:
        raise InputError(f"table '{table_name}': column '{name}' is {column.type}; expected {kind}")
    if column.null_count:
        raise InputError(f"table '{table_name}': column '{name}' has {column.null_count} empty cells; none allowed")
    return column


def included_types(codes: IntArray, known: Sequence[str], settings: GraphSettings) -> tuple[list[str], IntArray]:
    """The node types of the graph in order, and for each row of the nodes table the index of its type in them, or -1."""
    unknown = [name for name in settings.include_node_types if name not in known]
    if unknown:
        raise SettingsError(
            f"include_node_types: unknown node type {', '.join(map(repr, unknown))}; "
            f"the data has {', '.join(map(repr, sorted(known)))}"
        )
    wanted = list(settings.include_node_types or known)
    rank = np.full(len(known), -1, np.int32)
    rank[[known.index(name) for name in wanted]] = np.arange(len(wanted), dtype=np.int32)
    return wanted, rank[codes]


def numbering_of(
    wanted: Sequence[str], node_rank: IntArray, touched: npt.NDArray[np.bool_], settings: GraphSettings
) -> Numbering:
    """The numbers of the nodes. ``touched`` (rows,): whether a node is an end of an edge of the graph.

    Raises :class:`InputError` if no node is.
    """
    included = node_rank >= 0
    if not touched.any():
        raise InputError(
            f"no edge has both ends in the node types {', '.join(map(repr, wanted))}; "
            "include more types (include_node_types), or check the edges table"
        )
    lonely = np.bincount(node_rank[included & ~touched], minlength=len(wanted))
    excluded = int((~included).sum())
    if settings.isolated_nodes == "drop":
        included &= touched
    rows = np.flatnonzero(included)
    rows = rows[np.argsort(node_rank[rows], kind="stable")]
    counts = np.bincount(node_rank[rows], minlength=len(wanted))
    of_row = np.full(len(included), -1, np.int32)
    of_row[rows] = np.arange(len(rows), dtype=np.int32)
    filled = np.flatnonzero(counts)
    return Numbering(
        types=tuple(wanted[t] for t in filled.tolist()),
        offsets=np.concatenate(([0], np.cumsum(counts[filled]))).astype(np.int64),
        rows=rows,
        of_row=of_row,
        isolated={wanted[t]: int(n) for t, n in enumerate(lonely) if n},
        excluded_nodes=excluded,
    )


EVIDENCE_FILE = "evidence.arrow"
SEPARATOR, LONGEST = " | ", 500
"""Between the texts of a pair; characters of all of them that are kept."""


def evidence_table(edges: pa.Table, numbering: Numbering) -> pa.Table | None:
    """``key`` int64, ascending: low · nodes + high of a pair's global numbers; ``text``: its different texts, sorted. None
    if no edge of the graph has any."""
    if EVIDENCE not in edges.column_names:
        return None
    column = edges[EVIDENCE].combine_chunks()
    column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts = [(text or "").strip() for text in column.dictionary.to_pylist()]
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    ends = [numbering.of_row[edges[name].to_numpy()].astype(np.int64) for name in ("head", "tail")]
    has_text = np.append([bool(text) for text in texts], False)  # the last place is that of null
    kept = has_text[codes] & (ends[0] >= 0) & (ends[1] >= 0)
    keys = np.minimum(*ends)[kept] * numbering.num_nodes + np.maximum(*ends)[kept]
    of_pair: dict[int, set[str]] = {}
    for key, code in zip(keys.tolist(), codes[kept].tolist(), strict=True):
        of_pair.setdefault(key, set()).add(texts[code])
    if not of_pair:
        return None
    joined = [SEPARATOR.join(sorted(of_pair[key])) for key in sorted(of_pair)]
    short = [text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…" for text in joined]
    return pa.table({"key": pa.array(sorted(of_pair), pa.int64()), "text": pa.array(short, pa.string())})
