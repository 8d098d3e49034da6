"""Scores of NBFNet from its weights and the graph of its messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.devices import to_device, wide
from graphmill.kernels.frontier import Layer
from graphmill.systems.nbfnet.graph import MessageGraph
from graphmill.systems.nbfnet.memory import QUERIES
from graphmill.systems.nbfnet.model import NBFNet


def query_scores(
    messages: MessageGraph,
    model: NBFNet,
    relation: np.ndarray,
    head: np.ndarray,
    layers: Sequence[Layer],
    degree: np.ndarray | None = None,
    weights: Sequence[Tensor] = (),
) -> Tensor:
    """Scores [B, targets] of queries int64 [B] whose relations have targets of one type, from their ``layers``.

    ``degree``: the log degrees, in training; ``weights``: of the layers' edges, with gradients.
    """
    degree = messages.log_degree(relation) if degree is None else degree
    heads, first = head + messages.source_offset[relation], int(messages.target_offset[relation[0]])
    of_targets = to_device(torch.from_numpy(np.ascontiguousarray(degree)), model.query.device)
    return model(layers, heads, relation, first, of_targets.to(model.query.dtype), weights)


class NbfnetScorer:
    """Scores every candidate of a relation or an inverse relation."""

    def __init__(
        self, messages: MessageGraph, model: NBFNet, nodes_per_layer: int, poll: Callable[[], None] = lambda: None
    ) -> None:
        self.messages, self.model, self.nodes_per_layer, self.poll = messages, model.eval(), nodes_per_layer, poll

    def score_targets(self, relation: int, heads: np.ndarray) -> Tensor:
        """Local head numbers int64 [B] → fp32 [B, candidates]."""
        number, depth, blocks = self.messages.number_of(relation), len(self.model.layers), []
        with torch.no_grad():
            for begin in range(0, len(heads), QUERIES):
                self.poll()
                part = np.ascontiguousarray(heads[begin : begin + QUERIES], dtype=np.int64)
                queries = np.full(len(part), number)
                layers = self.messages.layers(queries, part, None, None, depth, self.nodes_per_layer, 0.0)
                blocks.append(wide(query_scores(self.messages, self.model, queries, part, layers)))
        return torch.cat(blocks)
