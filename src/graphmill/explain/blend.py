"""Explains a link of a blend by its parts, and of kNN or spectral vectors by the edges of neighbourhoods that are alike.

ComplEx and popularity come from no edges. NBFNet's shares are those of :mod:`graphmill.explain.propagation`, which do not
add up to its part of a blend's score.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from torch import nn

from graphmill.evaluation.baselines.neighbours import NeighbourSetting, setting_of
from graphmill.explain.explanation import NOT_SHARED, ExplainSettings, LinkExplainer, LinkShares, Shares
from graphmill.explain.propagation import explain_propagation, score_without_pairs
from graphmill.explain.shares import NeighbourhoodShares, PathShares, SpectralShares
from graphmill.systems.blend.exported import KNN, SPECTRAL, similarities
from graphmill.systems.blend.part import POPULARITY, FeatureSimilarity, Part, Popularity, Similarities
from graphmill.systems.blend.paths import PairedLinks, Paths
from graphmill.systems.blend.trained import NBFNET

_NAMES = {POPULARITY: NOT_SHARED[1], "complex": NOT_SHARED[3], NBFNET: "NBFNet"}
_NO_VECTORS = np.zeros((0, 0), np.float32)


class BlendExplainer(LinkExplainer):
    """Explains links of a blend."""

    def __init__(self, system: Any, model: nn.Module, settings: ExplainSettings | None = None) -> None:
        super().__init__(system, model, settings)
        self.parts, self.mix, self.links, self.spectral = self.read()
        self.shares: dict[str, SpectralShares | NeighbourhoodShares | PathShares] = {}
        for name, part in self.parts.items():
            if isinstance(part, Paths):
                self.shares[name] = PathShares(part, self.links)
            elif name == KNN:
                self.shares[name] = NeighbourhoodShares(system.entries, self.links, _setting(part))
            elif isinstance(part, Similarities):
                rows, setting = cast(np.ndarray, part.scorer.rows), _setting(part)
                self.shares[name] = SpectralShares(self.spectral, rows, self.links, setting, self.settings.neighbors)

    def read(self) -> tuple[dict[str, Part], np.ndarray, PairedLinks, Any]:
        """The parts by name, their amounts float64 [relations, parts], the training links, and the spectral vectors, if
        there are any."""
        system, mix = self.system, self.model.mix.cpu().double().numpy()
        return system.parts_of(self.model), mix, system.paired, system.spectral(self.model)

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
        links, total = self.links.without(gone), 0.0
        vectors = _NO_VECTORS if self.spectral is None else self.spectral.all(gone)
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


class NeighboursExplainer(BlendExplainer):
    """Explains links of kNN and of spectral vectors: a blend of one of the two and the popularity of the target."""

    def read(self) -> tuple[dict[str, Part], np.ndarray, PairedLinks, Any]:
        """:meth:`BlendExplainer.read`."""
        name, setting = self.system.name, setting_of(self.model.array("setting"))
        links = PairedLinks.of_graph(self.graph)
        spectral = self.system.spectral(self.model) if name == SPECTRAL else None
        vectors = _NO_VECTORS if spectral is None else spectral.all()
        parts = {name: similarities(name, links, setting, vectors), POPULARITY: Popularity(links)}
        return parts, np.tile([setting.weight, setting.popularity], (len(self.graph.relations), 1)), links, spectral
