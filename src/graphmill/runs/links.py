"""Predicted links of a run: for nodes the targets that its model scores best in each relation, without known links.

Scores come from the restored model, some heads at a time, so that memory does not grow with the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill.errors import InputError, SettingsError
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.typed_graph import Relation, TypedGraph
from graphmill.runs.export import Restored
from graphmill.systems.registry import entry

Int64 = NDArray[np.int64]

BLOCK_SCORES = 1 << 22
"""Scores at a time: 16 MiB of float32."""


@dataclass(frozen=True)
class PredictedLinks:
    """Links of one relation, best first: ``heads``, ``tails`` int64 (N) are rows of the node table, ``scores`` float32."""

    relation: Relation
    heads: Int64
    tails: Int64
    scores: NDArray[np.float32]


def predict_links(
    restored: Restored, *, relation: str = "", head: int = -1, k: int = 10, known: bool = False
) -> Iterator[PredictedLinks]:
    """The ``k`` best links of each relation: from the node ``head`` (a row of the node table), or from all (−1).

    ``relation``: a relation's name, or all that ``head`` can have; ``known``: also links that the graph has,
    and those of nodes to themselves.

    Raises:
        SettingsError: the system recommends items instead, or ``k`` is not positive.
        InputError: there is no such relation from this node's type.
    """
    recipe, graph = restored.recipe, restored.graph
    if entry(recipe.name).recommends:
        raise SettingsError(f"{recipe.name} predicts no links but recommends items: recommend() gives them")
    if k < 1:
        raise SettingsError(f"k = {k} links; it must be 1 or more")
    chosen = relations_of(graph, relation, head)
    scorer = recipe.scorer(restored.model)
    for each in chosen:
        source, target = graph.node_type(each.source), graph.node_type(each.target)
        heads = np.array([head - source.offset]) if head >= 0 else np.arange(source.count)
        links = None if known else _known(graph, each, target.count)
        best = _Best(k)
        rows = max(1, BLOCK_SCORES // max(target.count, 1))
        for begin in range(0, len(heads), rows):
            block = heads[begin : begin + rows]
            scores = scorer.score_targets(each.index, block).detach().float().cpu().clone()
            if links is not None:
                if each.source == each.target:  # a node's link to itself says nothing
                    scores[torch.arange(len(block)), torch.from_numpy(block)] = -torch.inf
                for row, number in enumerate(block.tolist()):
                    low, high = np.searchsorted(links, [number * target.count, (number + 1) * target.count])
                    scores[row, torch.from_numpy(links[low:high] - number * target.count)] = -torch.inf
            best.add(block, scores)
        yield PredictedLinks(each, best.heads + source.offset, best.tails + target.offset, best.scores)


def relations_of(graph: TypedGraph, relation: str = "", head: int = -1) -> list[Relation]:
    """The relations of this name (of any, if empty) that may begin at the node ``head`` (at any, if negative)."""
    named = [each for each in graph.relations if relation in ("", each.name, " · ".join(each.key))]
    if not named:
        names = ", ".join(sorted({each.name for each in graph.relations}))
        raise InputError(f"{graph.path} has no relation '{relation}' (it has {names})")
    types = {kind.name: range(kind.offset, kind.offset + kind.count) for kind in graph.node_types}
    found = [each for each in named if head < 0 or head in types[each.source]]
    if not found:
        kind = next(name for name, rows in types.items() if head in rows)
        begins = ", ".join(sorted({each.source for each in named}))
        what = f"relation '{relation}' begins" if relation else "the graph's relations begin"
        raise InputError(f"{what} at nodes of type {begins}; this node is of type {kind}")
    return found


def _known(graph: TypedGraph, relation: Relation, candidates: int) -> Int64:
    """Links of all splits as head · candidates + tail, ascending."""
    edges = graph.edges(relation.index)
    return sorted_unique(np.asarray(edges.src, dtype=np.int64) * candidates + np.asarray(edges.dst))


class _Best:
    """The best ``k`` links so far; ties in the order of heads and tails."""

    def __init__(self, k: int) -> None:
        self._k = k
        self.heads, self.tails = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.scores = np.zeros(0, np.float32)

    def add(self, heads: Int64, scores: torch.Tensor) -> None:
        """``scores`` (heads × candidates), −inf for what does not count."""
        values, places = scores.flatten().topk(min(self._k, scores.numel()))
        there = torch.isfinite(values)
        at = places[there].numpy()
        row, tails = at // scores.shape[1], at % scores.shape[1]
        self.heads = np.concatenate([self.heads, heads[row]])
        self.tails = np.concatenate([self.tails, tails])
        self.scores = np.concatenate([self.scores, values[there].numpy()])
        order = np.lexsort((self.tails, self.heads, -self.scores))[: self._k]
        self.heads, self.tails, self.scores = self.heads[order], self.tails[order], self.scores[order]
