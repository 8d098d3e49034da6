"""The leave-one-out split: the last interaction of every sequence is the test, and the one before it the validation.

It is decided on the edges table, before duplicates are merged and reverses added, so that a reverse gets the split of
its edge. ``splits`` draws random pairs; ``sequences`` reads sequences.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from graphmill.errors import SettingsError
from graphmill.graph.numbering import EdgeColumns
from graphmill.graph.splits import TEST, TRAIN, VALID
from graphmill.ingest.tables import NO_PLACE

SHORTEST = 3
"""A sequence with fewer interactions is entirely in train, because no history would be left for a prediction."""


def leaves_one_out(method: str, edges: EdgeColumns) -> bool:
    """Whether ``split.method`` asks for this split on these edges.

    Raises :class:`SettingsError` if it does and the edges are not sequences.
    """
    if method == "leave_one_out" and "position" not in edges.attributes:
        raise SettingsError(
            "split.method: leave_one_out needs sequences, and the edges table has no column 'position'; use the format "
            "sequence or interactions_csv (with a timestamp), or method: pairs"
        )
    return method == "leave_one_out" or (method == "auto" and "position" in edges.attributes)


def leave_one_out(edges: EdgeColumns) -> npt.NDArray[np.uint8]:
    """(E,) uint8: 2 for the last edge of each head in each relation by ``position``, 1 for the one before, else 0.

    Edges that are in no sequence (:data:`graphmill.ingest.tables.NO_PLACE`) are in train.
    """
    position = edges.attributes["position"]
    order = np.lexsort((position, edges.head, edges.relation))
    order = order[position[order] != NO_PLACE]
    head, relation = edges.head[order], edges.relation[order]
    starts = np.flatnonzero(np.diff(head, prepend=-1) | np.diff(relation, prepend=-1))
    counts = np.diff(np.append(starts, len(order)))
    long = counts >= SHORTEST
    ends = (starts + counts)[long]
    split = np.full(len(position), TRAIN, np.uint8)
    split[order[ends - 1]] = TEST
    split[order[ends - 2]] = VALID
    return split
