"""Summarises a graph, so that a later graph can be compared with it after it is gone.

Nodes are identified by type and id, because node numbers differ between graphs. Encoders of attributes are fitted to each
graph, so the same attributes have other columns in another one; a linear map brings the columns of one to those of the
other, so that weights can be taken over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphmill.errors import InputError, one_line
from graphmill.graph.attributes import SET
from graphmill.graph.sorted_unique import in_sorted, sorted_unique
from graphmill.graph.splits import TRAIN, node_keys, pair_hashes
from graphmill.graph.typed_graph import TypedGraph
from graphmill.verified_files import verified_file

ARRAYS_FILE = "graph.npz"
COUNTS_FILE = "graph.json"
_IDS, _FEATURES = "ids of ", "features of "
"""Beginnings of the names of arrays, before a node type."""
UInt64 = npt.NDArray[np.uint64]
MOST = 4096
"""Nodes of a type whose features are kept, at most."""
RIDGE = 1e-4
KnownFeatures = Mapping[str, tuple[npt.NDArray[np.str_], npt.NDArray[np.float32]]]
"""Node type → ids (n) and features from attributes (n, f) of some of its nodes."""


@dataclass(frozen=True)
class GraphSummary:
    """``pairs`` uint64 (P), ascending: a hash of each undirected node pair; ``trained`` bool (P): whether it is in train.

    ``degrees`` int32 (N): edges at each node, in the graph's order. ``node_types``: nodes of each. ``relations``: edges of
    each, keyed ``source | name | target``. ``attributes``: features of some nodes. Two pairs share a hash with
    probability P² / 2⁶⁵.
    """

    content_hash: str
    node_types: dict[str, int]
    relations: dict[str, int]
    pairs: UInt64
    trained: npt.NDArray[np.bool_]
    degrees: npt.NDArray[np.int32]
    attributes: KnownFeatures = field(default_factory=dict)

    def trained_on(self, pairs: UInt64) -> npt.NDArray[np.bool_]:
        """Whether each of these pairs is in the training split."""
        return in_sorted(pairs, self.pairs[self.trained])

    def save(self, folder: Path) -> None:
        """Write ``graph.npz`` and ``graph.json`` into ``folder``."""
        known = {f"{_IDS}{kind}": ids for kind, (ids, _) in self.attributes.items()}
        known |= {f"{_FEATURES}{kind}": features for kind, (_, features) in self.attributes.items()}  # type: ignore[misc]
        arrays = {"pairs": self.pairs, "trained": np.packbits(self.trained), "degrees": self.degrees}
        np.savez(folder / ARRAYS_FILE, **arrays, **known)  # type: ignore[arg-type]
        counts = {"content_hash": self.content_hash, "node_types": self.node_types, "relations": self.relations}
        (folder / COUNTS_FILE).write_text(json.dumps(counts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> GraphSummary:
        """Read the files of :meth:`save` from a version. Raises :class:`InputError` if they are missing or damaged."""
        try:
            counts: dict[str, Any] = json.loads(verified_file(folder, COUNTS_FILE).read_text(encoding="utf-8"))
            kinds, names = ({str(n): int(v) for n, v in counts[part].items()} for part in ("node_types", "relations"))
            with np.load(verified_file(folder, ARRAYS_FILE), allow_pickle=False) as arrays:
                pairs, packed, degrees = (arrays[name] for name in ("pairs", "trained", "degrees"))
                described = [name.removeprefix(_IDS) for name in arrays.files if name.startswith(_IDS)]
                known = {kind: (arrays[f"{_IDS}{kind}"], arrays[f"{_FEATURES}{kind}"]) for kind in described}
            if (pairs.dtype, pairs.ndim, degrees.dtype, degrees.ndim) != (np.uint64, 1, np.int32, 1):
                raise ValueError("its arrays are of other kinds")
            trained = np.unpackbits(packed, count=len(pairs)).astype(bool)
            return cls(str(counts["content_hash"]), kinds, names, pairs, trained, degrees, known)
        except InputError:
            raise
        except Exception as error:  # NumPy, zipfile and JSON raise almost any error at damaged files
            raise InputError(f"{folder} has no readable summary of its graph: {one_line(error)}") from None


class NodeHashes:
    """The hashes of a graph's nodes, by global number, and of node pairs."""

    def __init__(self, graph: TypedGraph) -> None:
        nodes = graph.node_table()
        self._keys = node_keys(nodes.column("type").to_pylist(), nodes.column("id").to_pylist(), 0)

    def pairs(self, first: npt.NDArray[np.integer], second: npt.NDArray[np.integer]) -> UInt64:
        """uint64 (Q): hashes that are the same for (a, b) and (b, a), in every graph that has both nodes."""
        with np.errstate(over="ignore"):
            return pair_hashes(self._keys[first], self._keys[second])


