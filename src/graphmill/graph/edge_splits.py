"""Splits edges by what each one says: its time, its place in a sequence, which user's interaction it is, or the group of
its nodes.

The split is decided on the edges table, before duplicates are merged and reverses added, so that a reverse gets the
split of its edge. ``relations`` draws node pairs.

By time: a link is an undirected node pair, and its time is that of its first edge, so held-out links were not known
before. A later edge of the same pair in another period (a repeat, the reverse, another relation) would leak between the
splits, so it is left out and counted. Edges without a time count as known from the beginning.

By groups: all links of held-out groups in chosen relations are held out, as in TxGNN's disease areas. A held-out link is
an undirected pair, so every other edge between its two nodes leaves training, too. The nodes keep their other edges of
other relations, and the model knows them only by these (Huang et al. 2024, doi.org/10.1038/s41591-024-03233-x).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.errors import InputError, SettingsError
from graphmill.graph.numbering import EdgeColumns
from graphmill.graph.settings import SplitSettings
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.splits import SPLIT_NAMES, TEST, TRAIN, VALID, mix_bits, node_keys, pair_of_edges
from graphmill.ingest.graph_files import spellings
from graphmill.ingest.id_columns import text_mapping
from graphmill.ingest.interactions import RELATION
from graphmill.ingest.tables import NO_PLACE, NO_TIME

BY_GROUP = "by_group"
SHORTEST = 3
"""A sequence with fewer interactions is entirely in train, because no history would be left for a prediction."""
_NEEDS = {
    "by_time": ("timestamp", "the time of each edge", "name the column that has it (columns.timestamp of kg_csv, timed: "
                "true of triples), or use pairs"),
    "leave_one_out": ("position", "sequences", "use the format sequence or interactions_csv (with a timestamp), or pairs"),
}  # fmt: skip
"""The column that a method needs, what it holds, and the remedy."""


def split_edges(
    edges: EdgeColumns, nodes: pa.Table, settings: SplitSettings
) -> tuple[EdgeColumns, str, dict[str, Any]]:
    """The edges with their split, its origin, and what the graph's report says of it.

    The origin is "given" if the data has a split, a method's name, or "drawn" if it is still to be drawn by pairs or
    groups. ``head`` and ``tail`` of the edges are rows of the table ``nodes``. Edges other than interactions (facts about
    items) stay in train where interactions are split, because no evaluation asks for them.

    Raises :class:`SettingsError` for a method that these edges do not support, and :class:`InputError` for ``given:
    add_valid`` on data with a validation split or without any split, and for too few different times.
    """
    if edges.split is not None:
        if settings.given != "add_valid":
            return edges, "given", {}
        return _with_validation(edges, nodes, settings), "given, validation drawn", {}
    if settings.given == "add_valid":
        raise InputError("split.given: add_valid needs data with their own split; these have none: set split.method")
    method = settings.method if settings.method != "auto" else _usual(edges)
    if method in ("pairs", BY_GROUP) or not len(edges.head):
        return edges, "drawn", {}
    if method in _NEEDS and _NEEDS[method][0] not in edges.attributes:
        column, what, remedy = _NEEDS[method]
        raise SettingsError(f"split.method: {method} needs {what}, and the edges have no column {column!r}; {remedy}")
    if method == "by_time" and RELATION not in edges.relation_names:
        kept, about = _by_time(edges, settings)
        return kept, method, about
    if method == "leave_one_out":
        return replace(edges, split=_leave_one_out(edges)), method, {}
    rows = _interactions(edges, f"split.method: {method}")
    split = np.full(len(edges.head), TRAIN, np.uint8)
    if method == "random":
        split[rows] = _random(edges, rows, nodes, settings.valid, settings.test, settings.seed)
    else:
        split[rows] = _newest_of_all(edges.attributes["timestamp"][rows], settings.valid, settings.test)
    return replace(edges, split=split), method, {}


def _usual(edges: EdgeColumns) -> str:
    """What ``auto`` means. Drawing pairs of interactions among facts would hold out a part of the facts, too."""
    if "position" in edges.attributes:
        return "leave_one_out"
    others = (name != RELATION and (edges.relation == n).any() for n, name in enumerate(edges.relation_names))
    return "random" if RELATION in edges.relation_names and any(others) else "pairs"


def _leave_one_out(edges: EdgeColumns) -> npt.NDArray[np.uint8]:
    """2 for the last edge of each head in each relation by ``position``, 1 for the one before, else 0.

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


