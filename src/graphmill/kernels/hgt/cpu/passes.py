"""HGT's attention of all relations in one compiled call, on CPUs for which there are blocks (``products.own_blocks``).

What is done with a relation stands in ``hgt.cpu.rows``. Here every thread takes some heads through all relations, so that
no two write to one place, the order of additions does not depend on how many there are, and none waits for another between
relations, of which one of a sparse graph takes a millisecond or less.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.hgt.cpu.jobs import columns_of, jobs_of, maps_of, masks_of, workspace
from graphmill.kernels.hgt.cpu.rows import (
    backward,
    backward_32,
    backward_64,
    forward,
    forward_32,
    forward_64,
)
from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.kernels.hgt.relations import Rows, in_one_pass
from graphmill.kernels.runtime.compiled_math import FAST
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vectors import LANES, like, load_first, numbers_as, padded, spread, store_first

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")

Matrices = tuple[Tensor, Tensor, Tensor]
"""W^K and W^V [relations, h, D, D] and prior [relations, h], those of one relation contiguous; or their gradients."""
Softmax = tuple[Tensor, Tensor, Tensor]
"""Σ α·v [targets, h·D]; of α the total Σ exp(a − highest) and highest = max a, both [targets, h] side by side."""


def serves(weights: Tensor, *rows: Tensor) -> bool:
    """Whether matrices [relations, h, D, D] and rows of this kind are for this module."""
    kind = weights.dtype
    low = kind == torch.float32 and all(r.dtype == torch.bfloat16 for r in rows)
    same = kind in (torch.float32, torch.float64) and all(r.dtype == kind for r in rows)
    return in_one_pass(weights.shape[-1]) and (low or same)


def all_forward(
    graph: MessageGraph,
    chosen: tuple[int, ...],
    rows: tuple[Tensor, Rows, Rows],
    matrices: Matrices,
    kept: Sequence[Tensor | None],
    found: Softmax,
) -> None:
    """Fill ``found`` with what ``chosen`` relations, which end in one type, bring there; before, the total is 0, highest −∞.

    ``rows``: that type's q [targets, h·D], and per type k and v [sources, h·D], which may be bfloat16 where the others are
    fp32. ``kept``: for each chosen relation bool [E], False where an edge carries nothing.
    """
    queries, keys, values = rows
    heads, width = matrices[0].shape[1:3]
    jobs = jobs_of(graph, chosen, 2, matrices[0])
    places = np.array([columns_of(k) + columns_of(v) for k, v in zip(keys, values, strict=True)], np.int64)
    sums, totals, highest = found
    tables = (*columns_of(queries), *columns_of(sums), *columns_of(totals), highest.data_ptr(), len(queries))
    given = (jobs.table, places, masks_of(kept), *_kinds(queries, matrices[0]), tables, maps_of(matrices))
    driver = {32: _all_forward_32, 64: _all_forward_64}.get(width, _all_forward)
    room = workspace(jobs, 2, heads)
    over_ranges(driver, (*given, room, width), room[2], jobs.nodes * heads * width)


def all_backward(
    graph: MessageGraph,
    chosen: tuple[int, ...],
    rows: tuple[Rows, Rows, Rows],
    matrices: Matrices,
    kept: Sequence[Tensor | None],
    softmax: tuple[Rows, Rows, Rows, Rows],
    d_rows: tuple[Rows, Rows, Rows],
    d_matrices: Matrices,
) -> None:
    """Add the gradients of ``chosen`` relations to ``d_rows``; fill their ``d_matrices``.

    ``rows`` and ``d_rows``: q, k and v per type. ``softmax``, per type: the gradient of the attention's result, of the
    rows' kind [targets, h·D]; the log of the softmax's total over all relations and Σ α·dα [targets, h]; no logits, which
    are made once more.
    """
    heads, width = matrices[0].shape[1:3]
    of_rows = next(d for d in softmax[0] if d is not None)
    jobs = jobs_of(graph, chosen, 4, matrices[0])
    d_out, log_total, delta, _ = softmax
    every = (*rows, d_out, *d_rows, log_total, delta)
    places = np.array([[n for t in of_type for n in columns_of(t)] for of_type in zip(*every, strict=True)], np.int64)
    maps = (*maps_of(matrices), *maps_of(d_matrices))
    given = (jobs.table, places, masks_of(kept), *_kinds(of_rows, matrices[0]), maps)
    driver = {32: _all_backward_32, 64: _all_backward_64}.get(width, _all_backward)
    room = workspace(jobs, 4, heads)
    over_ranges(driver, (*given, room, width), room[2], jobs.nodes * heads * width)


def _kinds(rows: Tensor, weights: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Empty arrays of the rows' kind and of all others'."""
    return EMPTY[rows.dtype], EMPTY[weights.dtype]


