"""Scores links from an export: its vectors and each system's additional arrays.

A system's module ``system`` has ``scorer_of(arrays, vectors)``, the inverse of its system's ``scoring``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from graphmill.graph.training_links import TrainingLinks

ROWS = 256
"""Heads at a time, where pairs are scored."""


class ExportedScorer(ABC):
    """Scores links from ``vectors`` float32 [nodes, d] of an export; ``links``: the training links."""

    def __init__(self, vectors: np.ndarray, links: TrainingLinks) -> None:
        self.vectors, self.links = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32)), links
        self.poll: Callable[[], None] = lambda: None

    @abstractmethod
    def scores(self, relation: int, heads: Tensor, targets: slice) -> Tensor:
        """``heads``: rows int64 [B], ``targets``: rows of all candidates → fp32 [B, candidates]; runs under no_grad."""

    def score_targets(self, relation: int, heads: np.ndarray) -> Tensor:
        """Local head numbers int64 [B] → fp32 [B, candidates]."""
        self.poll()
        first, second = self.links.offsets[relation]
        rows = torch.from_numpy(np.ascontiguousarray(heads, dtype=np.int64) + first)
        with torch.no_grad():
            return self.scores(relation, rows, slice(second, second + self.links.outgoing[relation].shape[1]))

    def score(self, relation: int, heads: np.ndarray, tails: np.ndarray) -> Tensor:
        """One score per link, local numbers int64 [B] → fp32 [B]."""
        return scores_of_links(self.score_targets, relation, heads, tails)


class TargetScorer(Protocol):
    """Scores links by local numbers, and knows the training links."""

    @property
    def links(self) -> TrainingLinks:
        """The training links."""

    def score_targets(self, relation: int, heads: np.ndarray) -> Tensor:
        """Local head numbers int64 [B] → scores [B, candidates]."""


def best_targets(
    scorer: TargetScorer, relation: int, row: int, count: int, *, known: bool, least: float = np.inf
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows int64 [n] of the ``count`` likeliest targets of a row, best first, their scores, and whether they are training
    links (bool). ``known``: these are among them. ``least``: no score is above it."""
    first, second = scorer.links.offsets[relation]
    head = np.array([row - first], np.int64)
    scores = scorer.score_targets(relation, head)[0].numpy().copy()
    trained = np.zeros(len(scores), bool)
    trained[scorer.links.known(relation, head)[1]] = True
    if not known:
        scores[trained] = -np.inf
    if 0 <= row - second < len(scores):  # a node's link to itself is not informative
        scores[row - second] = -np.inf
    scores[scores > least] = -np.inf
    best = np.argsort(-scores, kind="stable")[:count]
    best = best[np.isfinite(scores[best])]
    return best + second, scores[best], trained[best]


def scores_of_links(
    score_targets: Callable[[int, np.ndarray], Tensor], relation: int, heads: np.ndarray, tails: np.ndarray
) -> Tensor:
    """Scores fp32 [B] of links given by local numbers int64 [B], from ``score_targets`` of :data:`ROWS` heads at a time."""
    distinct, place = np.unique(heads, return_inverse=True)
    result = torch.zeros(len(heads))
    for begin in range(0, len(distinct), ROWS):
        here = np.flatnonzero((place >= begin) & (place < begin + ROWS))
        scores = score_targets(relation, distinct[begin : begin + ROWS]).float().cpu()
        result[torch.from_numpy(here)] = scores[torch.from_numpy(place[here] - begin), torch.from_numpy(tails[here])]
    return result
