"""The tables that ingestion passes to the graph: their schemas, a reader's result.

This module defines names, types and meaning of columns. The readers make such tables from files.

``nodes``
    ``index`` int64: the source's own node number, or the row number where the source has none; ``id`` string: the
    source's id as written (leading zeros survive); ``type``; ``name``; ``source``. One row per node. The key of a node
    is ``index`` if the source has an index column, else ``(type, id)``: two types may have the same id.
``edges``
    ``relation``, ``display_relation``, and ``head``, ``tail`` int32: row numbers in ``nodes``. Rows are as in the file:
    with both directions if the file has both, and with duplicates.
``features``
    one table per node type, or several with names (image, text): ``node`` int32, row number in ``nodes``; ``values``:
    fixed-size list of float32. :func:`feature_key` makes the key of a table.
``attributes``
    one table per node type: ``node`` int32, row number in ``nodes``, ascending; and a column for each attribute, null where
    it is missing. The type of a column is that of its kind in :data:`ATTRIBUTE_TYPES`; dates are milliseconds since 1970.
``rejects``
    rows that cannot be used: ``file``; ``line``, the 1-based line of the file on which the record starts; ``column``
    (empty if the whole row is faulty); ``reason``; ``value`` as written, cut to :data:`MAX_SHOWN` characters.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.ingest.id_coverage import Coverage

CATEGORY = pa.dictionary(pa.int32(), pa.string())
"""Columns with few distinct values: 4 bytes a row."""
NO_PLACE = -1
"""``position`` of edges that are in no sequence, where others are: facts beside users' interactions."""
NO_TIME = -(2**63)
"""``timestamp`` of edges that have no time, where others have one."""

EDGE_NUMBERS = {"weight": 1.0, "confidence": math.nan}
"""Columns of numbers that edges may have, float32, and what stands where nothing is given."""
EVIDENCE = "evidence"
"""Column of texts that edges may have, on which they rest."""

NODES = pa.schema(
    [("index", pa.int64()), ("id", pa.string()), ("type", CATEGORY), ("name", pa.string()), ("source", CATEGORY)]
)
EDGES = pa.schema([("relation", CATEGORY), ("display_relation", CATEGORY), ("head", pa.int32()), ("tail", pa.int32())])
REJECTS = pa.schema(
    [("file", pa.string()), ("line", pa.int64()), *((name, pa.string()) for name in ("column", "reason", "value"))]
)

ATTRIBUTE_TYPES: dict[str, pa.DataType] = {
    "text": pa.string(),
    "category": CATEGORY,
    "number": pa.float64(),
    "date": pa.timestamp("ms"),
    "list": pa.list_(pa.string()),
}
"""Kind of an attribute → the type of its column."""


def attribute_kind(of: pa.DataType) -> str:
    """The kind of an attribute by the type of its column."""
    return next(kind for kind, type_of in ATTRIBUTE_TYPES.items() if type_of.id == of.id)


MAX_SHOWN = 120
"""Characters of an offending value that a reject keeps."""


_SET_MARK = "::"
_SET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def feature_key(node_type: str, name: str = "") -> str:
    """The key of a feature table: the node type, then ``::`` and the name of the set if the type has several sets.

    Raises :class:`InputError` for a name with other characters than letters, digits, ``_`` and ``-``.
    """
    if name and not _SET_NAME.fullmatch(name):
        raise InputError(f"feature set {name!r} of {node_type!r}: name it with letters, digits, _ and - only")
    return f"{node_type}{_SET_MARK}{name}" if name else node_type


def split_feature_key(key: str) -> tuple[str, str]:
    """(node type, name of the set or "") of a key. Raises :class:`InputError` as :func:`feature_key` does."""
    node_type, mark, name = key.rpartition(_SET_MARK)
    if not mark:
        return key, ""
    feature_key(node_type, name or "-")
    return node_type, name


def as_column(values: np.ndarray, names: Sequence[str]) -> pa.Array:
    """The codes ``values``, int32 (n,), as a dictionary column of texts; the memory is shared."""
    return pa.DictionaryArray.from_arrays(pa.array(values), pa.array(names, pa.string()), safe=False)


def weights_of(edges: pa.Table) -> np.ndarray:
    """float32 [edges]: the weights of an edges table, or without any the confidences, NaN where not known."""
    given = [name for name in EDGE_NUMBERS if name in edges.column_names]
    return edges[given[0]].to_numpy() if given else np.full(len(edges), np.nan, np.float32)


def features_schema(width: int) -> pa.Schema:
    """The schema of a feature table with ``width`` float32 values per node."""
    return pa.schema([("node", pa.int32()), ("values", pa.list_(pa.float32(), width))])


def feature_table(node: np.ndarray, values: np.ndarray) -> pa.Table:
    """The feature table with these rows of the nodes, int32 (n,), and their values, float32 (n, f)."""
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    width = values.shape[1]
    return pa.table([pa.array(node), pa.FixedSizeListArray.from_arrays(flat, width)], features_schema(width))


@dataclass(frozen=True)
class IngestResult:
    """The result of one reader for one source.

    ``features`` maps a :func:`feature_key` to its table, ``attributes`` a node type to its. ``counts`` are whole numbers by
    name: rows read, rows rejected, and each oddity that is legal but worth knowing. ``notes`` are the same as sentences for
    people. ``coverage``: how ids of two sources match, for each pair.
    """

    nodes: pa.Table
    edges: pa.Table
    rejects: pa.Table
    features: dict[str, pa.Table] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)
    attributes: dict[str, pa.Table] = field(default_factory=dict)
