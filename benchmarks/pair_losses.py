"""``python -m benchmarks.pair_losses --json``: a step's loss of pairs beside two other ways of making it.

Forward and backward to the gradients of both tables (width 64, fp32, random rows), in turn, in one process: ours (pairs read
their rows where they are), the same compiled loss of rows that are looked up and put side by side first, and plain torch
(`F.embedding`, products, `logsumexp` or `logsigmoid`). Milliseconds, the median of some rounds; the heap is kept, as a
worker's is. Shapes: tiktok's users and items in batches of 2,048, and larger tables in batches of 16,384.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.card import Row, as_a_worker, fresh, milliseconds_in_turn, row, write
from graphmill.kernels.pair_losses import pair_losses
from graphmill.kernels.table_rows import table_rows

ROUNDS, SECONDS, WIDTH = 9, 0.1, 64
CASES = ((9_308, 6_710, 2_048, 1), (9_308, 6_710, 2_048, 8), (9_308, 6_710, 2_048, 64), (100_000, 50_000, 16_384, 8))
"""Users, items, pairs, and negatives of each."""


def ways(
    users: Tensor, items: Tensor, of_users: Tensor, of_items: Tensor, together: bool
) -> dict[str, Callable[[], Tensor]]:
    """The same loss: BPR, or ``together`` a softmax."""

    def plain() -> Tensor:
        own, theirs = F.embedding(of_users, users), F.embedding(of_items, items)
        scores = (own.unsqueeze(1) * theirs).sum(2)
        if together:
            return (torch.logsumexp(scores, 1) - scores[:, 0]).sum()
        return -F.logsigmoid(scores[:, :1] - scores[:, 1:]).mean(1).sum()

    return {
        "ours": lambda: pair_losses(users, items, of_users, of_items, together=together)[0],
        "rows side by side": lambda: pair_losses(
            table_rows(users, of_users), table_rows(items, of_items), together=together
        )[0],
        "plain torch": plain,
    }


def measure() -> list[Row]:
    """All rows, in this process."""
    torch.manual_seed(0)
    found = []
    for users, items, pairs, negatives in CASES:
        own, theirs = (torch.randn(n, WIDTH).mul_(0.1).requires_grad_() for n in (users, items))
        rows = torch.randint(users, (pairs,)), torch.randint(items, (pairs, 1 + negatives))
        all_ways = {
            name: partial(_gradients, way, (own, theirs))
            for name, way in ways(own, theirs, *rows, negatives > 1).items()
        }
        first = all_ways["ours"]()
        for way in all_ways.values():
            torch.testing.assert_close(way(), first, rtol=1e-3, atol=1e-4)
        ours, *others = milliseconds_in_turn(all_ways, ROUNDS, SECONDS).items()
        workload = f"{users:,} users, {items:,} items, {pairs:,} pairs, {negatives} negatives"
        note = f"{torch.get_num_threads()} threads; {'softmax' if negatives > 1 else 'BPR'}"
        for name, time_of in others:
            found.append(row(workload, "loss and gradients", "ms", ours[1], rival=name, theirs=time_of, note=note))
    return found


def _gradients(loss: Callable[[], Tensor], tables: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss(), tables)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/pair_losses.json")
    parser.add_argument("--here", action="store_true", help="measure in this process")
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps({"rows": [r.__dict__ for r in measure()]}))
        return
    found = [Row(**r) for r in fresh("benchmarks.pair_losses", ["--here"], as_a_worker())["rows"]]
    for r in found:
        print(f"{r.workload:66} {r.ours:8.3f} {r.theirs or 0:8.3f} ms  {r.rival:20} {r.ratio or 0:.2f} x")
    if arguments.json:
        write("pair_losses", found, "python -m benchmarks.pair_losses --json")


if __name__ == "__main__":
    main()
