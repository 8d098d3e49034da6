"""Measures how far an embedding has moved from another: neighbours kept, and nodes that moved most; without vectors, the
share of the ten best items or tails of users or heads that changed.

Neighbours are invariant to rotations, which another seed always brings. The cosine of a node with itself is given raw
and after the best rotation (:mod:`.procrustes`). A is before, B is after.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import InputError
from graphmill.evaluation.drift.procrustes import ROWS, fit_rotation, in_blocks
from graphmill.evaluation.embedding_files import Embeddings
from graphmill.evaluation.health.neighbours import Vectors
from graphmill.evaluation.json_values import plain
from graphmill.sampling.keyed import generator

K = 10
LEAST_SHARED = 52
"""Nodes that two embeddings must share."""
QUERIES = 2000
TYPE_QUERIES = 200
"""Smallest number of queries of a type, if it has that many nodes."""
MOVED = 50
SHORTEST = 1e-6
"""A vector of at most this length, relative to the median length, counts as having no direction."""
_OF_LISTS = ("name", "shared", "overlap_10", "type", "id")
Int64 = NDArray[np.int64]
Key = tuple[str, str]
"""Type and id of a node."""
BEST, LEAST_LISTS = 10, 10
Lists = Mapping[tuple[str, str], Sequence[str]]
"""Relation (``source | name | target``) and id of a user or head → ids of its best items or tails, best first."""


@dataclass(frozen=True)
class Agreement:
    """Agreement of two embeddings on one node type, or on all (``name`` ""): means over the shared nodes. Of lists, those
    of one relation: only ``overlap_10``, the share of the ten best that stayed.

    ``overlap_10``: fraction of the ten nearest neighbours by cosine, among all shared nodes, that stayed.
    ``cosine_raw``, ``cosine_aligned``: cosine of a node with itself, before and after the rotation of all nodes.
    """

    name: str
    shared: int
    new: int = 0
    vanished: int = 0
    overlap_10: float = math.nan
    cosine_raw: float = math.nan
    cosine_aligned: float = math.nan


@dataclass(frozen=True)
class MovedNode:
    """A shared node, with the cosine between its vectors after alignment and the fraction of its neighbours, or of its list,
    that stayed."""

    type: str
    id: str
    name: str
    cosine: float
    overlap_10: float


@dataclass(frozen=True)
class DriftFigures:
    """The figures ``overall`` and by ``types``, and the ``moved`` nodes, farthest first.

    ``lists``: they are of lists
    of items or tails (by relation in the place of types), and not of vectors.
    """

    overall: Agreement
    types: tuple[Agreement, ...]
    moved: tuple[MovedNode, ...]
    lists: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; of lists, without the figures of vectors."""

        def row(each: Agreement | MovedNode) -> dict[str, Any]:
            return {name: value for name, value in asdict(each).items() if not self.lists or name in _OF_LISTS}

        return plain(
            {
                "overall": row(self.overall),
                "types": [row(each) for each in self.types],
                "moved": [row(each) for each in self.moved],
            }
        )


def drift_figures(a: Embeddings, b: Embeddings, *, seed: int = 0) -> DriftFigures:
    """Compute all figures. Neighbours are compared for about 2,000 nodes at most, drawn by ``seed``, with 200 of each
    type first.

    Raises :class:`InputError` when fewer than 52 usable nodes, matched by type and id, are in both.
    """
    rows_a = a.rows_of([b.type_names[t] for t in b.types], [str(i) for i in b.ids])
    rows_b = np.flatnonzero(rows_a >= 0)
    rows_a = rows_a[rows_b]
    usable = _usable(a.vectors, rows_a) & _usable(b.vectors, rows_b)
    rows_a, rows_b = rows_a[usable], rows_b[usable]
    if len(rows_a) < LEAST_SHARED:
        raise InputError(
            f"the two embeddings share {len(rows_a)} nodes by type and id; drift needs at least {LEAST_SHARED}"
        )
    A, B = _padded(np.asarray(a.vectors)[rows_a], b), _padded(np.asarray(b.vectors)[rows_b], a)
    types, known_a, known_b = b.types[rows_b], _keys(a), _keys(b)
    new, vanished = known_b - known_a, known_a - known_b
    queries, before, after = _queries(types, seed), Vectors(A), Vectors(B)
    overlaps = _overlap(before.nearest(queries, K).rows, after.nearest(queries, K).rows)
    rotation = fit_rotation(in_blocks(A, B), A.shape[1])
    aligned = np.concatenate([rotation.apply(A[i : i + ROWS]) for i in range(0, len(A), ROWS)])
    raw, turned = _cosines(A, B), _cosines(aligned, B)
    by_type = []
    for number, name in enumerate(b.type_names):
        rows = np.flatnonzero(types == number)
        if not len(rows):
            continue
        by_type.append(
            Agreement(
                name=name,
                shared=len(rows),
                new=sum(key[0] == name for key in new),
                vanished=sum(key[0] == name for key in vanished),
                overlap_10=float(overlaps[types[queries] == number].mean()),
                cosine_raw=float(raw[rows].mean()),
                cosine_aligned=float(turned[rows].mean()),
            )
        )
    overall = Agreement(
        name="",
        shared=len(A),
        new=len(new),
        vanished=len(vanished),
        cosine_raw=float(raw.mean()) if a.vectors.shape[1] == b.vectors.shape[1] else math.nan,
        cosine_aligned=float(turned.mean()),
        # Weighted by the types' sizes, because each type has its own sample.
        overlap_10=float(np.average([t.overlap_10 for t in by_type], weights=[t.shared for t in by_type])),
    )
    moved = np.argsort(turned, kind="stable")[:MOVED]
    stayed = _overlap(before.nearest(moved, K).rows, after.nearest(moved, K).rows)
    nodes = [
        MovedNode(b.type_names[types[row]], str(b.ids[at]), str(b.names[at]), float(turned[row]), float(kept))
        for row, at, kept in zip(moved, rows_b[moved], stayed, strict=True)
    ]
    return DriftFigures(overall, tuple(by_type), tuple(nodes))


