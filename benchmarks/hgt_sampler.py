"""``python -m benchmarks.hgt_sampler``: edges per second that the neighbour sampler draws, on one core.

PrimeKG's five-type shape; 2,048 seeds of all types, 10 in-edges per node, relation and hop, two hops, some pairs masked.
``--budget`` times HGT's own sampler (512 nodes of each type a hop). One JSON line.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import pairwise
from statistics import median

import numpy as np

from benchmarks import hgt_graphs
from graphmill.sampling.in_edges import InEdges
from graphmill.sampling.neighbors import budget_sample, uniform_sample

SEEDS, FANOUT, HOPS, BUDGET = 2048, 10, 2, 512


def by_destination(typed: hgt_graphs.Typed) -> list[InEdges]:
    """The relations as the sampler reads them."""
    counts, relations = typed
    out = []
    for r in relations:
        dst, pair = np.asarray(r.dst), np.asarray(r.pair)
        indptr = np.searchsorted(dst, np.arange(counts[r.target_type] + 1))
        out.append(InEdges(r.source_type, r.target_type, indptr, np.asarray(r.src), pair, np.zeros(len(dst), np.uint8)))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graph", default="primekg")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--budget", action="store_true")
    args = parser.parse_args()
    typed = hgt_graphs.load(args.graph)
    counts, relations = typed[0], by_destination(typed)
    rng = np.random.default_rng(0)
    masked = rng.random(max(int(r.pair.max()) + 1 for r in relations)) < 0.01
    seconds, edges = [], []
    for number in range(args.repeats + 1):
        chosen = np.sort(rng.choice(sum(counts), SEEDS, replace=False))
        bounds = np.concatenate([[0], np.cumsum(counts)])
        seeds = [chosen[(chosen >= a) & (chosen < b)] - a for a, b in pairwise(bounds)]
        start = time.perf_counter()
        if args.budget:
            sample = budget_sample(counts, relations, seeds, [BUDGET] * HOPS, masked, number)
        else:
            fanouts = [[FANOUT] * len(relations)] * HOPS
            sample = uniform_sample(counts, relations, seeds, fanouts, masked, number)
        seconds.append(time.perf_counter() - start)
        edges.append(sample.num_edges)
    rates = [e / s for e, s in zip(edges[1:], seconds[1:], strict=True)]  # the first one reads the files
    print(json.dumps({"edges": edges[1:], "seconds": seconds[1:], "edges_per_second": median(rates)}))


if __name__ == "__main__":
    main()
