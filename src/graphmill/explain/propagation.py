"""Explains a link of NBFNet by the edges and paths over which its score came: gradient × input on every message.

An edge's share is its weight times the score's gradient with respect to it, summed over layers and both directions
(Simonyan et al. 2014). A path's strength is the sum of its messages' shares (as Zhu et al. 2021), found by a beam search
from the tail back to the head.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from graphmill.explain.explanation import NOT_SHARED, LinkExplainer, LinkShares, NamedPath, Path
from graphmill.kernels.frontier import Edges, Layer
from graphmill.systems.nbfnet.model import NBFNet
from graphmill.systems.nbfnet.system import NbfnetScorer, NbfnetSystem, query_scores

BEAM = 512
"""Partial paths that the search keeps after each layer."""


@dataclass(frozen=True)
class PropagatedPath:
    """``nodes``: rows of the node table from head to tail; ``relations``: numbers of the message graph; ``strength``: the
    sum of the shares of its messages."""

    nodes: tuple[int, ...]
    relations: tuple[int, ...]
    strength: float


@dataclass(frozen=True)
class Propagated:
    """``score`` of a link; ``popularity``: the part of it that no path brought. ``source``, ``target`` int64 [n], lower
    row of the node table first, and ``share`` float64 [n]: edges, largest share first. ``paths``: strongest first."""

    score: float
    popularity: float
    source: np.ndarray
    target: np.ndarray
    share: np.ndarray
    paths: list[PropagatedPath]


def explain_propagation(
    system: NbfnetSystem, model: NBFNet, relation: int, head: int, tail: int, paths: int
) -> Propagated:
    """Explain the score of a link: ``relation`` of the graph, ``head`` and ``tail`` rows of the node table."""
    messages = system.messages
    number, requested = messages.number_of(relation), np.array([messages.number_of(relation)])
    local = np.array([head - messages.source_offset[number]])
    layers = system.layers(requested, local)
    weights = [torch.from_numpy(layer.weight).to(model.query).requires_grad_() for layer in layers]
    at = tail - int(messages.target_offset[number])
    score = query_scores(messages, model, requested, local, layers, weights=weights)[0, at]
    gradients = torch.autograd.grad(score, weights, allow_unused=True)
    shares = [
        np.zeros(len(w)) if g is None else (w * g).detach().cpu().double().numpy()
        for w, g in zip(weights, gradients, strict=True)
    ]
    before, ends = np.array([head], np.int32), []
    for layer in layers:
        ends.append((before[layer.source], layer.node[layer.target]))
        before = layer.node
    u, v = (np.concatenate(side).astype(np.int64) for side in zip(*ends, strict=True))
    keys = np.minimum(u, v) * system.graph.num_nodes + np.maximum(u, v)
    pairs, place = np.unique(keys, return_inverse=True)
    total = np.bincount(place, np.concatenate(shares), len(pairs))
    order = np.argsort(-total, kind="stable")
    popularity = float(model.popularity[number].detach()) * float(messages.log_degree(requested)[0, at])
    return Propagated(
        float(score.detach()),
        popularity,
        pairs[order] // system.graph.num_nodes,
        pairs[order] % system.graph.num_nodes,
        total[order],
        _strongest(layers, shares, head, tail, paths),
    )


def score_without_pairs(
    system: NbfnetSystem, model: NBFNet, relation: int, head: int, tail: int, pairs: np.ndarray
) -> float:
    """The score of a link on the graph without all edges between the nodes of ``pairs`` int64 [n, 2]."""
    messages, nodes = copy.copy(system.messages), system.graph.num_nodes
    edges = system.messages.all
    source = np.repeat(np.arange(nodes, dtype=np.int64), np.diff(edges.pointer))
    keys = np.minimum(source, edges.target) * nodes + np.maximum(source, edges.target)
    kept = ~np.isin(keys, pairs.min(1) * nodes + pairs.max(1))
    pointer = np.concatenate([[0], np.cumsum(kept)])[edges.pointer]
    messages.all = Edges(pointer, edges.target[kept], edges.relation[kept], edges.weight[kept], edges.kind)
    number = system.messages.number_of(relation)
    heads = np.array([head - system.messages.source_offset[number]])
    scores = NbfnetScorer(messages, model, system.settings.model.nodes_per_layer).score_targets(relation, heads)
    return float(scores[0, tail - system.messages.target_offset[number]])


class PropagationExplainer(LinkExplainer):
    """Explains links of NBFNet. The shares do not add up to the score, whose parts are popularity and all else. A path's
    strength is that of :class:`PropagatedPath`."""

    method = "gradient × input of the messages"

    def of_link(self, relation: int, head: int, tail: int) -> LinkShares:
        """:meth:`LinkExplainer.of_link`, with the paths of the messages."""
        kind = self.graph.relations[relation]
        first, second = (self.graph.node_type(end).offset for end in (kind.source, kind.target))
        why = explain_propagation(self.system, self.model, relation, head + first, tail + second, self.settings.paths)
        parts = {NOT_SHARED[1]: why.popularity, "paths": why.score - why.popularity}
        shares = [(self.pairs_of(why.source, why.target), why.share)]
        return LinkShares(parts, shares, paths=[self._path(path) for path in why.paths])

    def _path(self, path: PropagatedPath) -> NamedPath:
        kinds = self.system.messages.named([each.name for each in self.graph.relations])
        return Path(path.nodes, path.strength), tuple(kinds[kind] for kind in path.relations)

    def score_without(self, relation: int, head: int, tail: int, pairs: np.ndarray) -> float:
        """:meth:`LinkExplainer.score_without`."""
        return score_without_pairs(self.system, self.model, relation, head, tail, self.ends_of(pairs))


def _strongest(
    layers: Sequence[Layer], shares: Sequence[np.ndarray], head: int, tail: int, most: int
) -> list[PropagatedPath]:
    """The paths of largest strength: from the tail's row of the last layer back, keeping :data:`BEAM` at a time."""
    rows = np.flatnonzero(layers[-1].node == tail)
    if not most or not len(rows):
        return []
    result: list[tuple[float, int, tuple[int, ...], tuple[int, ...]]] = [(0.0, int(rows[0]), (tail,), ())]
    for number in range(len(layers) - 1, -1, -1):
        layer, share = layers[number], shares[number]
        nodes = layers[number - 1].node if number else np.array([head], np.int32)
        wanted = np.array([row for _, row, _, _ in result])
        into = np.flatnonzero(np.isin(layer.target, wanted))
        by_row: dict[int, list[int]] = {}
        for edge in into.tolist():
            by_row.setdefault(int(layer.target[edge]), []).append(edge)
        longer = []
        for strength, row, path, kinds in result:
            if (stayed := int(layer.previous[row])) >= 0:
                longer.append((strength, stayed, path, kinds))
            for edge in by_row.get(row, ()):
                source = int(layer.source[edge])
                if int(nodes[source]) in path:  # not in circles
                    continue
                step = (int(nodes[source]), *path), (int(layer.relation[edge]), *kinds)
                longer.append((strength + float(share[edge]), source, *step))
        result = sorted(longer, key=lambda each: -each[0])[:BEAM]
    sums: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
    for strength, _, path, kinds in result:  # the messages of a path may have run in several layers
        if path[0] == head and kinds:
            sums[path, kinds] = sums.get((path, kinds), 0.0) + strength
    whole = [PropagatedPath(*path, strength) for path, strength in sums.items()]
    return sorted(whole, key=lambda path: -path.strength)[:most]
