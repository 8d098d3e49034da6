"""What an HGT training holds in memory."""

from __future__ import annotations

from functools import partial

import numpy as np

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.hgt.losses import MOST_SCORES
from graphmill.systems.hgt.sampler import links_per_step
from graphmill.systems.hgt.settings import ANCHORS, INFERENCE_ROWS, SAMPLES, HgtSettings
from graphmill.training.planning import Part, Setup, ranking_part

_ROWS = "lower model.hidden_dim or model.embedding_dim"
_WIDTHS = f"{_ROWS}, or leave nodes out of the graph"
_REMEDIES = {
    "full": f"choose acceleration.batching: edge_sampled, or {_ROWS}",
    "edge_sampled": "lower sampling.edge_sample_size",
}


def memory_parts(graph: TypedGraph, settings: HgtSettings, setup: Setup) -> list[Part]:
    """The parts of one process in ``full`` or ``edge_sampled`` batching."""
    m, nodes, largest = settings.model, graph.num_nodes, max(t.count for t in graph.node_types)
    d, e, width, sampled = m.hidden_dim, m.embedding_dim, m.spectral_width, setup.batching != "full"
    edges = np.array([r.edges for r in graph.relations], float)
    passed, drawn, read, loss = _step(graph, settings, setup)
    features = sum(t.count * _feature_width(graph, t.name) for t in graph.node_types)
    layers, chunk = m.num_layers, min(INFERENCE_ROWS, largest)
    # q, k, v, message, its GELU and y in the products' precision; skip, norm and the next input in fp32; dropout's mask.
    low, mask = 4 if setup.precision == "fp32" else 2, 4 if setup.on_cpu or not m.dropout else 1
    states = passed * d * (6 * low + 12 + mask) + 4 * drawn.sum() * m.num_heads
    attention = 4 * _attention(settings, setup, passed, drawn)
    step = partial(Part, uneven=sampled, remedy=_REMEDIES[setup.batching])
    return [
        Part("embeddings, layers and decoder", "weights", _parameters(graph, settings), remedy=_WIDTHS),
        # Edges for supervision, filters, messages and as links, and the pages of the graph's files; on a CPU also the flat
        # graph of one head, which else is on the device.
        Part("edges", "always", edges.sum(), 92 + 24 * setup.on_cpu),
        # The basis and, while it is made, as much again; and the neighbourhoods of all nodes.
        Part("spectral vectors", "always", 2 * (_neighbours(graph) + nodes) * width + 10 * edges.sum() * bool(width)),
        Part("features", "always", features + 6 * nodes),
        step("rows of the tables and their gradient", "kept", (nodes + passed) * d * (sampled and not width)),
        step("states of the layers", "kept", layers * states, 1, recomputed=layers * passed * d * (4 + low)),
        step("attention of a layer", "backward", attention, 1, recomputed=attention + states),
        # Spectral vectors of all nodes, and of each type with its features; their part of the embeddings.
        step("spectral vectors of a step", "kept", 3 * nodes * width),
        # The layers' part, the embeddings, their gradient, and what is added to it.
        step("embeddings of a step", "kept", read * (2 * m.out_dim + 3 * e)),
        step("scores of the loss", "loss", loss),
        Part("embeddings of all nodes", "evaluation", nodes * max(4 * d + 2 * width, d + 3 * e), remedy=_ROWS),
        Part("layers for a chunk of nodes", "evaluation", chunk * 6 * d, remedy=_ROWS),
        Part("attention", "evaluation", _attention(settings, setup, chunk, edges) / 2, remedy=_ROWS),
        ranking_part(max(r["split"]["valid"] + r["split"]["test"] for r in graph.manifest["relations"]), largest),
    ]