EMPTY: dict[torch.dtype, np.ndarray] = {
    torch.float32: np.empty(0, np.float32),
    torch.float64: np.empty(0, np.float64),
    torch.bfloat16: np.empty(0, np.uint16),
}
"""An array of each kind of numbers, by which compiled code is told what lies at an address."""
_BYTES, _SHORT, _LONG = (np.empty(0, kind) for kind in (np.uint8, np.int32, np.int64))


@_jit
def _indices(job, mask):  # type: ignore[no-untyped-def]
    """Of a relation: each edge's source, the targets' runs of edges, the nodes, and which edges there are."""
    edges, sources, targets = job[5], job[6], job[7]
    return (
        numba.carray(numbers_as(_SHORT, job[1]), edges),
        numba.carray(numbers_as(_LONG, job[2]), targets + 1),
        numba.carray(numbers_as(_LONG, job[3]), sources),
        numba.carray(numbers_as(_LONG, job[4]), targets),
        numba.carray(numbers_as(_BYTES, mask), edges if mask != 0 else 0),
    )


@_jit
def _scratch_of(room, part):  # type: ignore[no-untyped-def]
    """Addresses of a part's pieces of scratch."""
    start = room[4] + part * room[5]
    return (
        start + room[6],
        start + room[7],
        start + room[8],
        start + room[9],
        start + room[10],
        start + room[11],
    )


@_jit
def _forward_job(jobs, j, places, masks, kind, own_kind, near_kind, tables, maps, room, width, part):  # type: ignore[no-untyped-def]
    """What :func:`graphmill.kernels.hgt.cpu.rows.forward` takes of a relation, but for the heads."""
    job = jobs[j]
    of_sources = places[job[12]]
    k, k_pitch, v, v_pitch = of_sources[0], of_sources[1], of_sources[2], of_sources[3]
    near_k, near_v, key_pitch, row_pitch = k, v, k_pitch, v_pitch
    if job[11] != 0:
        near_k = room[0] + 2 * part * room[1]
        near_v, key_pitch, row_pitch = near_k + room[1], padded(width), padded(width)
    q, q_pitch, sums, sums_pitch, totals, total_pitch, highest = tables[:7]
    own = (
        q,
        q_pitch,
        k,
        k_pitch,
        v,
        v_pitch,
        near_k,
        key_pitch,
        near_v,
        row_pitch,
        sums,
        sums_pitch,
        totals,
        total_pitch,
    )
    matrices = (maps[0] + job[0] * maps[1], maps[2] + job[0] * maps[3], maps[4] + job[0] * maps[5])
    scratch = _scratch_of(room, part)
    rest = ((*own, highest), matrices, scratch, job[8], job[9], width, job[10] != 0, job[11] != 0)
    return (*_indices(job, masks[j]), kind, own_kind, near_kind, *rest)


@_jit
def _backward_job(jobs, j, places, masks, kind, own_kind, near_kind, maps, room, width, part):  # type: ignore[no-untyped-def]
    """What :func:`graphmill.kernels.hgt.cpu.rows.backward` takes of a relation, but for the heads."""
    job = jobs[j]
    own, there = places[job[13]], places[job[12]]
    q, q_pitch, d_q, dq_pitch, slopes, slope_pitch = own[0], own[1], own[8], own[9], own[6], own[7]
    k, k_pitch, v, v_pitch = there[2], there[3], there[4], there[5]
    d_k, dk_pitch, d_v, dv_pitch = there[10], there[11], there[12], there[13]
    near_k, key_pitch, near_v, row_pitch = k, k_pitch, v, v_pitch
    near_dk, gk_pitch, near_dv, gv_pitch = d_k, dk_pitch, d_v, dv_pitch
    if job[11] != 0:
        near_k = room[0] + 4 * part * room[1]
        near_v, near_dk, near_dv = near_k + room[1], near_k + 2 * room[1], near_k + 3 * room[1]
        line = padded(width)
        key_pitch, row_pitch, gk_pitch, gv_pitch = line, line, line, line
    tables = (
        q, q_pitch, k, k_pitch, v, v_pitch, slopes, slope_pitch, d_q, dq_pitch, d_k, dk_pitch, d_v, dv_pitch, near_k,
        key_pitch, near_v, row_pitch, near_dk, gk_pitch, near_dv, gv_pitch, own[14], own[15], own[16], own[17],
    )  # fmt: skip
    r = job[0]
    matrices = (
        maps[0] + r * maps[1],
        maps[2] + r * maps[3],
        maps[4] + r * maps[5],
        maps[6] + r * maps[7],
        maps[8] + r * maps[9],
        maps[10] + r * maps[11],
    )
    rest = (tables, matrices, _scratch_of(room, part), job[8], job[9], width, job[10] != 0, job[11] != 0)
    return (*_indices(job, masks[j]), kind, own_kind, near_kind, *rest)


