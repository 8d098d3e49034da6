"""The graphs that the HGT benchmarks run on. Endpoints are drawn skewed (rank ∝ u^1.5), both directions are edges."""

from __future__ import annotations

import numpy as np

from benchmarks.parts.card import DATASETS
from graphmill.kernels.hgt.plan import MessageGraph, TypedEdges

Typed = tuple[list[int], list[TypedEdges]]

FIVE_TYPES = {"drug": 7957, "disease": 17080, "gene": 27671, "pathway": 2516, "process": 28642}
# Undirected relations of PrimeKG between the five types, with the number of rows (each edge is two).
FIVE_TYPE_ROWS = [
    ("drug", "drug", 2_672_628),
    ("gene", "gene", 642_150),
    ("process", "gene", 289_610),
    ("disease", "gene", 160_822),
    ("process", "process", 105_772),
    ("pathway", "gene", 85_292),
    ("disease", "disease", 64_388),
    ("drug", "disease", 61_350),
    ("drug", "gene", 51_306),
    ("drug", "disease", 18_776),
    ("drug", "disease", 5_136),
    ("pathway", "pathway", 5_070),
]


def synthetic(nodes: int, edges: int, relations: int, seed: int = 0) -> Typed:
    """``nodes`` of five unequal types, ``edges`` directed edges spread evenly over ``relations`` (half are reverses)."""
    counts = [int(nodes * share) for share in (0.35, 0.25, 0.2, 0.15)]
    counts.append(nodes - sum(counts))
    rng = np.random.default_rng(seed)
    each = edges // relations
    out = []
    for number in range(relations // 2):
        s, t = number % 5, (number + number // 5) % 5
        out += _both(rng, counts, s, t, each, number * each)
    return counts, out


def primekg_shape(scale: float = 1.0, seed: int = 0) -> Typed:
    """PrimeKG's five types: 83,866 nodes, 4,162,300 directed edges, 19 edge types. ``scale`` multiplies the edges."""
    names = list(FIVE_TYPES)
    counts = list(FIVE_TYPES.values())
    rng = np.random.default_rng(seed)
    out: list[TypedEdges] = []
    first = 0
    for a, b, rows in FIVE_TYPE_ROWS:
        s, t, half = names.index(a), names.index(b), int(rows * scale) // 2
        if s == t:
            src, dst = _ends(rng, counts[s], half), _ends(rng, counts[t], half)
            pair = np.arange(first, first + half)
            ends = (np.concatenate([src, dst]), np.concatenate([dst, src]), np.concatenate([pair, pair]))
            out.append(_sorted(s, t, *ends))
        else:
            out += _both(rng, counts, s, t, half, first)
        first += half
    return counts, out


def dense(edges: int, seed: int = 0) -> Typed:
    """Two types of 5,000 nodes, four relations of as many directed edges each: from 10⁵ on all but a few occur in each."""
    counts, rng, out = [5000, 5000], np.random.default_rng(seed), []
    each = edges // 4
    for number, (s, t) in enumerate(((0, 1), (0, 1))):
        src, dst = (rng.integers(0, counts[side], each) for side in (s, t))
        pair = np.arange(number * each, (number + 1) * each)
        out += [_sorted(s, t, src, dst, pair), _sorted(t, s, dst, src, pair)]
    return counts, out


def hetionet(name: str) -> Typed:
    """A real graph by file name (``kg_5k.csv.gz``), all node types."""
    from pyarrow import csv

    table = csv.read_csv(DATASETS / "hetionet" / name).to_pandas()
    types = sorted(set(table.x_type) | set(table.y_type))
    locals_: dict[int, int] = {}
    counts = [0] * len(types)
    for index, kind in zip(
        np.concatenate([table.x_index, table.y_index]), np.concatenate([table.x_type, table.y_type]), strict=True
    ):
        if index not in locals_:
            locals_[index] = counts[types.index(kind)]
            counts[types.index(kind)] += 1
    table["src"], table["dst"] = table.x_index.map(locals_), table.y_index.map(locals_)
    low, high = np.minimum(table.x_index, table.y_index), np.maximum(table.x_index, table.y_index)
    table["pair"] = np.unique(low.to_numpy() * (high.max() + 1) + high.to_numpy(), return_inverse=True)[1]
    groups: dict[tuple[str, str, str], TypedEdges] = {}
    for (x, relation, y), part in table.groupby(["x_type", "relation", "y_type"], sort=True):
        ends = (part.src.to_numpy(), part.dst.to_numpy(), part.pair.to_numpy())
        groups[x, relation, y] = _sorted(types.index(x), types.index(y), *ends)
    return counts, list(groups.values())


_SIZES = {
    "67k": (67_000, 200_000, 30),
    "20k": (20_000, 60_000, 30),
    "7k": (6_700, 20_000, 30),
    "5k": (5_000, 15_000, 30),
    "tiny": (300, 900, 30),
}


def load(name: str) -> Typed:
    """``67k``, ``20k``, ``7k``, ``kg_5k``, ``kg``, ``primekg``, ``primekg*0.5`` for half of its edges, ``dense*100000``."""
    if name in _SIZES:
        return synthetic(*_SIZES[name])
    if name.startswith("dense"):
        return dense(int(name.partition("*")[2]))
    if name.startswith("primekg"):
        return primekg_shape(float(name.partition("*")[2] or 1.0))
    return hetionet(f"{name}.csv.gz")


def plan(typed: Typed) -> MessageGraph:
    """The graph as our kernels read it."""
    return MessageGraph.build(*typed)


def _ends(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    return (rng.random(size) ** 1.5 * count).astype(np.int64)


def _both(rng: np.random.Generator, counts: list[int], s: int, t: int, size: int, first: int) -> list[TypedEdges]:
    src, dst = _ends(rng, counts[s], size), _ends(rng, counts[t], size)
    pair = np.arange(first, first + size)
    return [_sorted(s, t, src, dst, pair), _sorted(t, s, dst, src, pair)]


def _sorted(s: int, t: int, src: np.ndarray, dst: np.ndarray, pair: np.ndarray) -> TypedEdges:
    order = np.lexsort((src, dst))
    as_int32 = (a[order].astype(np.int32) for a in (src, dst, pair))
    return TypedEdges(s, t, *as_int32)
