"""Reads a typed graph: an immutable directory, whose files are mapped into memory on demand.

``build`` writes graphs, and ``storage`` handles the files. docs/explanation/graph.md describes the format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.graph import storage
from graphmill.graph.attributes import Encoder
from graphmill.graph.numbering import ATTRIBUTES, EVIDENCE_FILE
from graphmill.graph.splits import SPLIT_NAMES, TRAIN
from graphmill.ingest.notebook import page, rows
from graphmill.ingest.tables import feature_key
from graphmill.verified_files import Verify

ARRAYS = {
    "src": "<i4",
    "dst": "<i4",
    "split": "|u1",
    "pair": "<i4",
    "weight": "<f4",
    "confidence": "<f4",
    "timestamp": "<i8",
    "position": "<i4",
}
"""Per-edge files and their dtypes. The last four exist only if the edges table has them."""


@dataclass(frozen=True)
class NodeType:
    """A node type: its nodes have the global numbers ``offset .. offset + count - 1``."""

    name: str
    count: int
    offset: int


@dataclass(frozen=True)
class Relation:
    """The edges with one name between two node types. ``added_edges``: number of reverses that the build added."""

    index: int
    source: str
    name: str
    target: str
    edges: int
    added_edges: int

    @property
    def key(self) -> tuple[str, str, str]:
        """(source, name, target), unique in a graph."""
        return self.source, self.name, self.target

    @property
    def added_reverse(self) -> bool:
        """Whether the data had no edge of this relation: it consists of added reverses."""
        return self.added_edges == self.edges


@dataclass(frozen=True)
class RelationEdges:
    """The edges of one relation, read-only and mapped into memory, sorted by (dst, src).

    ``src``, ``dst`` (E,) int32 are local to their node types; ``indptr`` (N_dst + 1,) int64: the edges into node v are
    ``indptr[v] .. indptr[v + 1] - 1``; ``split`` (E,) uint8: 0 train, 1 valid, 2 test; ``pair`` (E,) int32: number of
    the undirected node pair. ``weight`` and ``confidence`` (E,) float32 (NaN: not known), ``timestamp`` (E,) int64 and
    ``position`` (E,) int32 (position in the user's sequence; −1: in none, as for facts) are None if the data has none.
    """

    relation: Relation
    src: npt.NDArray[np.int32]
    dst: npt.NDArray[np.int32]
    indptr: npt.NDArray[np.int64]
    split: npt.NDArray[np.uint8]
    pair: npt.NDArray[np.int32]
    weight: npt.NDArray[np.float32] | None = None
    confidence: npt.NDArray[np.float32] | None = None
    timestamp: npt.NDArray[np.int64] | None = None
    position: npt.NDArray[np.int32] | None = None

    @property
    def strength(self) -> npt.NDArray[np.float32] | None:
        """(E,) float32: the weights, or without any the confidences (NaN: not known); None without either."""
        return self.confidence if self.weight is None else self.weight

    def relative_weights(self, weight: npt.NDArray[np.floating] | None = None) -> npt.NDArray[np.float32] | None:
        """(E,) float32: ``weight``, by default :attr:`strength`, over its mean on training edges; 1 where not known.

        None if models cannot tell edges apart by it: there is none, it is the same for all training edges, or 0 or less
        for one of them.
        """
        if self.strength is None:
            return None
        strength = np.asarray(self.strength)
        known = strength[(np.asarray(self.split) == TRAIN) & ~np.isnan(strength)]
        if not len(known) or known.min() <= 0 or known.min() == known.max():
            return None
        weight = strength if weight is None else weight
        relative = np.maximum(weight, 0) / known.mean(dtype=np.float64)
        return np.where(np.isnan(relative), 1.0, relative).astype(np.float32)


class TypedGraph:
    """A typed graph on disk.

    ``TypedGraph.open(path)`` reads the manifest, and hashes files that were not hashed before. Arrays are mapped at
    their first use. Nodes have global numbers, contiguous by type. Message passing in training may use only edges with
    ``split == 0``. A pickled graph contains only its path, so that worker processes map the same files.
    """

    def __init__(self, path: Path, manifest: Mapping[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self.content_hash: str = manifest["content_hash"]
        self.node_types = tuple(NodeType(t["name"], t["count"], t["offset"]) for t in manifest["node_types"])
        self.relations = tuple(
            Relation(r["index"], r["source"], r["name"], r["target"], r["edges"], r["added_edges"])
            for r in manifest["relations"]
        )
        self.num_nodes: int = manifest["num_nodes"]
        self.num_edges: int = manifest["num_edges"]
        self.num_pairs: int = manifest["num_pairs"]
        self._type_number = {node_type.name: number for number, node_type in enumerate(self.node_types)}
        self._by_key = {relation.key: relation for relation in self.relations}
        self._files: dict[str, npt.NDArray[Any]] = {}
        self._edges: dict[int, RelationEdges] = {}
        counts = [self.node_type(relation.target).count for relation in self.relations]
        self._edge_bounds = np.concatenate(([0], np.cumsum([relation.edges for relation in self.relations])))
        self._indptr_bounds = np.concatenate(([0], np.cumsum([count + 1 for count in counts])))

    @classmethod
    def open(cls, path: str | Path, verify: Verify = "changed") -> TypedGraph:
        """Open the graph in directory ``path``. ``verify``: hash files that are new or have changed ("changed"), or all
        ("always").

        Raises :class:`InputError` if there is no graph, if its format is older or newer than this version reads, or if
        a file is missing or damaged; the message names the file.
        """
        path = Path(path).resolve()
        manifest = storage.read_manifest(path)
        storage.check_files(path, manifest, verify)
        return cls(path, manifest)

    def __reduce__(self) -> tuple[Any, ...]:
        return TypedGraph.open, (str(self.path),)

    def __repr__(self) -> str:
        return (
            f"TypedGraph({str(self.path)!r}: {self.num_nodes:,} nodes of {len(self.node_types)} types, "
            f"{self.num_edges:,} edges in {len(self.relations)} relations)"
        )

    def _repr_html_(self) -> str:
        kinds = rows(("node type", "nodes"), ((kind.name, kind.count) for kind in self.node_types))
        names = [f"edges in {name}" for name in SPLIT_NAMES]
        splits = [each["split"] for each in self.manifest["relations"]]
        edges_of = (
            (" | ".join(relation.key), *(split[name] for name in SPLIT_NAMES))
            for relation, split in zip(self.relations, splits, strict=True)
        )
        return page(repr(self), kinds, rows(("relation", *names), edges_of))

    def node_type(self, name: str) -> NodeType:
        """The node type ``name``. Raises :class:`InputError` if it is unknown, and lists the known ones."""
        try:
            return self.node_types[self._type_number[name]]
        except KeyError:
            known = ", ".join(repr(node_type.name) for node_type in self.node_types)
            raise InputError(f"the graph has no node type {name!r}; it has {known}") from None

    def relation(self, source: str, name: str, target: str) -> Relation:
        """The relation with this key. Raises :class:`InputError` if it is unknown, and lists the known ones."""
        try:
            return self._by_key[source, name, target]
        except KeyError:
            known = ", ".join(str(relation.key) for relation in self.relations)
            raise InputError(f"the graph has no relation {(source, name, target)}; it has {known}") from None

    def edges(self, relation: Relation | int) -> RelationEdges:
        """The edges of a relation, which is given as an object or by its index. Every call returns the same arrays."""
        index = relation if isinstance(relation, int) else relation.index
        if index not in self._edges:
            here = slice(self._edge_bounds[index], self._edge_bounds[index + 1])
            pointers = slice(self._indptr_bounds[index], self._indptr_bounds[index + 1])
            columns = {
                name: self._array(name + ".npy", dtype, (self.num_edges,))[here]
                for name, dtype in ARRAYS.items()
                if name + ".npy" in self.manifest["files"]
            }
            indptr = self._array("indptr.npy", "<i8", (int(self._indptr_bounds[-1]),))[pointers]
            self._edges[index] = RelationEdges(self.relations[index], indptr=indptr, **columns)
        return self._edges[index]

    def training_edges(
        self, relation: Relation | int, *, everywhere: bool = False
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Sources and targets of a relation's training edges, int32 [E] local numbers; ``everywhere``: int64 global ones."""
        edges = self.edges(relation)
        train = np.asarray(edges.split) == TRAIN
        src, dst = self.ends(relation) if everywhere else (np.asarray(edges.src), np.asarray(edges.dst))
        return src[train], dst[train]

    def ends(self, relation: Relation | int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Sources and targets of a relation's edges of all splits, int64 [E] global numbers."""
        edges = self.edges(relation)
        first, second = (self.node_type(name).offset for name in (edges.relation.source, edges.relation.target))
        return np.asarray(edges.src) + np.int64(first), np.asarray(edges.dst) + np.int64(second)

    def node_table(self) -> pa.Table:
        """The nodes in global order: index int64, id, type, name, source; mapped into memory."""
        self._check_current()
        return storage.read_table(self.path / storage.NODES)

    def numbers_of(self, node_type: str, ids: Sequence[str]) -> npt.NDArray[np.int64]:
        """int64 [n]: the local numbers of the nodes of a type with these ids; −1 for an id that no node of it has."""
        of_type = self.node_type(node_type)
        known = self.node_table()["id"].slice(of_type.offset, of_type.count).combine_chunks()
        places = pc.index_in(pa.array(ids, known.type), value_set=known)
        return np.asarray(places.fill_null(-1).to_numpy(), np.int64)

    def features(self, node_type: str, name: str = "") -> npt.NDArray[np.float32] | None:
        """(count, f) float32: features of a type's nodes, zero for a node without any; None if the type has none.

        ``name``: one of the type's :meth:`feature_sets`; "" for features without a name.
        """
        return self._feature_array(node_type, name, "<f4")

    def feature_mask(self, node_type: str, name: str = "") -> npt.NDArray[np.bool_] | None:
        """(count,) bool: which nodes of a type have features; None if the type has none."""
        return self._feature_array(node_type, name, "|b1", storage.PRESENT)

    def feature_sets(self, node_type: str) -> tuple[str, ...]:
        """Names of a type's features, in alphabetical order; "" first, for those without a name."""
        entry = self._type_entry(node_type)
        return ("",) * (entry["features"] is not None) + tuple(sorted(entry.get("feature_sets", {})))

    def all_features(self, node_type: str) -> npt.NDArray[np.float32] | None:
        """(count, f) float32: all :meth:`feature_sets` of a type side by side; None if it has none."""
        sets = [self.features(node_type, name) for name in self.feature_sets(node_type)]
        rows = [each for each in sets if each is not None]
        return None if not rows else rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)

    def attributes(self, node_type: str) -> Sequence[Mapping[str, Any]]:
        """What is known of each attribute of a type: ``name``, ``kind``, ``nodes`` with a value, ``frequent`` values."""
        described: Sequence[Mapping[str, Any]] = self._type_entry(node_type).get("attributes", ())
        return described

    def attribute_encoders(self, node_type: str) -> list[Encoder]:
        """The encoders that made the features of the set ``attributes``, in the order of its columns."""
        number, encoders = self._type_number[node_type], []
        for place, each in enumerate(self.attributes(node_type)):
            basis = None
            if each["kind"] == "text":
                file = self.path / storage.encoder_file(number, place)
                basis = np.load(file, mmap_mode="r", allow_pickle=False)
            encoders.append(Encoder(each["name"], each["kind"], each["width"], each, basis))
        return encoders

    def evidence(self, keys: npt.NDArray[np.int64]) -> Mapping[int, str]:
        """What edges rest on: the text of each of ``keys`` (low · nodes + high, global numbers of a pair) that has one."""
        if EVIDENCE_FILE not in self.manifest["files"] or not len(keys):
            return {}
        self._check_current()
        table = storage.read_table(self.path / EVIDENCE_FILE)
        known = table["key"].to_numpy()
        place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return {int(k): table["text"][int(at)].as_py() for k, at in zip(keys, place, strict=True) if known[at] == k}

    def cold_nodes(self) -> npt.NDArray[np.bool_]:
        """(num_nodes,) bool: nodes without any training edge. No message reaches them, so their vectors are noise."""
        warm = np.zeros(self.num_nodes, bool)
        for relation in self.relations:
            for ends in self.training_edges(relation, everywhere=True):
                warm[ends] = True
        return ~warm

    def verify(self) -> None:
        """Hash every file again. Raises :class:`InputError` for the first damaged one, and names it."""
        self._check_current()
        storage.check_files(self.path, self.manifest, "always")

    def describe(self) -> dict[str, Any]:
        """A summary as plain values."""
        return {
            "path": str(self.path),
            "content_hash": self.content_hash,
            "nodes": self.num_nodes,
            "edges": self.num_edges,
            "pairs": self.num_pairs,
            "node_types": {node_type.name: node_type.count for node_type in self.node_types},
            "relations": {" | ".join(relation.key): relation.edges for relation in self.relations},
            "split": {name: sum(r["split"][name] for r in self.manifest["relations"]) for name in SPLIT_NAMES},
            "edge_attributes": [name for name in ATTRIBUTES if name + ".npy" in self.manifest["files"]],
            "features": {
                feature_key(t["name"], name): entry["width"]
                for t in self.manifest["node_types"]
                for name, entry in {"": t["features"], **t.get("feature_sets", {})}.items()
                if entry is not None
            },
            **self.manifest["report"],
        }

    def _type_entry(self, node_type: str) -> Mapping[str, Any]:
        self.node_type(node_type)  # raises for an unknown one
        entry: Mapping[str, Any] = self.manifest["node_types"][self._type_number[node_type]]
        return entry

    def _feature_array(self, node_type: str, name: str, dtype: str, ending: str = "") -> npt.NDArray[Any] | None:
        count, described = self.node_type(node_type).count, self._type_entry(node_type)
        entry = described.get("feature_sets", {}).get(name) if name else described["features"]
        if entry is None:
            return None
        shape = (count,) if ending else (count, entry["width"])
        return self._array(storage.features_file(self._type_number[node_type], name, ending), dtype, shape)

    def _array(self, name: str, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        if name not in self._files:
            self._check_current()
            self._files[name] = storage.read_array(self.path / name, dtype, shape)
        return self._files[name]

    def _check_current(self) -> None:
        # If the directory is replaced, files that are already mapped stay readable, but newly opened files would be of
        # another graph.
        if storage.read_manifest(self.path)["content_hash"] != self.content_hash:
            raise InputError(f"{self.path} was replaced by another graph after it was opened; open it again")
