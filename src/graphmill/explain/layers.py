"""Explains a link of HGT: its layers' score by integrated gradients over a bounded neighbourhood (``messages``).

The score of the nodes' own vectors without any edge, and popularity, are separate parts without edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.explain.explanation import NOT_SHARED, ExplainSettings, LinkExplainer, Shares
from graphmill.explain.messages import integrated_shares, sampled_inputs
from graphmill.explain.neighbourhood import Neighbourhood, neighbourhood


class LayersExplainer(LinkExplainer):
    """Explains links of HGT."""

    def __init__(self, system: Any, model: nn.Module, settings: ExplainSettings | None = None) -> None:
        super().__init__(system, model, settings)
        self.in_edges = system.data.in_edges()
        self.relations = [(r.source_type, r.target_type) for r in system.data.relations]
        self.type_counts = [t.count for t in self.graph.node_types]
        self.encoder: Any = self.model.encoder

    def of_link(self, relation: int, head: int, tail: int) -> tuple[dict[str, float], list[Shares], bool]:
        """:meth:`LinkExplainer.of_link`."""
        hood, (values, none, every) = self._learned(relation, head, tail)
        parts = {"messages of the layers": every - none, NOT_SHARED[0]: none}
        decoder = self.model.decoder
        if decoder.popularity is not None:
            weight = float(decoder.popularity[relation].detach())
            parts[NOT_SHARED[1]] = weight * float(self.system.log_degree[relation][tail])
        if getattr(decoder, "offset", None) is not None:
            parts[NOT_SHARED[2]] = float(decoder.offset[relation].detach())
        return parts, [(hood.pairs, values)], hood.whole

    @torch.no_grad()
    def score_without(self, relation: int, head: int, tail: int, pairs: np.ndarray) -> float:
        """:meth:`LinkExplainer.score_without`. It takes one forward pass over the whole graph."""
        masked = torch.zeros(max(self.graph.num_pairs, 1), dtype=torch.bool, device=self.system.device)
        masked[torch.from_numpy(pairs).to(masked.device)] = True
        z = self.encoder(self.system.messages, self.system.features, masked)
        _, target = self.local(relation, head, tail)
        degree = self.system.log_degree[relation][target].reshape(1)
        return float(self.model.decoder.against_all(z[head : head + 1], relation, z[tail : tail + 1], degree)[0, 0])

    def _learned(self, relation: int, h: int, t: int) -> tuple[Neighbourhood, tuple[np.ndarray, float, float]]:
        source, target = self.relations[relation]
        seeds = [np.zeros(0, np.int64) for _ in self.type_counts]
        for kind, node in ((source, h), (target, t)):
            seeds[kind] = np.union1d(seeds[kind], [node]).astype(np.int64)
        hood = neighbourhood(
            self.in_edges,
            self.type_counts,
            seeds,
            len(self.encoder.layers),
            neighbors=self.settings.neighbors,
            max_edges=self.settings.max_edges,
        )
        inputs = sampled_inputs(
            self.encoder, hood.nodes, [self._features(n, rows) for n, rows in enumerate(hood.nodes)]
        )
        left, right = (int(np.searchsorted(seeds[kind], node)) for kind, node in ((source, h), (target, t)))
        decoder: Any = self.model.decoder
        weight = decoder.strength[relation]
        own = None if decoder.relation is None else decoder.relation[relation]

        def score(z: list[Tensor]) -> Tensor:
            first = z[source][left] if own is None else z[source][left] * own.detach()
            return (first * z[target][right]).sum() * weight

        return hood, integrated_shares(self.encoder, hood, self.relations, inputs, score, self.settings.steps)

    def _features(self, number: int, rows: np.ndarray) -> np.ndarray | None:
        given = self.system.features.get(number)
        return None if given is None else given[torch.from_numpy(rows).to(given.device)].float().cpu().numpy()
