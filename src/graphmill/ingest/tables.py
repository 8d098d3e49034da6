"""The tables that ingestion passes to the graph: their schemas, a reader's result.

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

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.settings import setting

if TYPE_CHECKING:
    from graphmill.ingest.id_columns import Coverage

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


class Reject(NamedTuple):
    """One row that cannot be used. Its fields are those of :data:`graphmill.ingest.tables.REJECTS` without the file."""

    line: int
    column: str
    reason: str
    value: str

    @property
    def place(self) -> str:
        """Place and reason, for a message."""
        column = f", column {self.column}" if self.column else ""
        return f"line {self.line}{column}: {self.reason}"


KEEP_NEGATED: Any = setting(
    False,
    "keep statements and nodes that do not hold (any more): rows with a true negated, deprecated, obsolete, retracted or "
    "withdrawn, or with NOT before their relation or qualifier",
)
"""The field ``keep_negated`` of the settings of formats of graphs."""


MIN_CONFIDENCE: Any = setting(
    0.0, "leave out edges that are less sure; edges whose confidence is not known stay; 0: none", ge=0
)
"""The field ``min_confidence`` of the settings of formats of graphs with columns of one's own."""


_MOST_SHARE = 0.1
MOST_KEPT, MOST_REFUSED = 100_000, 10_000_000
"""Rejects of a source that are kept, and after how many its reading ends: a small archive may hold any number of rows."""


@dataclass
class Reading:
    """The reading of one source, called ``name``: its rejects so far, with their files, and notes on its files.

    Of many rejects the first :data:`MOST_KEPT` are kept; ``refused`` is the number of all.
    """

    name: str
    rejects: list[tuple[str, Reject]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: int = 0

    @property
    def _first(self) -> str:
        file, reject = self.rejects[0]
        return f"on {reject.place}" if file == self.name else f"in {file}, {reject.place}"

    @property
    def first_reject(self) -> str:
        """A half sentence with the number of rejects and the first; empty if there is none."""
        return f"; {self.refused:,} rows were rejected, the first {self._first}" if self.rejects else ""

    def refuse(self, file: str, rejects: Iterable[Reject]) -> None:
        """Count rejects, and keep them while there are few. Raises :class:`InputError` if there are :data:`MOST_REFUSED`."""
        ordered = sorted(rejects)
        self.refused += len(ordered)
        self.rejects += [(file, reject) for reject in ordered[: MOST_KEPT - len(self.rejects)]]
        if self.refused >= MOST_REFUSED:
            raise InputError(
                f"{self.name}: {self.refused:,} rows or more cannot be used; the first {self._first}. Check the format, the "
                "delimiter and the column map"
            )

    def keep_notes(self, file: str, notes: Iterable[str]) -> None:
        """Keep the ``notes`` on a file that was read, each once."""
        sentences = [note if file == self.name else f"{file}: {note}" for note in notes]
        self.notes += [note for note in sentences if note not in self.notes]

    def table(self) -> pa.Table:
        """The rejects as a table with the schema :data:`graphmill.ingest.tables.REJECTS`, file by file."""
        order = {file: place for place, file in enumerate(dict.fromkeys(file for file, _ in self.rejects))}
        return reject_table(sorted(self.rejects, key=lambda each: (order[each[0]], each[1])))


def sentences(counts: Mapping[str, int], texts: Mapping[str, str]) -> list[str]:
    """The ``texts`` of counts above 0, each with its number in place of ``{}``."""
    return [text.replace("{}", f"{counts[name]:,}", 1) for name, text in texts.items() if counts.get(name)]


def checked_share(counts: Mapping[str, int], rejects: pa.Table, file: str) -> str:
    """Why a source of which more than a tenth of the rows is refused is not used; empty if fewer are."""
    rows, refused = counts.get("rows", 0), counts.get("rejected_rows", 0)
    if refused <= _MOST_SHARE * rows or not rejects.num_rows:
        return ""
    first = rejects.slice(0, 1).to_pylist()[0]
    where = f"{first['file']}, line {first['line']}" + (f", column {first['column']}" if first["column"] else "")
    return (
        f"{file}: {refused:,} of {rows:,} rows cannot be used (the first: {where}: {first['reason']}), more than a "
        "tenth, so nothing is built; mend the file, name the format or the columns, or build regardless with force (--force)"
    )


def reject_table(rejects: Iterable[tuple[str, Reject]]) -> pa.Table:
    """The rejects, each with its file, as a table with the schema :data:`graphmill.ingest.tables.REJECTS`."""
    return pa.Table.from_pylist([{"file": file, **reject._asdict()} for file, reject in rejects], REJECTS)
