"""Explains a link of HGT: its layers' score by integrated gradients over a bounded neighbourhood (``messages``).

The score of the nodes' own vectors without any message, and popularity, are separate parts without edges. Spectral vectors
are inputs here, as if they were given with the nodes; the deletion test makes them anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphmill.explain.explanation import NOT_SHARED, ExplainSettings, LinkExplainer, LinkShares
from graphmill.explain.messages import integrated_shares
from graphmill.explain.neighbourhood import neighbourhood
from graphmill.systems.hgt.decoder import turned


class LayersExplainer(LinkExplainer):
    """Explains links of HGT."""

    def __init__(self, system: Any, model: nn.Module, settings: ExplainSettings | None = None) -> None:
        super().__init__(system, model, settings)
        self.relations = [(r.source_type, r.target_type) for r in system.data.relations]
        self.encoder: Any = self.model.encoder
        self.spectral: Tensor | None = system.spectral(self.model)

    def of_link(self, relation: int, head: int, tail: int) -> LinkShares:
        """:meth:`LinkExplainer.of_link`."""
        ends = list(zip(self.relations[relation], (head, tail), strict=True))
        seeds = [np.zeros(0, np.int64) for _ in self.graph.node_types]
        for kind, node in ends:
            seeds[kind] = np.union1d(seeds[kind], [node]).astype(np.int64)
        bounds = {"neighbors": self.settings.neighbors, "max_edges": self.settings.max_edges}
        hood = neighbourhood(self.graph, seeds, len(self.encoder.layers), **bounds)
        inputs, decoder = self._inputs(hood.nodes), self.model.decoder
        weights = decoder.weights()[relation].detach()

        def score(z: list[Tensor]) -> Tensor:
            rows = []
            for kind, node in ends:
                known = [] if self.spectral is None else [self.spectral[self.graph.node_types[kind].offset + node]]
                rows.append(torch.cat([*known, z[kind][int(np.searchsorted(seeds[kind], node))]]))
            return (turned(rows[0] * weights) * rows[1]).sum()

        shares, none, every = integrated_shares(self.encoder, hood, self.relations, inputs, score, self.settings.steps)
        parts = {
            "messages of the layers": every - none,
            NOT_SHARED[0]: none,
            NOT_SHARED[1]: float(decoder.popularities()[relation].detach()) * float(self._log_degree(relation, tail)),
            NOT_SHARED[2]: float(decoder.offset[relation].detach()),
        }
        return LinkShares(parts, [(hood.pairs, shares)], hood.whole)

    @torch.no_grad()
    def score_without(self, relation: int, head: int, tail: int, pairs: np.ndarray) -> float:
        """:meth:`LinkExplainer.score_without`. It takes one forward pass over the whole graph."""
        system = self.system
        masked = torch.zeros(max(system.data.masks, 1), dtype=torch.bool, device=system.device)
        masked[torch.from_numpy(system.data.masks_of(pairs)).to(masked.device)] = True
        z = system.embedded(self.model, masked)
        _, target = self.local(relation, head, tail)
        degree = self._log_degree(relation, target).reshape(1)
        return float(self.model.decoder.against_all(z[head : head + 1], relation, z[tail : tail + 1], degree)[0, 0])

    def _log_degree(self, relation: int, tail: int) -> Tensor:
        """Log(1 + training links into a target), fp32 []."""
        degree = np.log1p(self.system.data.relations[relation].degree[tail])
        return torch.tensor(degree, dtype=torch.float32, device=self.system.device)

    @torch.no_grad()
    def _inputs(self, nodes: Sequence[np.ndarray]) -> list[Tensor]:
        """Per type [n, hidden_dim]: the first layer's input for some nodes, int64 local numbers."""
        inputs = []
        for number, rows in enumerate(nodes):
            place = torch.from_numpy(rows).to(self.system.device)
            parts = [F.embedding(place, table) for table in self.encoder.tables[number : number + 1]]
            features = self.system.features.get(number)
            given = [] if features is None else [features[place]]
            if self.spectral is not None:
                given.append(self.spectral[place + self.graph.node_types[number].offset])
            if given and str(number) in self.encoder.features:
                parts.append(self.encoder.features[str(number)](torch.cat(given, 1).float()))
            inputs.append(sum(parts[1:], parts[0]))
        return inputs
