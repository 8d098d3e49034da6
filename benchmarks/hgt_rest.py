"""What a training step of the kernel workload that goes relation by relation does besides its products, part by part.

The limit of ``benchmarks.hgt_products`` is matrix products alone. Where these take four seconds the rest hardly counts;
where a machine does them in less than two, it does. Each part is counted for the scheme of ``kernels/hgt/relations.py`` (one
that went target by target could read some rows fewer times), at the best rate that torch's own operators reach here for it:

* ``rows``: each relation reads the rows of the nodes that occur in it, once a pass: forward k and v of its sources and q of
  its targets, and the targets' sums are read and written; backward k, v, q and the output's gradient are read, and the
  gradients of q, k and v read and written. Bytes, at the rate of a gather of these very rows.
* ``edges``: an edge whose source another edge has met reads k and v in each pass, and q and the output's gradient where it
  adds to the sums of its source. Bytes, at the rate at which every thread reads the second cache.
* ``operators``, in place of both where the edges are done by torch's sparse operators (``kernels/hgt/sparse.py``):
  ``sampled_addmm`` and ``embedding_bag`` on all relations into a type, as often as a step needs them; and in place of
  ``edges`` where they are done by dense ones (``kernels/hgt/segments.py``): ``embedding_bag`` and the gradients of its
  weights on each relation.
* ``activations``: GELU on what was attended to, and its gradient.
* ``loss``: the workload's own, squares of all outputs, and its gradient.
* ``update``: Adam, fused, on tables and weights.

``python -m benchmarks.hgt_rest --graph 67k`` prints them beside the products.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Literal

import torch

from benchmarks import hgt_graphs, hgt_products
from benchmarks.hgt_products import WIDTHS, Clock
from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.kernels.hgt.segments import edge_products, runs, weighted_sums
from graphmill.kernels.hgt.sparse import inbox_of

Way = Literal["compiled", "sparse", "dense"]
_CACHED = 1 << 20
"""Bytes that every thread's second cache holds on the processors here."""


def seconds(
    graph: MessageGraph,
    widths: tuple[int, ...] = WIDTHS,
    dtype: torch.dtype = torch.float32,
    clock: Clock = time.perf_counter,
    way: Way = "compiled",
) -> dict[str, float]:
    """Of one step on the CPU, by part. ``dtype``: of rows and activations; sums, loss and update are fp32.

    ``way``: what the edges are done with, torch's sparse or dense operators or one compiled pass.
    """
    outputs = sum(widths[1:])
    size = dtype.itemsize
    sources = sum(r.source_nodes.numel() for r in graph.relations)
    targets = sum(r.target_nodes.numel() for r in graph.relations)
    again = sum(r.num_edges - r.source_nodes.numel() for r in graph.relations)
    # Read in the rows' precision; sums and gradients are read and written in fp32.
    rows = (sources * (4 * size + 4 * 4) + targets * (3 * size + 4 * 4)) * outputs
    receiving = sum(graph.target_counts[t] for t in graph.target_types)
    if way == "sparse":
        attention = {"operators": _operators(graph, widths, clock)}
    else:
        attention = {"rows": rows / _gather_rate(graph, widths[-1], dtype, clock)}
        if way == "dense":
            attention["operators"] = _dense_operators(graph, widths, clock)
        else:
            attention["edges"] = again * 6 * size * outputs / _cache_rate(clock)
    return {
        **attention,
        "activations": sum(_activation(receiving, width, dtype, clock) for width in widths[1:]),
        "loss": _loss(receiving, widths[-1], clock),
        "update": _update(graph, widths, clock),
    }


def _best(work: Callable[[], object], clock: Clock, repeats: int = 3) -> float:
    found = float("inf")
    for _ in range(repeats):
        start = clock()
        work()
        found = min(found, clock() - start)
    return found


def _gather_rate(graph: MessageGraph, width: int, dtype: torch.dtype, clock: Clock) -> float:
    """Bytes read and written a second, for the sources of all relations."""
    moved, taken = 0, 0.0
    tables: dict[int, torch.Tensor] = {}
    for r in graph.relations:
        if not r.num_edges:
            continue
        count = graph.source_counts[r.source_type]
        table = tables.setdefault(r.source_type, torch.ones(count, width, dtype=dtype))
        room = table.new_empty(r.source_nodes.numel(), width)
        taken += _best(lambda t=table, n=r.source_nodes, o=room: torch.index_select(t, 0, n, out=o), clock)  # type: ignore[misc]
        moved += 2 * room.numel() * room.itemsize
    return moved / taken


