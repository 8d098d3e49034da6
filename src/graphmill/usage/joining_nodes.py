"""Reads files of nodes that were added after a training: their edges to known nodes, their features, or both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.graph.attributes import SET as ATTRIBUTES
from graphmill.graph.attributes import encode
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.attributes import parsed, read_attribute_rows
from graphmill.ingest.interactions import ENTITY
from graphmill.ingest.node_features import NodeFeatureSettings, load_rows
from graphmill.ingest.node_tables import MISSING_TYPE
from graphmill.ingest.public_readers import read_edges
from graphmill.ingest.tables import ATTRIBUTE_TYPES, EDGES, NODES, REJECTS, IngestResult, split_feature_key

RowsById = dict[str, np.ndarray]
"""A node's features, float32 [f], by its id."""


@dataclass(frozen=True)
class FeatureFiles:
    """Features of nodes that are not in the graph, by node type and name of the feature set. ``notes`` are for the user."""

    rows: dict[tuple[str, str], RowsById] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def ids(self, kind: str) -> list[str]:
        """Ids of the new nodes of a type, unique, in the order of the files."""
        return list(dict.fromkeys(node for (each, _), by_id in self.rows.items() if each == kind for node in by_id))


def read_feature_files(graph: TypedGraph, files: Mapping[str, str | Path]) -> FeatureFiles:
    """Read features in the formats of ingestion (``.npy`` with ids, Parquet, CSV: docs/reference/ingestion.md).

    ``files``: name of the feature set → file. The name is "" if there is only one set, and ``type::name`` if nodes of
    several types have features. Rows of nodes that are in the graph are left out.

    Raises:
        InputError: the graph has no such set, the width differs, a row cannot be used, or a node occurs twice.
    """
    result = FeatureFiles()
    for key, file in files.items():
        kind, name = _set_of(graph, key, file)
        rows = load_rows(file, NodeFeatureSettings(node_type=kind))
        if rows.rejects:
            first = min(rows.rejects).place
            raise InputError(f"{file}: {len(rows.rejects):,} of its rows cannot be used; the first on {first}")
        trained = graph.features(kind, name)
        assert trained is not None
        width = trained.shape[1]
        if rows.values.shape[1] != width:
            raise InputError(
                f"{file} has {rows.values.shape[1]} features a row; those of '{kind}' that the model was trained with have "
                f"{width}"
            )
        ids, of_types = rows.key.to_pylist(), rows.type.to_pylist() or [kind] * len(rows.key)
        by_id: RowsById = {}
        for place in np.flatnonzero((graph.numbers_of(kind, ids) < 0) & np.isin(of_types, ("", kind))):
            node, values = ids[place], rows.values[place]
            if node in by_id or not np.isfinite(values).all():
                why = "comes a second time" if node in by_id else "has a value that is not finite"
                raise InputError(f"{file}, line {rows.line[place]}: '{node}' {why}")
            by_id[node] = values
        result.rows[kind, name] = by_id
        left = len(rows.key) - len(by_id)
        if left:
            result.notes.append(
                f"{file}: {left:,} rows are of nodes that the model has, or of another type, and are left out"
            )
    return result


def with_attribute_files(result: FeatureFiles, graph: TypedGraph, files: Mapping[str, str | Path]) -> FeatureFiles:
    """``result`` with features from attributes of new nodes, made by the encoders that the graph keeps. Nothing is fitted.

    ``files``: node type → table with the columns of the one that the graph was built with ("" if one type has attributes).

    Raises:
        InputError: the graph has no attributes of the type, or the file cannot be used.
    """
    having = [t.name for t in graph.node_types if graph.attributes(t.name)]
    for given, file in files.items():
        kind = having[0] if not given and len(having) == 1 else given
        if kind not in having:
            known = (
                f"it has those of {', '.join(having)}: name one as TYPE=FILE" if having else "it has none; give edges"
            )
            raise InputError(f"{file}: the model was not trained with attributes of {kind or 'one type'}; {known}")
        encoders = graph.attribute_encoders(kind)
        rows = read_attribute_rows(file, {each.name: each.kind for each in encoders})
        columns, rejects = parsed(rows, str(file))
        if rejects:
            result.notes.append(f"{file}: {len(rejects):,} cells count as missing; the first on {min(rejects).place}")
        empty = {each.name: pa.nulls(len(rows.id), ATTRIBUTE_TYPES[each.kind]) for each in encoders}
        values = np.concatenate([encode(each, columns.get(each.name, empty[each.name])) for each in encoders], axis=1)
        ids = rows.id.to_pylist()
        new = np.flatnonzero(graph.numbers_of(kind, ids) < 0)
        result.rows[kind, ATTRIBUTES] = {ids[place]: values[place] for place in new}
    return result


