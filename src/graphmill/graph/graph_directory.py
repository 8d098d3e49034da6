"""Writes a built graph to its directory: arrays, counts and the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from graphmill.graph.pairs import Pairs
from graphmill.graph.relations import RelationFacts
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import SPLIT_NAMES, TRAIN
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.tables import feature_key
from graphmill.verified_files import MANIFEST, describe_file
from graphmill.version import __version__

NODE_COLUMNS = ("index", "id", "type", "name", "source")


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


def publish(
    numbering: Numbering,
    table: pa.Table,
    features: Mapping[tuple[int, str], AlignedFeatures],
    attributes: Mapping[str, EncodedAttributes],
    pairs: Pairs,
    arrays: Mapping[str, npt.NDArray[Any]],
    leakage: LeakageReport,
    evidence: pa.Table | None,
    about: Mapping[str, Any],
    settings: GraphSettings,
    out: Path,
) -> TypedGraph:
    """Write the graph to ``out`` atomically, and open it. Raises :class:`ResourceError` for a full disk.

    ``arrays`` (E,) by name, relation after relation: ``src`` and ``dst`` int32 (numbers within their type), ``split`` and
    the attributes. ``about``: the report of the build so far.
    """
    with writing(out), storage.building(out) as directory:
        indptr, in_split, cold = _count_ends(numbering, pairs.facts, arrays)
        storage.write_table(directory, storage.NODES, table)
        if evidence is not None:
            storage.write_table(directory, EVIDENCE, evidence)
        for name, values in {**arrays, "pair": pairs.of_edge, "indptr": indptr}.items():
            storage.write_array(directory, f"{name}.npy", values)
        for (number, name), each in features.items():
            storage.write_array(directory, storage.features_file(number, name), each.values)
            storage.write_array(directory, storage.features_file(number, name, storage.PRESENT), each.present)
        for kind, encoded in attributes.items():
            for place, encoder in enumerate(encoded.encoders):
                if encoder.basis is not None:
                    name = storage.encoder_file(numbering.types.index(kind), place)
                    storage.write_array(directory, name, encoder.basis)
        manifest: dict[str, Any] = {
            "format": storage.FORMAT,
            "version": storage.VERSION,
            "num_nodes": numbering.num_nodes,
            "num_edges": len(arrays["src"]),
            "num_pairs": len(pairs),
            "node_types": _describe_types(numbering, features, attributes),
            "relations": [
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
                for index, (facts, counts) in enumerate(zip(pairs.facts, in_split, strict=True))
            ],
            "files": {p.name: describe_file(p) for p in sorted(directory.iterdir()) if p.name != MANIFEST},
        }
        manifest["content_hash"] = storage.content_hash(manifest)
        manifest["written_by"] = f"graphmill {__version__}"
        manifest["settings"] = settings.model_dump()
        cold_of_type = np.bincount(numbering.type_of_node()[cold], minlength=len(numbering.types)).tolist()
        manifest["report"] = {
            "excluded_edges": about["excluded_edges"],
            "cold_nodes": {name: count for name, count in zip(numbering.types, cold_of_type, strict=True) if count},
            **about,
            **_counts(numbering, pairs.facts, features),
            "leakage": leakage.to_dict(),
        }
        storage.publish(directory, manifest, out)
    return TypedGraph.open(out)


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
