"""Finds the edges and paths that explain a predicted link of HGT, with either loss, in bounded memory.

A score is a sum of parts. Sums of spectral vectors are divided among the edges exactly (``sums``). The learned part is
divided by integrated gradients over a bounded neighbourhood (``messages``). Popularity, and the score of the nodes' own
vectors without any edge, are separate parts without edges. Edges are undirected node pairs: an edge and its reverse are
one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.errors import SettingsError
from graphmill.explain.messages import integrated_shares, sampled_inputs
from graphmill.explain.neighbourhood import Neighbourhood, neighbourhood
from graphmill.explain.pairs import PairShares
from graphmill.explain.paths import Path, joined, strongest_paths
from graphmill.explain.sums import Shares, SpectralShares
from graphmill.settings import Settings, setting
from graphmill.systems.factor.model import products
from graphmill.systems.hgt.softmax import HgtSoftmaxSystem
from graphmill.systems.hgt.softmax_decoder import PARTS
from graphmill.systems.hgt.system import HgtSystem

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph

NOT_SHARED = ("the two nodes' own vectors", "popularity of the target", "offset of the relation", "ComplEx")
"""Parts of a score that do not come from edges."""
_PATH_EDGES = 2000
"""Number of edges (those with the largest shares) among which paths are searched."""


class ExplainSettings(Settings):
    """How many edges an explanation examines and how many it reports."""

    edges: int = setting(10, "Number of edges to list, those with the largest shares first", ge=1)
    paths: int = setting(5, "Number of paths to list", ge=0)
    neighbors: int = setting(64, "Maximum number of neighbours to examine for each node and relation", ge=1)
    max_edges: int = setting(
        20_000,
        "Maximum number of edges of the neighbourhood through which the layers' contribution is traced; memory grows "
        "with it",
        ge=1,
    )
    steps: int = setting(64, "Maximum number of points of the integral of gradients; it starts with 16", ge=1)


@dataclass(frozen=True)
class Evidence:
    """One edge: its undirected ``pair``, the rows of its two nodes, the relations that join them, and its ``share``."""

    pair: int
    source: int
    target: int
    relations: tuple[str, ...]
    share: float


@dataclass(frozen=True)
class Explanation:
    """The explanation of a link's score.

    ``head``, ``tail``: rows of the node table. ``relation``: its index. ``parts``: the contribution of each named part
    to ``score``. ``whole``: nothing was left out of the neighbourhood, so ``score`` equals the model's own.
    ``evidence``: edges with positive shares, largest first. ``against``: edges with negative shares, largest first.
    ``paths``: strongest first, with their relations. ``edges``: number of edges with a share. ``other``: the sum of the
    shares of edges that are not listed.
    """

    relation: int
    head: int
    tail: int
    score: float
    parts: dict[str, float]
    evidence: tuple[Evidence, ...]
    against: tuple[Evidence, ...]
    paths: tuple[tuple[Path, tuple[str, ...]], ...]
    edges: int
    other: float
    whole: bool

    def lines(self, names: Sequence[str] | Mapping[int, str]) -> list[str]:
        """``a –relation– b (+0.123)`` of each edge; ``names`` by row of the node table."""
        return [
            f"{joined([names[e.source], names[e.target]], ['/'.join(e.relations)])} ({e.share:+.3g})"
            for e in self.evidence
        ]

    def path_lines(self, names: Sequence[str]) -> list[str]:
        """``a –r– b –s– c (0.0456)`` of each path."""
        return [
            f"{joined([names[n] for n in path.nodes], relations)} ({path.strength:.3g})"
            for path, relations in self.paths
        ]


def _mix(decoder: Any, relation: int, part: str) -> float:
    """The weight of a part of the score, fitted on validation links; 1 if parts are not weighted."""
    mix = getattr(decoder, "mix", None)
    return 1.0 if mix is None else float(mix[relation, PARTS.index(part)])


def explainable(system: Any) -> bool:
    """Whether links of this system can be explained by edges: only HGT's can."""
    return isinstance(system, HgtSystem)


