"""Builds a typed graph on disk from tables: the steps in order, the counts, and the manifest."""

from __future__ import annotations

from collections.abc import Mapping
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
from graphmill.graph.leakage import LeakageReport, audit_pairs, later_edges, links_of_held_out, newer_share
from graphmill.graph.numbering import ATTRIBUTES, categories, included_types, numbering_of, read_edges
from graphmill.graph.pairs import Pairs, draw_splits
from graphmill.graph.relations import grouped_edges
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import TRAIN, node_keys
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.tables import feature_key
from graphmill.memory import available_memory, format_size

_BYTES_PER_EDGE, _BYTES_PER_NODE = 80, 400
"""Memory of a build: for each edge, or reverse, without its attributes; and for each row of the nodes table."""


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

    The directory is written atomically. If ``out`` already has the same graph, undamaged, it is not changed; another
    graph there is replaced. The same tables and settings give the same bytes.

    Raises :class:`SettingsError` for a node type that the data does not have, :class:`InputError` for tables that
    cannot be used, :class:`RunLockedError` while another process builds the same graph, :class:`ResourceError` if the
    memory is too small for the edges.
    """
    out = Path(out)
    missing = [name for name in NODE_COLUMNS if name not in nodes.column_names]
    if missing:
        raise InputError(
            f"table 'nodes' has no column {', '.join(map(repr, missing))}; it has {listed(nodes.column_names)}"
        )
    _require_memory(nodes.num_rows, edges, settings)
    type_of_row, known_types = categories(nodes, "type", "nodes")
    wanted, node_rank = included_types(type_of_row, known_types, settings)
    columns = read_edges(edges, len(nodes))
    columns = columns.take((node_rank[columns.head] >= 0) & (node_rank[columns.tail] >= 0))
    report: dict[str, Any] = {"excluded_edges": edges.num_rows - len(columns.head)}
    if settings.split.given == "redraw":
        columns = replace(columns, split=None)
    columns, source, about = split_edges(columns, nodes, settings.split)
    usable = np.ones(len(nodes), bool)
    if columns.split is None and len(columns.head) and settings.split.method == group_split.METHOD:
        columns, groups = group_split.split_by_group(columns, nodes, type_of_row, known_types, settings.split, root)
        about, source = {"groups": groups}, group_split.METHOD
        assert columns.split is not None
        # Encoders see no node of a held-out group.
        held_out = columns.split != TRAIN
        usable[columns.head[held_out]] = usable[columns.tail[held_out]] = False
        usable |= type_of_row != known_types.index(settings.split.group_type)
    report |= {"split_source": source, **about}
    touched = np.zeros(len(nodes), bool)
    touched[columns.head] = touched[columns.tail] = True
    numbering = numbering_of(wanted, node_rank, touched, settings)
    if strange := [kind for kind in attributes or {} if kind not in numbering.types]:
        raise InputError(
            f"attributes of {strange[0]!r}: the graph has no nodes of this type (it has {', '.join(numbering.types)}); "
            "leave them out, or change include_node_types"
        )
    encoded = {kind: encoded_attributes(t, usable) for kind, t in (attributes or {}).items()}
    tables = dict(features or {}) | {feature_key(kind, SET): each.table for kind, each in encoded.items()}
    facts, arrays = grouped_edges(columns, numbering, settings)
    pairs = Pairs(facts, arrays["src"], arrays["dst"], numbering.first, numbering.num_nodes)
    table = node_table(nodes, numbering)
    if "split" not in arrays:
        keys = node_keys(table["type"].to_pylist(), table["id"].to_pylist(), settings.split.seed)
        arrays["split"] = draw_splits(pairs, keys, settings.split)[pairs.of_edge]
    return publish(
        numbering,
        table,
        align_features(tables, numbering, type_of_row, known_types),
        encoded,
        pairs,
        arrays,
        _audit(pairs, arrays, source, settings),
        evidence_table(edges, numbering),
        report,
        settings,
        out,
    )


def _require_memory(nodes: int, edges: pa.Table, settings: GraphSettings) -> None:
    """Raise :class:`ResourceError` if the build needs more memory than there is."""
    directions = 1 if settings.add_reverse == "never" else 2
    columns = sum(ATTRIBUTES[name].bit_width // 8 for name in ATTRIBUTES if name in edges.column_names)
    needed = edges.num_rows * directions * (_BYTES_PER_EDGE + 3 * columns) + nodes * _BYTES_PER_NODE
    if needed > (free := available_memory()):
        raise ResourceError(
            f"building the graph of {edges.num_rows:,} edges takes about {format_size(needed)} of memory, and "
            f"{format_size(free)} are free; free memory, leave out rows, or build it on a larger machine"
        )


def _audit(pairs: Pairs, arrays: Mapping[str, npt.NDArray[Any]], source: str, settings: GraphSettings) -> LeakageReport:
    """The audit of all splits, and the additional one of splits by time or by groups."""
    split = arrays["split"]
    names = [facts.name for facts in pairs.facts]
    report = audit_pairs(pairs.of_edge, (pairs.low, pairs.high), split, names, pairs.bounds)
    if source == "by_time":
        return replace(report, seen_edges={"later": later_edges(arrays["timestamp"], split)})
    if "timestamp" in arrays:
        report = replace(report, newer_share=newer_share(arrays["timestamp"], split))
    if source == group_split.METHOD:
        relation = np.repeat(np.arange(len(pairs.facts), dtype=np.int32), np.diff(pairs.bounds))
        src, dst = (np.concatenate(each) for each in zip(*pairs.ends(), strict=True))
        keys = [facts.key for facts in pairs.facts]
        return replace(
            report, seen_edges={"group_links": links_of_held_out(src, dst, relation, split, keys, settings.split)}
        )
    return report
