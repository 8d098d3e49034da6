"""Tables become a typed graph on disk: the steps in their order, the counts, and the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.graph import group_split, storage, time_split
from graphmill.graph.features import AlignedFeatures, align_features
from graphmill.graph.interaction_split import split_interactions
from graphmill.graph.leakage import BY_TIME, LeakageReport, audit_edges, later_edges, links_of_held_out
from graphmill.graph.numbering import EdgeColumns, Numbering, categories, number_nodes, read_edges
from graphmill.graph.relations import RelationDraft, add_inverse_relations, add_missing_reverses, group_edges
from graphmill.graph.sequence_split import leave_one_out, leaves_one_out
from graphmill.graph.settings import GraphSettings, SplitSettings
from graphmill.graph.splits import SPLIT_NAMES, TRAIN, Pairs, draw_splits, node_keys, number_pairs
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.tables import feature_key

NODE_COLUMNS = ("index", "id", "type", "name", "source")


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

    The directory appears whole or not at all. Where ``out`` already holds the same graph, undamaged, it is left
    alone; another graph there is replaced. The same tables and settings give the same bytes.

    Raises :class:`SettingsError` for a node type that the data does not have, :class:`InputError` for tables that
    cannot be used, :class:`RunLockedError` while another process builds the same graph.
    """
    out = Path(out)
    missing = [name for name in NODE_COLUMNS if name not in nodes.column_names]
    if missing:
        raise InputError(
            f"table 'nodes' has no column {', '.join(map(repr, missing))}; it has {', '.join(nodes.column_names)}"
        )
    type_of_row, known_types = categories(nodes, "type", "nodes")
    columns = read_edges(edges, len(nodes))
    if settings.split.given == "redraw":
        columns = columns.without_split()
    columns, split_source = split_interactions(columns, nodes, settings.split)
    if columns.split is None and leaves_one_out(settings.split.method, columns):
        columns, split_source = replace(columns, split=leave_one_out(columns)), "leave_one_out"
    numbering, inside = number_nodes(type_of_row, known_types, columns, settings)
    excluded_edges = len(columns.head) - len(inside.head)
    about_split: dict[str, Any] = {}
    if inside.split is None and settings.split.method in (time_split.METHOD, group_split.METHOD):
        split_source = settings.split.method
        inside, about_split = _split_links(inside, nodes, type_of_row, known_types, settings.split, root)
    drafts = group_edges(inside, numbering, merge_parallel=settings.parallel_edges == "merge")
    if settings.add_reverse == "missing":
        drafts = add_missing_reverses(drafts)
    elif settings.add_reverse == "inverse":
        drafts = add_inverse_relations(drafts)

    table = _node_table(nodes, numbering)
    src, dst = _global_ends(drafts, numbering)
    pairs = number_pairs(src, dst, numbering.num_nodes)
    split = _splits(drafts, pairs, table, settings)
    aligned = align_features(features or {}, numbering, type_of_row, known_types)
    leakage = _audit(drafts, src, dst, split, split_source, settings)

    with storage.building(out) as directory:
        _write(directory, drafts, numbering, table, split, pairs, aligned)
        manifest: dict[str, Any] = {
            "format": storage.FORMAT,
            "version": storage.VERSION,
            "num_nodes": numbering.num_nodes,
            "num_edges": len(src),
            "num_pairs": len(pairs),
            "node_types": _describe_types(numbering, aligned),
            "relations": _describe_relations(drafts, split),
            "files": storage.describe_files(directory),
        }
        manifest["content_hash"] = storage.content_hash(manifest)
        manifest["written_by"] = f"graphmill {version('graphmill')}"
        manifest["settings"] = settings.model_dump()
        manifest["report"] = {
            "excluded_edges": excluded_edges,
            "cold_nodes": _by_type(numbering, _cold(src, dst, split, numbering.num_nodes)),
            "split_source": split_source,
            **about_split,
            **_counts(drafts, numbering, aligned),
            "leakage": leakage.to_dict(),
        }
        storage.publish(directory, manifest, out)
    return TypedGraph.open(out)