@_jit
def _heads_of(part, room):  # type: ignore[no-untyped-def]
    """The first head of a part of the work, and that after its last."""
    return room[3] * part // room[2], room[3] * (part + 1) // room[2]


@_jit
def _divide(own_kind, tables, width, first, last):  # type: ignore[no-untyped-def]
    """Each target's sums by its total; 0 where nothing arrived."""
    _, _, to_sums, sums_pitch, to_totals, total_pitch, _, targets = tables
    sums, totals = numbers_as(own_kind, to_sums), numbers_as(own_kind, to_totals)
    for i in range(targets):
        for h in range(first, last):
            found, at = totals[i * total_pitch + h], i * sums_pitch + h * width
            if found == 0:
                for c in range(width):
                    sums[at + c] = 0
            else:
                share = spread(like(found, 1) / found)
                for c in range(0, width, LANES):
                    store_first(sums, at + c, share * load_first(sums, at + c, width - c), width - c)


@_jit
def _all_forward(jobs, places, masks, kind, own_kind, tables, maps, room, width, first, last):  # type: ignore[no-untyped-def]
    for part in range(first, last):
        begin, end = _heads_of(part, room)
        for j in range(len(jobs)):
            if jobs[j][11] != 0:
                job = _forward_job(jobs, j, places, masks, kind, own_kind, own_kind, tables, maps, room, width, part)
                forward(*job, begin, end)
            else:
                in_place = _forward_job(jobs, j, places, masks, kind, own_kind, kind, tables, maps, room, width, part)
                forward(*in_place, begin, end)
        _divide(own_kind, tables, width, begin, end)


@_jit
def _all_forward_32(jobs, places, masks, kind, own_kind, tables, maps, room, width, first, last):  # type: ignore[no-untyped-def]
    for part in range(first, last):
        begin, end = _heads_of(part, room)
        for j in range(len(jobs)):
            if jobs[j][11] != 0:
                job = _forward_job(jobs, j, places, masks, kind, own_kind, own_kind, tables, maps, room, width, part)
                forward_32(*job, begin, end)
            else:
                in_place = _forward_job(jobs, j, places, masks, kind, own_kind, kind, tables, maps, room, width, part)
                forward_32(*in_place, begin, end)
        _divide(own_kind, tables, width, begin, end)


@_jit
def _all_forward_64(jobs, places, masks, kind, own_kind, tables, maps, room, width, first, last):  # type: ignore[no-untyped-def]
    for part in range(first, last):
        begin, end = _heads_of(part, room)
        for j in range(len(jobs)):
            if jobs[j][11] != 0:
                job = _forward_job(jobs, j, places, masks, kind, own_kind, own_kind, tables, maps, room, width, part)
                forward_64(*job, begin, end)
            else:
                in_place = _forward_job(jobs, j, places, masks, kind, own_kind, kind, tables, maps, room, width, part)
                forward_64(*in_place, begin, end)
        _divide(own_kind, tables, width, begin, end)


@_jit
def _all_backward(jobs, places, masks, kind, own_kind, maps, room, width, first, last):  # type: ignore[no-untyped-def]
    for part in range(first, last):
        begin, end = _heads_of(part, room)
        for j in range(len(jobs)):
            if jobs[j][11] != 0:
                job = _backward_job(jobs, j, places, masks, kind, own_kind, own_kind, maps, room, width, part)
                backward(*job, begin, end)
            else:
                in_place = _backward_job(jobs, j, places, masks, kind, own_kind, kind, maps, room, width, part)
                backward(*in_place, begin, end)


@_jit
def _all_backward_32(jobs, places, masks, kind, own_kind, maps, room, width, first, last):  # type: ignore[no-untyped-def]
    for part in range(first, last):
        begin, end = _heads_of(part, room)
        for j in range(len(jobs)):
            if jobs[j][11] != 0:
                job = _backward_job(jobs, j, places, masks, kind, own_kind, own_kind, maps, room, width, part)
                backward_32(*job, begin, end)
            else:
                in_place = _backward_job(jobs, j, places, masks, kind, own_kind, kind, maps, room, width, part)
                backward_32(*in_place, begin, end)


@_jit
def _all_backward_64(jobs, places, masks, kind, own_kind, maps, room, width, first, last):  # type: ignore[no-untyped-def]
    for part in range(first, last):
        begin, end = _heads_of(part, room)
        for j in range(len(jobs)):
            if jobs[j][11] != 0:
                job = _backward_job(jobs, j, places, masks, kind, own_kind, own_kind, maps, room, width, part)
                backward_64(*job, begin, end)
            else:
                in_place = _backward_job(jobs, j, places, masks, kind, own_kind, kind, maps, room, width, part)
                backward_64(*in_place, begin, end)
