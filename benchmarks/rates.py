"""What this machine multiplies and copies in a second, and figures recorded on another one scaled by it.

PEERS.md timed the public implementations of MMGCN, DRAGON and KGAT once, with their memory settings tuned, on two threads of
an EPYC that multiplied at :data:`PRODUCTS` and copied at :data:`COPY` (its section 8). A stand-in (``benchmarks/naive``)
counts only if it is not slower than 1.2 × such a figure, scaled to the machine and the moment at hand. The rule:

* of a figure, the share of products (:attr:`Recorded.products`) is taken to scale with the rate of a product of 26,000 × 64
  by 64 × 64, the shape that PEERS has for these models;
* the share of a Python interpreter (:attr:`Recorded.python`: negatives and facts drawn one at a time) is taken as recorded:
  neither rate says anything about it;
* all the rest, gathered and added rows, passes over tables, the update, scales with the rate of a copy of 256 MiB.

Shares are PEERS' own, or arithmetic on its times; they say where each is from. What a figure of more than 1.2 × means: the
stand-in is slower than the public code would be here, and a ratio to it flatters us; then the ratio to the scaled figure,
which stands beside it, is the one that counts. Less than 0.8 × is the harder rival.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.card import Row, row

PRODUCTS, COPY = 189e9, 32e9
"""PEERS' operations a second of x [26000, 64] times [64, 64], and bytes, read and written, of a copy of 256 MiB; fp32, best
of five on two threads."""
REPEATS, SECONDS = 5, 0.3
"""How often and for how long a rate is measured at least: what a neighbour disturbs is not the best."""
PUBLIC = "the public implementation as recorded, scaled"


@dataclass(frozen=True)
class Recorded:
    """``seconds``, tuned, of a public implementation, and which share of them are products and the interpreter's."""

    seconds: float
    products: float
    python: float

    def scaled(self, rates: Mapping[str, float]) -> float:
        """Seconds on a machine with these ``rates`` (:func:`rates`)."""
        memory = 1.0 - self.products - self.python
        factor = self.products * PRODUCTS / rates["products"] + self.python + memory * COPY / rates["copy"]
        return self.seconds * factor


RECORDED = {
    # Profile: mm 29 %; sampling 4 to 7 ms a step.
    "mmgcn tiktok": Recorded(0.31, products=0.29, python=0.02),
    # Profile: bmm 15 %; sampling as above.
    "dragon tiktok": Recorded(0.28, products=0.15, python=0.02),
    # 18 steps of 58 ms, 14 of them sampling, and 33 of 64 ms, 26 of them sampling. Products: 11,238 nodes through two maps a
    # layer, three times (0.90 GFLOP, 4.7 ms), and 6,144 rows through a 64 × 64 matrix, likewise (0.8 ms).
    "kgat last-fm": Recorded(3.2, products=0.03, python=0.35),
    # 60 steps of 410 ms, 15 of them sampling, and 208 of 82, 30 of them sampling. Products: 95,763 nodes (7.6 GFLOP, 40 ms).
    "kgat book": Recorded(41.7, products=0.06, python=0.17),
}
"""PEERS sections 3 and 5: a step of MMGCN and DRAGON, an epoch of KGAT. The baby data set has no tuned figure there."""


def rates() -> dict[str, float]:
    """Of this machine as it is now, on all threads."""
    return {"products": product_rate(26_000, 64), "copy": copy_rate()}


def product_rate(rows: int, width: int, multiply: Callable[..., object] = torch.mm) -> float:
    """Operations a second of a table's product with a square matrix; ``multiply``: torch's, or what stands in for it."""
    x, w = torch.randn(rows, width), torch.randn(width, width)
    out = torch.empty_like(x)
    return 2.0 * rows * width * width / _best(lambda: multiply(x, w, out=out))


def copy_rate() -> float:
    """Bytes, read and written, a second."""
    a = torch.ones(1 << 26)
    b = torch.empty_like(a)
    return 2.0 * a.nbytes / _best(lambda: b.copy_(a))


def read_rate(size: int) -> float:
    """Bytes a second that all threads read one after the other of an array of ``size`` bytes, read just before."""
    x, times = torch.ones(size // 4), 20
    return times * x.nbytes / _best(lambda: [torch.sum(x) for _ in range(times)])


def cache_bytes(level: int) -> int:
    """Bytes of all caches of this level that the machine has; 0 where the system does not say."""
    found: dict[str, int] = {}
    for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cache/index*"):
        if (folder / "level").read_text().strip() == str(level) and (folder / "type").read_text() != "Instruction\n":
            found[(folder / "shared_cpu_list").read_text()] = 1024 * int(
                (folder / "size").read_text().strip().rstrip("K")
            )
    return sum(found.values())


def _best(work: Callable[[], object]) -> float:
    """Seconds, the best of some after one that warms up."""
    work()
    best, count, began = float("inf"), 0, time.perf_counter()
    while count < REPEATS or time.perf_counter() - began < SECONDS:
        started = time.perf_counter()
        work()
        best, count = min(best, time.perf_counter() - started), count + 1
    return best


def recorded_rows(
    metric: str, of: str, forms: Mapping[str, tuple[str, Sequence[float], str]], runs: Sequence[Mapping[str, float]]
) -> list[Row]:
    """A row for each of ``forms`` (workload, its seconds, target) beside the figure recorded for ``of``.

    ``runs``: the rates of the rounds in which the seconds were measured, one beside each.
    """
    recorded = RECORDED[of]
    scaled = [recorded.scaled(run) for run in runs]
    measured = "; ".join(
        f"{name} {', '.join(f'{run[key] / 1e9:.3g}' for run in runs)} {unit} (there {there / 1e9:.3g})"
        for name, key, unit, there in (("products", "products", "GFLOP/s", PRODUCTS), ("copies", "copy", "GB/s", COPY))
    )
    shares = f"{recorded.products:.0%} products, {recorded.python:.0%} interpreter"
    rows = []
    for name, (workload, seconds, target) in forms.items():
        pairs = median(a / b for a, b in zip(seconds, scaled, strict=True))
        note = f"{name}: {pairs:.2f} of it pair by pair; recorded {recorded.seconds} s, {shares}, scaled to "
        note += ", ".join(f"{s:.3g}" for s in scaled) + f" s by this run's rates: {measured}"
        if name in ("naive", "plain"):
            note += f"; {'within' if 0.8 <= pairs <= 1.2 else 'not within'} ± 20 %"
        rows.append(
            row(workload, metric, "s", median(seconds), rival=PUBLIC, theirs=median(scaled), target=target, note=note)
        )
    return rows


def seconds_of(runs: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """One figure of each run."""
    return [float(run[key]) for run in runs]
