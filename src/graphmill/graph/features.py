"""Turns feature tables into matrices whose rows are the nodes of a type in the graph's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.graph.numbering import Numbering
from graphmill.ingest.tables import split_feature_key


@dataclass(frozen=True)
class AlignedFeatures:
    """``values`` (count, f) float32, zero where ``present`` (count,) bool is false. ``unused``: number of rows without
    a node in the graph."""

    values: npt.NDArray[np.float32]
    present: npt.NDArray[np.bool_]
    unused: int


def align_features(
    tables: Mapping[str, pa.Table], numbering: Numbering, type_of_row: npt.NDArray[np.int32], known: list[str]
) -> dict[tuple[int, str], AlignedFeatures]:
    """Features by type number and name of the set ("" if the type's features have no name).

    ``tables`` are kept under :func:`graphmill.ingest.tables.feature_key`. A table has ``node`` int32 (row of the nodes
    table) and ``values`` (fixed-size list of float32). ``type_of_row`` and ``known`` give the type of each row of the
    nodes table. Tables of types that are not in the graph are left out.

    Raises :class:`InputError` for an unknown type, a wrong column, a row of another type, two rows of one node, a
    value that is not finite.
    """
    aligned = {}
    for key, table in tables.items():
        name, set_name = split_feature_key(key)
        if name not in known:
            raise InputError(
                f"features are given for node type {name!r}; the nodes table has {', '.join(map(repr, sorted(known)))}"
            )
        rows, values = _columns(key, table)
        outside = np.flatnonzero((rows < 0) | (rows >= len(type_of_row)))
        if len(outside):
            raise InputError(
                f"features of {key!r}, row {outside[0]}: node {rows[outside[0]]} is not a row of the nodes table"
            )
        other = np.flatnonzero(type_of_row[rows] != known.index(name))
        if len(other):
            other_type = known[type_of_row[rows[other[0]]]]
            raise InputError(f"features of {key!r}, row {other[0]}: node {rows[other[0]]} has type {other_type!r}")
        in_order = np.sort(rows)
        twice = in_order[1:][in_order[1:] == in_order[:-1]]
        if len(twice):
            raise InputError(f"features of {key!r}: node {twice[0]} has more than one row; keep one")
        broken = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(broken):
            raise InputError(f"features of {key!r}, row {broken[0]}: not all values are finite")
        if name not in numbering.types:
            continue
        number = numbering.types.index(name)
        first, end = int(numbering.offsets[number]), int(numbering.offsets[number + 1])
        node = numbering.of_row[rows]
        used = node >= 0
        matrix = np.zeros((end - first, values.shape[1]), np.float32)
        matrix[node[used] - first] = values[used]
        present = np.zeros(end - first, bool)
        present[node[used] - first] = True
        aligned[number, set_name] = AlignedFeatures(matrix, present, int((~used).sum()))
    return aligned


def _columns(name: str, table: pa.Table) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    schema = table.schema
    if table.column_names != ["node", "values"] or schema.field("node").type != pa.int32():
        raise InputError(f"features of {name!r}: expected the columns node (int32) and values, found {schema}")
    kind = schema.field("values").type
    if not pa.types.is_fixed_size_list(kind) or kind.value_type != pa.float32():
        raise InputError(f"features of {name!r}: 'values' is {kind}; expected a fixed-size list of float32")
    if table["node"].null_count or table["values"].null_count:
        raise InputError(f"features of {name!r}: empty cells; none allowed")
    rows = table["node"].to_numpy()
    chunks = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in table["values"].chunks]
    flat = np.concatenate(chunks) if chunks else np.empty(0, np.float32)
    return rows, flat.reshape(len(rows), kind.list_size)


def comparable(sets: Sequence[tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]]) -> npt.NDArray[np.float32]:
    """float32 [n, f]: rows whose products are cosines, from feature sets float32 [n, f_i] with the rows that have them, bool
    [k], k ≤ n: later rows have one where they are not zero.

    Each set is centred on its first k rows, and counts as much as the others. The row of a node without features is 0.
    """
    blocks = []
    for values, present in sets:
        known = values[: len(present)]
        centred = values - (known[present].mean(0, dtype=np.float64) if present.any() else 0.0)
        centred[~np.concatenate([present, (values[len(present) :] != 0).any(1)])] = 0
        length = np.linalg.norm(centred, axis=1, keepdims=True)
        blocks.append(centred / np.maximum(length * np.sqrt(len(sets)), 1e-12))
    return np.concatenate(blocks, axis=1).astype(np.float32)