def _cache_rate(clock: Clock) -> float:
    """Bytes that all threads together read a second where each reads its own second cache."""
    threads, x = torch.get_num_threads(), torch.ones(_CACHED // 4)
    left, right = x.split(len(x) // 2)
    torch.set_num_threads(1)
    taken = _best(lambda: [torch.dot(left, right) for _ in range(50)], clock) / 50
    torch.set_num_threads(threads)
    return threads * _CACHED / taken


def _operators(graph: MessageGraph, widths: tuple[int, ...], clock: Clock) -> float:
    """Torch's sparse operators: an edge's product thrice, weighted sums over targets and over sources twice each."""
    total = 0.0
    for t in sorted(graph.target_types):
        chosen = tuple(n for n, r in enumerate(graph.relations) if r.target_type == t and r.num_edges)
        if not chosen:
            continue
        inbox = inbox_of(graph, chosen)
        _, target, bounds = inbox.transposed
        for width in widths[1:]:
            q, k = (torch.randn(n, width // hgt_products.HEADS) for n in (inbox.num_targets, inbox.rows))
            weights = torch.ones(len(inbox.source))
            pattern = torch.sparse_csr_tensor(
                inbox.bounds, inbox.source, weights, (len(q), len(k)), check_invariants=False
            )
            dots = _best(partial(torch.sparse.sampled_addmm, pattern, q, k.T, beta=0.0), clock, 2)
            onto_targets = _best(partial(weighted_sums, inbox.source, inbox.bounds, weights, k), clock, 2)
            onto_sources = _best(partial(weighted_sums, target, bounds, weights, q), clock, 2)
            total += hgt_products.HEADS * (3 * dots + 2 * onto_targets + 2 * onto_sources)
    return total


def _dense_operators(graph: MessageGraph, widths: tuple[int, ...], clock: Clock) -> float:
    """Torch's dense operators: of each relation an edge's product twice (logits are kept), weighted sums over targets twice,
    once more where the matrices are on their side, and over sources twice."""
    total = 0.0
    for r in graph.relations:
        if not r.num_edges:
            continue
        order = r.by_source
        target, bounds = r.target[order], runs(r.source[order], r.source_nodes.numel())
        of_targets, weights = r.indptr.int(), torch.ones(r.num_edges)
        for width in widths[1:]:
            q, k = (torch.randn(n.numel(), width // hgt_products.HEADS) for n in (r.target_nodes, r.source_nodes))
            dots = _best(partial(edge_products, q, k, r.source, of_targets, r.target), clock, 2)
            onto_targets = _best(partial(weighted_sums, r.source, of_targets, weights, k), clock, 2)
            onto_sources = _best(partial(weighted_sums, target, bounds, weights, q), clock, 2)
            total += hgt_products.HEADS * (2 * dots + (2 + r.on_target) * onto_targets + 2 * onto_sources)
    return total


def _activation(count: int, width: int, dtype: torch.dtype, clock: Clock) -> float:
    x = torch.randn(count, width, dtype=dtype)
    y, slope = torch.empty_like(x), torch.randn(count, width, dtype=dtype)
    forward = _best(lambda: torch.ops.aten.gelu.out(x, out=y), clock)
    return forward + _best(lambda: torch.ops.aten.gelu_backward.grad_input(slope, x, grad_input=y), clock)


def _loss(count: int, width: int, clock: Clock) -> float:
    y = torch.randn(count, width)
    slope, flat = torch.empty_like(y), y.view(-1)
    return _best(lambda: torch.dot(flat, flat), clock) + _best(lambda: torch.mul(y, 0.5, out=slope), clock)


def _update(graph: MessageGraph, widths: tuple[int, ...], clock: Clock) -> float:
    heads, types = hgt_products.HEADS, graph.num_types
    layers = sum(
        types * (3 * a * b + b * b) + len(graph.relations) * 2 * heads * (b // heads) ** 2 for a, b in pairwise(widths)
    )
    sizes = [max(s, t) * widths[0] for s, t in zip(graph.source_counts, graph.target_counts, strict=True)]
    parameters = [torch.nn.Parameter(torch.zeros(n)) for n in (*sizes, layers)]
    for p in parameters:
        p.grad = torch.ones_like(p)
    optimizer = torch.optim.Adam(parameters, fused=True)
    optimizer.step()
    return _best(optimizer.step, clock)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="67k")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument(
        "--way", choices=["compiled", "sparse", "dense"], default="compiled", help="what does the edges"
    )
    args = parser.parse_args()
    graph, dtype = hgt_graphs.plan(hgt_graphs.load(args.graph)), getattr(torch, args.dtype)
    found = {"products": hgt_products.Products(hgt_products.products(graph), dtype).seconds(3)} | seconds(
        graph, dtype=dtype, way=args.way
    )
    print(json.dumps({"graph": args.graph, **found, "all": sum(found.values())}))


if __name__ == "__main__":
    main()
