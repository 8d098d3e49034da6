"""Filtered ranking of both sides: tails of (head, relation), and heads as tails of the inverse relation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.evaluation.baselines.links import DegreeScorer
from graphmill.evaluation.ranking.against_baselines import against_baselines
from graphmill.evaluation.ranking.links import LinkRanking, RelationRanking, rank_links
from graphmill.evaluation.ranking.parts import NodeLabels, parts
from graphmill.evaluation.ranking.queries import LinkQueries, both_sides, first_nodes
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.conve.model import ConvE

SIDES = ("tail", "head")


class ConveScorer:
    """Scores every candidate of a relation or an inverse relation, in fp32 and eval mode.

    The next call overwrites the scores of a call: new pages for each block would cost more than the product.
    """

    def __init__(self, model: ConvE, graph: TypedGraph, poll: Callable[[], None] = lambda: None) -> None:
        self.model = model.eval()
        self.poll = poll
        ends = [(graph.node_type(r.source), graph.node_type(r.target)) for r in graph.relations]
        self._ends = [*ends, *((target, source) for source, target in ends)]
        self._memory: Tensor | None = None

    def score_targets(self, relation: int, heads: np.ndarray) -> Tensor:
        """Local head numbers int64 [B] → fp32 [B, candidates], valid until the next call."""
        self.poll()
        asking, asked = self._ends[relation]
        device = self.model.entities.device
        with torch.no_grad():
            rows = torch.from_numpy(np.ascontiguousarray(heads + asking.offset)).to(device)
            x = self.model(rows, torch.full_like(rows, relation))
            if self._memory is None or len(self._memory) < len(x) or self._memory.dtype != x.dtype:
                self._memory = x.new_empty(len(x), self.model.config.num_entities)
            scores = self.model.scores(x, self._memory[: len(x)])
        return scores[:, asked.offset : asked.offset + asked.count]


def rank_both_sides(scorer: ConveScorer, queries: LinkQueries, ks: Sequence[int]) -> LinkRanking:
    """Exact filtered ranks of all queries; ``micro`` is the usual metric, over queries of both sides."""
    return rank_links(scorer, queries, ks=ks, auc_negatives=0)


def ranking_report(
    model: ConvE,
    graph: TypedGraph,
    split: str,
    *,
    ks: Sequence[int] = (1, 3, 5, 10),
    poll: Callable[[], None] = lambda: None,
    baselines: Mapping[str, LinkRanking] | None = None,
    labels: NodeLabels | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Metrics of a split as plain values: over all queries, per side and per relation.

    Each comes with its ``baseline``: the ranking by the number of training triples of the candidate with the relation.
    Keys: ``both``, ``tail``, ``head`` and ``baseline`` (metrics over queries); ``relations``: one row per relation with
    ``name``, ``queries``, metrics over both sides, ``tail_mrr``, ``head_mrr`` and ``baseline_mrr``.

    ``baselines``: further rankings of the same queries, by name. ``micro`` and ``macro``: metrics by scorer, the model
    and frequency (``degree``) included; ``against``: the best baseline, by micro MRR, as
    :class:`graphmill.evaluation.ranking.against_baselines.AgainstBaselines`; ``parts``:
    :func:`graphmill.evaluation.ranking.parts.parts`, with those by ``labels``.
    """
    queries = both_sides(graph, split)
    found = rank_both_sides(ConveScorer(model, graph, poll), queries, ks)
    baseline = rank_links(DegreeScorer(queries), queries, ks=ks, auc_negatives=0)
    single, count = len(graph.node_types) == 1, len(graph.relations)
    ranked, simple = ({r.relation: r for r in own.relations} for own in (found, baseline))
    rows = []
    for relation in graph.relations:
        sides = relation.index, relation.index + count
        if sides[0] not in ranked:  # no query for its tails, so none for its heads
            continue
        mine, theirs = ([own[n] for n in sides] for own in (ranked, simple))
        name = relation.name if single else f"{relation.source} · {relation.name} · {relation.target}"
        rows.append(
            {"name": name, "queries": sum(r.queries for r in mine)}
            | _mean(mine)
            | {f"{side}_mrr": r.metrics["mrr"] for side, r in zip(SIDES, mine, strict=True)}
            | {"baseline_mrr": _mean(theirs)["mrr"]}
        )
    out: dict[str, Any] = {"split": split, "queries": found.queries, "both": found.micro, "baseline": baseline.micro}
    rivals = {"degree": baseline, **(baselines or {})}
    rankings = {"model": found, **rivals}
    out["micro"] = {name: ranking.micro for name, ranking in rankings.items()}
    out["macro"] = {name: ranking.macro for name, ranking in rankings.items()}
    out["against"] = against_baselines(found, rivals, "micro", seed=seed).to_dict()
    out["parts"] = parts(queries, rankings, first_nodes(graph), labels)
    for side, lower in zip(SIDES, (0, count), strict=True):
        out[side] = _mean([r for r in found.relations if lower <= r.relation < lower + count])
    return out | {"relations": rows}


def _mean(parts: Sequence[RelationRanking]) -> dict[str, float]:
    """Means of metrics, weighted by queries; without AMRI, which is not a mean over queries."""
    total = sum(r.queries for r in parts)
    names = [name for name in parts[0].metrics if name != "amri"]
    return {name: sum(r.metrics[name] * r.queries for r in parts) / total for name in names}