def explain_links(
    system: Any,
    model: nn.Module,
    relation: int,
    heads: Sequence[int] | np.ndarray,
    tails: Sequence[int] | np.ndarray,
    settings: ExplainSettings | None = None,
) -> list[Explanation]:
    """Explain links of one relation, such as the top rows of a table of predictions.

    ``system`` and ``model``: from a restored run. ``relation``: its index. ``heads`` and ``tails``: n rows of the node
    table each.

    Raises:
        SettingsError: the system's scores cannot be explained by edges.
    """
    explainer = LinkExplainer(system, model, settings)
    found = [explainer.explain(relation, int(h), int(t)) for h, t in zip(heads, tails, strict=True)]
    return explainer.named(found)


class LinkExplainer:
    """Explains links of one restored model. Data that all explanations need are computed once."""

    def __init__(self, system: Any, model: nn.Module, settings: ExplainSettings | None = None) -> None:
        if not explainable(system):
            raise SettingsError(
                f"{system.name} scores links by its vectors alone, so no edge explains a score; hgt is explained by edges, "
                "conve by training triples (graphmill tracin)"
            )
        self.system: HgtSystem = system
        self.model, self.settings = model.eval(), settings or ExplainSettings()
        self.graph: TypedGraph = system.graph
        self.in_edges = system.data.in_edges()
        self.relations = [(r.source_type, r.target_type) for r in system.data.relations]
        self.type_counts = [t.count for t in self.graph.node_types]
        self.encoder: Any = getattr(model, "encoder", None)
        self.spectral: SpectralShares | None = None
        self.pairs: PairShares | None = None
        self.vectors = np.zeros((self.graph.num_nodes, 0), np.float32)
        if isinstance(system, HgtSoftmaxSystem):
            found = system.spectral(model)
            self.vectors = found.all()
            decoder: Any = model.decoder
            self.spectral = SpectralShares(found, self.vectors, system.sums, decoder, self.settings.neighbors)
            features = system.features_of(model)
            if features is not None:
                self.pairs = PairShares(features, system.entries, system.sums, decoder.mix.cpu().double().numpy())
        self._ends = _ends_of_pairs(self.graph)

    def explain(self, relation: int, head: int, tail: int) -> Explanation:
        """Explain one link, given by rows of the node table. :meth:`named` adds the relations' names to its edges."""
        own = self.system.data.relations[relation]
        h, t = head - own.source_offset, tail - own.target_offset
        parts: dict[str, float] = {}
        shares: list[Shares] = []
        if self.spectral is not None:
            parts, shares = self.spectral.of_link(relation, h, t)
        if self.pairs is not None:
            more, found = self.pairs.of_link(relation, h, t)
            parts, shares = parts | more, shares + found
        whole = True
        if self.encoder is not None:
            hood, (values, none, every) = self._learned(relation, h, t)
            parts["messages of the layers"] = every - none
            parts[NOT_SHARED[0]] = none
            shares.append((hood.pairs, values))
            whole = hood.whole
        parts |= self._rest(relation, h, t)
        pairs = np.concatenate([np.zeros(0, np.int64), *(p for p, _ in shares)])
        values = np.concatenate([np.zeros(0), *(v for _, v in shares)])
        pairs, place = np.unique(pairs, return_inverse=True)
        total = np.bincount(place, values, minlength=len(pairs))
        return self._told(relation, head, tail, parts, pairs, total, whole)

    def named(self, found: Sequence[Explanation]) -> list[Explanation]:
        """Add the names of the relations that join the nodes of each edge, in one pass over the graph for all
        explanations."""
        wanted = {e.pair for each in found for e in (*each.evidence, *each.against)}
        wanted |= {pair for each in found for path, _ in each.paths for pair in path.pairs}
        names = _relations_of_pairs(self.graph, wanted)
        return [
            replace(
                each,
                evidence=tuple(replace(e, relations=names[e.pair]) for e in each.evidence),
                against=tuple(replace(e, relations=names[e.pair]) for e in each.against),
                paths=tuple((path, tuple("/".join(names[p]) for p in path.pairs)) for path, _ in each.paths),
            )
            for each in found
        ]

    # ------------------------------------------------------------------ parts

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
        scale = self.system.learned_scale**2 if isinstance(self.system, HgtSoftmaxSystem) else 1.0
        weight = decoder.strength[relation] * scale * _mix(decoder, relation, "learned")
        own = None if decoder.relation is None else decoder.relation[relation]

        def score(z: list[Tensor]) -> Tensor:
            first = z[source][left] if own is None else z[source][left] * own.detach()
            return (first * z[target][right]).sum() * weight

        return hood, integrated_shares(self.encoder, hood, self.relations, inputs, score, self.settings.steps)

    def _features(self, number: int, rows: np.ndarray) -> np.ndarray | None:
        given = self.system.features.get(number)
        parts = [] if given is None else [given[torch.from_numpy(rows).to(given.device)].float().cpu().numpy()]
        if self.vectors.shape[1]:
            parts.append(self.vectors[rows + self.graph.node_types[number].offset])
        return np.concatenate(parts, 1) if parts else None

    def _rest(self, relation: int, h: int, t: int) -> dict[str, float]:
        decoder: Any = self.model.decoder
        parts = {}
        if decoder.popularity is not None:
            weight = float(decoder.popularity[relation].detach()) * _mix(decoder, relation, "popularity")
            parts[NOT_SHARED[1]] = weight * float(self.system.log_degree[relation][t])
        if getattr(decoder, "offset", None) is not None:
            parts[NOT_SHARED[2]] = float(decoder.offset[relation].detach())
        factors = self.system.factors_of(self.model) if isinstance(self.system, HgtSoftmaxSystem) else None
        if factors is not None:
            own = self.system.data.relations[relation]
            left, of_relation = (torch.from_numpy(r) for r in (factors[0][h + own.source_offset], factors[1][relation]))
            product = products(left[None], of_relation[None], "complex")[0].numpy()
            weight = float(decoder.strength[relation]) * _mix(decoder, relation, "ComplEx")
            parts[NOT_SHARED[3]] = weight * float(product @ factors[0][t + own.target_offset])
        return parts

    # ------------------------------------------------------------------ what is told

    def _told(
        self,
        relation: int,
        head: int,
        tail: int,
        parts: dict[str, float],
        pairs: np.ndarray,
        shares: np.ndarray,
        whole: bool,
    ) -> Explanation:
        order = np.argsort(-shares, kind="stable")
        most = self.settings.edges
        chosen = [i for i in order[:most] if shares[i] > 0]
        against = [i for i in order[::-1][:most] if shares[i] < 0]
        ends = {int(pair): (int(self._ends[0][pair]), int(self._ends[1][pair])) for pair in pairs[order[:_PATH_EDGES]]}
        by_pair = {int(pairs[i]): float(shares[i]) for i in order[:_PATH_EDGES]}
        paths = strongest_paths(ends, by_pair, head, tail, self.settings.paths)
        return Explanation(
            relation,
            head,
            tail,
            sum(parts.values()),
            parts,
            tuple(self._evidence(int(pairs[i]), float(shares[i])) for i in chosen),
            tuple(self._evidence(int(pairs[i]), float(shares[i])) for i in against),
            tuple((path, ()) for path in paths),
            len(pairs),
            float(shares.sum() - shares[[*chosen, *against]].sum()),
            whole,
        )

    def _evidence(self, pair: int, share: float) -> Evidence:
        return Evidence(pair, int(self._ends[0][pair]), int(self._ends[1][pair]), (), share)


def _ends_of_pairs(graph: TypedGraph) -> tuple[np.ndarray, np.ndarray]:
    """int32 [pairs] each: the two nodes of every undirected pair, in the direction of the first relation that joins them."""
    first, second = np.zeros(graph.num_pairs, np.int32), np.zeros(graph.num_pairs, np.int32)
    for relation in reversed(graph.relations):
        edges = graph.edges(relation)
        first[edges.pair] = edges.src + graph.node_type(relation.source).offset
        second[edges.pair] = edges.dst + graph.node_type(relation.target).offset
    return first, second


def _relations_of_pairs(graph: TypedGraph, wanted: set[int]) -> dict[int, tuple[str, ...]]:
    """The names of the relations with a training edge between the nodes of each pair."""
    numbers = np.array(sorted(wanted), np.int64)
    names: dict[int, dict[str, None]] = {int(pair): {} for pair in numbers}
    for relation in graph.relations:
        edges = graph.edges(relation)
        here = np.asarray(edges.pair)[np.isin(edges.pair, numbers) & (np.asarray(edges.split) == 0)]
        for pair in np.unique(here).tolist():
            names[pair][relation.name] = None
    return {pair: tuple(found) for pair, found in names.items()}
