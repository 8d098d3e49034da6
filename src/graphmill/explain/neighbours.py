"""Explains a link of kNN or spectral vectors by the edges of the neighbourhoods that are alike."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from torch import nn

from graphmill.evaluation.baselines.neighbours import NeighbourScorer, rows_of_links, setting_of
from graphmill.explain.explanation import NOT_SHARED, ExplainSettings, LinkExplainer, LinkShares
from graphmill.explain.shares import NeighbourhoodShares, SpectralShares
from graphmill.systems.blend.paths import PairedLinks
from graphmill.systems.neighbours.system import SpectralSystem


class NeighboursExplainer(LinkExplainer):
    """Explains links of kNN and of spectral vectors. The popularity of the target comes from no edges."""

    def __init__(self, system: Any, model: nn.Module, settings: ExplainSettings | None = None) -> None:
        super().__init__(system, model, settings)
        self.links, self.setting = PairedLinks.of_graph(self.graph), setting_of(self.model.array("setting"))
        self.spectral = system.spectral(self.model) if isinstance(system, SpectralSystem) else None
        self.shares: NeighbourhoodShares | SpectralShares = NeighbourhoodShares(
            system.entries, self.links, self.setting
        )
        if self.spectral is not None:
            rows = cast(np.ndarray, system.rows(self.model))
            self.shares = SpectralShares(self.spectral, rows, self.links, self.setting, self.settings.neighbors)

    def of_link(self, relation: int, head: int, tail: int) -> LinkShares:
        """:meth:`LinkExplainer.of_link`."""
        parts, shares = self.shares.of_link(relation, head, tail, self.setting.weight)
        return LinkShares({**parts, NOT_SHARED[1]: self._popularity(relation, tail)}, shares)

    def score_without(self, relation: int, head: int, tail: int, pairs: np.ndarray) -> float:
        """:meth:`LinkExplainer.score_without`: neighbourhoods and their vectors are computed again."""
        gone = np.zeros(max(self.graph.num_pairs, 1), bool)
        gone[pairs] = True
        links = self.links.without(gone)
        vectors = None if self.spectral is None else self.spectral.all(gone)
        h, t = self.local(relation, head, tail)
        scorer, heads = NeighbourScorer(links, rows_of_links(links, self.setting, vectors), self.setting), np.array([h])
        parts = scorer.parts(relation, heads, self.setting.side)
        similar = float(scorer.similarities(relation, heads, parts, self.setting)[0, t])
        return self.setting.weight * similar + self._popularity(relation, t)

    def _popularity(self, relation: int, tail: int) -> float:
        return self.setting.popularity * float(np.log1p(self.links.degrees(relation)[tail]))
