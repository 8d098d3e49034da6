"""Reads the interactions of a typed graph as sequences: the items of each user in order, with times and split.

The relation must have ``position`` or ``timestamp``. The module also gives the histories that training and evaluation
may see. ``edge_splits`` splits sequences when the graph is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from graphmill.errors import InputError
from graphmill.graph.interactions import NO_PAIRS, CsrPattern, disliked_pairs
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.splits import SPLIT_NAMES, TRAIN
from graphmill.graph.typed_graph import Relation, TypedGraph
from graphmill.ingest.tables import NO_PLACE

REPEATS_FROM = 0.05
"""If at least this fraction of the training interactions are repeats, items that a user already has may be recommended."""


@dataclass(frozen=True)
class Sequences:
    """All sequences, one after the other; user and item numbers are local to their node types.

    ``indptr`` (U + 1,) int64: the interactions of user u are ``indptr[u] .. indptr[u + 1] - 1``, in order; ``items``
    (E,) int64; ``split`` (E,) uint8: 0 train, 1 valid, 2 test, ascending within a user; ``timestamps`` (E,) int64
    seconds, or None where the data has none; ``disliked``: items that a user does not like.
    ``user_offset`` and ``item_offset`` lead to global node numbers.
    """

    num_users: int
    num_items: int
    user_offset: int
    item_offset: int
    indptr: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    split: npt.NDArray[np.uint8]
    timestamps: npt.NDArray[np.int64] | None
    disliked: CsrPattern = NO_PAIRS

    @property
    def users(self) -> npt.NDArray[np.int64]:
        """(E,) int64: the user of each interaction."""
        return np.repeat(np.arange(self.num_users), np.diff(self.indptr))

    def train_ends(self) -> npt.NDArray[np.int64]:
        """(U,) int64: the end of each user's training interactions, which start at ``indptr[u]``."""
        later = np.concatenate(([0], np.cumsum(self.split > TRAIN)))
        return self.indptr[1:] - np.diff(later[self.indptr])

    def targets(self, split: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Users with an interaction in ``split`` ("valid" or "test"), and its position: two int64 (Q,).

        The interactions before that position are the history for its prediction. For the test they include the
        validation item.
        """
        at = np.flatnonzero(self.split == SPLIT_NAMES.index(split))
        users = np.searchsorted(self.indptr, at, side="right") - 1
        first = np.flatnonzero(np.diff(users, prepend=-1))
        return users[first], at[first]

    def same_second(self) -> npt.NDArray[np.bool_]:
        """(E,) bool: interactions in the same second as the one before. Their order is that of the file."""
        out = np.zeros(len(self.items), bool)
        if self.timestamps is not None:
            out[1:] = (self.timestamps[1:] == self.timestamps[:-1]) & (self.users[1:] == self.users[:-1])
        return out

    @cached_property
    def repeat_share(self) -> float:
        """Fraction of the training interactions (without each user's first) whose item the user had before."""
        train = self.split == TRAIN
        user, item = self.users[train], self.items[train]
        met = len(sorted_unique(user * np.int64(max(self.num_items, 1)) + item))
        later = len(user) - len(sorted_unique(user))
        return (len(user) - met) / later if later else 0.0

    @property
    def repeats(self) -> bool:
        """Whether users of these data repeat items: in at least the fraction :data:`REPEATS_FROM` of the interactions."""
        return self.repeat_share >= REPEATS_FROM


def sequence_view(graph: TypedGraph) -> Sequences:
    """The sequences in the graph's only relation with positions or times.

    Raises :class:`InputError` if there is no such relation, or if there are several.
    """
    relation = _relation(graph)
    edges = graph.edges(relation)
    source, target = graph.node_type(relation.source), graph.node_type(relation.target)
    user = np.asarray(edges.src).astype(np.int64)
    times = None if edges.timestamp is None else np.asarray(edges.timestamp)
    within = np.asarray(edges.position) if edges.position is not None else times
    assert within is not None
    # The data's own split may not be in time order. Put held-out interactions after the training interactions.
    order = np.lexsort((np.asarray(edges.dst), within, np.asarray(edges.split), user))
    counts = np.bincount(user, minlength=source.count)
    return Sequences(
        num_users=source.count,
        num_items=target.count,
        user_offset=source.offset,
        item_offset=target.offset,
        indptr=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        items=np.asarray(edges.dst)[order].astype(np.int64),
        split=np.asarray(edges.split)[order],
        timestamps=None if times is None else times[order],
        disliked=disliked_pairs(graph, relation),
    )


def _relation(graph: TypedGraph) -> Relation:
    ordered_relations = []
    for relation in graph.relations:
        edges = graph.edges(relation)
        timed, position = edges.timestamp is not None, edges.position
        ordered = timed if position is None else bool((np.asarray(position) != NO_PLACE).any())
        if ordered and not relation.added_reverse and relation.source != relation.target:
            ordered_relations.append(relation)
    if len(ordered_relations) != 1:
        has = ", ".join(" | ".join(r.key) for r in ordered_relations) or "none"
        raise InputError(
            f"{graph.path} has no single relation of interactions in order (relations with positions or times: {has}); "
            "build it from the format sequence, or interactions_csv with a timestamp column"
        )
    return ordered_relations[0]
