"""``python -m benchmarks.products --json``: our own products of fp32 beside torch's, in turn, in trainings' shapes.

A row a shape: 10⁹ multiplications and additions a second, the median of some rounds. Operands and results are allocated
before the clock starts. Whether training uses our own on this processor says ``graphmill.kernels.products.own_products``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from statistics import median

import torch

from benchmarks.card import Row, fresh, replace_rows, row
from graphmill.training.allocator import KEEP_HEAP

ROUNDS, SECONDS = 9, 0.02
SHAPES = {
    "4096 x 1024 x 1024": (4096, 1024, 1024),
    "67000 x 512 x 768 (HGT)": (67_000, 512, 768),
    "256 x 10368 x 200 (ConvE)": (256, 10_368, 200),
    "5300 x 50 x 50 (SASRec)": (5300, 50, 50),
    "26000 x 64 x 64 (KGAT)": (26_000, 64, 64),
}
"""Rows, terms and columns of x Wᵀ; its gradients' products have the same three numbers."""
BATCHES = {"8 heads of 2000 x 64 x 64 (HGT)": (8, 2000, 64)}
Works = dict[str, tuple[Callable[[], object], Callable[[], object]]]


def works(rows: int, terms: int, columns: int) -> Works:
    """x Wᵀ, and the products of its gradients: torch's and ours."""
    from graphmill.kernels.products.cpu import product_

    x, w, y = torch.randn(rows, terms), torch.randn(columns, terms), torch.randn(rows, columns)
    into_x, into_w = torch.empty_like(x), torch.empty_like(w)
    return {
        "x Wᵀ": (lambda: torch.mm(x, w.T, out=y), lambda: product_(y, x, w.T, None, False)),
        "y W": (lambda: torch.mm(y, w, out=into_x), lambda: product_(into_x, y, w, None, False)),
        "yᵀ x": (lambda: torch.mm(y.T, x, out=into_w), lambda: product_(into_w, y.T, x, None, False)),
    }


def batched(heads: int, rows: int, width: int) -> Works:
    """Heads side by side in memory, times a matrix each."""
    from graphmill.kernels.products.cpu import product_

    x, y = (torch.randn(rows, heads, width).transpose(0, 1) for _ in range(2))
    w = torch.randn(heads, width, width)
    return {"x W": (lambda: torch.bmm(x, w, out=y), lambda: product_(y, x, w, None, False))}


def measure() -> list[Row]:
    """All rows, in this process."""
    torch.manual_seed(0)
    found = []
    cases: list[tuple[str, Works, int]] = [(name, works(*s), s[0] * s[1] * s[2]) for name, s in SHAPES.items()]
    cases += [(name, batched(*s), s[0] * s[1] * s[2] ** 2) for name, s in BATCHES.items()]
    for name, both, work in cases:
        for form, (theirs, ours) in both.items():
            rates: list[list[float]] = [[], []]
            repeats = [_repeats(one) for one in (theirs, ours)]
            for _ in range(ROUNDS):
                for one, times, rate in zip((theirs, ours), repeats, rates, strict=True):
                    rate.append(2e-9 * work * times / _seconds(one, times))
            their, own = (median(rate) for rate in rates)
            found.append(row(name, f"products, {form}", "GFLOP/s", own, rival="torch", theirs=their))
    return found


def _repeats(work: Callable[[], object]) -> int:
    work()
    return max(1, int(SECONDS / _seconds(work, 1)))


def _seconds(work: Callable[[], object], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        work()
    return time.perf_counter() - started


def rows() -> Iterator[Row]:
    """All rows, from a process that keeps its heap."""
    for found in fresh("benchmarks.products", ["--here"], KEEP_HEAP)["rows"]:
        yield Row(**found)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/products.json")
    parser.add_argument("--here", action="store_true", help="measure in this process")
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps({"rows": [r.__dict__ for r in measure()], "threads": torch.get_num_threads()}))
        return
    found = list(rows())
    for r in found:
        print(f"{r.workload:34} {r.metric:32} {r.ours:6.0f} {r.theirs or 0:6.0f} GFLOP/s  {r.ratio or 0:.2f} x")
    if arguments.json:
        replace_rows("products", found, "python -m benchmarks.products --json", lambda _: True)


if __name__ == "__main__":
    main()
