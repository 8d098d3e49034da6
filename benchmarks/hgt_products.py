"""The limit of one training step of the kernel workload: its matrix products, and nothing else, timed one by one.

From the graph alone: per type and layer the projections to q, k, v and the output product, per relation two products on
the side with fewer occurring nodes; each forward, for its input's gradient and for its weight's gradient. Operands and
results are allocated before the clock starts; each distinct shape is timed on its own. The products are
torch's; ``--own`` times those that training uses where torch's are slow (``graphmill.kernels.products``).
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch

from benchmarks import hgt_graphs
from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.kernels.products import product

WIDTHS = (512, 256, 512)
HEADS = 8

CPU = torch.device("cpu")

Clock = Callable[[], float]
Product = tuple[str, int, int, int, int]  # kind, batch, rows, inner, columns
Call = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # both operands and the result


def products(graph: MessageGraph, widths: tuple[int, ...] = WIDTHS, heads: int = HEADS) -> Counter[Product]:
    """How often each product occurs in one step."""
    found: Counter[Product] = Counter()
    for d_in, d_out in pairwise(widths):
        for t, count in enumerate(graph.source_counts):
            parts = (t in graph.target_types) + 2 * (t in graph.source_types)
            if parts:
                found["mm", 1, count, d_in, parts * d_out] += 1
            if t in graph.target_types:
                found["mm", 1, count, d_out, d_out] += 1
        for r in graph.relations:
            rows = min(r.source_nodes.numel(), r.target_nodes.numel())
            found["bmm", heads, rows, d_out // heads, d_out // heads] += 2
    return found


def gflop(found: Counter[Product]) -> float:
    """10⁹ floating point operations of a step, the three products of each counted."""
    return sum(3 * 2 * b * n * k * m * times for (_, b, n, k, m), times in found.items()) / 1e9


class Products:
    """A step's products on operands that are there; ``seconds`` multiplies them and sums their times."""

    def __init__(
        self,
        found: Counter[Product],
        dtype: torch.dtype = torch.float32,
        clock: Clock = time.perf_counter,
        device: torch.device = CPU,
        own: bool = False,
    ) -> None:
        self._operands = [(_calls(one, dtype, device), times) for one, times in found.items() if one[2]]
        self._device, self._clock, self._own = device, clock, own

    def seconds(self, repeats: int = 1) -> float:
        """Of every distinct product the shortest of ``repeats``, as often as a step has it."""
        return sum(times * self._best(one, repeats) for calls, times in self._operands for one in calls)

    def _best(self, call: Call, repeats: int) -> float:
        a, b, out = call
        multiply: Callable[..., object] = product if self._own else torch.mm if a.dim() == 2 else torch.bmm
        # On an accelerator a product is timed many times over: between two waits there is more than one call.
        times = 1 if self._device.type == "cpu" else 20
        best = float("inf")
        for _ in range(repeats):
            wait(self._device)
            start = self._clock()
            for _ in range(times):
                multiply(a, b, out=out)
            wait(self._device)
            best = min(best, (self._clock() - start) / times)
        return best


def limits(device: torch.device = CPU, size: int = 4096, numbers: int = 1 << 27, repeats: int = 5) -> dict[str, float]:
    """What the device does at its best: products of ``size``³ in fp32 and bf16, GFLOP/s, and a copy, GB/s read and written.

    By torch, the shortest of ``repeats``; fp32 without the tensor cores' rounding unless training allows it.
    """
    found = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        a, b, out = (torch.randn(size, size, device=device).to(dtype) for _ in range(3))
        found[name] = 2e-9 * size**3 / _shortest(partial(torch.mm, a, b, out=out), device, repeats)
    source = torch.zeros(numbers, device=device)
    there = torch.zeros_like(source)
    found["copy"] = 2e-9 * 4 * numbers / _shortest(partial(there.copy_, source), device, repeats)
    return found


def _shortest(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    call()
    taken = []
    for _ in range(repeats):
        wait(device)
        start = time.perf_counter()
        call()
        wait(device)
        taken.append(time.perf_counter() - start)
    return min(taken)


def wait(device: torch.device) -> None:
    """Until all that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def _calls(one: Product, dtype: torch.dtype, device: torch.device) -> list[Call]:
    """Operands and result of a product, of its input's gradient and of its weight's."""
    _, batch, rows, inner, columns = one
    if batch == 1:
        x, w, y = (
            torch.randn(*s, dtype=dtype, device=device) for s in ((rows, inner), (inner, columns), (rows, columns))
        )
        dx, dw = torch.empty_like(x), torch.empty_like(w)
        return [(x, w, y), (y, w.mT, dx), (x.mT, y, dw)]
    # heads side by side in memory, as they are in the model
    x, y, dx = (
        torch.randn(rows, batch, s, dtype=dtype, device=device).transpose(0, 1) for s in (inner, columns, inner)
    )
    w, dw = (torch.randn(batch, inner, columns, dtype=dtype, device=device) for _ in range(2))
    return [(x, w, y), (y, w.mT, dx), (x.mT, y, dw)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graph", default="67k")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--own", action="store_true", help="by what training uses on this processor, instead of torch")
    args = parser.parse_args()
    found = products(hgt_graphs.plan(hgt_graphs.load(args.graph)))
    taken = Products(found, getattr(torch, args.dtype), own=args.own).seconds(3)
    print(
        json.dumps({"graph": args.graph, "gflop": gflop(found), "seconds": taken, "gflop_per_s": gflop(found) / taken})
    )


if __name__ == "__main__":
    main()
