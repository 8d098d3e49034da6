"""Sizes of one HGT step, from the graph's degrees and the settings: nodes, edges and links of each pass.

Nothing is sampled. For a mode that samples, the sizes are expected values: a node is touched with probability
1 − Π (1 − share)^degree. ``cost.py`` computes memory and work from the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.hgt.batch import NEARLY_ALL, rounded
from graphmill.systems.hgt.neighborhood import links_per_step, plan_seeds
from graphmill.systems.hgt.settings import HgtSettings


@dataclass(frozen=True)
class Degrees:
    """One relation: numbers of training and held-out edges, and of training edges out of and into each node (float64)."""

    source_type: int
    target_type: int
    edges: float
    held_out: float
    outgoing: np.ndarray
    incoming: np.ndarray


@dataclass
class Layer:
    """Expected sizes of one layer: nodes read and computed, per type; edges, sources and targets, per relation."""

    read: np.ndarray
    computed: np.ndarray
    edges: np.ndarray
    sources: np.ndarray
    targets: np.ndarray


@dataclass
class Pass:
    """One forward and backward pass: its layers, the embeddings that the loss reads (per type), links and anchors."""

    layers: list[Layer]
    outputs: np.ndarray
    links: float
    anchors: float


def degrees_of(graph: TypedGraph) -> list[Degrees]:
    """Degrees of the training edges. Reads each relation's ``src``, ``indptr`` and ``split`` once."""
    types = {t.name: number for number, t in enumerate(graph.node_types)}
    out = []
    for relation in graph.relations:
        edges = graph.edges(relation.index)
        source, target = types[relation.source], types[relation.target]
        train = float(np.count_nonzero(np.asarray(edges.split) == 0))
        share = train / max(len(edges.src), 1)
        outgoing = np.bincount(edges.src, minlength=graph.node_types[source].count) * share
        out.append(Degrees(source, target, train, len(edges.src) - train, outgoing, np.diff(edges.indptr) * share))
    return out


def pass_of(
    batching: str, settings: HgtSettings, counts: np.ndarray, degrees: Sequence[Degrees], anchor_type: int
) -> tuple[Pass, int]:
    """One pass of a step in ``full``, ``edge_sampled`` or ``neighbor_sampled`` batching, and the number of passes per step.

    ``counts`` [types]: numbers of nodes. ``anchor_type``: the type of the contrastive term; −1: no such term.
    """
    passes = {"full": _full, "edge_sampled": _edge_sampled, "neighbor_sampled": _neighbor_sampled}
    return passes[batching](settings, counts, degrees, anchor_type)


def _links(settings: HgtSettings, degrees: Sequence[Degrees]) -> np.ndarray:
    return np.array([links_per_step(settings, int(r.edges)) for r in degrees])


def _anchors(settings: HgtSettings) -> float:
    return settings.objective.contrastive_anchors if settings.objective.contrast else 0.0


def _full(settings: HgtSettings, counts: np.ndarray, degrees: Sequence[Degrees], anchor_type: int) -> tuple[Pass, int]:
    sizes = [(r.edges, float(np.count_nonzero(r.outgoing)), float(np.count_nonzero(r.incoming))) for r in degrees]
    edges, sources, targets = (np.array(column) for column in zip(*sizes, strict=True))
    layer = Layer(counts, counts, edges, sources, targets)
    links = _links(settings, degrees)
    free = _untouched(settings, counts, degrees, links)
    outputs = np.array([float(rounded((1 - f).sum(), len(f))) for f in free])
    if settings.objective.contrast and anchor_type >= 0:
        outputs[anchor_type] = counts[anchor_type]
    if outputs.sum() > NEARLY_ALL * counts.sum():
        outputs = counts
    return Pass([layer] * settings.model.num_layers, outputs, float(links.sum()), _anchors(settings)), 1


