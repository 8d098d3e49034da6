"""Builds a typed graph on disk from tables: the steps in order, the counts, and the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.atomic_files import writing
from graphmill.errors import InputError, ResourceError, listed
from graphmill.graph import storage
from graphmill.graph.attributes import SET, EncodedAttributes, encoded_attributes
from graphmill.graph.edge_splits import BY_GROUP, split_by_group, split_edges
from graphmill.graph.features import AlignedFeatures, align_features
from graphmill.graph.leakage import LeakageReport, audit_pairs, later_edges, links_of_held_out, newer_share
from graphmill.graph.numbering import (
    ATTRIBUTES,
    EVIDENCE_FILE,
    Numbering,
    categories,
    evidence_table,
    included_types,
    numbering_of,
    read_edges,
)
from graphmill.graph.relations import Pairs, RelationFacts, draw_splits, grouped_edges
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import SPLIT_NAMES, TRAIN, node_keys
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.tables import feature_key
from graphmill.memory import available_memory, format_size
from graphmill.verified_files import describe_file
from graphmill.version import __version__

NODE_COLUMNS = ("index", "id", "type", "name", "source")

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
    inside = len(columns.head)
    if settings.split.given == "redraw":
        columns = replace(columns, split=None)
    columns, source, about = split_edges(columns, nodes, settings.split)
    usable = np.ones(len(nodes), bool)
    if columns.split is None and len(columns.head) and settings.split.method == BY_GROUP:
        columns, groups = split_by_group(columns, nodes, type_of_row, known_types, settings.split, root)
        about, source = {"groups": groups}, BY_GROUP
        assert columns.split is not None
        # Encoders see no node of a held-out group.
        held_out = columns.split != TRAIN
        usable[columns.head[held_out]] = usable[columns.tail[held_out]] = False
        usable |= type_of_row != known_types.index(settings.split.group_type)
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
    aligned = align_features(tables, numbering, type_of_row, known_types)
    facts, arrays = grouped_edges(columns, numbering, settings)
    pairs = Pairs(facts, arrays["src"], arrays["dst"], numbering.first, numbering.num_nodes)
    table, evidence = _node_table(nodes, numbering), evidence_table(edges, numbering)
    if "split" not in arrays:
        keys = node_keys(table["type"].to_pylist(), table["id"].to_pylist(), settings.split.seed)
        arrays["split"] = draw_splits(pairs, keys, settings.split)[pairs.of_edge]
    indptr, in_split, cold = _count_ends(numbering, facts, arrays)
    cold_nodes = np.bincount(numbering.type_of_node()[cold], minlength=len(numbering.types))
    report = {
        "excluded_edges": edges.num_rows - inside,
        "cold_nodes": {name: n for name, n in zip(numbering.types, cold_nodes.tolist(), strict=True) if n},
        "split_source": source,
        **about,
        **_counts(numbering, facts, aligned),
        "leakage": _audit(pairs, arrays, source, settings).to_dict(),
    }
    with writing(out), storage.building(out) as directory:
        storage.write_table(directory, storage.NODES, table)
        if evidence is not None:
            storage.write_table(directory, EVIDENCE_FILE, evidence)
        for name, values in {**arrays, "pair": pairs.of_edge, "indptr": indptr}.items():
            storage.write_array(directory, f"{name}.npy", values)
        for (number, name), of_set in aligned.items():
            storage.write_array(directory, storage.features_file(number, name), of_set.values)
            storage.write_array(directory, storage.features_file(number, name, storage.PRESENT), of_set.present)
        for kind, of_type in encoded.items():
            for place, encoder in enumerate(of_type.encoders):
                if encoder.basis is not None:
                    name = storage.encoder_file(numbering.types.index(kind), place)
                    storage.write_array(directory, name, encoder.basis)
        manifest: dict[str, Any] = {
            "format": storage.FORMAT,
            "version": storage.VERSION,
            "num_nodes": numbering.num_nodes,
            "num_edges": len(arrays["src"]),
            "num_pairs": len(pairs),
            "node_types": _describe_types(numbering, aligned, encoded),
            "relations": _describe_relations(facts, in_split),
            "files": {p.name: describe_file(p) for p in sorted(directory.iterdir())},
        }
        manifest["content_hash"] = storage.content_hash(manifest)
        manifest |= {"written_by": f"graphmill {__version__}", "settings": settings.model_dump(), "report": report}
        storage.publish(directory, manifest, out)
    return TypedGraph.open(out)


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
    if source == BY_GROUP:
        relation = np.repeat(np.arange(len(pairs.facts), dtype=np.int32), np.diff(pairs.bounds))
        src, dst = (np.concatenate(each) for each in zip(*pairs.ends(), strict=True))
        keys = [facts.key for facts in pairs.facts]
        return replace(
            report, seen_edges={"group_links": links_of_held_out(src, dst, relation, split, keys, settings.split)}
        )
    return report


def _node_table(nodes: pa.Table, numbering: Numbering) -> pa.Table:
    """The nodes of the graph in global order; the dictionary of ``type`` is the graph's types in their order."""
    table = nodes.select(NODE_COLUMNS).take(numbering.rows)
    types = pa.DictionaryArray.from_arrays(numbering.type_of_node(), pa.array(numbering.types, pa.string()))
    table = table.set_column(table.column_names.index("type"), "type", types)
    # Dictionaries are in order of first appearance, so that the bytes do not depend on the reader's blocks.
    source = table["source"].cast(pa.string()).dictionary_encode().combine_chunks()
    return (
        table.set_column(table.column_names.index("source"), "source", source)
        .combine_chunks()
        .replace_schema_metadata()
    )


