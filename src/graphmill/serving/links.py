"""Predicts links with a version: from the table that its run had at the promotion, or by scoring.

The table has values that need a pass over all heads (median ranks, calibrated probabilities) or over the graph (the
edges that explain a link). Scoring works for every head and relation, from the version's folder alone.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from graphmill.errors import GraphmillError, InputError
from graphmill.graph.training_links import TrainingLinks
from graphmill.parquet import ParquetTable
from graphmill.predictions.table import schema
from graphmill.serving.version_run import RunScorer
from graphmill.systems.link_export import best_targets
from graphmill.usage.links import TABLE as LINKS

if TYPE_CHECKING:
    from graphmill.systems.blend.part import BlendScorer
    from graphmill.systems.link_export import ExportedScorer

Int64 = NDArray[np.int64]
Link = dict[str, Any]
"""``relation``: its number; ``target``: a row; ``from``: table or scores; score, rank, known, and the table's columns."""
HELD_GROUPS = 4
"""Number of row groups of the table that stay in memory (a few MB each)."""
_HEADS = ["head_type", "head_id", "relation", "tail_type"]
_FROM_TABLE = ("median_rank", "relative_rank", "probability")


class LinkTable:
    """``links.parquet``, opened once. A head's rows are read on demand, even if the file has been removed."""

    def __init__(self, path: Path, relations: Sequence[Sequence[str]], rows: Mapping[tuple[str, str], int]) -> None:
        """``relations``: source, name and target of each. ``rows``: the row of each node, by type and id."""
        self._file = ParquetTable(path, remedy="promote the run again")
        self._file.require(schema(pa.schema([])))
        self._rows = rows
        numbers = {tuple(key): number for number, key in enumerate(relations)}
        keys, groups, starts, stops = [], [], [], []
        for group in range(self._file.groups):
            part = self._file.group(group, _HEADS)
            for start, stop in _runs(part):
                kind, head, relation, target = (part[name][start].as_py() for name in _HEADS)
                number, row = numbers.get((kind, relation, target)), rows.get((kind, head))
                if number is not None and row is not None:
                    keys.append(number << 40 | row)
                    groups.append(group)
                    starts.append(start)
                    stops.append(stop)
        order = np.argsort(np.array(keys, np.int64), kind="stable")
        self._keys, self._places = (
            np.array(keys, np.int64)[order],
            np.array([groups, starts, stops], np.int64).T[order],
        )
        self._read = lru_cache(HELD_GROUPS)(self._file.group)
        self._lock = threading.Lock()

    def of(self, relation: int, row: int) -> list[Link]:
        """The links of a head in a relation, best first."""
        key = relation << 40 | row
        low, high = np.searchsorted(self._keys, [key, key + 1])
        return [
            self._link(relation, each)
            for group, start, stop in self._places[low:high].tolist()
            for each in self._group(group).slice(start, stop - start).to_pylist()
        ]

    def _link(self, relation: int, each: Mapping[str, Any]) -> Link:
        target = self._rows.get((each["tail_type"], each["tail_id"]))
        if target is None or each["score"] is None:
            raise InputError(
                f"{LINKS}: {each['tail_id']} is no node of the version, or has no score; promote the run again"
            )
        return {
            "relation": relation,
            "target": target,
            "from": "table",
            "score": each["score"],
            "rank": each["rank"],
            "known": each["known"] == "train",
            **{name: each[name] for name in _FROM_TABLE},
            "because": [text for text in str(each.get("because") or "").split(" ; ") if text],
        }

    def _group(self, group: int) -> pa.Table:
        with self._lock:
            return self._read(group)


class PredictedLinks:
    """Links that begin at a node, best first. All methods may be called by several threads at once."""

    def __init__(self, scorer: ExportedScorer | BlendScorer | RunScorer | None, table: LinkTable | None) -> None:
        """A version has a scorer, a table, or both."""
        self._scorer, self._table = scorer, table
        self._scoring = threading.Lock()

    @property
    def training(self) -> TrainingLinks | None:
        """The training links, if the version itself has them."""
        return None if self._scorer is None or isinstance(self._scorer, RunScorer) else self._scorer.links

    def listed(self, relation: int, row: int, target: int) -> Link | None:
        """The table's row of a link, or None."""
        listed = [] if self._table is None else self._table.of(relation, row)
        return next((link for link in listed if link["target"] == target), None)

    def best(self, relation: int, row: int, count: int, known: bool) -> list[Link]:
        """The ``count`` likeliest targets of a row in a relation. ``known``: include training links.

        The table's rows come first. Other targets follow by score, below the score of the last row; of a version whose run
        scores, only while that is on this machine.
        """
        try:
            return self._best(relation, row, count, known)
        except GraphmillError:
            if self._table is None or not isinstance(self._scorer, RunScorer):
                raise
            return [link for link in self._table.of(relation, row) if known or not link["known"]][:count]

    def _best(self, relation: int, row: int, count: int, known: bool) -> list[Link]:
        listed = [] if self._table is None else self._table.of(relation, row)
        by_target = {link["target"]: link for link in listed}
        if known and self._scorer is not None:
            scored = self._scored(relation, row, count, known=True)
            return [by_target.get(link["target"], link) | {"rank": link["rank"]} for link in scored]
        listed = [link for link in listed if known or not link["known"]][:count]
        if len(listed) == count or self._scorer is None:
            return listed
        least = listed[-1]["score"] if listed else np.inf
        more = [
            link
            for link in self._scored(relation, row, count + len(listed), known=False, least=least)
            if link["target"] not in by_target
        ]
        return (
            listed + [link | {"rank": len(listed) + place} for place, link in enumerate(more, 1)][: count - len(listed)]
        )

    def _scored(self, relation: int, row: int, count: int, *, known: bool, least: float = np.inf) -> list[Link]:
        assert self._scorer is not None
        with self._scoring:  # a scorer caches data of the last relation
            best = best_targets(self._scorer, relation, row, count, known=known, least=least)
        return [
            {
                "relation": relation,
                "target": target,
                "from": "scores",
                "score": score,
                "rank": rank,
                "known": trained,
                **dict.fromkeys(_FROM_TABLE),
                "because": [],
            }
            for rank, (target, score, trained) in enumerate(zip(*(part.tolist() for part in best), strict=True), 1)
        ]


def _runs(part: pa.Table) -> list[tuple[int, int]]:
    """Bounds of the rows of each head and relation."""
    change = np.zeros(part.num_rows, bool)
    change[:1] = True
    for name in _HEADS:
        codes = part[name].combine_chunks().dictionary_encode().indices.to_numpy()
        change[1:] |= np.diff(codes) != 0
    begins = np.flatnonzero(change)
    return list(zip(begins.tolist(), [*begins[1:].tolist(), part.num_rows], strict=True))
