"""Resolves the relations and heads in the settings: by name, by id, all, a list or a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import InputError
from graphmill.graph.node_names import NodeNames, matching
from graphmill.graph.typed_graph import Relation, TypedGraph
from graphmill.predictions.settings import LinkSettings

Int64 = NDArray[np.int64]
_SHOWN = 6


@dataclass(frozen=True)
class Asked:
    """A relation and the heads to predict tails for: int64 [H], ascending local numbers of its source type."""

    relation: Relation
    heads: Int64


@dataclass(frozen=True)
class Nodes:
    """Finds a graph's nodes by id or name."""

    graph: TypedGraph

    @cached_property
    def _known(self) -> NodeNames:
        table = self.graph.node_table()
        return NodeNames(table["id"].to_pylist(), table["name"].to_pylist())

    @property
    def ids(self) -> list[str]:
        """Ids in global order."""
        return self._known.ids

    @property
    def names(self) -> list[str]:
        """Names in global order; the id for a node without a name."""
        return self._known.names

    def type_of(self, row: int) -> str:
        """Type of a global number."""
        return next(t.name for t in self.graph.node_types if t.offset <= row < t.offset + t.count)

    def find(self, text: str, types: Sequence[str]) -> int:
        """The global number of the node of ``types`` with this id, else name (:class:`NodeNames`).

        Raises:
            InputError: there is none, it is of another type, or there are several.
        """
        own = self._known.find(text, lambda row: self.type_of(row) in set(types))
        if len(own) == 1:
            return own[0]
        if own:
            which = ", ".join(f"{self.ids[row]} ({self.type_of(row)})" for row in own[:_SHOWN])
            raise InputError(f"{len(own)} nodes are called '{text}': {which}; choose one by its id and head_type")
        if elsewhere := sorted({self.type_of(row) for row in self._known.find(text)}):
            raise InputError(
                f"the relation needs heads of type {', '.join(types)}, and '{text}' is of type {', '.join(elsewhere)}"
            )
        hint = self._known.did_you_mean(text) or "; give its id or name as the input file has it"
        raise InputError(f"{self.graph.path} has no node '{text}'{hint}")


def relations_of(graph: TypedGraph, names: Sequence[str] = ()) -> list[Relation]:
    """The relations with these names (``name`` or ``source|name|target``); all if no name is given.

    Raises:
        InputError: the graph has no such relation.
    """

    def called(each: Relation) -> tuple[str, ...]:
        return each.name, "|".join(each.key), " · ".join(each.key)

    wanted: set[str] = set()
    for name in names:
        found = matching(name, list(dict.fromkeys(text for each in graph.relations for text in called(each))))
        if not found:
            known = ", ".join(sorted({each.name for each in graph.relations}))
            raise InputError(f"{graph.path} has no relation '{name}' (it has {known})")
        wanted |= set(found)
    return [each for each in graph.relations if not names or wanted & set(called(each))]


def asked_for(nodes: Nodes, settings: LinkSettings, root: Path = Path()) -> list[Asked]:
    """The relations and heads in ``settings``. A relative ``heads_file`` is looked up from ``root``. Relations without
    a head are left out.

    Raises:
        InputError: an unknown relation, head or type, a head that is no source of a chosen relation, or nothing is
            left.
    """
    graph = nodes.graph
    chosen = relations_of(graph, settings.relations)
    begins = sorted({each.source for each in chosen})
    if settings.head_type:
        graph.node_type(settings.head_type)  # raises for an unknown one
        chosen = [each for each in chosen if each.source == settings.head_type]
        if not chosen:
            raise InputError(
                f"no chosen relation begins at nodes of type {settings.head_type}; those asked for begin at "
                f"{', '.join(begins)}"
            )
        begins = [settings.head_type]
    words = heads_of(settings, root)
    rows = np.array(sorted({nodes.find(word, begins) for word in words}), np.int64)
    found = []
    for relation in chosen:
        source = graph.node_type(relation.source)
        if words:
            own = rows[(rows >= source.offset) & (rows < source.offset + source.count)] - source.offset
        else:
            own = np.arange(source.count, dtype=np.int64)
        if len(own):
            found.append(Asked(relation, own))
    if not found:
        raise InputError("nothing is asked for: the chosen relations have no heads")
    return found


def heads_of(settings: LinkSettings, root: Path = Path()) -> list[str]:
    """The heads named in the settings or in their file; empty for all."""
    if not settings.heads_file:
        return list(settings.heads)
    path = root / settings.heads_file
    if settings.heads:
        raise InputError(f"heads and heads_file ({path}) are both given; give one of them")
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise InputError(f"heads_file {path} cannot be read: {why}") from None
    words = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not words:
        raise InputError(f"heads_file {path} names no head; write an id or a name a line")
    return words
