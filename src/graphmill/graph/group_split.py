"""Splits links by groups of nodes: all links of held-out groups in chosen relations are held out, as in TxGNN's disease
areas.

This module assigns nodes to groups, chooses the groups to hold out, and splits the edges. A held-out link is an
undirected pair, so every other edge between its two nodes leaves training, too. The nodes keep their other edges of
other relations, and the model knows them only by these (Huang et al. 2024, doi.org/10.1038/s41591-024-03233-x).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.errors import InputError, SettingsError
from graphmill.graph.numbering import EdgeColumns
from graphmill.graph.settings import SplitSettings
from graphmill.graph.splits import SPLIT_NAMES, TEST, TRAIN, VALID, node_keys, pair_of_edges
from graphmill.ingest.graph_files import spellings
from graphmill.ingest.id_columns import text_mapping

METHOD = "by_group"


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
    part_of_group = _parts(edges, np.flatnonzero(chosen), group, labels, settings)
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


def _parts(
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
