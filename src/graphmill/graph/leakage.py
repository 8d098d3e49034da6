"""Audits whether training sees held-out links. It compares node pairs across splits.

A held-out edge leaks if any edge of the other split joins its two nodes, in either direction and under any relation:
the answer can then be looked up instead of predicted. This finds repeated triples, reversed triples, and triples whose
inverse is another relation (the defect of WN18 and FB15k: Toutanova and Chen 2015; Dettmers et al. 2018). In a split by
time, a training edge that is as new as a held-out edge also counts as a leak. In other splits of edges with times, the
share of newer training edges says how far training knows the future of what is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from graphmill.graph.settings import SplitSettings
from graphmill.graph.sorted_unique import in_sorted, sorted_unique
from graphmill.graph.splits import SPLIT_NAMES, TEST, TRAIN, VALID
from graphmill.ingest.tables import NO_TIME

COMPARISONS = ((VALID, TRAIN), (TEST, TRAIN), (TEST, VALID))
"""(held out, seen): training must see neither valid nor test, and the choice of a model by valid must not see test."""


@dataclass(frozen=True)
class Overlap:
    """Edges of one split whose node pair occurs in another split.

    ``leaked`` of ``edges`` held-out edges have their pair in the seen split. ``pairs`` (k, 2) int32: the k distinct
    undirected pairs, as global node numbers, low first, ascending. ``relations``: for each relation with held-out edges its
    name, those edges, and how many of them leak.
    """

    held_out: str
    seen: str
    edges: int
    leaked: int
    pairs: npt.NDArray[np.int32] = field(compare=False)
    relations: tuple[tuple[str, int, int], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Counts as plain values, with the relations that leak."""
        return {
            "held_out": self.held_out,
            "seen": self.seen,
            "edges": self.edges,
            "leaked_edges": self.leaked,
            "leaked_pairs": len(self.pairs),
            "relations": {name: {"edges": edges, "leaked": leaked} for name, edges, leaked in self.relations if leaked},
        }


@dataclass(frozen=True)
class LeakageReport:
    """The three overlaps of :data:`COMPARISONS`.

    ``seen_edges``: for each comparison, the number of seen edges that the split's method forbids. "later" (split by time):
    those that are not older than the oldest held-out edge. "group_links" (split by groups): those of the chosen relations
    at nodes that have held-out ones. ``newer_share``: see :func:`newer_share`; None if the split is by time.
    """

    overlaps: tuple[Overlap, ...]
    seen_edges: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    newer_share: float | None = None

    @property
    def leaked_pairs(self) -> int:
        """Undirected node pairs that occur in more than one split."""
        return len(np.unique(np.concatenate([overlap.pairs for overlap in self.overlaps]), axis=0))

    @property
    def clean(self) -> bool:
        """Whether no pair occurs in more than one split, and no edge is newer than allowed."""
        return self.leaked_pairs == 0 and not any(map(any, self.seen_edges.values()))

    def to_dict(self) -> dict[str, Any]:
        """All counts as plain values."""
        overlaps = [overlap.to_dict() for overlap in self.overlaps]
        names = [f"{SPLIT_NAMES[seen]} against {SPLIT_NAMES[held]}" for held, seen in COMPARISONS]
        others = {what: dict(zip(names, counts, strict=True)) for what, counts in self.seen_edges.items()}
        newer = {} if self.newer_share is None else {"newer_share": self.newer_share}
        return {"leaked_pairs": self.leaked_pairs, "overlaps": overlaps, **others, **newer}


def later_edges(times: npt.NDArray[np.int64], split: npt.NDArray[np.integer]) -> tuple[int, ...]:
    """For each of :data:`COMPARISONS`, the number of seen edges that are not older than the oldest held-out edge.

    ``times`` int64 (E,), :data:`graphmill.ingest.tables.NO_TIME` for none.
    """
    numbers = []
    for held_out, seen in COMPARISONS:
        held = times[split == held_out]
        numbers.append(int((times[split == seen] >= held.min()).sum()) if len(held) else 0)
    return tuple(numbers)


def newer_share(times: npt.NDArray[np.int64], split: npt.NDArray[np.integer]) -> float | None:
    """Fraction of training edges that are newer than the median held-out edge, among edges with a time; None without any.

    ``times`` and ``split`` as of :func:`later_edges`.
    """
    timed = times != NO_TIME
    train, held_out = times[timed & (split == TRAIN)], times[timed & (split != TRAIN)]
    return float((train > np.median(held_out)).mean()) if len(train) and len(held_out) else None


def links_of_held_out(
    src: npt.NDArray[np.integer],
    dst: npt.NDArray[np.integer],
    relation: npt.NDArray[np.integer],
    split: npt.NDArray[np.integer],
    keys: Sequence[tuple[str, str, str]],
    settings: SplitSettings,
) -> tuple[int, ...]:
    """For each of :data:`COMPARISONS`, the number of seen edges of ``group_relations`` at nodes that have held-out ones.

    It counts only relations between ``group_type`` and another type, because in a relation within the type either end
    may be the held-out one. ``keys``: (source type, name, target type) of each relation; other arguments, by
    edge: global numbers of its ends, its relation and its split.
    """
    node = np.full(len(src), -1, np.int64)
    for number, (source, name, target) in enumerate(keys):
        if name in settings.group_relations and (source == settings.group_type) != (target == settings.group_type):
            rows = relation == number
            node[rows] = (src if source == settings.group_type else dst)[rows]
    numbers = []
    for held_out, seen in COMPARISONS:
        held = sorted_unique(node[(split == held_out) & (node >= 0)])
        numbers.append(int(in_sorted(node[(split == seen) & (node >= 0)], held).sum()))
    return tuple(numbers)


def audit_pairs(
    pair: npt.NDArray[np.integer],
    ends: tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]],
    split: npt.NDArray[np.integer],
    names: Sequence[str],
    bounds: Sequence[int],
) -> LeakageReport:
    """Audit edges by their node pairs ``pair`` (E,), whose ``ends`` are global node numbers (P,) each, and splits (E,).

    ``bounds``: relation r, of the name ``names[r]``, has the edges ``bounds[r]`` to ``bounds[r + 1]``.
    """
    within = np.zeros((len(SPLIT_NAMES), len(ends[0])), bool)
    within[split, pair] = True
    overlaps = []
    for held_out, seen in COMPARISONS:
        held = split == held_out
        leaking = held & within[seen][pair]
        counts = [
            (name, int(held[first:last].sum()), int(leaking[first:last].sum()))
            for name, (first, last) in zip(names, pairwise(bounds), strict=True)
        ]
        leaked = np.flatnonzero(within[held_out] & within[seen])
        overlaps.append(
            Overlap(
                SPLIT_NAMES[held_out],
                SPLIT_NAMES[seen],
                int(held.sum()),
                int(leaking.sum()),
                pairs=np.stack([end[leaked] for end in ends], axis=1).astype(np.int32),
                relations=tuple(count for count in counts if count[1]),
            )
        )
    return LeakageReport(tuple(overlaps))