def _interactions(edges: EdgeColumns, wanted: str) -> npt.NDArray[np.int64]:
    """Rows of the interactions."""
    if RELATION not in edges.relation_names:
        raise SettingsError(
            f"{wanted} is for users' interactions, and the edges have no relation {RELATION!r}; use pairs, or a format of "
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


def _newest_of_all(times: npt.NDArray[np.int64], valid: float, test: float) -> npt.NDArray[np.uint8]:
    """Cut at two moments. Interactions of the same second stay together, in the later split."""
    in_order = np.sort(times)
    place = [min(round(len(times) * (1 - part)), len(times)) for part in (valid + test, test)]
    cuts = [in_order[p] if p < len(times) else in_order[-1] + 1 for p in place]
    return (np.full(len(times), TRAIN) + (times >= cuts[0]) + (times >= cuts[1])).astype(np.uint8)


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


def _by_time(edges: EdgeColumns, settings: SplitSettings) -> tuple[EdgeColumns, dict[str, int | str]]:
    """Hold out the fraction ``test`` of the dated links that are newest, and the fraction ``valid`` before them.

    The cuts are two moments, the same in all relations. Links with the same time stay together, in the later split. Also
    returns, for the report, the number of edges left out and the first moments of the splits.
    """
    times = edges.attributes["timestamp"]
    num = 1 + int(max(edges.head.max(initial=0), edges.tail.max(initial=0)))
    of_edge = pair_of_edges(edges.head, edges.tail, num)
    first = np.full(int(of_edge.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, of_edge, times)
    dated = np.sort(first[first != NO_TIME])
    moments = _moments(dated, settings)

    split, of_time = (_period(moment, *moments) for moment in (first[of_edge], times))
    known = of_time == split
    begins = {
        name: moment_text(m) for name, m in zip(("valid_from", "test_from"), moments, strict=True) if m is not None
    }
    return replace(edges, split=split).take(known), {"later_repeats": int((~known).sum()), **begins}


def _period(moment: npt.NDArray[np.int64], valid_from: int | None, test_from: int | None) -> npt.NDArray[np.uint8]:
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
            f"first of them {moment_text(int(dated[0]))}, and {parts} need one each after it; use pairs, or finer times"
        )
    return valid_from, test_from


def moment_text(moment: int) -> str:
    """The number, and its date if it means seconds since 1970."""
    try:
        return f"{moment} ({datetime.fromtimestamp(moment, UTC):%Y-%m-%d})" if abs(moment) > 10**7 else str(moment)
    except (ValueError, OverflowError, OSError):
        return str(moment)


def split_by_group(
    edges: EdgeColumns,
    nodes: pa.Table,
    type_of_row: npt.NDArray[np.int32],
    types: Sequence[str],
    settings: SplitSettings,
    root: Path = Path(),
) -> tuple[EdgeColumns, dict[str, Any]]:
    """Hold out all links of ``group_relations`` at nodes of ``group_type`` that are in a test or validation group.

    ``head`` and ``tail`` of the edges are rows of the table ``nodes``. ``type_of_row`` has each row's type, as an index
    into ``types``. A relative ``group_file`` is looked up from ``root``. A link between a test and a validation group
    is in the test split.

    Raises :class:`SettingsError` for an unknown type, relation or group, and :class:`InputError` for a file that cannot
    be used, or if no link is held out or none is left.

    Returns the edges with their split, and for the report groups, nodes and links of each held-out part, and the number
    of nodes without a group.
    """
    _known("group_type", [settings.group_type], types)
    _known("group_relations", settings.group_relations, edges.relation_names)
    of_type = type_of_row == types.index(settings.group_type)
    wanted = np.isin(edges.relation, [edges.relation_names.index(name) for name in settings.group_relations])
    chosen = wanted & (of_type[edges.head] | of_type[edges.tail])
    if not chosen.any():
        raise InputError(
            f"split.method: by_group, but no edge of {', '.join(settings.group_relations)} has an end of type "
            f"{settings.group_type!r}; choose relations of that type"
        )
    group, labels, unknown = _groups(nodes, of_type, settings, root)
    part_of_group = _part_of_groups(edges, np.flatnonzero(chosen), group, labels, settings)
    part = np.where(group >= 0, np.append(part_of_group, TRAIN)[group], TRAIN).astype(np.uint8)

    of_edge = pair_of_edges(edges.head, edges.tail, len(type_of_row))
    of_pair = np.zeros(int(of_edge.max()) + 1, np.uint8)
    np.maximum.at(of_pair, of_edge[chosen], np.maximum(part[edges.head[chosen]], part[edges.tail[chosen]]))
    split = of_pair[of_edge]
    if not (split[chosen] == TRAIN).any() or not (split == TEST if settings.test_groups else split > TRAIN).any():
        raise InputError(
            "split.method: by_group leaves no link of the chosen relations to train on; hold out fewer groups"
            if (split[chosen] > TRAIN).all()
            else "split.method: by_group holds out nothing: the test groups have no link of the chosen relations"
        )
    report: dict[str, Any] = {
        name: {
            "groups": int((part_of_group == number).sum()),
            "nodes": int((part[of_type] == number).sum()),
            "links": int((of_pair == number).sum()),
        }
        for number, name in enumerate(SPLIT_NAMES)
        if number != TRAIN
    }
    report |= {"nodes_without_group": int((of_type & (group < 0)).sum()), "unknown_ids": unknown}
    return replace(edges, split=split), report


def _known(setting: str, wanted: Sequence[str], known: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in known]
    if missing:
        raise SettingsError(
            f"split.{setting}: there is no {', '.join(map(repr, missing))}; there are {', '.join(map(repr, sorted(known)))}"
        )


def _groups(
    nodes: pa.Table, of_type: npt.NDArray[np.bool_], settings: SplitSettings, root: Path
) -> tuple[npt.NDArray[np.int64], list[str], int]:
    """The number of each row's group (−1: none), the groups' names, and the number of ids in the file that are not
    nodes of the type.

    Without a file, each node of the type is its own group, named by its id.
    """
    rows = np.flatnonzero(of_type)
    ids = nodes["id"].combine_chunks().take(pa.array(rows)).to_pylist()
    group = np.full(len(of_type), -1, np.int64)
    if not settings.group_file:
        group[rows] = np.arange(len(rows))
        return group, ids, 0
    group_of = text_mapping(root / settings.group_file, "id", "group", "Groups are")
    labels = list(dict.fromkeys(group_of.values()))
    if twice := spellings(labels):
        raise InputError(
            f"{settings.group_file}: the groups {' and '.join(map(repr, twice[0]))} differ only by case, blanks or marks; "
            "write one group in one way, or links of a held-out group stay in training"
        )
    number = {label: place for place, label in enumerate(labels)}
    group[rows] = [number[group_of[name]] if name in group_of else -1 for name in ids]
    if (group[rows] < 0).all():
        raise InputError(
            f"{settings.group_file}: none of its {len(group_of):,} ids is a node of type {settings.group_type!r} "
            f"(such as {ids[0]!r}; the file has {next(iter(group_of))!r})"
        )
    return group, labels, len(group_of.keys() - set(ids))


def _part_of_groups(
    edges: EdgeColumns,
    chosen: npt.NDArray[np.int64],
    group: npt.NDArray[np.int64],
    labels: Sequence[str],
    settings: SplitSettings,
) -> npt.NDArray[np.uint8]:
    """The split of each group: as named in the settings, else drawn by a hash of the names until each split has its
    share of links."""
    part = np.full(len(labels), TRAIN, np.uint8)
    if settings.test_groups or settings.valid_groups:
        number = {label: place for place, label in enumerate(labels)}
        for setting, named, code in (
            ("valid_groups", settings.valid_groups, VALID),
            ("test_groups", settings.test_groups, TEST),
        ):
            _known(setting, named, labels)
            part[[number[label] for label in named]] = code
        return part
    ends = np.concatenate((group[edges.head[chosen]], group[edges.tail[chosen]]))
    links = np.bincount(ends[ends >= 0], minlength=len(labels))
    order = np.argsort(node_keys(["group"] * len(labels), labels, settings.seed), kind="stable")
    order = order[links[order] > 0]
    reached = np.cumsum(links[order])
    begin, wanted = 0, 0.0
    for share, code in ((settings.test, TEST), (settings.valid, VALID)):
        wanted += share * reached[-1] if len(reached) else 0.0
        end = int(np.searchsorted(reached, wanted)) + 1 if share else begin
        part[order[begin : max(end, begin)]] = code
        begin = max(end, begin)
    return part
