"""Reads the interactions of a typed graph for recommenders: the items of each user by split, the items' features, and the
facts: edges other than interactions, which each recommender joins with these in its own way.

The relation between users and items is read as compressed rows.
``edge_splits`` splits the interactions when the graph is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from graphmill.errors import InputError
from graphmill.graph.sorted_unique import in_sorted, sorted_unique
from graphmill.graph.splits import TEST, TRAIN, VALID
from graphmill.graph.typed_graph import Relation, TypedGraph
from graphmill.ingest.interactions import DISLIKED, RELATION

UNNAMED = "features"
"""The name of a set of item features that has no name in the graph."""


@dataclass(frozen=True)
class CsrPattern:
    """Columns by row: those of row r are ``columns[indptr[r] : indptr[r + 1]]``, ascending, each once.

    ``indptr`` int64 [R + 1]; ``columns`` int32 [E].
    """

    indptr: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int32]

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """(R,) int64: columns of each row."""
        return np.diff(self.indptr)

    @cached_property
    def row(self) -> npt.NDArray[np.int32]:
        """(E,) int32: the row of each entry."""
        return np.repeat(np.arange(len(self.counts), dtype=np.int32), self.counts)

    def __len__(self) -> int:
        return len(self.columns)


NO_PAIRS = CsrPattern(np.zeros(1, np.int64), np.zeros(0, np.int32))
"""Where there are none, for any number of rows."""


@dataclass(frozen=True)
class Interactions:
    """Users and items have local numbers; adding ``user_offset`` or ``item_offset`` gives global node numbers.

    ``train`` has the items of each user, ``train_by_item`` the users of each item; ``valid`` and ``test`` the held-out
    items of each user. An item that a user has in train is not held out (it could never be recommended), and users
    without training items have no held-out ones (the model knows nothing about them). ``known_held_out`` counts the former.

    ``disliked`` has the items that a user does not like; no list has them.

    ``train_weights`` float32, for each entry of ``train``: the interaction's weight, such as a rating, over the mean; None
    if it does not tell them apart.

    ``features`` are the sets of item features by name, float32 [I, f], mapped into memory, and zero where ``present``
    bool [I] is false.
    """

    num_users: int
    num_items: int
    user_offset: int
    item_offset: int
    train: CsrPattern
    train_by_item: CsrPattern
    valid: CsrPattern
    test: CsrPattern
    features: Mapping[str, npt.NDArray[np.float32]]
    present: Mapping[str, npt.NDArray[np.bool_]]
    known_held_out: int
    disliked: CsrPattern = field(default_factory=lambda: NO_PAIRS)
    train_weights: npt.NDArray[np.float32] | None = None

    def held_out(self, split: str) -> CsrPattern:
        """The held-out items of each user in the split "valid" or "test"."""
        return {"valid": self.valid, "test": self.test}[split]

    @property
    def repeat_share(self) -> float:
        """Fraction of the held-out items that are not evaluated because their user has them in train."""
        return self.known_held_out / max(self.known_held_out + len(self.valid) + len(self.test), 1)

    def everything(self) -> CsrPattern:
        """All items of each user in all splits that the user likes. None of them needs to be recommended."""
        parts = self.train, self.valid, self.test
        user, item = (np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "columns"))
        return to_rows(user, item, self.num_users, self.num_items)

    def with_items(self, count: int, pairs: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]) -> Interactions:
        """A copy with ``count`` more items after the others, and more training ``pairs``: users and items, int64 [E].

        Features and held-out items do not change.
        """
        user = np.concatenate((self.train.row, pairs[0].astype(np.int32)))
        item = np.concatenate((self.train.columns, pairs[1].astype(np.int32)))
        return self._trained_on(user, item, self.num_items + count)

    def without_items(self, items: npt.NDArray[np.int64]) -> Interactions:
        """A copy without the training pairs of some items."""
        kept = ~np.isin(self.train.columns, items)
        return self._trained_on(self.train.row[kept], self.train.columns[kept], self.num_items)

    def _trained_on(self, user: npt.NDArray[np.int32], item: npt.NDArray[np.int32], items: int) -> Interactions:
        train = to_rows(user, item, self.num_users, items)
        by_item = to_rows(train.columns, train.row, items, self.num_users)
        return replace(self, num_items=items, train=train, train_by_item=by_item, train_weights=None)


def require_items(where: object, items: int) -> None:
    """Raise :class:`InputError` for fewer than two items."""
    if items < 2:
        raise InputError(
            f"{where} has {items} item, so there is nothing to choose from; add interactions with other items"
        )


def interaction_view(graph: TypedGraph) -> Interactions:
    """The interactions in the graph's relation ``interacted``, and the features of its items.

    Raises :class:`InputError` if there is no such relation, if there are several, or if it has no training interaction.
    """
    relation = interaction_relation(graph)
    edges = graph.edges(relation)
    users, items = graph.node_type(relation.source), graph.node_type(relation.target)
    split = np.asarray(edges.split)
    user, item = np.asarray(edges.src), np.asarray(edges.dst)
    shape = (users.count, items.count)
    train = to_rows(user[split == TRAIN], item[split == TRAIN], *shape)
    if not len(train):
        raise InputError(f"{graph.path} has no training interaction; check the split")
    key = train.row * np.int64(items.count) + train.columns
    weights = edges.relative_weights()
    if weights is not None:
        weights = largest(train, items.count, user[split == TRAIN], item[split == TRAIN], weights[split == TRAIN])
    held, known_held_out = {}, 0
    for name, number in (("valid", VALID), ("test", TEST)):
        rows = split == number
        u, i = user[rows], item[rows]
        known = in_sorted(u * np.int64(items.count) + i, key)
        cold = train.counts[u] == 0
        known_held_out += int(known.sum())
        held[name] = to_rows(u[~known & ~cold], i[~known & ~cold], *shape)
    sets = [
        (n, graph.features(items.name, n), graph.feature_mask(items.name, n)) for n in graph.feature_sets(items.name)
    ]
    features = {name or UNNAMED: values for name, values, _ in sets if values is not None}
    present = {name or UNNAMED: mask for name, _, mask in sets if mask is not None}
    rows = train, to_rows(train.columns, train.row, items.count, users.count), held["valid"], held["test"]
    disliked = disliked_pairs(graph, relation)
    return Interactions(*shape, users.offset, items.offset, *rows, features, present, known_held_out, disliked, weights)


def disliked_pairs(graph: TypedGraph, interacted: Relation) -> CsrPattern:
    """The items that each user does not like, by local numbers; ``interacted``: the relation of the interactions."""
    ends = interacted.source, interacted.target
    for relation in graph.relations:
        if (relation.source, relation.target) == ends and relation.name == DISLIKED and not relation.added_reverse:
            edges = graph.edges(relation)
            counts = (graph.node_type(each).count for each in ends)
            return to_rows(np.asarray(edges.src), np.asarray(edges.dst), *counts)
    return NO_PAIRS


def to_rows(row: npt.NDArray[np.int32], column: npt.NDArray[np.int32], num_rows: int, num_columns: int) -> CsrPattern:
    """Pairs (E,) as :class:`CsrPattern`, without duplicates."""
    key = sorted_unique(row * np.int64(num_columns) + column)
    counts = np.bincount(key // max(num_columns, 1), minlength=num_rows)
    return CsrPattern(
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64), (key % max(num_columns, 1)).astype(np.int32)
    )


def largest(
    rows: CsrPattern,
    width: int,
    row: npt.NDArray[np.integer],
    column: npt.NDArray[np.integer],
    values: npt.NDArray[Any],
) -> npt.NDArray[Any]:
    """For each entry of ``rows`` (of ``width`` columns) the largest of the ``values`` (E,), 0 or more, of its pair among
    ``row`` and ``column`` (E,), which are all in ``rows``."""
    result = np.zeros(len(rows), values.dtype)
    place = np.searchsorted(rows.row * np.int64(width) + rows.columns, row * np.int64(width) + column)
    np.maximum.at(result, place, values)
    return result


def interaction_relation(graph: TypedGraph) -> Relation:
    """The relation from users to items. Raises :class:`InputError` if there is not exactly one."""
    between = [
        r for r in graph.relations if r.name == RELATION and r.source != r.target and r.edges and not r.added_reverse
    ]
    if len(between) != 1:
        has = ", ".join(" | ".join(r.key) for r in graph.relations)
        raise InputError(
            f"{graph.path} has {len(between)} relations {RELATION!r} from users to items, expected one (relations: {has}); "
            "build it from interactions: the formats mmrec, kgat, interactions_csv or sequence"
        )
    return between[0]


@dataclass(frozen=True)
class Knowledge:
    """F distinct facts: ``head``, ``tail`` int64 [F] are global node numbers, ``relation`` int64 [F] is an index into
    ``names``."""

    head: npt.NDArray[np.int64]
    relation: npt.NDArray[np.int64]
    tail: npt.NDArray[np.int64]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.head)


def knowledge_view(graph: TypedGraph, *, directed: bool = True) -> Knowledge:
    """The facts of the graph. Relations with the same name between different node types are one relation.

    Reverses that the build added are left out. If a relation mixes them with edges of the data, a fact and its reverse
    cannot be distinguished. This raises :class:`InputError`, unless ``directed`` is False: then they count as facts.
    """
    numbers: dict[str, int] = {}
    parts = [np.zeros((3, 0), np.int64)]
    for relation in graph.relations:
        if relation.name in (RELATION, DISLIKED) or relation.added_reverse:
            continue
        if relation.added_edges and directed:
            raise InputError(
                f"{graph.path}: the relation {' | '.join(relation.key)} holds {relation.added_edges} added reverses "
                "beside its own edges, so that facts have no direction; build the graph with add_reverse: never"
            )
        head, tail = graph.training_edges(relation, everywhere=True)
        number = numbers.setdefault(relation.name, len(numbers))
        parts.append(np.stack([np.full(len(head), number), head, tail]))
    relation_of, heads, tails = np.unique(np.concatenate(parts, axis=1), axis=1)
    return Knowledge(heads, relation_of, tails, tuple(numbers))
