"""What an HGT training holds in memory, from the sizes of a pass that the graph's degrees and the settings lead to."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.hgt.batch import NEARLY_ALL
from graphmill.systems.hgt.losses import MOST_SCORES
from graphmill.systems.hgt.sampler import links_per_step
from graphmill.systems.hgt.settings import ANCHORS, INFERENCE_ROWS, SAMPLES, HgtSettings
from graphmill.training.planning import Part, Setup, ranking_part

_REMEDIES = {
    "full": "choose acceleration.batching: edge_sampled, or lower model.hidden_dim or model.embedding_dim",
    "edge_sampled": "lower sampling.edge_sample_size",
}
_WIDTHS = "lower model.hidden_dim or model.embedding_dim, or leave nodes out of the graph"
_ROWS = "lower model.hidden_dim or model.embedding_dim"


def memory_parts(graph: TypedGraph, settings: HgtSettings, setup: Setup) -> list[Part]:
    """The parts of one process in ``full`` or ``edge_sampled`` batching."""
    nodes, d, e = graph.num_nodes, settings.model.hidden_dim, settings.model.embedding_dim
    width, out = settings.model.spectral_width, settings.model.out_dim
    one, largest = pass_of(graph, settings, setup.batching), max(t.count for t in graph.node_types)
    edges, sampled = np.array([r.edges for r in graph.relations], float), setup.batching != "full"
    features = sum(t.count * width for t, width in zip(graph.node_types, _feature_widths(graph), strict=True))
    held_out = max(float(np.count_nonzero(graph.edges(r.index).split)) for r in graph.relations)
    chunk = min(INFERENCE_ROWS, largest)
    looked_up = one.layers[0].read if one.layers else one.outputs.sum()
    step = [
        Part("gradient of the table, and looked-up rows", "kept", (nodes * (not width) + looked_up) * d * sampled),
        *_layer_parts(settings, setup, one),
        # Spectral vectors of all nodes, and of each type with its features; their part of the embeddings.
        Part("spectral vectors of a step", "kept", 3 * nodes * width),
        # The layers' part, the embeddings, their gradient, and what is added to it.
        Part("embeddings of a step", "kept", one.outputs.sum() * (2 * out + 3 * e)),
        *_loss_parts(settings, setup, one),
    ]
    return [
        Part("embeddings, layers and decoder", "weights", _parameters(graph, settings), remedy=_WIDTHS),
        # Measured: edges for supervision and filters, edges for messages, and the pages of the graph's files; on a CPU also
        # the flat graph of one head (six int32 numbers an edge), which else is on the device.
        Part("edges", "always", edges.sum(), 80 + 24 * setup.on_cpu),
        Part("training links", "always", edges.sum(), 12),
        *_spectral_parts(graph, width),
        Part("features", "always", features + 6 * nodes),
        *(replace(part, uneven=sampled, remedy=_REMEDIES[setup.batching]) for part in step),
        Part("embeddings of all nodes", "evaluation", nodes * max(4 * d + 2 * width, d + 3 * e), remedy=_ROWS),
        Part("layers for a chunk of nodes", "evaluation", chunk * 6 * d, remedy=_ROWS),
        Part("attention", "evaluation", _attention(settings, setup, Layer(chunk, chunk, edges)) / 2, remedy=_ROWS),
        ranking_part(held_out, largest),
    ]


def _feature_widths(graph: TypedGraph) -> list[int]:
    """Columns of each type's features."""
    sets = ([graph.features(t.name, name) for name in graph.feature_sets(t.name)] for t in graph.node_types)
    return [sum(rows.shape[1] for rows in each if rows is not None) for each in sets]


def _spectral_parts(graph: TypedGraph, width: int) -> list[Part]:
    """The basis, and what making it takes."""
    if not width:
        return []
    # One column for each neighbour in each relation. While the table is made, the two sides of the randomized SVD take
    # as much again as table and columns.
    columns = float(sum(np.count_nonzero(np.diff(graph.edges(r.index).indptr)) for r in graph.relations))
    entries = float(sum(r.edges for r in graph.relations))
    return [
        Part("spectral vectors", "always", (2 * columns + 2 * graph.num_nodes) * width),
        Part("neighbourhoods", "always", entries, 40),
    ]


