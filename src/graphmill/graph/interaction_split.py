"""Splits users' interactions: it holds out a random part or the newest of each user, or the newest of all.

The split is decided on the edges table, before duplicates are merged and reverses added. Edges of other relations
(facts about items) stay in train, because no evaluation asks for them. ``splits`` splits node pairs, ``sequence_split``
sequences.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.errors import InputError, SettingsError
from graphmill.graph.numbering import EdgeColumns
from graphmill.graph.settings import SplitSettings
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.splits import TEST, TRAIN, VALID, mix_bits, node_keys
from graphmill.ingest.interactions import RELATION

METHODS = ("random", "user_time", "global_time")


def split_interactions(edges: EdgeColumns, nodes: pa.Table, settings: SplitSettings) -> tuple[EdgeColumns, str]:
    """The edges with the split of interactions by the settings, and its origin: "given" if the data has one, a method's
    name, or "drawn" if it is still to be drawn by pairs.

    ``head`` and ``tail`` of the edges are rows of the table ``nodes``.

    Raises :class:`SettingsError` for a method that these edges do not support (no interactions, no times), and
    :class:`InputError` for ``given: add_valid`` on data with a validation split or without any split.
    """
    if edges.split is not None:
        if settings.given != "add_valid":
            return edges, "given"
        return _with_validation(edges, nodes, settings), "given, validation drawn"
    if settings.given == "add_valid":
        raise InputError("split.given: add_valid needs data with their own split; these have none: set split.method")
    method = settings.method
    if method == "auto" and "position" not in edges.attributes and _among_facts(edges):
        method = "random"
    if method not in METHODS:
        return edges, "drawn"
    rows = _interactions(edges, f"split.method: {method}")
    split = np.full(len(edges.head), TRAIN, np.uint8)
    if method == "random":
        split[rows] = _random(edges, rows, nodes, settings.valid, settings.test, settings.seed)
    else:
        times = edges.attributes.get("timestamp")
        if times is None:
            raise SettingsError(
                f"split.method: {method} needs times, and the interactions have no column 'timestamp'; use random"
            )
        part = _newest_of_each if method == "user_time" else _newest_of_all
        split[rows] = part(edges.head[rows], times[rows], settings.valid, settings.test)
    return replace(edges, split=split), method


def _among_facts(edges: EdgeColumns) -> bool:
    """Whether there are other relations beside the interactions. Drawing pairs would hold out a part of them, too."""
    return RELATION in edges.relation_names and any(
        name != RELATION and (edges.relation == number).any() for number, name in enumerate(edges.relation_names)
    )


def _interactions(edges: EdgeColumns, asked: str) -> npt.NDArray[np.int64]:
    """Rows of the interactions."""
    if RELATION not in edges.relation_names:
        raise SettingsError(
            f"{asked} is for users' interactions, and the edges have no relation {RELATION!r}; use pairs, or a format of "
            "interactions (mmrec, kgat, interactions_csv)"
        )
    return np.flatnonzero(edges.relation == edges.relation_names.index(RELATION))


def _with_validation(edges: EdgeColumns, nodes: pa.Table, settings: SplitSettings) -> EdgeColumns:
    assert edges.split is not None
    rows = _interactions(edges, "split.given: add_valid")
    if (edges.split[rows] == VALID).any():
        raise InputError("split.given: add_valid, but the data already have a validation split; use keep")
    rows = rows[edges.split[rows] == TRAIN]
    split = edges.split.copy()
    split[rows] = _random(edges, rows, nodes, settings.valid, 0.0, settings.seed)
    return replace(edges, split=split)


def _random(
    edges: EdgeColumns, rows: npt.NDArray[np.int64], nodes: pa.Table, valid: float, test: float, seed: int
) -> npt.NDArray[np.uint8]:
    """Draw by a hash of user and item, so that the split does not depend on the order of rows or on other users.

    Every row of one user and item has one split; each user keeps an item in train.
    """
    used = sorted_unique(np.concatenate((edges.head[rows], edges.tail[rows])))
    few = nodes.select(["type", "id"]).take(pa.array(used))
    keys = node_keys(few["type"].to_pylist(), few["id"].to_pylist(), seed)
    head, tail = np.searchsorted(used, edges.head[rows]), np.searchsorted(used, edges.tail[rows])
    pair, of_row = np.unique(head * np.int64(len(used)) + tail, return_inverse=True)
    user, item = pair // len(used), pair % len(used)
    order = np.lexsort((mix_bits(keys[user] + mix_bits(keys[item])), user))
    split = np.empty(len(pair), np.uint8)
    split[order] = _parts(user[order], mix_bits(keys[user[order]]), valid, test)
    return split[of_row]


def _newest_of_each(
    user: npt.NDArray[np.int32], times: npt.NDArray[np.int64], valid: float, test: float
) -> npt.NDArray[np.uint8]:
    order = np.lexsort((times, user))  # stable: ties in the order of the table
    split = np.empty(len(user), np.uint8)
    in_order = user[order].astype(np.int64)
    split[order] = _parts(in_order, mix_bits(in_order.astype(np.uint64)), valid, test)
    return split


def _newest_of_all(
    user: npt.NDArray[np.int32], times: npt.NDArray[np.int64], valid: float, test: float
) -> npt.NDArray[np.uint8]:
    """Cut at two moments. Interactions of the same second stay together, in the later split."""
    in_order = np.sort(times)
    place = [min(round(len(times) * (1 - part)), len(times)) for part in (valid + test, test)]
    cuts = [in_order[p] if p < len(times) else in_order[-1] + 1 for p in place]
    return (np.full(len(user), TRAIN) + (times >= cuts[0]) + (times >= cuts[1])).astype(np.uint8)


def _parts(
    user: npt.NDArray[np.int64], noise: npt.NDArray[np.uint64], valid: float, test: float
) -> npt.NDArray[np.uint8]:
    """Split rows that are grouped by user: in each group, the last rows are the test split, those before it the
    validation split.

    On average, a group of n rows has n · part rows in each. The number is rounded up or down at random by the user's
    ``noise`` (equal within a group), so that short histories take part, too. The first row of a group is always in
    train.
    """
    starts = np.flatnonzero(np.diff(user, prepend=-1))
    counts = np.diff(np.append(starts, len(user)))
    draw = (noise[starts] >> np.uint64(11)).astype(np.float64) / 2.0**53
    in_test = np.minimum(np.floor(counts * test + draw), counts - 1)
    held_out = np.minimum(np.floor(counts * (valid + test) + draw), counts - 1)
    from_end = np.repeat(starts + counts, counts) - np.arange(len(user))  # 1 for the last row
    group = np.repeat(np.arange(len(starts)), counts)
    split = np.full(len(user), TRAIN, np.uint8)
    split[from_end <= held_out[group]] = VALID
    split[from_end <= in_test[group]] = TEST
    return split
