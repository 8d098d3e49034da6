"""One variant of the kernel workload in this process: two HGT layers 512 → 256 → 512, 8 heads, tables, Adam.

``python -m benchmarks.parts.hgt_step --graph 67k --variant ours`` prints one JSON line: seconds of each step, peak memory
of the process and after imports. ``benchmarks.hgt`` runs it for each row of the table, in a fresh process each time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.parts import hgt_graphs

WIDTHS, HEADS = (512, 256, 512), 8


class Ours(nn.Module):
    """The workload on our layer.

    ``options``: bf16, checkpoint.
    """

    def __init__(self, typed: hgt_graphs.Typed, options: set[str]) -> None:
        from graphmill.systems.hgt.model import HGTLayer

        super().__init__()
        counts, edges = typed
        self.graph = hgt_graphs.plan(typed)
        self.options = options
        self.tables = nn.ParameterList(nn.Parameter(torch.randn(n, WIDTHS[0]) * 0.1) for n in counts)
        relations = [(e.source_type, e.target_type) for e in edges]
        self.layers = nn.ModuleList(HGTLayer(len(counts), relations, a, b, HEADS) for a, b in pairwise(WIDTHS))

    def forward(self) -> list[Tensor]:
        from graphmill.kernels.recomputed import recomputed

        x: list[Tensor] = list(self.tables)
        with torch.autocast(x[0].device.type, torch.bfloat16) if "bf16" in self.options else nullcontext():
            if self.graph.device != x[0].device:
                self.graph = self.graph.on(x[0].device)
            for layer in self.layers:
                x = recomputed("checkpoint" in self.options, layer, x, self.graph)
        return x


class PyG(nn.Module):
    """The workload on PyTorch Geometric's HGTConv, as installed or with its loop of in-place slices repaired."""

    def __init__(self, typed: hgt_graphs.Typed, options: set[str]) -> None:
        from torch_geometric.nn import HGTConv
        from torch_geometric.nn.dense import HeteroLinear

        super().__init__()
        if "repaired" in options:
            HeteroLinear.forward_naive = _split_and_cat
        counts, edges = typed
        self.types = [str(t) for t in range(len(counts))]
        names = [(str(e.source_type), f"r{i}", str(e.target_type)) for i, e in enumerate(edges)]
        ends = [torch.stack([torch.from_numpy(e.src).long(), torch.from_numpy(e.dst).long()]) for e in edges]
        self.index = dict(zip(names, ends, strict=True))
        self.tables = nn.ParameterList(nn.Parameter(torch.randn(n, WIDTHS[0]) * 0.1) for n in counts)
        self.layers = nn.ModuleList(HGTConv(a, b, (self.types, names), heads=HEADS) for a, b in pairwise(WIDTHS))

    def forward(self) -> list[Tensor]:
        x = dict(zip(self.types, self.tables, strict=True))
        device = self.tables[0].device
        self.index = {name: ends.to(device) for name, ends in self.index.items()}
        for layer in self.layers:
            x = layer(x, self.index)
        return list(x.values())


def _split_and_cat(self: Any, x: Tensor, type_ptr: Tensor) -> Tensor:
    parts = x.split((type_ptr[1:] - type_ptr[:-1]).tolist())
    return torch.cat([part @ w for part, w in zip(parts, self.weight, strict=True)])


def mean_squares(outputs: list[Tensor]) -> Tensor:
    """The workload's loss: the squares of all nodes' outputs, per node.

    Its gradient is one pass, and the only array. As arrays of squares and of their gradients it took the time of two layers'
    activations and was the step's peak of memory, in every library alike; torch's norm takes three passes and two arrays.
    """
    squares: list[Tensor] = [_Square.apply(y) for y in outputs]
    return torch.stack(squares).sum() / sum(len(y) for y in outputs)


class _Square(torch.autograd.Function):
    """Σ y², in fp32."""

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return torch.linalg.vector_norm(y, dtype=torch.float32).square()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return y * (2 * gradient).to(y.dtype)


