"""The planner's formulas for HGT's softmax beside the layers: memory and work, after softmax.py and spectral.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphmill.graph.similar_neighbours import BLOCK_BYTES
from graphmill.systems.hgt.expected_sizes import Degrees, Pass
from graphmill.systems.hgt.settings import HgtSettings
from graphmill.systems.hgt.softmax_links import MOST_SCORES

_WIDE = 4  # bytes of fp32


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


def softmax_held(settings: HgtSettings, counts: np.ndarray, degrees: Sequence[Degrees]) -> float:
    """Bytes: the table, the columns (one for each neighbour in each relation), a step's vectors, and edges from both ends.

    While the table is made, the two sides of the randomized SVD take as much again as table and columns. The sums that
    steps start from are made later and take no more.
    """
    width = spectral_width(settings)
    columns = sum(float(np.count_nonzero(r.incoming)) for r in degrees)
    edges = sum(r.edges for r in degrees)
    return 2 * (counts.sum() + columns) * width * _WIDE + counts.sum() * width * _WIDE + edges * (2 * 12 + 24)


def softmax_bytes(settings: HgtSettings, one: Pass, chunks: int, on_cpu: bool = True) -> float:
    """Bytes in the loss of one chunk: seven arrays of the largest relation's scores, and the rows of its ends.

    On an accelerator this counts for all such relations that are scored at once.
    """
    links, candidates = largest_block(settings, one, chunks)
    rows = (2 * links + candidates) * (2 * spectral_width(settings) + 4 * learned_width(settings)) * _WIDE
    alike = min(one.links / max(chunks, 1) / max(links, 1.0), MOST_SCORES / max(links * candidates, 1.0))
    return (1.0 if on_cpu else max(alike, 1.0)) * (7 * links * candidates * _WIDE + rows)


def largest_block(settings: HgtSettings, one: Pass, chunks: int) -> tuple[float, float]:
    """Upper bounds of links and candidates of the largest relation in a chunk."""
    links = min(float(settings.sampling.edge_sample_size), one.links) / max(chunks, 1)
    return links, min(float(settings.objective.candidates), float(one.outputs.max(initial=1.0)))


def softmax_flop(settings: HgtSettings, one: Pass, counts: np.ndarray, degrees: Sequence[Degrees]) -> float:
    """FLOP of scores with all candidates (two spectral products, the learned one and its gradients), and of the sums."""
    if settings.objective.loss != "softmax":
        return 0.0
    width = spectral_width(settings)
    candidates = min(float(settings.objective.candidates), float(counts.max(initial=1.0)))
    scores = 2.0 * one.links * candidates * (2 * width + 3 * learned_width(settings))
    return scores + 4.0 * sum(r.edges for r in degrees) * width


def ranked_sums(settings: HgtSettings, counts: np.ndarray, degrees: Sequence[Degrees]) -> float:
    """Bytes while links are ranked: all vectors, their spectral part, and one relation's sums at all of its targets. Pair
    features add sparse neighbourhoods, steps of paths and, while their weights are fitted, a second copy of the edges.
    """
    if settings.objective.loss != "softmax":
        return 0.0
    targets = max(counts[r.target_type] for r in degrees)
    told = 0.0
    if settings.model.pair_features:
        told = 50 * sum(r.edges for r in degrees) + 3 * min(BLOCK_BYTES, 12_000 * float(counts.max(initial=0)))
    return (
        float((counts.sum() + 2 * targets) * (settings.model.embedding_dim + spectral_width(settings)) * _WIDE) + told
    )