def _keys(e: Embeddings) -> set[Key]:
    return {(e.type_names[t], str(i)) for t, i in zip(e.types, e.ids, strict=True)}


def _usable(vectors: NDArray[Any], rows: Int64) -> NDArray[np.bool_]:
    """Rows that are finite, and not so short that their direction is rounding noise."""
    chosen = np.asarray(vectors)[rows]
    lengths = np.sqrt(np.square(chosen, dtype=np.float64).sum(axis=1))
    finite = np.isfinite(lengths)
    usual = np.median(lengths[finite]) if finite.any() else 0.0
    return np.asarray(finite & (lengths > SHORTEST * usual))


def _padded(rows: NDArray[Any], other: Embeddings) -> NDArray[np.float32]:
    """Pad the narrower one with zero columns, which keeps lengths and angles."""
    missing = max(other.vectors.shape[1] - rows.shape[1], 0)
    return np.pad(np.asarray(rows, np.float32), ((0, 0), (0, missing)))


def _queries(types: NDArray[Any], seed: int) -> Int64:
    rng, chosen = generator("drift", seed), []
    for number in np.unique(types):
        rows = np.flatnonzero(types == number)
        wanted = max(TYPE_QUERIES, round(QUERIES * len(rows) / len(types)))
        chosen.append(rng.choice(rows, min(wanted, len(rows)), replace=False))
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def _overlap(first: Int64, second: Int64) -> NDArray[np.float64]:
    """Fraction of each row's k neighbours that the other set has."""
    return np.array([len(np.intersect1d(x, y, assume_unique=True)) for x, y in zip(first, second, strict=True)]) / max(
        first.shape[1], 1
    )


def _cosines(A: NDArray[Any], B: NDArray[Any]) -> NDArray[np.float64]:
    dots = np.einsum("ij,ij->i", A, B, dtype=np.float64)
    return dots / np.maximum(np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1), 1e-30)


def list_figures(before: Lists, after: Lists) -> DriftFigures:
    """Compare the lists of those that are in both. Raises :class:`InputError` if there are fewer than ten."""
    keys = sorted(before.keys() & after.keys())
    if len(keys) < LEAST_LISTS:
        raise InputError(
            f"the two models share {len(keys)} users or heads with a list; drift needs at least {LEAST_LISTS}"
        )
    kept = np.array([_share(before[key][:BEST], after[key][:BEST]) for key in keys])
    names, numbers = np.unique([relation for relation, _ in keys], return_inverse=True)
    types = tuple(
        Agreement(str(name), int((numbers == n).sum()), overlap_10=float(kept[numbers == n].mean()))
        for n, name in enumerate(names)
    )
    most = np.argsort(kept, kind="stable")[:MOVED].tolist()
    changed = tuple(
        MovedNode(keys[n][0].split(" | ")[0], keys[n][1], "", math.nan, float(kept[n])) for n in most if kept[n] < 1
    )
    overall = Agreement("", len(keys), overlap_10=float(kept.mean()))
    return DriftFigures(overall, types, changed, lists=True)


def _share(before: Sequence[str], after: Sequence[str]) -> float:
    longest = max(len(before), len(after))
    return len(set(before) & set(after)) / longest if longest else 1.0
