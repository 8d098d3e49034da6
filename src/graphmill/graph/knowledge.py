"""Reads a typed graph's facts (head, relation, tail), that is, its edges other than interactions, in global node numbers.

These are the training edges of every relation except the interactions, with one number per relation name. Each
recommender joins them with interactions in its own way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphmill.errors import InputError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.interactions import DISLIKED, RELATION


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
