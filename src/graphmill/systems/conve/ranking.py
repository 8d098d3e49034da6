"""Scores of ConvE for a ranking: tails of (head, relation), and heads as tails of the inverse relation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.conve.model import ConvE


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
        sources, targets = self._ends[relation]
        device = self.model.entities.device
        with torch.no_grad():
            rows = torch.from_numpy(np.ascontiguousarray(heads + sources.offset)).to(device)
            x = self.model(rows, torch.full_like(rows, relation))
            if self._memory is None or len(self._memory) < len(x) or self._memory.dtype != x.dtype:
                self._memory = x.new_empty(len(x), self.model.config.num_entities)
            scores = self.model.scores(x, self._memory[: len(x)])
        return scores[:, targets.offset : targets.offset + targets.count]
