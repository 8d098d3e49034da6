"""The links that a question of a ranking asks for, instead of a whole split."""

from __future__ import annotations

from pathlib import Path

from graphmill.errors import InputError
from graphmill.evaluation.ranking.queries import LinkQueries, narrowed
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions.question import Question
from graphmill.predictions.selection import Nodes, selected_links


def asked(graph: TypedGraph, question: Question, every: LinkQueries, root: Path = Path()) -> LinkQueries:
    """Those of ``every`` query that are asked for. ``root``: the folder of relative paths.

    Raises :class:`InputError` if there are none, or for a name that the graph has not.
    """
    selected = selected_links(Nodes(graph), question, root)
    parts = tuple(narrowed(every.relations[s.relation.index], s.heads, s.candidates) for s in selected)
    kept = LinkQueries(every.split, parts)
    if not kept.total:
        raise InputError(
            f"no link of the {every.split} split is asked for: name more relations, heads or candidates, or the other split"
        )
    return kept
