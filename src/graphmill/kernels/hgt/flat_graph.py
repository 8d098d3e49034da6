"""Builds the bipartite graph of bags and rows for ``hgt.attention``, once per graph and number of heads.

It is built on the host, without synchronising with the device, and copied to the device at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.kernels.devices import to_device
from graphmill.kernels.hgt.plan import MessageGraph, RelationPlan

Ints = NDArray[np.int64]

_SMALLEST = 6
"""All relations with at most 2 to the power of this many rows are in one size class."""
_MOST = 2**31 - 1


@dataclass(frozen=True)
class SizeClass:
    """``count`` relations from ``first`` on in the plan's order, each with ``size`` rows per head, from row ``start`` on."""

    first: int
    count: int
    size: int
    start: int
    heads: int

    def batched(self, rows: Tensor) -> Tensor:
        """[relations · H, size, D]: a view of this class's part of all rows."""
        batches = self.count * self.heads
        return rows[self.start : self.start + batches * self.size].view(batches, self.size, rows.shape[1])

    def of(self, matrices: Tensor) -> Tensor:
        """[relations · H, D, D]: a view of the matrices of its relations."""
        return matrices[self.first : self.first + self.count].flatten(0, 1)


@dataclass(frozen=True)
class FlatGraph:
    """All edges for all heads, as int32 tensors on one device.

    ``row``, ``bag``, ``pair`` [H·E]: row, bag and pair of each edge, sorted by bag, with ``bounds`` [bags + 1].
    ``by_row`` [H·E]: the edges sorted by row, with ``row_bounds`` [rows + 1]; ``row_bag`` [H·E]: their bags. ``sender``
    [rows]: node · H + head of each row, 0 for padding rows. ``of_sender``: the rows sorted by sender and head, with
    ``sender_bounds``. ``order``: the relations that have edges. ``every``: 0 … H·E − 1.
    """

    heads: int
    edges: int
    bags: int
    classes: tuple[SizeClass, ...]
    row: Tensor
    bag: Tensor
    pair: Tensor
    bounds: Tensor
    by_row: Tensor
    row_bag: Tensor
    row_bounds: Tensor
    sender: Tensor
    of_sender: Tensor
    sender_bounds: Tensor
    order: Tensor
    every: Tensor


def flat_graph(graph: MessageGraph, heads: int) -> FlatGraph:
    """The :class:`FlatGraph` of a graph, made once per number of heads."""
    key = ("flat", heads)
    if key not in graph.compiled:
        graph.compiled[key] = _build(graph, heads)
    return graph.compiled[key]


@dataclass(frozen=True)
class _Relation:
    """One relation: its plan, its number, and its first row among the rows of one head."""

    plan: RelationPlan
    number: int
    size: int
    start: int