def summarise(graph: TypedGraph) -> GraphSummary:
    """Make the summary of a graph, reading every edge once."""
    hashes, degrees = NodeHashes(graph), np.zeros(graph.num_nodes, np.int64)
    pairs_of: list[UInt64] = []
    in_train: list[UInt64] = []
    for relation in graph.relations:
        edges, (src, dst) = graph.edges(relation), graph.ends(relation)
        degrees += np.bincount(src, minlength=len(degrees)) + np.bincount(dst, minlength=len(degrees))
        keys = hashes.pairs(src, dst)
        pairs_of.append(sorted_unique(keys))
        in_train.append(sorted_unique(keys[np.asarray(edges.split) == TRAIN]))
    none = np.zeros(0, np.uint64)
    pairs = sorted_unique(np.concatenate([none, *pairs_of]))
    return GraphSummary(
        graph.content_hash,
        {t.name: t.count for t in graph.node_types},
        {" | ".join(r.key): r.edges for r in graph.relations},
        pairs,
        in_sorted(pairs, sorted_unique(np.concatenate([none, *in_train]))),
        degrees.astype(np.int32),
        known_features(graph),
    )


@dataclass(frozen=True)
class GraphDifference:
    """The difference between two graphs. ``lost`` and ``added``: numbers of node pairs. ``before`` and ``after``:
    numbers of pairs.

    ``node_types`` and ``relations``: name → (count before, count after), for all that either has. ``mean_degree``,
    ``largest_degree``: before and after.
    """

    before: int
    after: int
    lost: int
    added: int
    node_types: dict[str, tuple[int, int]]
    relations: dict[str, tuple[int, int]]
    mean_degree: tuple[float, float]
    largest_degree: tuple[int, int]

    @property
    def lost_share(self) -> float:
        """Fraction of the earlier pairs that are gone."""
        return self.lost / self.before if self.before else 0.0

    @property
    def added_share(self) -> float:
        """Number of new pairs, divided by that of the earlier pairs."""
        return self.added / self.before if self.before else 0.0


def graph_difference(before: GraphSummary, after: GraphSummary) -> GraphDifference:
    """Compare two summaries by node pairs and by counts."""
    kept = int(in_sorted(after.pairs, before.pairs).sum())

    def both(a: dict[str, int], b: dict[str, int]) -> dict[str, tuple[int, int]]:
        return {name: (a.get(name, 0), b.get(name, 0)) for name in (*a, *(n for n in b if n not in a))}

    return GraphDifference(
        len(before.pairs),
        len(after.pairs),
        len(before.pairs) - kept,
        len(after.pairs) - kept,
        both(before.node_types, after.node_types),
        both(before.relations, after.relations),
        (_mean(before.degrees), _mean(after.degrees)),
        (int(before.degrees.max(initial=0)), int(after.degrees.max(initial=0))),
    )


def _mean(degrees: npt.NDArray[np.int32]) -> float:
    return float(degrees.mean()) if len(degrees) else 0.0


def known_features(graph: TypedGraph) -> KnownFeatures:
    """Those of at most :data:`MOST` nodes of each type with attributes, evenly spread."""
    known = {}
    for kind in graph.node_types:
        if SET not in graph.feature_sets(kind.name):
            continue
        rows = np.unique(np.linspace(0, kind.count - 1, min(MOST, kind.count)).astype(np.int64))
        ids = graph.node_table()["id"].slice(kind.offset, kind.count).to_pylist()
        features = np.asarray(graph.features(kind.name, SET))[rows]
        known[kind.name] = np.array([ids[row] for row in rows], dtype=np.str_), features
    return known


def attribute_map(before: KnownFeatures, graph: TypedGraph, kind: str) -> npt.NDArray[np.float32] | None:
    """float32 [f, g]: M that minimises Σ ‖x M − y‖² + ridge over the nodes that are known from ``before``, where x (f) are
    their features in ``graph`` and y (g) those before. None if they are equal, or nothing is known from before."""
    if kind not in before or SET not in graph.feature_sets(kind):
        return None
    of_type, (ids, old) = graph.node_type(kind), before[kind]
    place = {
        node: row for row, node in enumerate(graph.node_table()["id"].slice(of_type.offset, of_type.count).to_pylist())
    }
    rows = np.array([place.get(str(node), -1) for node in ids])
    x, y = np.asarray(graph.features(kind, SET))[rows[rows >= 0]].astype(np.float64), old[rows >= 0].astype(np.float64)
    if not len(x) or (x.shape == y.shape and np.array_equal(x, y)):
        return None
    gram = x.T @ x
    ridge = RIDGE * max(float(np.trace(gram)) / len(gram), 1e-12) * np.eye(len(gram))
    return np.linalg.solve(gram + ridge, x.T @ y).astype(np.float32)
