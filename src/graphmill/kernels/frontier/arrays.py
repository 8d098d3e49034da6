"""The arrays that frontiers are made from and made of; compiled code takes them as they are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Edges(NamedTuple):
    """Directed edges sorted by source: those of node u are ``pointer[u]:pointer[u + 1]``.

    ``pointer`` int64 [N + 1]; ``target``, ``relation`` int32 [E]; ``weight`` float32 [E], above 0; ``kind`` uint64
    [relations]: edges of a node pair are dropped together if their relations are of one kind.
    """

    pointer: np.ndarray
    target: np.ndarray
    relation: np.ndarray
    weight: np.ndarray
    kind: np.ndarray


class Queries(NamedTuple):
    """A batch of queries, and the link that each of them does not see (in training).

    ``head``, ``tail`` int64 [B]: its ends (tail −1: none); ``relation``, ``reverse`` int64 [B]: its relation, and that of
    its reverse; ``whole_pairs``: edges of other relations between its ends are left out as well. ``out``, ``into`` float64
    [B]: factors of the weights of the head's edges, and the tail's, in its relation, since it counts in their degrees.
    ``first``, ``last`` int64 [B]: targets of the last layer, ``first <= v < last``; ``reads`` bool [N]: which of them are
    read, besides the tail. ``key`` uint64 [B]: of the dropped edges; ``offset`` int64 [B]: what is added to the relations
    of the layers' edges.
    """

    head: np.ndarray
    tail: np.ndarray
    relation: np.ndarray
    reverse: np.ndarray
    whole_pairs: bool
    out: np.ndarray
    into: np.ndarray
    first: np.ndarray
    last: np.ndarray
    reads: np.ndarray
    key: np.ndarray
    offset: np.ndarray


class Layer(NamedTuple):
    """One layer: ``node`` int32 [n], rows by query; ``start`` int64 [B + 1]: rows of each query; ``previous`` int32 [n]:
    the node's row one layer before (−1: none). Edges, by source: ``source`` int32 [E], row one layer before; ``target``
    int32 [E], row of this layer; ``relation`` int32 [E]; ``weight`` float32 [E]."""

    node: np.ndarray
    start: np.ndarray
    previous: np.ndarray
    source: np.ndarray
    target: np.ndarray
    relation: np.ndarray
    weight: np.ndarray
