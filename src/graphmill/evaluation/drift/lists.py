"""Drift without vectors: the share of the ten best items or tails of a fixed sample of users or heads that changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import InputError
from graphmill.evaluation.drift.verdicts import (
    DriftReport,
    DriftThresholds,
    DriftVerdict,
    by_gravity,
    data_lost,
    moved,
)
from graphmill.evaluation.json_values import plain
from graphmill.graph.summary import GraphDifference

BEST = 10
FEWEST = 10
MOVED = 50
Lists = Mapping[tuple[str, str], Sequence[str]]
"""Relation (``source | name | target``) and id of a user or head → ids of its best items or tails, best first."""


@dataclass(frozen=True)
class ListAgreement:
    """Of one relation, or of all (``name`` ""): the number of compared lists, and the mean share of them that stayed."""

    name: str
    shared: int
    overlap_10: float


@dataclass(frozen=True)
class ChangedList:
    """A user or head, and the share of its list that stayed."""

    type: str
    id: str
    name: str
    overlap_10: float


@dataclass(frozen=True)
class ListFigures:
    """``types``: by relation. ``moved``: the lists that changed most. ``overlaps``: for each list the place of its relation
    in ``types`` and the share that stayed, for the picture."""

    overall: ListAgreement
    types: tuple[ListAgreement, ...]
    moved: tuple[ChangedList, ...]
    overlaps: tuple[NDArray[np.int64], NDArray[np.float64]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the data for the picture."""
        parts = {"types": [asdict(each) for each in self.types], "moved": [asdict(each) for each in self.moved]}
        return plain({"overall": asdict(self.overall), **parts})


def list_figures(before: Lists, after: Lists) -> ListFigures:
    """Compare the lists of those that are in both. Raises :class:`InputError` if there are fewer than ten."""
    keys = sorted(before.keys() & after.keys())
    if len(keys) < FEWEST:
        raise InputError(f"the two models share {len(keys)} users or heads with a list; drift needs at least {FEWEST}")
    kept = np.array([_share(before[key][:BEST], after[key][:BEST]) for key in keys])
    names, numbers = np.unique([relation for relation, _ in keys], return_inverse=True)
    types = tuple(
        ListAgreement(str(name), int((numbers == n).sum()), float(kept[numbers == n].mean()))
        for n, name in enumerate(names)
    )
    most = np.argsort(kept, kind="stable")[:MOVED].tolist()
    changed = tuple(
        ChangedList(keys[n][0].split(" | ")[0], keys[n][1], "", float(kept[n])) for n in most if kept[n] < 1
    )
    overall = ListAgreement("", len(keys), float(kept.mean()))
    return ListFigures(overall, types, changed, (numbers.astype(np.int64), kept))


def list_report(
    before: Lists, after: Lists, graph: GraphDifference | None = None, thresholds: DriftThresholds | None = None
) -> DriftReport[ListFigures]:
    """The drift report of lists."""
    figures, bounds = list_figures(before, after), thresholds or DriftThresholds()
    result = data_lost(graph, bounds)
    result.append(_moved(figures, bounds, explained=bool(result)))
    return DriftReport(figures, graph, by_gravity(result))


def _moved(figures: ListFigures, bounds: DriftThresholds, explained: bool) -> DriftVerdict:
    kept, count = figures.overall.overlap_10, figures.overall.shared
    if kept == 1:
        return DriftVerdict("unchanged", "pass", f"All {count:,} lists of the ten best are the same.")
    return moved(f"{kept:.0%} of the ten best stayed, in {count:,} lists", 1 - kept, bounds, explained)


def _share(before: Sequence[str], after: Sequence[str]) -> float:
    longest = max(len(before), len(after))
    return len(set(before) & set(after)) / longest if longest else 1.0