def _split_links(
    edges: EdgeColumns,
    nodes: pa.Table,
    type_of_row: npt.NDArray[np.int32],
    types: Sequence[str],
    settings: SplitSettings,
    root: Path,
) -> tuple[EdgeColumns, dict[str, Any]]:
    """The edges with the split of links by time or by groups, and what the report has of it."""
    if settings.method == time_split.METHOD:
        by_time = time_split.split_by_time(edges, settings)
        return by_time.edges, by_time.to_dict()
    by_group = group_split.split_by_group(edges, nodes, type_of_row, types, settings, root)
    return by_group.edges, {"groups": by_group.report}


def _audit(
    drafts: Sequence[RelationDraft],
    src: npt.NDArray[np.int32],
    dst: npt.NDArray[np.int32],
    split: npt.NDArray[np.uint8],
    split_source: str,
    settings: GraphSettings,
) -> LeakageReport:
    """The audit of all splits, and beyond it that of splits by time or by groups."""
    relation = np.repeat(np.arange(len(drafts), dtype=np.int32), [len(draft) for draft in drafts])
    found = audit_edges(src, dst, relation, split, [" | ".join(draft.key) for draft in drafts])
    if split_source in BY_TIME:
        times = np.concatenate([draft.attributes["timestamp"] for draft in drafts])
        return replace(found, later=later_edges(times, split))
    if split_source == group_split.METHOD:
        keys = [draft.key for draft in drafts]
        return replace(found, group_links=links_of_held_out(src, dst, relation, split, keys, settings.split))
    return found


def _cold(
    src: npt.NDArray[np.int32], dst: npt.NDArray[np.int32], split: npt.NDArray[np.uint8], num_nodes: int
) -> npt.NDArray[np.bool_]:
    """(num_nodes,) bool: nodes without a training edge."""
    cold = np.ones(num_nodes, bool)
    cold[src[split == TRAIN]] = False
    cold[dst[split == TRAIN]] = False
    return cold


def _counts(
    drafts: Sequence[RelationDraft], numbering: Numbering, features: Mapping[tuple[int, str], AlignedFeatures]
) -> dict[str, Any]:
    """What of nodes and edges is odd or was left out."""
    return {
        "excluded_nodes": numbering.excluded_nodes,
        "isolated_nodes": numbering.isolated,
        "duplicates": sum(draft.duplicates for draft in drafts),
        "duplicates_by_relation": {" | ".join(d.key): d.duplicates for d in drafts if d.duplicates},
        "parallel_edges": sum(draft.parallel() for draft in drafts),
        "self_loops": sum(draft.self_loops() for draft in drafts),
        "added_edges": sum(draft.added for draft in drafts),
        "features_unused": {
            feature_key(numbering.types[number], name): each.unused for (number, name), each in sorted(features.items())
        },
    }


def _node_table(nodes: pa.Table, numbering: Numbering) -> pa.Table:
    """The nodes of the graph in global order; the dictionary of ``type`` is the graph's types in their order."""
    table = nodes.select(NODE_COLUMNS).take(numbering.rows)
    types = pa.DictionaryArray.from_arrays(numbering.type_of_node(), pa.array(numbering.types, pa.string()))
    table = table.set_column(table.column_names.index("type"), "type", types)
    # Dictionaries in order of first appearance, so that the bytes do not depend on how the reader cut its blocks.
    source = table["source"].cast(pa.string()).dictionary_encode().combine_chunks()
    return (
        table.set_column(table.column_names.index("source"), "source", source)
        .combine_chunks()
        .replace_schema_metadata()
    )