def read_joining(
    graph: TypedGraph,
    edges: str,
    features: Mapping[str, str | Path],
    format: str = "",
    settings: Mapping[str, Any] | None = None,
    attributes: Mapping[str, str | Path] | None = None,
) -> tuple[IngestResult | None, FeatureFiles, str]:
    """Read the arguments of :func:`graphmill.usage.embed.embed_run`: tables of the file ``edges`` ("": none), features, also
    those from ``attributes``, and their names."""
    attributes = attributes or {}
    if not edges and not features and not attributes:
        raise InputError("nothing to embed: give a file of edges, of features or attributes, or several")
    given = with_attribute_files(read_feature_files(graph, features), graph, attributes)
    tables = read_later_edges(graph, edges, format, settings) if edges else None
    return tables, given, edges or ", ".join(map(str, [*features.values(), *attributes.values()]))


def read_later_edges(
    graph: TypedGraph, path: str, format: str = "", settings: Mapping[str, Any] | None = None
) -> IngestResult:
    """:func:`graphmill.read_edges` of edges that came after the training. Nodes of a file without types are of the graph's
    type, if it has one."""
    tables = read_edges(path, format, **(settings or {}))
    if len(graph.node_types) > 1 or tables.nodes["type"].unique().to_pylist() not in ([MISSING_TYPE], [ENTITY]):
        return tables
    place = tables.nodes.schema.get_field_index("type")
    kind = tables.nodes.schema.field(place)
    types = pa.repeat(graph.node_types[0].name, tables.nodes.num_rows).dictionary_encode().cast(kind.type)
    notes = [note for note in tables.notes if f"of type {MISSING_TYPE}" not in note]
    return replace(tables, nodes=tables.nodes.set_column(place, kind, types), notes=notes)


def _set_of(graph: TypedGraph, key: str, file: str | Path) -> tuple[str, str]:
    having = {t.name: graph.feature_sets(t.name) for t in graph.node_types if graph.feature_sets(t.name)}
    listed = ", ".join(f"{kind}::{name}" if name else kind for kind, names in having.items() for name in names)
    if not having:
        raise InputError(f"{file}: the model was trained without features and cannot use them; give edges")
    kind, name = split_feature_key(key) if "::" in key else ("", key)
    kinds = (
        [kind] if kind else list(having) if len(having) == 1 else [k for k, names in having.items() if name in names]
    )
    if len(kinds) != 1 or kinds[0] not in having:
        raise InputError(f"{file}: name the node type of these features, as TYPE::NAME=FILE (the graph has {listed})")
    names = having[kinds[0]]
    chosen = names[0] if not name and len(names) == 1 else name
    if chosen not in names:
        raise InputError(f"{file}: name these features, as NAME=FILE (the graph has {listed})")
    return kinds[0], chosen


def with_featured_nodes(tables: IngestResult | None, features: FeatureFiles) -> IngestResult:
    """The tables of an edge file (or empty ones), with an additional row for each node that is only in a feature file."""
    nodes = NODES.empty_table() if tables is None else tables.nodes
    existing = set(zip(nodes["type"].cast(pa.string()).to_pylist(), nodes["id"].to_pylist(), strict=True))
    kinds = dict.fromkeys(kind for kind, _ in features.rows)
    more = [(kind, node) for kind in kinds for node in features.ids(kind) if (kind, node) not in existing]
    first = int(np.max(nodes["index"].to_numpy(), initial=-1)) + 1
    added = [
        {"index": first + place, "id": node, "type": kind, "name": node, "source": ""}
        for place, (kind, node) in enumerate(more)
    ]
    nodes = pa.concat_tables([nodes, pa.Table.from_pylist(added, nodes.schema)]).unify_dictionaries()
    empty = IngestResult(nodes, EDGES.empty_table(), REJECTS.empty_table())
    return empty if tables is None else replace(tables, nodes=nodes)