def _build(graph: MessageGraph, heads: int) -> FlatGraph:
    relations, classes = _classes(graph, heads)
    receivers, senders = (_offsets(c, of) for c, of in (
        (graph.target_counts, graph.target_types), (graph.source_counts, graph.source_types)))  # fmt: skip
    units = sum(c.count * c.size for c in classes)
    edges = sum(r.plan.num_edges for r in relations)
    if heads * max(edges, units) > _MOST:
        raise ValueError(f"{heads} heads of {edges} edges are more than int32 can number; choose a sampled batching")
    receiver, place, start, size, pair, owner = (np.zeros(edges, np.int64) for _ in range(6))
    unit_sender, unit_start, unit_size = np.full(units, -1), np.zeros(units, np.int64), np.zeros(units, np.int64)
    first = 0
    for position, r in enumerate(relations):
        here, unit_rows = slice(first, first + r.plan.num_edges), slice(r.start, r.start + r.size)
        receiver[here] = receivers[r.plan.target_type] + _host(r.plan.target_nodes)[_host(r.plan.target)]
        place[here], pair[here] = _host(r.plan.source), _host(r.plan.pair)
        start[here], size[here], owner[here] = r.start, r.size, position
        nodes = _host(r.plan.source_nodes)
        unit_sender[r.start : r.start + len(nodes)] = senders[r.plan.source_type] + nodes
        unit_start[unit_rows], unit_size[unit_rows] = r.start, r.size
        first = here.stop
    by_bag = np.argsort(receiver, kind="stable")
    receiver, place, start, size, pair, owner = (x[by_bag] for x in (receiver, place, start, size, pair, owner))
    head = np.arange(heads)
    total = sum(graph.target_counts[t] for t in graph.target_types)
    at, bounds = _spread(receiver, total, heads)
    rows = (start * heads + place)[:, None] + head * size[:, None]
    bags = receiver[:, None] * heads + head
    by_row = np.argsort(start + place, kind="stable")
    at_row, _ = _spread(owner[by_row], len(relations), heads)
    units_row = (unit_start * heads + np.arange(units) - unit_start)[:, None] + head * unit_size[:, None]
    counts = np.bincount(start + place, minlength=units)
    sender = np.zeros(units * heads, np.int64)
    sender[units_row] = np.maximum(unit_sender, 0)[:, None] * heads + head
    real = np.flatnonzero(unit_sender >= 0)
    real = real[np.argsort(unit_sender[real], kind="stable")]
    all_senders = sum(graph.source_counts[t] for t in graph.source_types)
    at_sender, sender_bounds = _spread(unit_sender[real], all_senders, heads)
    arrays = {
        "row": _put(at, rows),
        "bag": _put(at, bags),
        "pair": _put(at, np.broadcast_to(pair[:, None], at.shape)),
        "bounds": bounds,
        "by_row": _put(at_row, at[by_row]),
        "row_bag": _put(at_row, bags[by_row]),
        "row_bounds": np.append(0, np.cumsum(_put(units_row, np.broadcast_to(counts[:, None], units_row.shape)))),
        "sender": sender,
        "of_sender": _put(at_sender, units_row[real]),
        "sender_bounds": sender_bounds,
        "order": np.array([r.number for r in relations], np.int64),
        "every": np.arange(edges * heads),
    }
    return FlatGraph(heads, edges * heads, total * heads, tuple(classes), **_moved(arrays, graph.device))


def _classes(graph: MessageGraph, heads: int) -> tuple[list[_Relation], list[SizeClass]]:
    """The relations with edges, sorted by size class, and the size classes."""

    def about(number: int) -> int:
        return max((graph.relations[number].source_nodes.numel() - 1).bit_length(), _SMALLEST)

    numbers = sorted((n for n, r in enumerate(graph.relations) if r.num_edges), key=about)
    relations: list[_Relation] = []
    classes: list[SizeClass] = []
    start = 0
    for _, group in groupby(numbers, about):
        members = list(group)
        size = max(graph.relations[n].source_nodes.numel() for n in members)
        classes.append(SizeClass(len(relations), len(members), size, start * heads, heads))
        for number in members:
            relations.append(_Relation(graph.relations[number], number, size, start))
            start += size
    return relations, classes


def _offsets(counts: tuple[int, ...], types: frozenset[int]) -> dict[int, int]:
    """The first row of each of these types when their nodes are concatenated."""
    out, first = {}, 0
    for t in sorted(types):
        out[t], first = first, first + counts[t]
    return out


def _spread(owner: Ints, owners: int, heads: int) -> tuple[Ints, Ints]:
    """Positions [n, H] of the items' copies for each head, sorted by owner, then by head; items are sorted by owner.

    Also returns the bounds [owners · H + 1] of each owner's and head's items.
    """
    counts = np.bincount(owner, minlength=owners)
    starts = np.cumsum(counts) - counts
    head = np.arange(heads)
    within = np.arange(len(owner)) - starts[owner]
    at = (heads * starts[owner] + within)[:, None] + head * counts[owner][:, None]
    bounds = heads * starts[:, None] + head * counts[:, None]
    return at, np.append(bounds.ravel(), heads * len(owner))


def _put(at: Ints, values: Ints) -> Ints:
    out = np.empty(at.size, np.int64)
    out[at] = values
    return out


def _host(x: Tensor) -> Ints:
    return x.cpu().numpy().astype(np.int64, copy=False)


def _moved(arrays: dict[str, Ints], device: torch.device) -> dict[str, Tensor]:
    """Convert all arrays to int32 and copy them to the device at once."""
    packed = torch.from_numpy(np.concatenate([a.astype(np.int32) for a in arrays.values()]))
    parts = to_device(packed, device).split([len(a) for a in arrays.values()])
    return dict(zip(arrays, parts, strict=True))