def _edge_sampled(
    settings: HgtSettings, counts: np.ndarray, degrees: Sequence[Degrees], anchor_type: int
) -> tuple[Pass, int]:
    a = settings.sampling
    micros = a.accumulation_steps
    size = max(a.edge_sample_size // micros, 1)
    links = _links(settings, degrees) / micros
    drawn = np.array([min(size, r.edges) for r in degrees])
    # Anchors and their positives are among the candidates of the contrastive term.
    free = _untouched(settings, counts, degrees, links)
    if settings.objective.contrast:
        # The candidates of the contrastive term are all nodes of its type that a message touches.
        for r, d in zip(degrees, drawn, strict=True):
            for end, degree in ((r.source_type, r.outgoing), (r.target_type, r.incoming)):
                if end == anchor_type:
                    free[end] = free[end] * _missed(degree, d / max(r.edges, 1.0))
    wanted = [1 - f for f in free]
    seeds = np.array([w.sum() for w in wanted])
    anchors = _anchors(settings) / micros
    layers: list[Layer] = []
    # Backwards from what the loss reads: the last layer computes only that, the layers before it all nodes in reach.
    for _ in range(settings.model.num_layers):
        edges, sources, targets = (np.zeros(len(degrees)) for _ in range(3))
        grown = [1 - w for w in wanted]
        for i, (r, d) in enumerate(zip(degrees, drawn, strict=True)):
            received = wanted[r.target_type]
            # A supervised link carries no message, in either direction.
            other = np.maximum(1 - (1 - received) / max(1.0 - links[i] / max(r.edges, 1.0), 1e-12) ** 2, 0.0)
            edges[i] = d * float((r.incoming * other).sum()) / max(float(r.incoming.sum()), 1.0)
            outgoing = _missed(r.outgoing, edges[i] / max(r.edges, 1.0))
            grown[r.source_type] = grown[r.source_type] * outgoing
            sources[i] = (1 - outgoing).sum()
            targets[i] = (received * (1 - _missed(r.incoming, d / max(r.edges, 1.0)))).sum()
        wanted = [1 - g for g in grown]
        layers.insert(0, Layer(seeds, seeds, edges, sources, targets))
    if layers:
        nodes = np.array([w.sum() for w in wanted])
        before = [replace(layers[0], read=nodes, computed=nodes)] * (len(layers) - 1)
        layers = [*before, replace(layers[-1], read=nodes)]
    return Pass(layers, seeds, float(links.sum()), anchors), micros


def _neighbor_sampled(
    settings: HgtSettings, counts: np.ndarray, degrees: Sequence[Degrees], anchor_type: int
) -> tuple[Pass, int]:
    a = settings.sampling
    wanted = [int(n) for n in _links(settings, degrees)]
    plan = plan_seeds(settings, wanted, int(_anchors(settings)), len({r.target_type for r in degrees}))
    links = np.array(plan.links) / a.accumulation_steps
    free = _untouched(settings, counts, degrees, links)
    if plan.anchors and anchor_type >= 0:
        # Every anchor is given as many positives as the plan allows: an upper bound, which the seeds of the plan limit.
        named = plan.anchors / a.accumulation_steps * (1 + plan.positives)
        free[anchor_type] *= np.exp(-named / max(counts[anchor_type], 1.0))
    seeds = np.array([(1 - f).sum() for f in free])
    computed = [seeds]
    per_hop = []
    fresh = [1 - f for f in free]
    for fanout in a.num_neighbors[: settings.model.num_layers]:
        edges, sources = np.zeros(len(degrees)), np.zeros(len(degrees))
        missed = [np.ones(len(f)) for f in free]
        for number, r in enumerate(degrees):
            most = r.incoming if fanout < 0 else np.minimum(r.incoming, fanout)
            edges[number] = (fresh[r.target_type] * most).sum()
            out = _missed(r.outgoing, edges[number] / max(r.edges, 1.0))
            missed[r.source_type] *= out
            sources[number] = (1 - out).sum()
        fresh = [f * (1 - m) for f, m in zip(free, missed, strict=True)]
        free = [f * m for f, m in zip(free, missed, strict=True)]
        computed.append(np.array([(1 - f).sum() for f in free]))
        per_hop.append((edges, sources))
    layers = []
    for layer in range(settings.model.num_layers):
        hops = per_hop[: settings.model.num_layers - layer]
        edges = np.sum([e for e, _ in hops], axis=0)
        sources = np.minimum(np.sum([s for _, s in hops], axis=0), edges)
        receivers = computed[-2 - layer]
        targets = np.array([min(receivers[r.target_type], e) for r, e in zip(degrees, edges, strict=True)])
        layers.append(Layer(computed[-1 - layer], receivers, edges, sources, targets))
    return Pass(layers, seeds, float(links.sum()), plan.anchors / a.accumulation_steps), a.accumulation_steps


def _untouched(
    settings: HgtSettings, counts: np.ndarray, degrees: Sequence[Degrees], links: np.ndarray
) -> list[np.ndarray]:
    """For each node, per type: the probability that no link or negative of a micro-batch contains it."""
    free = [np.ones(int(n)) for n in counts]
    for r, n in zip(degrees, links, strict=True):
        share = n / max(r.edges, 1.0)
        free[r.source_type] *= _missed(r.outgoing, share)
        free[r.target_type] *= _missed(r.incoming, share)
        wrong = n * settings.objective.negatives_a_link
        free[r.target_type] *= np.exp(-wrong / max(counts[r.target_type], 1.0))
    return free


def _missed(degree: np.ndarray, share: float) -> np.ndarray:
    return (1.0 - min(share, 1.0 - 1e-12)) ** degree
