"""What the parts of HGT's score beside its layers hold: spectral vectors, pair features and ComplEx vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphmill.graph.similar_neighbours import BLOCK_BYTES
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.factor.memory import memory_parts as complex_parts
from graphmill.systems.hgt.complex_part import complex_settings
from graphmill.systems.hgt.settings import HgtSettings
from graphmill.training.planning import Part, Setup


def learned_width(settings: HgtSettings) -> int:
    """Output width of the layers' heads."""
    return settings.model.learned_dim if settings.objective.loss == "softmax" else settings.model.embedding_dim


def spectral_width(settings: HgtSettings) -> int:
    """Width of the spectral part of an embedding; 0 without a softmax."""
    return settings.model.embedding_dim - learned_width(settings)


def decoder_numbers(settings: HgtSettings) -> int:
    """Parameters of the decoder for one relation."""
    m = settings.model
    if settings.objective.loss != "softmax":
        return m.embedding_dim * (m.decoder == "distmult") + 1 + m.popularity
    spectral = spectral_width(settings)
    return m.learned_dim + m.popularity + ((4 if m.neighbour_sums else spectral) if spectral else 0)


def mixture_parts(graph: TypedGraph, settings: HgtSettings, setup: Setup) -> list[Part]:
    """The parts of one process; none without a softmax."""
    if settings.objective.loss != "softmax":
        return []
    nodes, width, whole = graph.num_nodes, spectral_width(settings), settings.model.embedding_dim
    edges, largest = sum(r.edges for r in graph.relations), max(t.count for t in graph.node_types)
    # One column for each neighbour in each relation. While the table is made, the two sides of the randomized SVD take
    # as much again as table and columns; the sums that steps start from are made later and take no more.
    columns = float(sum(np.count_nonzero(np.diff(graph.edges(r.index).indptr)) for r in graph.relations))
    compared = 50 * edges + 3 * min(BLOCK_BYTES, 12_000 * largest)
    own = complex_parts(graph, complex_settings(graph, settings), setup) if settings.complex_width else []
    # One ranking of all scores is counted in memory.py.
    vectors = [replace(part, remedy="lower model.complex_dim") for part in own if part.when != "evaluation"]
    return [
        Part("spectral vectors", "always", (2 * columns + 4 * nodes) * width),
        Part("edges from both ends", "always", edges, 48),
        Part("sums of a relation's neighbours", "evaluation", (nodes + 2 * largest) * (whole + width)),
        # Sparse neighbourhoods, steps of paths and, while their weights are fitted, a second copy of the edges.
        Part("pair features", "evaluation", compared * settings.model.pair_features, 1),
        *vectors,
    ]  # fmt: skip
