"""What a typed graph knows beside its interactions: facts (head, relation, tail) over global node numbers.

What belongs here: the training edges of every relation but the interactions, with one number a relation name. How a
recommender joins them with interactions is its own business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from graphmill.errors import InputError
from graphmill.graph.splits import TRAIN
from graphmill.ingest.interactions import RELATION

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph


@dataclass(frozen=True)
class Knowledge:
    """F facts, each once: ``head``, ``tail`` int64 [F] global node numbers, ``relation`` int64 [F] in ``names``."""

    head: npt.NDArray[np.int64]
    relation: npt.NDArray[np.int64]
    tail: npt.NDArray[np.int64]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.head)


def knowledge_view(graph: TypedGraph, *, directed: bool = True) -> Knowledge:
    """The facts of the graph; relations of one name between different node types are one relation.

    Reverses that were added to the graph are left out. Raises :class:`InputError` where a relation mixes them with edges
    of the data (a fact and its reverse could no longer be told apart), unless ``directed`` is False: then they are facts.
    """
    parts: list[tuple[npt.NDArray[np.int64], str, npt.NDArray[np.int64]]] = []
    for relation in graph.relations:
        if relation.name == RELATION or relation.added_reverse:
            continue
        if relation.added_edges and directed:
            raise InputError(
                f"{graph.path}: the relation {' | '.join(relation.key)} holds {relation.added_edges} added reverses "
                "beside its own edges, so that facts have no direction; build the graph with add_reverse: never"
            )
        edges = graph.edges(relation)
        train = np.asarray(edges.split) == TRAIN
        head = np.asarray(edges.src)[train] + np.int64(graph.node_type(relation.source).offset)
        tail = np.asarray(edges.dst)[train] + np.int64(graph.node_type(relation.target).offset)
        parts.append((head, relation.name, tail))
    names = tuple(dict.fromkeys(name for _, name, _ in parts))
    if not parts:
        none = np.zeros(0, np.int64)
        return Knowledge(none, none, none, ())
    facts = np.stack(
        [
            np.concatenate([np.full(len(head), names.index(name)) for head, name, _ in parts]),
            np.concatenate([head for head, _, _ in parts]),
            np.concatenate([tail for _, _, tail in parts]),
        ]
    )
    relation_of, head, tail = np.unique(facts, axis=1)
    return Knowledge(head, relation_of, tail, names)
