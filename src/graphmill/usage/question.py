"""What a ranking is asked besides a whole split: some links, judged links; and the queries that answer it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.errors import InputError
from graphmill.evaluation.ranking.queries import LinkQueries, narrowed
from graphmill.evaluation.ranking.ranks import Scorer
from graphmill.graph.sorted_unique import in_sorted, sorted_unique
from graphmill.graph.splits import SPLIT_NAMES, TRAIN
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions.figures import agreement, matrix_figures
from graphmill.predictions.judgements import Judged, Judgements, read_judgements
from graphmill.predictions.question import Question
from graphmill.predictions.selection import Nodes, SelectedLinks, selected_links
from graphmill.predictions.settings import RankSettings
from graphmill.predictions.top_tails import Candidates
from graphmill.sampling.keyed import sampled

MOST_ROWS = 10_000
"""Rows (heads) of the matrices of all relations together that a ranking scores; of larger ones, drawn rows."""


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

    @cached_property
    def truth(self) -> Judgements | None:
        """The outside list, if there is one."""
        return read_judgements(self.settings.truth, self.nodes, self.root) if self.settings.truth else None

    @property
    def coverage(self) -> list[dict[str, Any]]:
        """A row for each list: how its ids match the graph's."""
        return [each.coverage.to_dict() for each in (self.judgements, self.truth) if each]

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

    def predicted(self, scorer: Scorer, split: str, seed: int, poll: Callable[[], None]) -> dict[str, Any]:
        """Figures of predicted links: ``predicted`` by relation, and ``truth`` and ``judgements`` where there is a list."""
        number, rows = SPLIT_NAMES.index(split), []
        splits = tuple({0, 1, 2} - {number})
        for selected in self.relations:
            judged = self.judgements.of(selected.relation.index) if self.judgements else Judged()
            candidates = Candidates(
                self.graph, selected.relation, scorer, splits, poll, selected.candidates, judged, leave_judged=True
            )
            linked = sorted_unique(candidates.keys >> 2) // candidates.count
            heads = selected.heads[in_sorted(selected.heads, sorted_unique(linked))]
            drawn = sampled(heads, max(MOST_ROWS // len(self.relations), 1), "matrix", seed, selected.relation.index)
            figures = matrix_figures(candidates, np.sort(drawn), number, seed)
            if figures["links"]:
                rows.append({**figures, "of_heads": len(heads)})
        lists = {"truth": self.truth, "judgements": self.judgements}
        every = [Candidates(self.graph, relation, scorer, (TRAIN,), poll) for relation in self.graph.relations]
        return {
            "predicted": rows,
            **{
                name: {"file": each.file, "rows": each.rows, "notes": list(each.notes)}
                | agreement(((every[n], judged) for n, judged in sorted(each.written.items())), seed)
                for name, each in lists.items()
                if each
            },
        }