def _count_ends(
    numbering: Numbering, relations: Sequence[RelationFacts], arrays: Mapping[str, npt.NDArray[Any]]
) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int64]], npt.NDArray[np.bool_]]:
    """Count edges: CSR pointers of each node's in-edges by relation; edges of each relation by split; nodes without a
    training edge."""
    offset, counts, begin = numbering.first, numbering.counts, 0
    cold = np.ones(numbering.num_nodes, bool)
    pointers, in_split = [], []
    for facts in relations:
        first, begin = begin, begin + facts.edges
        src, dst, split = (arrays[name][first:begin] for name in ("src", "dst", "split"))
        trained = split == TRAIN
        cold[src[trained] + offset[facts.key[0]]] = False
        cold[dst[trained] + offset[facts.key[2]]] = False
        pointers.append(np.cumsum(np.bincount(dst + 1, minlength=counts[facts.key[2]] + 1)))
        in_split.append(np.bincount(split, minlength=len(SPLIT_NAMES)))
    return np.concatenate(pointers), in_split, cold


def _describe_relations(
    relations: Sequence[RelationFacts], in_split: Sequence[npt.NDArray[np.int64]]
) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "source": facts.key[0],
            "name": facts.key[1],
            "target": facts.key[2],
            "edges": facts.edges,
            "added_edges": facts.added,
            "self_loops": facts.self_loops,
            "split": dict(zip(SPLIT_NAMES, counts.tolist(), strict=True)),
        }
        for index, (facts, counts) in enumerate(zip(relations, in_split, strict=True))
    ]


def _counts(
    numbering: Numbering, facts: Sequence[RelationFacts], features: Mapping[tuple[int, str], AlignedFeatures]
) -> dict[str, Any]:
    """Counts of nodes and edges that are unusual or were left out."""
    return {
        "excluded_nodes": numbering.excluded_nodes,
        "isolated_nodes": numbering.isolated,
        "duplicates": sum(each.duplicates for each in facts),
        "duplicates_by_relation": {each.name: each.duplicates for each in facts if each.duplicates},
        "parallel_edges": sum(each.parallel for each in facts),
        "self_loops": sum(each.self_loops for each in facts),
        "added_edges": sum(each.added for each in facts),
        "features_unused": {
            feature_key(numbering.types[number], name): each.unused for (number, name), each in sorted(features.items())
        },
    }


def _describe_types(
    numbering: Numbering,
    features: Mapping[tuple[int, str], AlignedFeatures],
    attributes: Mapping[str, EncodedAttributes],
) -> list[dict[str, Any]]:
    described = []
    for number, name in enumerate(numbering.types):
        sets = {
            set_name: {"width": each.values.shape[1], "nodes_without": int((~each.present).sum())}
            for (type_number, set_name), each in sorted(features.items())
            if type_number == number
        }
        entry: dict[str, Any] = {
            "name": name,
            "count": numbering.counts[name],
            "offset": numbering.first[name],
            "features": sets.pop("", None),
        }
        entry |= {"feature_sets": sets} if sets else {}
        described.append(entry | ({"attributes": list(attributes[name].about)} if name in attributes else {}))
    return described
