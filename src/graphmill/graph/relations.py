"""The edges of a graph by relation: sorted by (destination, source), without duplicates, and with their reverses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.graph.numbering import EdgeColumns, Numbering
from graphmill.graph.settings import GraphSettings
from graphmill.graph.sorted_unique import in_sorted

Key = tuple[str, str, str]
"""(source type, relation name, target type)."""

Arrays = dict[str, npt.NDArray[Any]]

_LARGEST_KEY = 2**63 - 1


def unit_of(key: Key) -> tuple[str, ...]:
    """The relation without its direction: its name and its two node types in alphabetical order."""
    return key[1], *sorted((key[0], key[2]))


def mirror_of(key: Key) -> Key:
    """The key of the relation that holds the reverses."""
    return key[2], key[1], key[0]


@dataclass(frozen=True)
class RelationDraft:
    """The edges of one relation while the graph is being built.

    ``arrays`` (E,) by name, sorted by (dst, src): ``src`` and ``dst`` int32, node numbers that are local to their type;
    ``display`` int32, which distinguishes parallel edges and is not stored; ``split`` uint8, once it is drawn; and the
    attributes. ``added``: number of edges that are reverses not in the table. ``duplicates``: number of rows of the table
    that were left out because they repeat another.
    """

    key: Key
    num_source: int
    num_target: int
    arrays: Arrays
    added: int = 0
    duplicates: int = 0

    def __len__(self) -> int:
        return len(self.arrays["src"])

    def self_loops(self) -> int:
        """Number of edges from a node to itself."""
        return int((self.arrays["src"] == self.arrays["dst"]).sum()) if self.key[0] == self.key[2] else 0

    def parallel(self) -> int:
        """Number of edges beyond the first from one node to another (within a split, if one is given)."""
        key = self.sort_key()
        same = key[1:] == key[:-1]
        if "split" in self.arrays:
            same &= self.arrays["split"][1:] == self.arrays["split"][:-1]
        return int(same.sum())

    def sort_key(self) -> npt.NDArray[np.int64]:
        """(E,) int64, ascending: dst · num_source + src."""
        return self.arrays["dst"] * np.int64(self.num_source) + self.arrays["src"]

    def facts(self) -> RelationFacts:
        """What the manifest says of the relation."""
        return RelationFacts(self.key, len(self), self.added, self.duplicates, self.parallel(), self.self_loops())

    def turned(self) -> RelationDraft:
        """The reverses of all edges, in the order of the edges."""
        ends = {"src": self.arrays["dst"], "dst": self.arrays["src"]}
        return RelationDraft(mirror_of(self.key), self.num_target, self.num_source, self.arrays | ends)

    def take(self, order: npt.NDArray[np.int64]) -> RelationDraft:
        """The edges with the numbers ``order``, in that order."""
        return replace(self, arrays={name: values[order] for name, values in self.arrays.items()})


@dataclass(frozen=True)
class RelationFacts:
    """The facts about a relation for the manifest: see :class:`RelationDraft`."""

    key: Key
    edges: int
    added: int
    duplicates: int
    parallel: int
    self_loops: int

    @property
    def name(self) -> str:
        """``source | name | target``."""
        return " | ".join(self.key)


def by_relation(edges: EdgeColumns, numbering: Numbering) -> Iterator[RelationDraft]:
    """The edges of each relation in the order of their rows, relations in order of first appearance. Both ends are in the
    graph."""
    node_type, num_types, counts = numbering.type_of_node(), len(numbering.types), numbering.counts
    head, tail = numbering.of_row[edges.head], numbering.of_row[edges.tail]
    code = (edges.relation.astype(np.int64) * num_types + node_type[head]) * num_types + node_type[tail]
    encoded = pa.array(code).dictionary_encode()
    which = encoded.indices.to_numpy()
    del code
    # With 16-bit keys, numpy uses radix sort.
    order = np.argsort(which.astype(np.int16) if len(encoded.dictionary) < 2**15 else which, kind="stable")
    bounds = pairwise([0, *np.cumsum(np.bincount(which)).tolist()])
    for packed, (first, end) in zip(encoded.dictionary.to_pylist(), bounds, strict=True):
        rest, target = divmod(packed, num_types)
        relation, source = divmod(rest, num_types)
        rows = order[first:end]
        arrays: Arrays = {
            "src": (head[rows] - numbering.offsets[source]).astype(np.int32),
            "dst": (tail[rows] - numbering.offsets[target]).astype(np.int32),
            "display": np.zeros(len(rows), np.int32) if edges.display is None else edges.display[rows],
        }
        arrays |= {} if edges.split is None else {"split": edges.split[rows]}
        arrays |= {name: values[rows] for name, values in edges.attributes.items()}
        key = numbering.types[source], edges.relation_names[relation], numbering.types[target]
        yield RelationDraft(key, counts[key[0]], counts[key[2]], arrays)


def sort_unique(draft: RelationDraft, merge: str = "max") -> RelationDraft:
    """Sort by (dst, src, split, display). Of equal edges one is kept, and the others are counted as duplicates.

    ``merge``: "last" keeps the last; "max" and "sum" keep the first, with that of the weights, the largest confidence and
    the earliest time.

    Raises :class:`InputError` if the two node types are so large that a pair of nodes does not fit a 64-bit number.
    """
    kinds = int(draft.arrays["display"].max(initial=0)) + 1
    if draft.num_source * draft.num_target * 3 * kinds > _LARGEST_KEY:
        raise InputError(
            f"relation {draft.key}: {draft.num_source} × {draft.num_target} nodes are more than the format can "
            "number; split the node type"
        )
    key = draft.sort_key()
    key *= 3
    if "split" in draft.arrays:
        key += draft.arrays["split"]
    key *= kinds
    key += draft.arrays["display"]
    if np.all(key[1:] > key[:-1]):
        return draft
    order = np.argsort(key, kind="stable")
    key = key[order]
    starts = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    kept = order[np.append(starts[1:], len(order)) - 1 if merge == "last" else starts]
    distinct = replace(draft.take(kept), duplicates=draft.duplicates + len(order) - len(kept))
    if merge == "last" or len(kept) == len(order):
        return distinct
    rules = {"weight": np.add if merge == "sum" else np.maximum, "confidence": np.fmax}
    merged = {n: rules[n].reduceat(v[order], starts) for n, v in draft.arrays.items() if n in rules}
    if "timestamp" in draft.arrays:  # NO_TIME − 1 wraps to the largest number, so that any time is earlier
        merged["timestamp"] = np.minimum.reduceat(draft.arrays["timestamp"][order] - 1, starts) + 1
    return replace(distinct, arrays=distinct.arrays | merged)


def grouped_edges(
    edges: EdgeColumns, numbering: Numbering, settings: GraphSettings
) -> tuple[list[RelationFacts], Arrays]:
    """The graph's edges as arrays (E,) by name, relation after relation, and the facts for the manifest of each relation.

    Rows that agree in relation, display_relation, head and tail (and split, if one is given) become one, as ``merge``
    says.

    ``add_reverse: missing`` adds (v, name, u) for each edge (u, name, v), if the mirror relation has no edge from v to u,
    whatever its display_relation, split or attributes. An added reverse has its edge's split and attributes. Edges from a
    node to itself are their own reverses.
    """
    drafts = {draft.key: sort_unique(draft, settings.merge) for draft in by_relation(edges, numbering)}
    if settings.add_reverse == "missing":
        keys = dict.fromkeys((*drafts, *map(mirror_of, drafts)))
        drafts = {key: _with_reverses(drafts.get(key), drafts.get(mirror_of(key))) for key in keys}
    facts = [draft.facts() for draft in drafts.values()]
    names = [name for name in next(iter(drafts.values())).arrays if name != "display"]
    return facts, {name: np.concatenate([draft.arrays.pop(name) for draft in drafts.values()]) for name in names}


def _with_reverses(held: RelationDraft | None, mirror: RelationDraft | None) -> RelationDraft:
    """The edges of a relation, if it has any, with the missing reverses of its mirror."""
    if mirror is None:
        assert held is not None
        return held
    reverses = mirror.turned()
    if held is None:
        return sort_unique(replace(reverses, added=len(reverses)))
    known, wanted = held.sort_key(), reverses.sort_key()
    if len(wanted) == len(known) and np.array_equal(np.sort(wanted), known):
        return held  # the usual case: every edge written in both directions
    extra = reverses.take(np.flatnonzero(~in_sorted(wanted, known)))
    both = {name: np.concatenate((values, extra.arrays[name])) for name, values in held.arrays.items()}
    return sort_unique(replace(held, arrays=both, added=len(extra))) if len(extra) else held