def _global_ends(
    drafts: Sequence[RelationDraft], numbering: Numbering
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    offset = {name: np.int32(first) for name, first in zip(numbering.types, numbering.offsets[:-1], strict=True)}
    return (
        np.concatenate([draft.src + offset[draft.key[0]] for draft in drafts]),
        np.concatenate([draft.dst + offset[draft.key[2]] for draft in drafts]),
    )


def _splits(
    drafts: Sequence[RelationDraft], pairs: Pairs, table: pa.Table, settings: GraphSettings
) -> npt.NDArray[np.uint8]:
    """(num_edges,) uint8: the split that came with the data, or one drawn by pairs."""
    given = [draft.split for draft in drafts if draft.split is not None]
    if given:
        return np.concatenate(given)
    bounds = np.concatenate(([0], np.cumsum([len(draft) for draft in drafts])))
    ranges = [slice(first, end) for first, end in pairwise(bounds)]
    keys = node_keys(table["type"].to_pylist(), table["id"].to_pylist(), settings.split.seed)
    return draw_splits(pairs, ranges, [draft.unit for draft in drafts], keys, settings.split)[pairs.of_edge]


def _write(
    directory: Path,
    drafts: Sequence[RelationDraft],
    numbering: Numbering,
    table: pa.Table,
    split: npt.NDArray[np.uint8],
    pairs: Pairs,
    features: Mapping[tuple[int, str], AlignedFeatures],
) -> None:
    storage.write_table(directory, storage.NODES, table)
    storage.write_array(directory, "src.npy", np.concatenate([draft.src for draft in drafts]))
    storage.write_array(directory, "dst.npy", np.concatenate([draft.dst for draft in drafts]))
    storage.write_array(directory, "split.npy", split)
    storage.write_array(directory, "pair.npy", pairs.of_edge)
    pointers = [np.cumsum(np.bincount(draft.dst + 1, minlength=draft.num_target + 1)) for draft in drafts]
    storage.write_array(directory, "indptr.npy", np.concatenate(pointers).astype(np.int64))
    for name in drafts[0].attributes:
        storage.write_array(directory, f"{name}.npy", np.concatenate([draft.attributes[name] for draft in drafts]))
    for (number, name), each in features.items():
        storage.write_array(directory, storage.features_file(number, name), each.values)
        storage.write_array(directory, storage.feature_mask_file(number, name), each.present)


def _describe_types(numbering: Numbering, features: Mapping[tuple[int, str], AlignedFeatures]) -> list[dict[str, Any]]:
    described = []
    for number, name in enumerate(numbering.types):
        plain = features.get((number, ""))
        entry: dict[str, Any] = {
            "name": name,
            "count": int(numbering.offsets[number + 1] - numbering.offsets[number]),
            "offset": int(numbering.offsets[number]),
            "features": None if plain is None else _describe_features(plain),
        }
        sets = {
            set_name: _describe_features(f) for (n, set_name), f in sorted(features.items()) if n == number and set_name
        }
        described.append(entry | ({"feature_sets": sets} if sets else {}))
    return described


def _describe_features(features: AlignedFeatures) -> dict[str, int]:
    return {"width": features.values.shape[1], "nodes_without": int((~features.present).sum())}


def _describe_relations(drafts: Sequence[RelationDraft], split: npt.NDArray[np.uint8]) -> list[dict[str, Any]]:
    described, first = [], 0
    for index, draft in enumerate(drafts):
        in_split = np.bincount(split[first : first + len(draft)], minlength=len(SPLIT_NAMES))
        first += len(draft)
        described.append(
            {
                "index": index,
                "source": draft.key[0],
                "name": draft.key[1],
                "target": draft.key[2],
                "edges": len(draft),
                "added_edges": draft.added,
                "self_loops": draft.self_loops(),
                "split": {name: int(count) for name, count in zip(SPLIT_NAMES, in_split, strict=True)},
            }
        )
    return described


def _by_type(numbering: Numbering, mask: npt.NDArray[np.bool_]) -> dict[str, int]:
    counts = np.bincount(numbering.type_of_node()[mask], minlength=len(numbering.types))
    return {name: int(count) for name, count in zip(numbering.types, counts, strict=True) if count}
