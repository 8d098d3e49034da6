"""Draws negative tails for the AUC from the unknown candidates, uniformly or in proportion to their degree.

A degree-matched negative is the tail of another query of the relation. So nodes are negatives exactly as often as they
are the tail of a true link, and a score by degree alone gets an AUC of about one half ("Implicit degree bias in the
link prediction task", arXiv 2405.14985). Weighting by the degree over all splits would favour negatives, because a
held-out link does not count in its own tail's training degree. Heads are those of the true links and need no
correction.
"""

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.ranking.queries import Int64, RelationQueries
from graphmill.sampling.keyed import generator

#: A query has no negative if its head is linked to all candidates (by degree: to the tail of every query).
NONE = -1


def draw_negatives(queries: RelationQueries, weights: Int64, count: int, seed: int, kind: str) -> Int64:
    """``count`` negative tails for each query: int64 (Q × count), :data:`NONE` if a query has none.

    ``weights``: int64 (candidates), relative frequency of each candidate. Drawing is exact and without rejection: the
    drawn number counts the weight of unknown candidates only, and the known ones before it are added back. The result
    does not depend on later blocks of queries.
    """
    if not len(queries.heads):
        return np.zeros((0, count), dtype=np.int64)
    below = np.concatenate([[0], np.cumsum(weights)])  # cumulative weight of the candidates before each
    total = int(below[-1])
    start, stop = queries.known_indptr[:-1], queries.known_indptr[1:]
    removed = np.concatenate([[0], np.cumsum(weights[queries.known_tails])])  # over all heads in sequence
    head_of = np.repeat(np.arange(len(start)), stop - start)
    unknown_before = below[queries.known_tails] - (removed[:-1] - removed[start[head_of]])
    positions = head_of * (total + 1) + unknown_before  # ascending, so that one search works for all heads

    heads = queries.heads
    room = total - (removed[stop[heads]] - removed[start[heads]])
    rng = generator("negatives", kind, seed, queries.relation)
    drawn = rng.integers(0, np.maximum(room, 1)[:, None], size=(len(heads), count))
    passed = np.searchsorted(positions, heads[:, None] * (total + 1) + drawn, side="right")
    shifted = drawn + removed[passed] - removed[start[heads, None]]
    tails = np.searchsorted(below, shifted, side="right") - 1
    return np.where(room[:, None] > 0, tails, NONE).astype(np.int64)


def uniform_weights(queries: RelationQueries) -> Int64:
    """Weight 1 for every candidate (candidates)."""
    return np.ones(queries.candidates, dtype=np.int64)


def degree_weights(queries: RelationQueries) -> Int64:
    """Each candidate's degree in the ranked split, that is, the number of queries with it as tail (candidates)."""
    return np.bincount(queries.tails, minlength=queries.candidates).astype(np.int64)


def auc(positives: NDArray[np.floating], negatives: NDArray[np.floating]) -> float:
    """Probability that a random positive scores above a random negative, ties counting half; nan without negatives."""
    if not len(positives) or not len(negatives):
        return float("nan")
    ordered = np.sort(negatives)
    below = np.searchsorted(ordered, positives, side="left")
    upto = np.searchsorted(ordered, positives, side="right")
    return float((below + upto).mean() / (2 * len(ordered)))
