"""Windows of time of held-out links that are newer than all training links, and the popularity of late beside them.

A model that is trained on the past is asked for the future, window by window (Lazaridou et al. 2021): a figure that falls
from window to window says how soon to train again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.ranking.queries import Int64, LinkQueries
from graphmill.graph.splits import SPLIT_NAMES, TRAIN
from graphmill.ingest.tables import NO_TIME

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph

WINDOWS = 4
RECENT = "recent"
"""Name of the scorer by links of late."""
_SECONDS = 10**7
"""Times above it are seconds since 1970, others numbers such as years."""


@dataclass(frozen=True)
class TimeWindows:
    """Windows of equal length of the links of a split. ``bounds`` int64 [W + 1]; ``since``: training links from there on
    are those of late, as long a time as a window."""

    graph: TypedGraph
    split: int
    bounds: Int64
    since: int

    @classmethod
    def of(cls, graph: TypedGraph, split: str) -> TimeWindows | None:
        """Those of a graph, or None if a link of the split has no time, or is not newer than all training links."""
        number, seen, held = SPLIT_NAMES.index(split), NO_TIME, list[Int64]()
        for relation in graph.relations:
            edges = graph.edges(relation)
            part = np.asarray(edges.split)
            of_split = part == number
            if edges.timestamp is None:
                if of_split.any():
                    return None
                continue
            times = np.asarray(edges.timestamp)
            seen = max(seen, int(times[part == TRAIN].max(initial=NO_TIME)))
            held.append(times[of_split])
        every = np.concatenate([np.zeros(0, np.int64), *held])
        if not len(every) or seen == NO_TIME or every.min() <= seen:
            return None
        first, last = int(every.min()), int(every.max())
        bounds = np.unique(np.linspace(first, last + 1, WINDOWS + 1).astype(np.int64))
        return cls(graph, number, bounds, seen + 1 - int(bounds[1] - bounds[0]))

    def names(self) -> list[str]:
        """``"2016-09-01 to 2016-09-30"`` of each window, or numbers that are no seconds."""
        return [f"{_text(a)} to {_text(b - 1)}" for a, b in zip(self.bounds, self.bounds[1:], strict=False)]

    def number(self, relation: int, heads: Int64, tails: Int64) -> Int64:
        """The window of each link (local numbers of its ends) of a relation: that of its first time; −1: none."""
        edges = self.graph.edges(relation)
        count = self.graph.node_type(self.graph.relations[relation].target).count
        held = np.asarray(edges.split) == self.split
        keys = np.asarray(edges.src, np.int64)[held] * count + np.asarray(edges.dst)[held]
        times = np.asarray(edges.timestamp)[held]
        order = np.lexsort((times, keys))
        keys, times = keys[order], times[order]
        wanted = heads * count + tails
        place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        numbers = np.searchsorted(self.bounds, times[place], side="right") - 1 if len(keys) else np.zeros(0, np.int64)
        return np.where(keys[place] == wanted, numbers, -1) if len(keys) else np.full(len(wanted), -1)

    def recent(self, relation: int, count: int, *, inverse: bool = False) -> Int64:
        """int64 [count]: by target, an order by links of late; links of all training decide between equal ones."""
        edges = self.graph.edges(relation)
        ends = np.asarray(edges.src if inverse else edges.dst)
        train = np.asarray(edges.split) == TRAIN
        every = np.bincount(ends[train], minlength=count).astype(np.int64)
        if edges.timestamp is None:
            return every
        late = np.bincount(ends[train & (np.asarray(edges.timestamp) >= self.since)], minlength=count)
        return late * (every.max(initial=0) + 1) + every

    def by_recent(self, queries: LinkQueries) -> LinkQueries:
        """The queries with :meth:`recent` in the place of the number of training links."""
        many = len(self.graph.relations)
        return replace(
            queries,
            relations=tuple(
                replace(
                    each, train_degree=self.recent(each.relation % many, each.candidates, inverse=each.relation >= many)
                )
                for each in queries.relations
            ),
        )

    def of_queries(self, queries: LinkQueries) -> NDArray[np.int64]:
        """The window of each query of the relations that have any, in order: int64 [Q]."""
        many, numbers = len(self.graph.relations), [np.zeros(0, np.int64)]
        for each in queries.relations:
            ends = (each.heads, each.targets) if each.relation < many else (each.targets, each.heads)
            if len(each.heads):
                numbers.append(self.number(each.relation % many, *ends))
        return np.concatenate(numbers)


def _text(moment: int) -> str:
    try:
        return f"{datetime.fromtimestamp(int(moment), UTC):%Y-%m-%d}" if abs(moment) > _SECONDS else str(moment)
    except (ValueError, OverflowError, OSError):
        return str(moment)
