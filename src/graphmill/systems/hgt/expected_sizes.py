"""Expected sizes of one pass of HGT, from the graph's degrees and the settings: nodes, edges and links.

Nothing is sampled. ``memory.py`` computes memory from the sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.hgt.batch import NEARLY_ALL
from graphmill.systems.hgt.sampler import links_per_step
from graphmill.systems.hgt.settings import ANCHORS, SAMPLES, HgtSettings


@dataclass(frozen=True)
class Layer:
    """One layer: nodes that it reads and computes, and edges per relation, at most."""

    read: float
    computed: float
    edges: np.ndarray


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass: of a step, or of a micro-batch of a sampled step.

    ``outputs`` [types]: nodes whose embeddings the loss reads. ``links`` [relations]: supervised. ``anchors``: of the
    contrastive term.
    """

    layers: list[Layer]
    outputs: np.ndarray
    links: np.ndarray
    anchors: float


def pass_of(graph: TypedGraph, settings: HgtSettings, batching: str) -> Pass:
    """One pass in ``full`` or ``edge_sampled`` batching."""
    counts = np.array([t.count for t in graph.node_types], float)
    edges = np.array([np.count_nonzero(np.asarray(graph.edges(r.index).split) == 0) for r in graph.relations], float)
    parts = 1 if batching == "full" else SAMPLES
    links = np.array([links_per_step(settings, int(n)) for n in edges]) / parts
    outputs, depth = _touched(graph, settings, links), settings.model.num_layers
    contrast = [
        t.name == settings.objective.contrastive_type and settings.objective.contrast > 0 for t in graph.node_types
    ]
    anchors = ANCHORS / parts * any(contrast)
    if batching == "full":
        outputs = np.where(contrast, counts, outputs)
        if outputs.sum() > NEARLY_ALL * counts.sum():
            outputs = counts
        layers = [Layer(counts.sum(), counts.sum(), edges)] * depth
    else:
        drawn = np.minimum(edges, max(settings.sampling.edge_sample_size // parts, 1))
        nodes = _touched(graph, settings, links + drawn)
        outputs = np.where(contrast, nodes, outputs)
        layers = [Layer(nodes.sum(), nodes.sum(), drawn)] * (depth - 1)
        layers += [Layer(nodes.sum(), outputs.sum(), drawn)] * bool(depth)
    return Pass(layers, outputs, links, anchors)


def _touched(graph: TypedGraph, settings: HgtSettings, drawn: np.ndarray) -> np.ndarray:
    """Expected number of nodes [types] that are an end of a drawn edge, or a wrong target of one.

    ``drawn`` [relations] edges. A node of degree k is missed with probability (1 − share)^k.
    """
    missed = {t.name: np.ones(t.count) for t in graph.node_types}
    for relation, n in zip(graph.relations, drawn, strict=True):
        edges = graph.edges(relation.index)
        rest = 1 - min(n / max(len(edges.src), 1), 1 - 1e-12)
        missed[relation.source] *= rest ** np.bincount(edges.src, minlength=len(missed[relation.source]))
        wrong = n * settings.objective.negatives_a_link / max(len(missed[relation.target]), 1)
        missed[relation.target] *= rest ** np.diff(edges.indptr) * np.exp(-wrong)
    return np.array([(1 - each).sum() for each in missed.values()])
