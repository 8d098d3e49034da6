"""Splits edges by their time: the newest links are held out, and training has no edge of their period.

A link is an undirected node pair, and its time is that of its first edge, so held-out links were not known before. A
later edge of the same pair in another period (a repeat, the reverse, another relation) would leak between the splits,
so it is left out and counted. Edges without a time count as known from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from graphmill.errors import InputError, SettingsError
from graphmill.graph.numbering import EdgeColumns
from graphmill.graph.settings import SplitSettings
from graphmill.graph.splits import TEST, TRAIN, VALID, pair_of_edges
from graphmill.ingest.tables import NO_TIME

METHOD = "by_time"


@dataclass(frozen=True)
class TimeSplit:
    """``edges`` with their split. ``later_repeats``: number of edges left out. First moments of validation and test
    (None: none)."""

    edges: EdgeColumns
    later_repeats: int
    valid_from: int | None
    test_from: int | None

    def to_dict(self) -> dict[str, int | str]:
        """Values for the graph's report: number of edges left out, and the first moments of the splits."""
        moments = {"valid_from": self.valid_from, "test_from": self.test_from}
        return {"later_repeats": self.later_repeats} | {n: shown(m) for n, m in moments.items() if m is not None}


def split_by_time(edges: EdgeColumns, settings: SplitSettings) -> TimeSplit:
    """Hold out the fraction ``test`` of the dated links that are newest, and the fraction ``valid`` before them.

    The cuts are two moments, the same in all relations. Links with the same time stay together, in the later split.

    Raises :class:`SettingsError` if edges have no times or are users' interactions in order, and :class:`InputError` if
    there are too few different times.
    """
    times = edges.attributes.get("timestamp")
    if times is None:
        raise SettingsError(
            "split.method: by_time needs the time of each edge, and the edges have no column 'timestamp'; name the column "
            "that has it (columns.timestamp of kg_csv, timed: true of triples), or use pairs"
        )
    if "position" in edges.attributes:
        raise SettingsError(
            "split.method: by_time is for links; users' interactions in order have leave_one_out, user_time and global_time"
        )
    num = 1 + int(max(edges.head.max(initial=0), edges.tail.max(initial=0)))
    of_edge = pair_of_edges(edges.head, edges.tail, num)
    first = np.full(int(of_edge.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, of_edge, times)
    dated = np.sort(first[first != NO_TIME])
    valid_from, test_from = _moments(dated, settings)

    split, own = (_part(moment, valid_from, test_from) for moment in (first[of_edge], times))
    known = own == split
    kept = replace(edges, split=split).take(known)
    return TimeSplit(kept, int((~known).sum()), valid_from, test_from)


def _part(moment: npt.NDArray[np.int64], valid_from: int | None, test_from: int | None) -> npt.NDArray[np.uint8]:
    part = np.full(len(moment), TRAIN, np.uint8)
    for begin, number in ((valid_from, VALID), (test_from, TEST)):
        if begin is not None:
            part[moment >= begin] = number
    return part


def _moments(dated: npt.NDArray[np.int64], settings: SplitSettings) -> tuple[int | None, int | None]:
    """The moments at which validation and test begin, from the ascending times of links. Each requested split has a link."""
    if not len(dated):
        raise InputError("split.method: by_time, and no edge has a time (all cells are empty); use pairs")
    place = [len(dated) - max(round(len(dated) * part), 1) for part in (settings.valid + settings.test, settings.test)]
    moments = [int(dated[max(p, 0)]) for p in place]
    test_from = moments[1] if settings.test else None
    valid_from = moments[0] if settings.valid else None
    if valid_from is not None and test_from is not None and valid_from >= test_from:
        earlier = dated[: np.searchsorted(dated, test_from)]
        valid_from = int(earlier[-1]) if len(earlier) else int(dated[0])
    start = min((moment for moment in (valid_from, test_from) if moment is not None), default=None)
    if start is not None and start <= dated[0]:
        parts = " and ".join(name for name in ("valid", "test") if getattr(settings, name))
        raise InputError(
            f"split.method: by_time leaves nothing to train on: links have {len(np.unique(dated))} different times, the "
            f"first of them {shown(int(dated[0]))}, and {parts} need one each after it; use pairs, or finer times"
        )
    return valid_from, test_from


def shown(moment: int) -> str:
    """The number, and its date if it means seconds since 1970."""
    try:
        return f"{moment} ({datetime.fromtimestamp(moment, UTC):%Y-%m-%d})" if abs(moment) > 10**7 else str(moment)
    except (ValueError, OverflowError, OSError):
        return str(moment)