def _step(graph: TypedGraph, settings: HgtSettings, setup: Setup) -> tuple[float, np.ndarray, float, float]:
    """Of a step, or of one sample of it: nodes that a layer computes, edges that it reads [relations], nodes whose
    embeddings the loss reads, and numbers in the loss."""
    o, e, sampled = settings.objective, settings.model.embedding_dim, setup.batching != "full"
    samples = SAMPLES if sampled else 1
    edges = np.array([r["split"]["train"] for r in graph.manifest["relations"]], float)
    links = np.array([links_per_step(settings, int(count)) for count in edges]) / samples
    drawn = np.minimum(edges, max(settings.sampling.edge_sample_size // SAMPLES, 1)) if sampled else edges
    counts = {t.name: t.count for t in graph.node_types}
    read = _touched(graph, links, o.negatives_a_link)
    passed = _touched(graph, links + drawn, o.negatives_a_link) if sampled else counts
    of_type = passed.get(o.contrastive_type, 0.0) if o.contrast else 0.0
    if of_type:
        read[o.contrastive_type] = of_type
    if o.loss == "softmax":
        # Seven arrays of the scores of the largest relation, on an accelerator of several; and the rows of its ends.
        candidates = min(float(o.candidates), max(read.values()))
        scores = links.max() * candidates
        scores = scores if setup.on_cpu else max(scores, min(links.sum() * candidates, MOST_SCORES))
        loss = 7 * scores + (2 * links.max() + candidates) * 4 * e
    else:
        # Links' numbers and scores; their rows, products and gradients; the anchors' cosines, and what these are made of.
        loss = links.sum() * (1 + o.negatives_a_link) * (16 + 6 * e) + of_type * (5 * ANCHORS / samples + 3 * e)
    return sum(passed.values()), drawn, sum(read.values()), loss


def _touched(graph: TypedGraph, drawn: np.ndarray, negatives: int) -> dict[str, float]:
    """Expected nodes of each type that are an end of the ``drawn`` edges [relations], or one of their wrong targets."""
    ends = dict.fromkeys((t.name for t in graph.node_types), 0.0)
    for relation, count in zip(graph.relations, drawn, strict=True):
        ends[relation.source] += count
        ends[relation.target] += count * (1 + negatives)
    return {t.name: -t.count * float(np.expm1(-ends[t.name] / max(t.count, 1))) for t in graph.node_types}


def _attention(settings: HgtSettings, setup: Setup, nodes: float, edges: np.ndarray) -> float:
    """Numbers in the backward pass of a layer's attention: gradients of q, k and v, the rows of all relations and heads,
    and what the edges take. On a CPU one head at a time is computed, on an accelerator all of them."""
    heads, d = settings.model.num_heads, settings.model.hidden_dim
    work = (7 * np.minimum(edges, nodes).sum() * d + 5 * edges.sum() * heads) / (heads if setup.on_cpu else 1)
    return float(3 * nodes * d + work)


def _parameters(graph: TypedGraph, settings: HgtSettings) -> float:
    m, relations, types = settings.model, graph.relations, graph.node_types
    d, out, width = m.hidden_dim, m.out_dim, m.spectral_width
    inputs = sum((columns + 1) * d for t in types if (columns := _feature_width(graph, t.name) + width))
    ends = len({r.source for r in relations}) + len({r.target for r in relations})
    layer = 2 * ends * (d * d + d) + len(types) + len(relations) * (2 * d * (d // m.num_heads) + m.num_heads)
    inputs += 0 if width else graph.num_nodes * d
    return m.num_layers * layer + len(types) * (d * out + out) + inputs + len(relations) * (m.embedding_dim + 3)


def _feature_width(graph: TypedGraph, node_type: str) -> int:
    """Columns of a type's features."""
    sets = (graph.features(node_type, name) for name in graph.feature_sets(node_type))
    return sum(rows.shape[1] for rows in sets if rows is not None)


def _neighbours(graph: TypedGraph) -> int:
    """Nodes that have an edge, in each relation and direction: columns of the neighbourhoods."""
    return sum(int(np.count_nonzero(np.diff(graph.edges(r.index).indptr))) for r in graph.relations)