def run(model: nn.Module, steps: int) -> list[float]:
    """Seconds of each optimizer step: forward, backward, Adam."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    device = next(model.parameters()).device
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        out = model()
        loss = mean_squares(out)
        del out
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        _wait(device)
        seconds.append(time.perf_counter() - start)
    return seconds


def least(model: Ours | PyG, typed: hgt_graphs.Typed, number: int) -> dict[str, float]:
    """What a step has to compute and to move: its products by torch's counter, GFLOP, and the least bytes, GB.

    Every array is written where it is made and read where it is needed, each once; ``number``: bytes of a number of a row.

    - Adam: a parameter and its two moments are read and written, its gradient is written and read: 8 numbers of 4 bytes.
    - A layer from width a to b, forward, a node: x is read, q, k and v are written, the message read, the output written:
      a + 5 b. Backward twice that: each array is read again, or its gradient written or read.
    - An edge of this layer: its sender's k and v are read forward and again backward, their gradients written: 6 b.

    Indices, logits and all that a cache could keep are left out.
    """
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        mean_squares(model()).backward()
    nodes, edges = sum(typed[0]), sum(len(e.src) for e in typed[1])
    rows = sum(3 * (a + 5 * b) * nodes + 6 * b * edges for a, b in pairwise(WIDTHS))
    moved = 8 * 4 * sum(p.numel() for p in model.parameters()) + number * rows
    return {"gflop": counter.get_total_flops() / 1e9, "moved_gb": moved / 1e9}


def limits(device: torch.device, size: int = 4096, numbers: int = 1 << 27, repeats: int = 5) -> dict[str, float]:
    """What the device does at its best: products of ``size``³ in fp32 and bf16, GFLOP/s, and a copy, GB/s read and written.

    By torch, the shortest of ``repeats``; fp32 without the tensor cores' rounding unless training allows it.
    """
    results = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        a, b, out = (torch.randn(size, size, device=device).to(dtype) for _ in range(3))
        results[name] = 2e-9 * size**3 / _shortest(partial(torch.mm, a, b, out=out), device, repeats)
    source = torch.zeros(numbers, device=device)
    present = torch.zeros_like(source)
    results["copy"] = 2e-9 * 4 * numbers / _shortest(partial(present.copy_, source), device, repeats)
    return results


def _shortest(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    call()
    taken = []
    for _ in range(repeats):
        _wait(device)
        start = time.perf_counter()
        call()
        _wait(device)
        taken.append(time.perf_counter() - start)
    return min(taken)


def _wait(device: torch.device) -> None:
    """Until all that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def memory(field: str) -> float:
    """``VmHWM`` (the peak) or ``VmRSS`` of this process in GB (10⁹ bytes)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024 / 1e9
    raise OSError(f"no {field} in /proc/self/status: this benchmark needs Linux")


def on_device(device: torch.device) -> dict[str, Any]:
    """The most that tensors held on an accelerator, in GB, and which it is."""
    if device.type != "cuda":
        return {}
    return {"device_gb": torch.cuda.max_memory_allocated() / 1e9, "device": torch.cuda.get_device_name()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graph", default="67k")
    parser.add_argument("--variant", default="ours", help="ours or pyg, then options: ours,bf16 or pyg,repaired")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--least", action="store_true", help="also what a step has to compute and to move")
    args = parser.parse_args()
    kind, *options = args.variant.split(",")
    torch.manual_seed(0)
    device = torch.device(args.device)
    typed = hgt_graphs.load(args.graph)
    base = memory("VmRSS")
    model = (Ours if kind == "ours" else PyG)(typed, set(options)).to(device)
    result: dict[str, Any] = {"graph": args.graph, "variant": args.variant}
    if args.least:
        result |= least(model, typed, 2 if "bf16" in options else 4)
    del typed  # training needs it no more
    result["seconds"] = run(model, args.steps)
    result |= {"peak_gb": memory("VmHWM"), "imported_gb": base, "threads": torch.get_num_threads()}
    print(json.dumps(result | on_device(device)))


if __name__ == "__main__":
    main()
