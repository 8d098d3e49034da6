"""Resolves the relations and heads in the settings: by name, by id, all, a list or a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import InputError
from graphmill.graph.node_names import NodeNames, matching
from graphmill.graph.typed_graph import Relation, TypedGraph
from graphmill.predictions.question import LinkSelection, words_of

Int64 = NDArray[np.int64]
_SHOWN = 6


@dataclass(frozen=True)
class SelectedLinks:
    """A relation, and the heads to predict tails for: int64 [H], ascending local numbers of its source type.

    ``candidates``: the tails to choose from, ascending local numbers of its target type; None: all of them.
    """

    relation: Relation
    heads: Int64
    candidates: Int64 | None = None


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

    def rows(self, text: str, types: Sequence[str]) -> list[int]:
        """The global numbers of the nodes of ``types`` with this id, else name (:class:`NodeNames`)."""
        return self._known.find(text, lambda row: self.type_of(row) in types)

    def did_you_mean(self, text: str) -> str:
        """A hint at nodes with similar ids or names, or ""."""
        return self._known.did_you_mean(text)

    def find(self, text: str, types: Sequence[str], end: str = "heads") -> int:
        """The global number of the one node of :meth:`rows`. ``end``: which end of a link it is, for messages.

        Raises:
            InputError: there is none, it is of another type, or there are several.
        """
        rows = self.rows(text, types)
        if len(rows) == 1:
            return rows[0]
        if rows:
            which = ", ".join(f"{self.ids[row]} ({self.type_of(row)})" for row in rows[:_SHOWN])
            raise InputError(f"{len(rows)} nodes are called '{text}': {which}; choose one by its id and head_type")
        if elsewhere := sorted({self.type_of(row) for row in self._known.find(text)}):
            raise InputError(
                f"the relation needs {end} of type {', '.join(types)}, and '{text}' is of type {', '.join(elsewhere)}"
            )
        other = next((self.ids[t.offset] for t in self.graph.node_types if t.name in types and t.count), self.ids[0])
        hint = self.did_you_mean(text) or f"; give its id or name as the graph has it: ids are such as {other!r}"
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
        matches = matching(name, list(dict.fromkeys(text for each in graph.relations for text in called(each))))
        if not matches:
            known = ", ".join(sorted({each.name for each in graph.relations}))
            raise InputError(f"{graph.path} has no relation '{name}' (it has {known})")
        wanted |= set(matches)
    return [each for each in graph.relations if not names or wanted & set(called(each))]


def resolve_link(graph: TypedGraph, head: str, relation: str, tail: str) -> tuple[Relation, int, int]:
    """The relation, and the rows of the node table of head and tail.

    Raises :class:`InputError` if one of them does not exist or is ambiguous.
    """
    named = relations_of(graph, [relation])
    nodes = Nodes(graph)
    fitting = [
        (each, h, t) for each in named for h in nodes.rows(head, [each.source]) for t in nodes.rows(tail, [each.target])
    ]
    if len(fitting) == 1:
        return fitting[0]
    for what, word, kinds in (("head", head, [r.source for r in named]), ("tail", tail, [r.target for r in named])):
        rows = nodes.rows(word, kinds)
        joins = " or ".join(dict.fromkeys(kinds))
        if not rows:
            raise InputError(
                f"there is no {joins} '{word}' in {graph.path}, which '{relation}' has as its {what}"
                + nodes.did_you_mean(word)
            )
        if len(rows) > 1 and fitting:
            listed = ", ".join(nodes.ids[row] for row in rows[:5])
            raise InputError(f"{len(rows)} nodes are called '{word}' ({listed}); use an id of a {joins}")
    keys = ", ".join("|".join(each.key) for each in named)
    raise InputError(f"'{relation}' does not lead from '{head}' to '{tail}' in one way; write one of {keys}")


def selected_links(nodes: Nodes, choice: LinkSelection) -> list[SelectedLinks]:
    """The relations, heads and candidates of ``choice``. Relations without a head or a candidate are left out.

    Raises:
        InputError: an unknown relation, head, candidate or type, a head that is no source of a chosen relation, or nothing
            is left.
    """
    graph = nodes.graph
    chosen = relations_of(graph, choice.relations)
    begins = sorted({each.source for each in chosen})
    if choice.head_type:
        graph.node_type(choice.head_type)  # raises for an unknown one
        chosen = [each for each in chosen if each.source == choice.head_type]
        if not chosen:
            raise InputError(
                f"no chosen relation begins at nodes of type {choice.head_type}; those asked for begin at "
                f"{', '.join(begins)}"
            )
        begins = [choice.head_type]
    ends = sorted({each.target for each in chosen})
    heads, candidates = words_of(choice, "heads"), words_of(choice, "candidates")
    head_rows = np.array(sorted({nodes.find(word, begins) for word in heads}), np.int64)
    tail_rows = np.array(sorted({nodes.find(word, ends, "tails") for word in candidates}), np.int64)
    selected = []
    for relation in chosen:
        rows = _local(graph, relation.source, head_rows)
        if not heads:
            rows = np.arange(graph.node_type(relation.source).count, dtype=np.int64)
        tails = _local(graph, relation.target, tail_rows) if candidates else None
        if len(rows) and (tails is None or len(tails)):
            selected.append(SelectedLinks(relation, rows, tails))
    if not selected:
        raise InputError("nothing is asked for: the chosen relations have no heads")
    return selected


def _local(graph: TypedGraph, kind: str, rows: Int64) -> Int64:
    """The local numbers of those global numbers that are of a type."""
    of = graph.node_type(kind)
    return rows[(rows >= of.offset) & (rows < of.offset + of.count)] - of.offset
