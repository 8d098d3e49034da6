"""Builds a typed graph on disk from tables: the steps in order, the counts, and the manifest."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.errors import InputError, ResourceError, listed
from graphmill.graph import group_split
from graphmill.graph.attributes import SET, encoded_attributes
from graphmill.graph.edge_splits import split_edges
from graphmill.graph.evidence import evidence_table
from graphmill.graph.features import align_features
from graphmill.graph.graph_directory import NODE_COLUMNS, node_table, publish
from graphmill.graph.leakage import LeakageReport, later_edges, links_of_held_out, newer_share
from graphmill.graph.numbering import (
    EdgeColumns,
    EdgePieces,
    IntArray,
    categories,
    included_types,
    numbering_of,
    read_edges,
)
from graphmill.graph.pairs import Pairs, draw_splits
from graphmill.graph.relations import grouped_edges
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import TRAIN, node_keys
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest import disk
from graphmill.ingest.disk import ColumnWriter, pieces
from graphmill.ingest.interactions import RELATION
from graphmill.ingest.tables import feature_key
from graphmill.memory import format_size

_ON_DISK = 75
"""Bytes of files per edge of the graph, temporary ones and its own."""


def build_graph(
    nodes: pa.Table,
    edges: pa.Table,
    settings: GraphSettings,
    out: Path,
    features: Mapping[str, pa.Table] | None = None,
    attributes: Mapping[str, pa.Table] | None = None,
    *,
    root: Path = Path(),
) -> TypedGraph:
    """Write the typed graph of ``nodes`` and ``edges`` to the directory ``out`` and open it.

    The tables are those of ``ingest.tables``; ``edges`` may have more columns: ``split`` uint8 (0 train, 1 valid, 2
    test), ``weight`` float32, ``timestamp`` int64, ``position`` int32 (place in the head's sequence). ``features`` maps
    a node type (or ``type::name``, for one of several sets) to its feature table, ``attributes`` a node type to its table of
    attributes, which become a feature set of that name. Relative paths in ``settings`` are looked up from ``root``.

    Many edges are sorted in temporary files (:mod:`graphmill.graph.relations`): memory holds the nodes, a byte or two for
    each pair, and a few million edges. Splits by time, by groups, of interactions and of sequences are drawn in memory.

    The directory is written atomically. If ``out`` already has the same graph, undamaged, it is not changed; another
    graph there is replaced. The same tables and settings give the same bytes.

    Raises :class:`SettingsError` for a node type that the data does not have, :class:`InputError` for tables that
    cannot be used, :class:`RunLockedError` while another process builds the same graph, :class:`ResourceError` if there
    is no room for the temporary files.
    """
    out = Path(out)
    missing = [name for name in NODE_COLUMNS if name not in nodes.column_names]
    if missing:
        raise InputError(
            f"table 'nodes' has no column {', '.join(map(repr, missing))}; it has {listed(nodes.column_names)}"
        )
    needed = edges.num_rows * _ON_DISK * (1 if settings.add_reverse == "never" else 2)
    if edges.num_rows * 4 > disk.SMALL and needed > (free := shutil.disk_usage(tempfile.gettempdir()).free):
        raise ResourceError(
            f"building the graph takes about {format_size(needed)} of temporary files, and {tempfile.gettempdir()} has "
            f"{format_size(free)} free; set TMPDIR to a folder with more room"
        )
    type_of_row, known_types = categories(nodes, "type", "nodes")
    wanted, node_rank = included_types(type_of_row, known_types, settings)
    if _streams(edges, settings):
        redraw = settings.split.given == "redraw"
        given = "split" in edges.column_names and not redraw
        parts: Iterable[EdgeColumns] = EdgePieces(edges, len(nodes), redraw=redraw)
        report: dict[str, Any] = {"excluded_edges": 0, "split_source": "given" if given else "drawn"}
    else:
        columns, report = _split_in_memory(edges, nodes, (type_of_row, known_types, node_rank), settings, root)
        parts = [columns]
    touched, by_group = np.zeros(len(nodes), bool), report["split_source"] == group_split.METHOD
    usable = np.ones(len(nodes), bool)
    for part in parts:
        inside = (node_rank[part.head] >= 0) & (node_rank[part.tail] >= 0)
        report["excluded_edges"] += int((~inside).sum())
        touched[part.head[inside]] = touched[part.tail[inside]] = True
        if by_group and part.split is not None:
            usable[part.head[part.split != TRAIN]] = usable[part.tail[part.split != TRAIN]] = False
    if by_group:  # encoders see no node of a held-out group
        usable |= type_of_row != known_types.index(settings.split.group_type)
    numbering = numbering_of(wanted, node_rank, touched, settings)
    if strange := [kind for kind in attributes or {} if kind not in numbering.types]:
        raise InputError(
            f"attributes of {strange[0]!r}: the graph has no nodes of this type (it has {', '.join(numbering.types)}); "
            "leave them out, or change include_node_types"
        )
    encoded = {kind: encoded_attributes(t, usable) for kind, t in (attributes or {}).items()}
    tables = dict(features or {}) | {feature_key(kind, SET): each.table for kind, each in encoded.items()}
    facts, arrays = grouped_edges(parts, numbering, settings)
    pairs = Pairs(facts, arrays["src"], arrays["dst"], numbering.first, numbering.num_nodes)
    table = node_table(nodes, numbering)
    if "split" not in arrays:
        keys = node_keys(_texts(table, "type"), _texts(table, "id"), settings.split.seed)
        of_pair, split = draw_splits(pairs, keys, settings.split), ColumnWriter(np.uint8)
        for place in pieces(len(pairs.of_edge), pairs.of_edge):
            split.append(of_pair[pairs.of_edge[place]])
        arrays["split"] = split.finish()
    return publish(
        numbering,
        table,
        align_features(tables, numbering, type_of_row, known_types),
        encoded,
        pairs,
        arrays,
        _audit(pairs, arrays, report["split_source"], settings),
        evidence_table(edges, numbering),
        report,
        settings,
        out,
    )


def _streams(edges: pa.Table, settings: GraphSettings) -> bool:
    """Whether the split needs no more than a part of the edges at a time: pairs that are drawn, or the table's split."""
    split = settings.split
    if "split" in edges.column_names and split.given != "redraw":
        return split.given == "keep"
    if split.given == "add_valid" or split.method != "auto":
        return split.given != "add_valid" and split.method == "pairs"
    if "position" in edges.column_names or "relation" not in edges.column_names:
        return False
    return RELATION not in edges["relation"].unique().to_pylist()


def _split_in_memory(
    edges: pa.Table, nodes: pa.Table, types: tuple[IntArray, list[str], IntArray], settings: GraphSettings, root: Path
) -> tuple[EdgeColumns, dict[str, Any]]:
    """The edges with the split of interactions, of sequences, by time or by groups; and what the report says of them.

    ``types``: the type of each node, the names of types, and the place of each node's type in the graph (−1: none).
    """
    type_of_row, known_types, node_rank = types
    columns = read_edges(edges, len(nodes))
    rows = len(columns.head)
    columns = columns.take((node_rank[columns.head] >= 0) & (node_rank[columns.tail] >= 0))
    excluded = rows - len(columns.head)
    if settings.split.given == "redraw":
        columns = replace(columns, split=None)
    columns, source, about = split_edges(columns, nodes, settings.split)
    if columns.split is None and len(columns.head) and settings.split.method == group_split.METHOD:
        columns, groups = group_split.split_by_group(columns, nodes, type_of_row, known_types, settings.split, root)
        about, source = {"groups": groups}, group_split.METHOD
    return columns, {"excluded_edges": excluded, "split_source": source, **about}


def _texts(table: pa.Table, name: str) -> Iterator[str]:
    for batch in table.select([name]).to_batches(max_chunksize=1 << 16):
        yield from batch.column(0).to_pylist()


def _audit(pairs: Pairs, arrays: Mapping[str, npt.NDArray[Any]], source: str, settings: GraphSettings) -> LeakageReport:
    """The audit of all splits, and the additional one of splits by time or by groups."""
    split = arrays["split"]
    report = pairs.audit(split)
    if source == "by_time":
        return replace(report, seen_edges={"later": later_edges(arrays["timestamp"], split)})
    if "timestamp" in arrays:
        report = replace(report, newer_share=newer_share(arrays["timestamp"], split))
    if source == group_split.METHOD:
        relation = np.repeat(np.arange(len(pairs.facts), dtype=np.int32), np.diff(pairs.bounds))
        src, dst = (np.concatenate(each) for each in zip(*((a, b) for _, _, a, b in pairs.edges()), strict=True))
        keys = [facts.key for facts in pairs.facts]
        return replace(
            report, seen_edges={"group_links": links_of_held_out(src, dst, relation, split, keys, settings.split)}
        )
    return report
