"""Writes a built graph to its directory: arrays, counts and the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.atomic_files import writing
from graphmill.graph import storage
from graphmill.graph.attributes import EncodedAttributes
from graphmill.graph.evidence import FILE as EVIDENCE
from graphmill.graph.features import AlignedFeatures
from graphmill.graph.leakage import LeakageReport
from graphmill.graph.numbering import Numbering
from graphmill.graph.relations import RelationFacts
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import SPLIT_NAMES, TRAIN
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.disk import pieces
from graphmill.ingest.tables import feature_key
from graphmill.version import __version__

NODE_COLUMNS = ("index", "id", "type", "name", "source")


@dataclass(frozen=True)
class Made:
    """The complete content of a graph. ``arrays`` (E,) by name, relation after relation: ``src`` and ``dst`` int32
    (numbers within their type), ``split``, ``pair`` and the attributes; in memory or mapped from files. ``report``: the
    report of the build so far.
    """

    numbering: Numbering
    table: pa.Table
    features: Mapping[tuple[int, str], AlignedFeatures]
    attributes: Mapping[str, EncodedAttributes]
    facts: list[RelationFacts]
    arrays: dict[str, npt.NDArray[Any]]
    num_pairs: int
    leakage: LeakageReport
    evidence: pa.Table | None
    report: dict[str, Any]


def node_table(nodes: pa.Table, numbering: Numbering) -> pa.Table:
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


def publish(made: Made, settings: GraphSettings, out: Path) -> TypedGraph:
    """Write the graph to ``out`` atomically, and open it. Raises :class:`ResourceError` for a full disk."""
    with writing(out), storage.building(out) as directory:
        indptr, in_split, cold = _count_ends(made)
        storage.write_table(directory, storage.NODES, made.table)
        if made.evidence is not None:
            storage.write_table(directory, EVIDENCE, made.evidence)
        for name, values in {**made.arrays, "indptr": indptr}.items():
            storage.write_array(directory, f"{name}.npy", values)
        for (number, name), each in made.features.items():
            storage.write_array(directory, storage.features_file(number, name), each.values)
            storage.write_array(directory, storage.features_file(number, name, storage.PRESENT), each.present)
        for kind, encoded in made.attributes.items():
            for place, encoder in enumerate(encoded.encoders):
                if encoder.basis is not None:
                    name = storage.encoder_file(made.numbering.types.index(kind), place)
                    storage.write_array(directory, name, encoder.basis)
        manifest: dict[str, Any] = {
            "format": storage.FORMAT,
            "version": storage.VERSION,
            "num_nodes": made.numbering.num_nodes,
            "num_edges": len(made.arrays["src"]),
            "num_pairs": made.num_pairs,
            "node_types": _describe_types(made),
            "relations": [
                _describe_relation(*each) for each in zip(range(len(in_split)), made.facts, in_split, strict=True)
            ],
            "files": storage.describe_files(directory),
        }
        manifest["content_hash"] = storage.content_hash(manifest)
        manifest["written_by"] = f"graphmill {__version__}"
        manifest["settings"] = settings.model_dump()
        about = dict(made.report)
        manifest["report"] = {
            "excluded_edges": about.pop("excluded_edges"),
            "cold_nodes": _by_type(made.numbering, cold),
            "split_source": about.pop("split_source"),
            **about,
            **_counts(made),
            "leakage": made.leakage.to_dict(),
        }
        storage.publish(directory, manifest, out)
    return TypedGraph.open(out)


def _count_ends(made: Made) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int64]], npt.NDArray[np.bool_]]:
    """Count edges: CSR pointers of each node's in-edges by relation; edges of each relation by split; nodes without a
    training edge."""
    numbering, arrays, begin = made.numbering, made.arrays, 0
    offset, counts = numbering.first, numbering.counts
    cold = np.ones(numbering.num_nodes, bool)
    pointers, in_split = [], []
    for facts in made.facts:
        degree, splits = np.zeros(counts[facts.key[2]] + 1, np.int64), np.zeros(len(SPLIT_NAMES), np.int64)
        first, begin = begin, begin + facts.edges
        src, dst, split = (arrays[name][first:begin] for name in ("src", "dst", "split"))
        for part in pieces(facts.edges, src, dst, split):
            degree += np.bincount(dst[part] + 1, minlength=len(degree))
            splits += np.bincount(split[part], minlength=len(SPLIT_NAMES))
            trained = split[part] == TRAIN
            cold[src[part][trained] + offset[facts.key[0]]] = False
            cold[dst[part][trained] + offset[facts.key[2]]] = False
        pointers.append(np.cumsum(degree))
        in_split.append(splits)
    return np.concatenate(pointers), in_split, cold


def _counts(made: Made) -> dict[str, Any]:
    """Counts of nodes and edges that are unusual or were left out."""
    facts, numbering = made.facts, made.numbering
    return {
        "excluded_nodes": numbering.excluded_nodes,
        "isolated_nodes": numbering.isolated,
        "duplicates": sum(each.duplicates for each in facts),
        "duplicates_by_relation": {each.name: each.duplicates for each in facts if each.duplicates},
        "parallel_edges": sum(each.parallel for each in facts),
        "self_loops": sum(each.self_loops for each in facts),
        "added_edges": sum(each.added for each in facts),
        "features_unused": {
            feature_key(numbering.types[number], name): each.unused
            for (number, name), each in sorted(made.features.items())
        },
    }


def _describe_types(made: Made) -> list[dict[str, Any]]:
    numbering, features, described = made.numbering, made.features, []
    for number, name in enumerate(numbering.types):
        plain = features.get((number, ""))
        entry: dict[str, Any] = {
            "name": name,
            "count": numbering.counts[name],
            "offset": numbering.first[name],
            "features": None if plain is None else _describe_features(plain),
        }
        sets = {
            set_name: _describe_features(f) for (n, set_name), f in sorted(features.items()) if n == number and set_name
        }
        entry |= {"feature_sets": sets} if sets else {}
        encoded = made.attributes.get(name)
        described.append(entry | ({"attributes": list(encoded.about)} if encoded else {}))
    return described


def _describe_features(features: AlignedFeatures) -> dict[str, int]:
    return {"width": features.values.shape[1], "nodes_without": int((~features.present).sum())}


def _describe_relation(index: int, facts: RelationFacts, in_split: npt.NDArray[np.int64]) -> dict[str, Any]:
    return {
        "index": index,
        "source": facts.key[0],
        "name": facts.key[1],
        "target": facts.key[2],
        "edges": facts.edges,
        "added_edges": facts.added,
        "self_loops": facts.self_loops,
        "split": {name: int(count) for name, count in zip(SPLIT_NAMES, in_split, strict=True)},
    }


def _by_type(numbering: Numbering, mask: npt.NDArray[np.bool_]) -> dict[str, int]:
    counts = np.bincount(numbering.type_of_node()[mask], minlength=len(numbering.types))
    return {name: int(count) for name, count in zip(numbering.types, counts, strict=True) if count}
