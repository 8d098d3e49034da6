"""Prepares the input of HGT's compiled passes: a table of a graph's relations with addresses (made once), and scratch
memory.

It also decides from a relation's sizes whether its sources are packed, and how many targets form a block.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.hgt.cpu.relation import scratch_sizes
from graphmill.kernels.hgt.cpu.row_parts import TOGETHER
from graphmill.kernels.hgt.plan import MessageGraph, RelationPlan
from graphmill.kernels.products.cpu import SIX
from graphmill.kernels.runtime.vectors import padded

_OF_TOGETHER = 8
"""Column of the table with the number of targets in a block."""
_NOTHING = (0,) * 6
_SHARED = 2
"""Sources are packed if they have at least this many edges on average."""
_MANY = 10 * TOGETHER
"""Number of targets in a block if they share many sources."""
_REUSE = 4
"""Lower bound of the mean number of edges per source in such a block."""
_TILE_BYTES = 1 << 20
"""Bytes of a tile of packed sources, which stays in the L2 cache."""


class RelationTable(NamedTuple):
    """Relations in the form for compiled code, with addresses of the graph's index tensors, which the graph keeps."""

    numbers: np.ndarray
    """int64 [relations, 14], in the order of :func:`_numbers`."""
    nodes: int
    """Number of sources and targets of all relations."""
    room: int
    """Bytes of the packed sources of one head."""
    scratch: tuple[int, ...]
    """Bytes of each scratch buffer (``scratch_sizes``)."""


def relation_table_of(graph: MessageGraph, chosen: tuple[int, ...], tables: int, weights: Tensor) -> RelationTable:
    """The table of the ``chosen`` relations, made once per graph. ``tables``: packed tables, 2 forward, 4 backward."""
    width, size = weights.shape[-1], weights.itemsize
    key = (chosen, tables, width, size, _TILE_BYTES)
    known: RelationTable | None = graph.compiled.get(key)
    if known is None:
        plans = [graph.relations[number] for number in chosen]
        rows = [_numbers(number, r, tables, width, size) for number, r in zip(chosen, plans, strict=True)]
        nodes = sum(r.source_nodes.numel() + r.target_nodes.numel() for r in plans)
        near = max((r.source_nodes.numel() + SIX for r in plans if _compact(r)), default=0)
        each = [_scratch(r, row[_OF_TOGETHER], width, size) for r, row in zip(plans, rows, strict=True)]
        scratch = tuple(max(part) for part in zip(*each, strict=True)) or _NOTHING
        numbers = np.array(rows, np.int64).reshape(len(chosen), 14)
        known = graph.compiled[key] = RelationTable(numbers, nodes, near * padded(width) * size, scratch)
    return known


def _scratch(r: RelationPlan, together: int, width: int, size: int) -> list[int]:
    indptr = r.indptr.numpy()
    last = len(indptr) - 1
    starts = np.arange(0, last, together)
    several = (indptr[np.minimum(starts + together, last)] - indptr[starts]).max(initial=0)
    return scratch_sizes(width, together, (int(several), int(np.diff(indptr).max(initial=0))), size)


def _numbers(number: int, r: RelationPlan, tables: int, width: int, size: int) -> tuple[int, ...]:
    compact = _compact(r)
    index = r.source if compact else r.source_row
    pointers = [t.data_ptr() for t in (index, r.indptr, r.source_nodes, r.target_nodes)]
    counts = (r.num_edges, r.source_nodes.numel(), r.target_nodes.numel())
    blocks = _blocks(r, tables, width, size, compact)
    return (number, *pointers, *counts, *blocks, r.on_target, compact, r.source_type, r.target_type)


def _compact(r: RelationPlan) -> bool:
    """Whether the sources of the relation are packed."""
    return not (r.on_target and r.num_edges < _SHARED * r.source_nodes.numel())


def _blocks(r: RelationPlan, tables: int, width: int, size: int, compact: bool) -> tuple[int, int]:
    """The number of targets in a block, and of sources in a tile."""
    sources, targets = r.source_nodes.numel(), r.target_nodes.numel()
    # In the forward pass, all targets read the keys of a tile before the first value.
    tables = tables if tables > 2 else 1
    tile = max(_TILE_BYTES // (tables * padded(width) * size), 1)
    if compact and sources > tile and r.num_edges * _MANY >= _REUSE * sources * targets:
        return _MANY, tile
    return TOGETHER, sources


class _Work(threading.local):
    """Scratch memory that each thread keeps between calls. It grows to the largest size needed."""

    def __init__(self) -> None:
        self.block = torch.empty(0, dtype=torch.uint8)


_WORK = _Work()


def workspace(table: RelationTable, tables: int, heads: int) -> tuple[int, ...]:
    """The layout of scratch memory, as addresses in this thread's block.

    The heads are divided into one part per thread, and each part has its own memory. Returns the start address, the
    bytes of a table of packed sources, the numbers of parts and heads, the address of the first part's scratch buffers,
    the bytes to those of the next part, and the offset of each buffer.
    """
    parts = min(heads, torch.get_num_threads())
    near, each = parts * tables * table.room, sum(table.scratch)
    needed = near + parts * each
    if _WORK.block.numel() < needed:
        del _WORK.block  # free the smaller one before allocating the larger one
        _WORK.block = torch.empty(needed, dtype=torch.uint8)
    start, pieces = _WORK.block.data_ptr(), (0, *accumulate(table.scratch[:-1]))
    return (start, table.room, parts, heads, start + near, each, *pieces)


# Tables are passed as addresses: turning a tensor into an array takes longer than a small relation.


def columns_of(table: Tensor | None) -> tuple[int, int]:
    """The address of the first number, and the row stride in numbers."""
    return (0, 0) if table is None else (table.data_ptr(), table.stride(0))


def maps_of(matrices: Sequence[Tensor]) -> tuple[int, ...]:
    """For each tensor, the address of the first relation's matrices and the stride to the next relation in bytes."""
    return tuple(n for m in matrices for n in (m.data_ptr(), m.stride(0) * m.itemsize))


def masks_of(kept: Sequence[Tensor | None]) -> np.ndarray:
    """int64 [relations]: the address of each relation's mask of edges, 0 if all edges are kept."""
    return np.array([0 if part is None else part.data_ptr() for part in kept], np.int64)
