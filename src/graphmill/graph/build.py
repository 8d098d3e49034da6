"""Builds a typed graph on disk from tables: the steps in order, the counts, and the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.errors import InputError, listed
from graphmill.graph import group_split, time_split
from graphmill.graph.features import align_features
from graphmill.graph.graph_directory import NODE_COLUMNS, Made, node_table, publish
from graphmill.graph.interaction_split import split_interactions
from graphmill.graph.large import build_large, can_be_large, would_not_fit
from graphmill.graph.leakage import BY_TIME, LeakageReport, audit_edges, later_edges, links_of_held_out
from graphmill.graph.numbering import categories, number_nodes, read_edges
from graphmill.graph.relations import (
    RelationDraft,
    add_inverse_relations,
    add_missing_reverses,
    facts_of,
    group_edges,
    unit_of,
)
from graphmill.graph.sequence_split import leave_one_out, leaves_one_out
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import Pairs, draw_splits, node_keys, number_pairs
from graphmill.graph.typed_graph import TypedGraph


def build_graph(
    nodes: pa.Table,
    edges: pa.Table,
    settings: GraphSettings,
    out: Path,
    features: Mapping[str, pa.Table] | None = None,
    *,
    root: Path = Path(),
) -> TypedGraph:
    """Write the typed graph of ``nodes`` and ``edges`` to the directory ``out`` and open it.

    The tables are those of ``ingest.tables``; ``edges`` may have more columns: ``split`` uint8 (0 train, 1 valid, 2
    test), ``weight`` float32, ``timestamp`` int64, ``position`` int32 (place in the head's sequence). ``features`` maps
    a node type (or ``type::name``, for one of several sets) to its feature table. Relative paths in ``settings`` are looked
    up from ``root``.

    If the edges do not fit in memory, they are sorted in temporary files (:mod:`graphmill.graph.large`); the graph is
    the same.

    The directory is written atomically. If ``out`` already has the same graph, undamaged, it is not changed; another
    graph there is replaced. The same tables and settings give the same bytes.

    Raises :class:`SettingsError` for a node type that the data does not have, :class:`InputError` for tables that
    cannot be used, :class:`RunLockedError` while another process builds the same graph.
    """
    out = Path(out)
    missing = [name for name in NODE_COLUMNS if name not in nodes.column_names]
    if missing:
        raise InputError(
            f"table 'nodes' has no column {', '.join(map(repr, missing))}; it has {listed(nodes.column_names)}"
        )
    if would_not_fit(edges, settings) and can_be_large(edges, settings):
        return build_large(nodes, edges, settings, out, features or {})
    type_of_row, known_types = categories(nodes, "type", "nodes")
    columns = read_edges(edges, len(nodes))
    if settings.split.given == "redraw":
        columns = replace(columns, split=None)
    columns, split_source = split_interactions(columns, nodes, settings.split)
    if columns.split is None and leaves_one_out(settings.split.method, columns):
        columns, split_source = replace(columns, split=leave_one_out(columns)), "leave_one_out"
    numbering, inside = number_nodes(type_of_row, known_types, columns, settings)
    excluded_edges = len(columns.head) - len(inside.head)
    about_split: dict[str, Any] = {}
    if inside.split is None and settings.split.method == time_split.METHOD:
        by_time = time_split.split_by_time(inside, settings.split)
        inside, about_split, split_source = by_time.edges, by_time.to_dict(), time_split.METHOD
    elif inside.split is None and settings.split.method == group_split.METHOD:
        inside, groups = group_split.split_by_group(inside, nodes, type_of_row, known_types, settings.split, root)
        about_split, split_source = {"groups": groups}, group_split.METHOD
    drafts = group_edges(inside, numbering, merge_parallel=settings.parallel_edges == "merge")
    if settings.add_reverse == "missing":
        drafts = add_missing_reverses(drafts)
    elif settings.add_reverse == "inverse":
        drafts = add_inverse_relations(drafts)

    table = node_table(nodes, numbering)
    offset = {name: np.int32(first) for name, first in numbering.first.items()}
    src = np.concatenate([draft.src + offset[draft.key[0]] for draft in drafts])
    dst = np.concatenate([draft.dst + offset[draft.key[2]] for draft in drafts])
    pairs = number_pairs(src, dst, numbering.num_nodes)
    split = _splits(drafts, pairs, table, settings)
    aligned = align_features(features or {}, numbering, type_of_row, known_types)
    leakage = _audit(drafts, src, dst, split, split_source, settings)
    made = Made(
        numbering,
        table,
        aligned,
        [facts_of(draft.key, [draft]) for draft in drafts],
        {name: np.concatenate([d.arrays[name] for d in drafts]) for name in ("src", "dst", *drafts[0].attributes)}
        | {"split": split, "pair": pairs.of_edge},
        len(pairs),
        leakage,
        {"excluded_edges": excluded_edges, "split_source": split_source, **about_split},
    )
    return publish(made, settings, out)


def _audit(
    drafts: Sequence[RelationDraft],
    src: npt.NDArray[np.int32],
    dst: npt.NDArray[np.int32],
    split: npt.NDArray[np.uint8],
    split_source: str,
    settings: GraphSettings,
) -> LeakageReport:
    """The audit of all splits, and the additional one of splits by time or by groups."""
    relation = np.repeat(np.arange(len(drafts), dtype=np.int32), [len(draft) for draft in drafts])
    found = audit_edges(src, dst, relation, split, [" | ".join(draft.key) for draft in drafts])
    if split_source in BY_TIME:
        times = np.concatenate([draft.attributes["timestamp"] for draft in drafts])
        return replace(found, later=later_edges(times, split))
    if split_source == group_split.METHOD:
        keys = [draft.key for draft in drafts]
        return replace(found, group_links=links_of_held_out(src, dst, relation, split, keys, settings.split))
    return found


def _splits(
    drafts: Sequence[RelationDraft], pairs: Pairs, table: pa.Table, settings: GraphSettings
) -> npt.NDArray[np.uint8]:
    """(num_edges,) uint8: the split of the data, or one drawn by pairs."""
    given = [draft.split for draft in drafts if draft.split is not None]
    if given:
        return np.concatenate(given)
    bounds = np.concatenate(([0], np.cumsum([len(draft) for draft in drafts])))
    ranges = [slice(first, end) for first, end in pairwise(bounds)]
    keys = node_keys(table["type"].to_pylist(), table["id"].to_pylist(), settings.split.seed)
    return draw_splits(pairs, ranges, [unit_of(draft.key) for draft in drafts], keys, settings.split)[pairs.of_edge]
