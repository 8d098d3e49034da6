"""A relation in compiled code, and parts that forward and backward share: packed sources, rows at the edges' ends."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels.hgt.cpu.row_parts import TOGETHER, gather, transformed
from graphmill.kernels.products.cpu import SIX
from graphmill.kernels.runtime.jit import jit_fast
from graphmill.kernels.runtime.vectors import LANES, LINE, behind, fetch, numbers_as, padded

PLACES = np.empty(0, np.int64)


class Relation(NamedTuple):
    """One relation. ``index`` [E]: each edge's source, as a row of the packed sources if ``compact``, else as a node.
    ``indptr`` [targets + 1]: bounds of the targets' edges. ``kept`` bytes [E]: mask of edges with a message, empty if
    all have one. Blocks of ``together`` targets are processed against tiles of ``tile`` sources."""

    index: Any
    indptr: Any
    source_nodes: Any
    target_nodes: Any
    kept: Any
    edges: Any
    together: Any
    tile: Any
    width: Any
    on_target: Any
    compact: Any


class Kinds(NamedTuple):
    """Empty arrays that carry the dtypes of the rows, of all other tables, and of the rows that the edges read."""

    rows: Any
    own: Any
    near: Any


class Ends(NamedTuple):
    """The source rows that edges read or add to: for keys and values the table, the head's first column, the stride."""

    keys: Any
    values: Any


class Sources(NamedTuple):
    """Addresses and row strides of the tables of k and v or their gradients, and addresses of buffers for packed sources."""

    k: Any
    k_pitch: Any
    v: Any
    v_pitch: Any
    near_k: Any
    near_v: Any


def scratch_sizes(width: int, together: int, edges: tuple[int, int], size: int) -> list[int]:
    """Bytes of each scratch buffer of a relation's pass, in the order of ``scratch``: matrices, their gradients, rows
    of ``together`` targets, two numbers per target, two per edge, and each target's current edge.

    ``edges``: largest number of edges of a block of ``together`` targets, and of one target. ``size``: bytes per number.
    """
    line = padded(width)
    # One more row: products with a transposed operand read and write slightly past the last row.
    numbers = [
        3 * width * line,
        2 * (width + SIX) * line,
        7 * (max(together, TOGETHER) + 1) * line,
        2 * together,
        max(edges[0], 2 * (edges[1] + LANES)) + LANES,
    ]
    return [-(-n // LINE) * LINE for n in (*(size * n for n in numbers), 8 * together)]


@jit_fast
def width_of(lanes, given):  # type: ignore[no-untyped-def]
    """A head's width: 16 numbers per entry of ``lanes``, a compile-time constant if this is a tuple of two or four."""
    return LANES * len(lanes) if len(lanes) > 1 else given


@jit_fast
def ends_of(kind, sources, column, width, compact):  # type: ignore[no-untyped-def]
    """The rows that edges read or add to: the packed sources, or the rows of all nodes."""
    line, at = padded(width), 0 if compact else column
    k, v = (sources.near_k, sources.near_v) if compact else (sources.k, sources.v)
    k_pitch, v_pitch = (line, line) if compact else (sources.k_pitch, sources.v_pitch)
    return Ends((numbers_as(kind, k), at, k_pitch), (numbers_as(kind, v), at, v_pitch))


@jit_fast
def side_by_side(relation, kinds, sources, maps, given, lanes, column):  # type: ignore[no-untyped-def]
    """Pack one head of the sources into the buffers, multiplied by the matrices if these are on the sources' side."""
    width = width_of(lanes, relation.width)
    nodes, given_rows = relation.source_nodes, ends_of(kinds.rows, sources, column, width, False)
    packed = ends_of(kinds.own, sources, column, width, True)
    if relation.on_target:
        gather(given_rows.keys, nodes, 0, len(nodes), width, packed.keys)
        gather(given_rows.values, nodes, 0, len(nodes), width, packed.values)
    else:
        transformed(given_rows.keys, nodes, width, maps, given, packed.keys[0])
        transformed(given_rows.values, nodes, width, behind(maps, width * padded(width)), given, packed.values[0])


@jit_fast
def fetch_sources(ends, index, e, edges, width):  # type: ignore[no-untyped-def]
    """Prefetch the rows of the sixteen edges after those that begin at ``e``."""
    for other in range(e + LANES, min(e + 2 * LANES, edges)):
        fetch_source(ends, np.int64(index[other]), width)


@jit_fast
def fetch_source(ends, source, width):  # type: ignore[no-untyped-def]
    """Prefetch one source's rows."""
    (keys, to_k, key_pitch), (values, to_v, value_pitch) = ends.keys, ends.values
    fetch(keys, to_k + source * key_pitch, width)
    fetch(values, to_v + source * value_pitch, width)
