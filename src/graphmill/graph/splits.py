"""The splits of edges, and the hashes by which they are drawn.

The unit of most splits is the undirected node pair: an edge, its reverse, its duplicates and every other relation between
the same two nodes have the same split, so training keeps no edge of a held-out pair. ``relations`` and
``edge_splits`` draw them; ``leakage`` audits the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

TRAIN, VALID, TEST = 0, 1, 2
SPLIT_NAMES = ("train", "valid", "test")


def pair_of_edges(src: npt.NDArray[np.int32], dst: npt.NDArray[np.int32], num_nodes: int) -> npt.NDArray[np.int64]:
    """(E,) int64: the number of the undirected pair of each edge ``src`` → ``dst``, given as numbers below ``num_nodes``."""
    key = np.minimum(src, dst) * np.int64(num_nodes) + np.maximum(src, dst)
    return np.unique(key, return_inverse=True)[1]


def node_keys(types: Iterable[str], ids: Iterable[str], seed: int) -> npt.NDArray[np.uint64]:
    """(num_nodes,) uint64: a hash of each node's type and id, keyed by the seed; it depends on nothing else."""
    key = seed.to_bytes(16, "little")
    digests = b"".join(
        hashlib.blake2b(f"{kind}\0{name}".encode(), digest_size=8, key=key).digest()
        for kind, name in zip(types, ids, strict=True)
    )
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def pair_hashes(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hashes of pairs of nodes from the nodes' keys; the same for (a, b) and (b, a)."""
    return mix_bits(np.minimum(a, b) + mix_bits(np.maximum(a, b)))


GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""splitmix64's increment: 2⁶⁴ divided by the golden ratio."""


def mix_bits(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): every input bit changes about half of the output bits."""
    x = x + GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
