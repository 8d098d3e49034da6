"""What the compiled passes of HGT are handed: a graph's relations as addresses, made once, and memory to work in.

How a relation is gone through, from its sizes alone, is decided here as well: sources side by side or where they are, and
how many targets go together.
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
"""Where in a row of the table the number of targets stands that go through together."""
_NOTHING = (0,) * 6
_SHARED = 2
"""Edges a source, on average, from which on sources are put side by side."""
_MANY = 10 * TOGETHER
"""Targets that go through together where they share many sources."""
_REUSE = 4
"""How often such targets meet a source, at least."""
_TILE_BYTES = 1 << 20
"""Of sources side by side that these targets meet before the next: they stay in the second cache."""


class RelationTable(NamedTuple):
    """Relations as compiled code reads them: addresses of a graph's index tensors, which it keeps."""

    numbers: np.ndarray
    """int64 [relations, 14], in the order of :func:`_numbers`."""
    nodes: int
    """Sources and targets of all relations."""
    room: int
    """Bytes that the sources of a head take, put side by side."""
    scratch: tuple[int, ...]
    """Bytes of each part of what a relation's pass works in (``scratch_sizes``)."""


def relation_table_of(graph: MessageGraph, chosen: tuple[int, ...], tables: int, weights: Tensor) -> RelationTable:
    """Those of ``chosen`` relations, made once a graph. ``tables``: rows side by side of a source, 2 forward, 4 backward."""
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
    """Whether sources are put side by side."""
    return not (r.on_target and r.num_edges < _SHARED * r.source_nodes.numel())


def _blocks(r: RelationPlan, tables: int, width: int, size: int, compact: bool) -> tuple[int, int]:
    """Targets that go through together, and sources that they meet before the next."""
    sources, targets = r.source_nodes.numel(), r.target_nodes.numel()
    # Forward, keys are read by all targets before the first of their values.
    tables = tables if tables > 2 else 1
    tile = max(_TILE_BYTES // (tables * padded(width) * size), 1)
    if compact and sources > tile and r.num_edges * _MANY >= _REUSE * sources * targets:
        return _MANY, tile
    return TOGETHER, sources


class _Work(threading.local):
    """What each thread keeps to work in from one call to the next, whatever the graph: as much as it ever needed."""

    def __init__(self) -> None:
        self.block = torch.empty(0, dtype=torch.uint8)


_WORK = _Work()


def workspace(table: RelationTable, tables: int, heads: int) -> tuple[int, ...]:
    """Where the work is done: addresses in this thread's block of memory.

    The work goes into as many parts, of some heads each, as there are threads, and each has its own, whichever thread takes
    it. Where it begins, the bytes that a table of sources side by side has in it, how many parts and heads there are; then
    where the scratch of the first part begins, the bytes to the next one's, and where in it each piece is.
    """
    parts = min(heads, torch.get_num_threads())
    near, each = parts * tables * table.room, sum(table.scratch)
    needed = near + parts * each
    if _WORK.block.numel() < needed:
        del _WORK.block  # the smaller one goes before the larger one is there
        _WORK.block = torch.empty(needed, dtype=torch.uint8)
    start, pieces = _WORK.block.data_ptr(), (0, *accumulate(table.scratch[:-1]))
    return (start, table.room, parts, heads, start + near, each, *pieces)


# Tables are handed on as their addresses: to make an array of a tensor takes longer than a small relation does.


def columns_of(table: Tensor | None) -> tuple[int, int]:
    """Where the first number is, and how many there are from one node's to the next."""
    return (0, 0) if table is None else (table.data_ptr(), table.stride(0))


def maps_of(matrices: Sequence[Tensor]) -> tuple[int, ...]:
    """Where the first relation's matrices begin, and how many bytes there are to the next."""
    return tuple(n for m in matrices for n in (m.data_ptr(), m.stride(0) * m.itemsize))


def masks_of(kept: Sequence[Tensor | None]) -> np.ndarray:
    """int64 [relations]: where each one's bytes of edges begin, 0 where all edges are kept."""
    return np.array([0 if part is None else part.data_ptr() for part in kept], np.int64)