def _parameters(graph: TypedGraph, settings: HgtSettings) -> float:
    m, relations, types = settings.model, graph.relations, graph.node_types
    d, out, width = m.hidden_dim, m.out_dim, m.spectral_width
    inputs = sum((f + width + 1) * d for f in _feature_widths(graph) if f + width)
    ends = len({r.source for r in relations}) + len({r.target for r in relations})
    layer = 2 * ends * (d * d + d) + len(types)
    layer += len(relations) * (2 * d * (d // m.num_heads) + m.num_heads)
    decoder = len(relations) * (m.embedding_dim + 3)
    inputs += 0 if width else graph.num_nodes * d
    return m.num_layers * layer + len(types) * (d * out + out) + inputs + decoder


def _layer_parts(settings: HgtSettings, setup: Setup, one: Pass) -> list[Part]:
    """The layers' states in bytes, and the backward pass of a layer's attention."""
    m, low = settings.model, 4 if setup.precision == "fp32" else 2
    parts, again, attention = list[Part](), 0.0, 0.0
    for number, layer in enumerate(one.layers, 1):
        # q, k, v, message, its GELU and y in the products' precision; skip, norm and the next input in fp32; dropout's mask.
        rows, mask = layer.computed * m.hidden_dim, 4 if setup.on_cpu or not m.dropout else 1
        states = (4 * rows + 2 * layer.read * m.hidden_dim) * low + rows * (12 + mask)
        states += layer.edges.sum() * m.num_heads * 4  # the logits
        parts.append(Part(f"states of layer {number}", "kept", states, 1, recomputed=rows * (4 + low)))
        again, attention = max(again, states), max(attention, 4 * _attention(settings, setup, layer))
    return [*parts, Part("attention of a layer", "backward", attention, 1, recomputed=attention + again)]


def _attention(settings: HgtSettings, setup: Setup, layer: Layer) -> float:
    """Numbers in the backward pass of a layer's attention: gradients of q, k and v, the rows of all relations and heads,
    and what the edges take. On a CPU one head at a time is computed, on an accelerator all of them."""
    heads, d = settings.model.num_heads, settings.model.hidden_dim
    rows, edges = np.minimum(layer.edges, layer.read).sum(), layer.edges.sum()
    work = (7 * rows * d + 5 * edges * heads) / (heads if setup.on_cpu else 1)
    return float((layer.computed + 2 * layer.read) * d + work)


def _loss_parts(settings: HgtSettings, setup: Setup, one: Pass) -> list[Part]:
    o, e, links, most = (
        settings.objective,
        settings.model.embedding_dim,
        float(one.links.sum()),
        float(one.outputs.max()),
    )
    if o.loss == "softmax":
        # Seven arrays of the scores of the largest relation, on an accelerator of several; and the rows of its ends.
        largest, candidates = float(one.links.max()), min(float(o.candidates), most)
        scores = largest * candidates
        scores = scores if setup.on_cpu else max(scores, min(links * candidates, MOST_SCORES))
        rows = (2 * largest + candidates) * 4 * e
        return [Part("scores of the candidates", "loss", 7 * scores + rows)]
    # Links' numbers and scores; rows, products and gradients of the links.
    scores = links * (1 + o.negatives_a_link)
    return [
        Part("scores of the links", "loss", 16 * scores),
        Part("rows of the links", "loss", 6 * scores * e),
        Part("similarities of the anchors", "loss", 5 * one.anchors * most),
        Part("embeddings of the anchors' type", "kept", 3 * most * e * bool(one.anchors)),
    ]


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
        layers = [Layer(nodes.sum(), nodes.sum(), drawn)] * depth
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
