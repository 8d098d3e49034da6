"""Scores of ConvE: of a model for a ranking, and from exported vectors with the other tensors of the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from graphmill.arrays import array_of
from graphmill.errors import InputError
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.conve.model import ConvE, ConvEConfig
from graphmill.systems.link_export import ExportedScorer

_NETWORK = "network."


def scoring_arrays(model: ConvE, links: TrainingLinks) -> dict[str, np.ndarray]:
    """``network.*``: all tensors but the entities' vectors; ``picture`` [2]: height and width of the picture; the
    training links."""
    config = model.config
    arrays = {
        _NETWORK + name: value.detach().float().cpu().numpy()
        for name, value in model.state_dict().items()
        if name != "entities"
    }
    picture = np.array([config.embedding_height, config.embedding_width], np.int64)
    return arrays | {"picture": picture, **links.arrays()}


class ConveExport(ExportedScorer):
    """The network in eval mode. Its BatchNorms use the running statistics of the training."""

    def __init__(self, arrays: Mapping[str, np.ndarray], vectors: np.ndarray) -> None:
        super().__init__(vectors, TrainingLinks.read(arrays, len(vectors)))
        tensors = {
            name.removeprefix(_NETWORK): torch.from_numpy(array_of(arrays, name, value.shape, "f"))
            for name, value in arrays.items()
            if name.startswith(_NETWORK)
        }
        filters, (height, width) = tensors["convolution.weight"], array_of(arrays, "picture", (2,), "i").tolist()
        if height * width != self.vectors.shape[1] or len(tensors["relations"]) < len(self.links.outgoing):
            raise InputError("its network is not of these vectors and relations")
        config = ConvEConfig(
            num_entities=len(self.vectors),
            num_relations=len(tensors["relations"]),
            embedding_dim=self.vectors.shape[1],
            embedding_height=height,
            embedding_width=width,
            output_channels=len(filters),
            kernel_height=filters.shape[2],
            kernel_width=filters.shape[3],
        )
        with torch.device("meta"):
            self.model = ConvE(config)
        self.model.load_state_dict({**tensors, "entities": self.vectors}, assign=True)
        self.model.eval()

    def scores(self, relation: int, heads: Tensor, targets: slice) -> Tensor:
        """:meth:`ExportedScorer.scores`."""
        products: Tensor = self.model(heads, torch.full_like(heads, relation)) @ self.vectors[targets].T
        return products + self.model.entity_bias[targets]


scorer_of = ConveExport


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
