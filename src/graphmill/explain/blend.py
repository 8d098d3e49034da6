"""Explains a link of a blend by its parts, and of kNN or spectral vectors by the edges of neighbourhoods that are alike.

ComplEx and popularity come from no edges. NBFNet's shares are those of :mod:`graphmill.explain.propagation`, which do not
add up to its part of a blend's score.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from torch import nn

from graphmill.evaluation.baselines.neighbours import NeighbourScorer, NeighbourSetting, rows_of_links, setting_of
from graphmill.explain.explanation import NOT_SHARED, ExplainSettings, LinkExplainer, LinkShares, Shares
from graphmill.explain.propagation import explain_propagation, score_without_pairs
from graphmill.explain.shares import NeighbourhoodShares, PathShares, SpectralShares
from graphmill.systems.blend.exported import similarities
from graphmill.systems.blend.part import FeatureSimilarity, Part, Similarities
from graphmill.systems.blend.paths import PairedLinks, Paths
from graphmill.systems.blend.trained import NBFNET
from graphmill.systems.neighbours.system import SpectralSystem

_NAMES = {"popularity": NOT_SHARED[1], "complex": NOT_SHARED[3], NBFNET: "NBFNet"}


class BlendExplainer(LinkExplainer):
    """Explains links of a blend."""

    def __init__(self, system: Any, model: nn.Module, settings: ExplainSettings | None = None) -> None:
        super().__init__(system, model, settings)
        self.parts: dict[str, Part] = system.parts_of(self.model)
        self.mix = self.model.mix.cpu().double().numpy()
        self.spectral = system.spectral(self.model)
        self.shares: dict[str, SpectralShares | NeighbourhoodShares | PathShares] = {}
        for name, part in self.parts.items():
            if isinstance(part, Paths):
                self.shares[name] = PathShares(part, system.paired)
            elif name == "knn":
                self.shares[name] = NeighbourhoodShares(system.entries, system.paired, _setting(part))
            elif isinstance(part, Similarities):
                rows, setting = cast(np.ndarray, part.scorer.rows), _setting(part)
                self.shares[name] = SpectralShares(self.spectral, rows, system.paired, setting, self.settings.neighbors)

    def of_link(self, relation: int, head: int, tail: int) -> LinkShares:
        """:meth:`LinkExplainer.of_link`."""
        parts: dict[str, float] = {}
        shares: list[Shares] = []
        for (name, part), amount in zip(self.parts.items(), self.mix[relation].tolist(), strict=True):
            if not amount:
                continue
            if name in self.shares:
                share, result = self.shares[name].of_link(relation, head, tail, amount)
                parts, shares = parts | share, shares + result
            else:
                parts[_NAMES.get(name, name)] = amount * float(part.scores(relation, np.array([head]))[0, tail])
            if name == NBFNET:
                first, second = self.system.links.offsets[relation]
                network = self.system.trained[NBFNET], self.model.parts[NBFNET]
                why = explain_propagation(*network, relation, head + first, tail + second, paths=0)
                shares.append((self.pairs_of(why.source, why.target), amount * why.share))
        return LinkShares(parts, shares)

    def score_without(self, relation: int, head: int, tail: int, pairs: np.ndarray) -> float:
        """:meth:`LinkExplainer.score_without`: neighbourhoods, their vectors and paths are computed again."""
        gone = np.zeros(max(self.graph.num_pairs, 1), bool)
        gone[pairs] = True
        links, vectors, total = self.system.paired.without(gone), self.spectral.all(gone), 0.0
        h, t = self.local(relation, head, tail)
        for (name, part), amount in zip(self.parts.items(), self.mix[relation].tolist(), strict=True):
            if not amount:
                continue
            if name == NBFNET:
                network = self.system.trained[NBFNET], self.model.parts[NBFNET]
                total += amount * score_without_pairs(*network, relation, head, tail, self.ends_of(pairs))
                continue
            if isinstance(part, Paths):
                part = Paths(links, part.channels, part.weights)
            elif isinstance(part, FeatureSimilarity):
                part = FeatureSimilarity(links, part.rows)
            elif isinstance(part, Similarities):
                part = similarities(name, links, _setting(part), vectors)
            total += amount * float(part.scores(relation, np.array([h]))[0, t])
        return total


def _setting(part: Part) -> NeighbourSetting:
    return cast(Similarities, part).scorer.setting


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
