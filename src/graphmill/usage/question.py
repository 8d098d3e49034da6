"""What a ranking is asked besides a whole split: some links, and judged links; and the queries that answer it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from graphmill.errors import InputError
from graphmill.evaluation.ranking.queries import LinkQueries, narrowed
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions.judgements import Judgements, read_judgements
from graphmill.predictions.question import Question
from graphmill.predictions.selection import Nodes, SelectedLinks, selected_links
from graphmill.predictions.settings import RankSettings


@dataclass(frozen=True)
class QuestionRanking:
    """The links of ``settings`` in a graph. ``root``: the folder of relative paths."""

    graph: TypedGraph
    settings: RankSettings
    question: Question
    root: Path = Path()

    @cached_property
    def nodes(self) -> Nodes:
        """The graph's nodes by name."""
        return Nodes(self.graph)

    @cached_property
    def relations(self) -> list[SelectedLinks]:
        """Relations, heads and candidates. Raises :class:`InputError` for a name that the graph has not."""
        return selected_links(self.nodes, self.question, self.root)

    @cached_property
    def judgements(self) -> Judgements | None:
        """Judged links that count as known, if there are any."""
        path = self.settings.judgements
        return read_judgements(path, self.nodes, self.root) if path else None

    @property
    def coverage(self) -> list[dict[str, Any]]:
        """A row for the judgements: how their ids match the graph's."""
        return [self.judgements.coverage.to_dict()] if self.judgements else []

    def queries(self, every: LinkQueries) -> LinkQueries:
        """Those of ``every`` query that are asked for. Raises :class:`InputError` if there are none."""
        parts = []
        for selected in self.relations:
            of_relation, known, without = every.relations[selected.relation.index], None, None
            if self.judgements:
                judged, leave = self.judgements.of(selected.relation.index), self.settings.judged == "leave_out"
                known, without = (judged.all, judged.all) if leave else (judged.yes, judged.no)
            parts.append(narrowed(of_relation, selected.heads, selected.candidates, known, without))
        kept = LinkQueries(every.split, tuple(parts))
        if not kept.total:
            raise InputError(
                f"no link of the {every.split} split is asked for: name more relations, heads or candidates, or the other "
                "split"
            )
        return kept
