"""One variant of the kernel workload in this process: two HGT layers 512 → 256 → 512, 8 heads, tables, Adam.

``python -m benchmarks.hgt_step --graph 67k --variant ours`` prints one JSON line: seconds of each step, peak memory of the
process and after imports. ``benchmarks.hgt`` runs it for each row of the table, in a fresh process each time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import hgt_graphs, hgt_products, hgt_rest
from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.training.allocator import return_large_blocks

WIDTHS, HEADS = hgt_products.WIDTHS, hgt_products.HEADS
MICRO_BATCHES, EDGE_SAMPLE = 4, 5000
"""Of the variant ``edge_sampled``: ``accumulation_steps`` and the default ``edge_sample_size``."""


class Ours(nn.Module):
    """The workload on our layer.

    ``options``: bf16, checkpoint, edge_sampled, returned (heap); torch, sparse or numba for the edges; alone: numba is not
    there, for no operation; compiled: GELU and the output's product by torch's compiler in place of our own function.
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
        if "compiled" in options:
            from graphmill.kernels.products.gelu_linear import gelu_linear_reference
            from graphmill.systems.hgt import model as hgt

            hgt.gelu_linear = torch.compile(gelu_linear_reference, dynamic=True)
        for layer in self.layers:
            layer.backend = next(  # type: ignore[assignment]
                (b for b in ("torch", "sparse", "numba") if b in options), "auto"
            )

    def sample(self, step: int, micro: int) -> tuple[MessageGraph, list[Tensor]]:
        """The messages of one of four micro-batches, as the product draws them: so many edges of each relation."""
        rng = np.random.default_rng((step, micro))
        size = EDGE_SAMPLE // MICRO_BATCHES
        edges = [np.sort(rng.choice(r.num_edges, min(size, r.num_edges), replace=False)) for r in self.graph.relations]
        return self.graph.edge_subgraph([torch.from_numpy(e) for e in edges])

    def forward_sample(self, graph: MessageGraph, rows: list[Tensor]) -> list[Tensor]:
        """The layers over a sample's nodes."""
        x = [nn.functional.embedding(chosen, table) for chosen, table in zip(rows, self.tables, strict=True)]
        for layer in self.layers:
            x = layer(x, graph, recompute="checkpoint" in self.options)
        return x

    def forward(self) -> list[Tensor]:
        x: list[Tensor] = list(self.tables)
        with torch.autocast(x[0].device.type, torch.bfloat16) if "bf16" in self.options else nullcontext():
            if self.graph.device != x[0].device:
                self.graph = self.graph.to(x[0].device)
            for layer in self.layers:
                x = layer(x, self.graph, recompute="checkpoint" in self.options)
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


def run(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, clock: hgt_products.Clock) -> list[float]:
    """Seconds of each optimizer step: forward, backward, Adam."""
    device = next(model.parameters()).device
    seconds = []
    for _ in range(steps):
        start = clock()
        out = model()
        loss = mean_squares(out)
        del out
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        hgt_products.wait(device)
        seconds.append(clock() - start)
    return seconds


def run_sampled(model: Ours, optimizer: torch.optim.Optimizer, steps: int, clock: hgt_products.Clock) -> list[float]:
    """Seconds of each optimizer step of four micro-batches, each over its own sample of the edges (``edge_sampled``)."""
    seconds = []
    for step in range(steps):
        start = clock()
        for micro in range(MICRO_BATCHES):
            graph, rows = model.sample(step, micro)
            out = model.forward_sample(graph, rows)
            loss = mean_squares(out) / MICRO_BATCHES
            del out
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        hgt_products.wait(next(model.parameters()).device)
        seconds.append(clock() - start)
    return seconds


def bring_near(graph: MessageGraph, nodes: int) -> None:
    """Have every relation's edges join the first ``nodes`` of their types, as often and in runs as long as before.

    What is computed is nonsense and as much as ever; what is gone is the way of the relations' rows through memory.
    """
    for relation in graph.relations:
        for ends in (relation.source_nodes, relation.target_nodes):
            ends.copy_((ends % nodes).sort()[0])


def infer(typed: hgt_graphs.Typed, chunk_rows: int, repeats: int, device: torch.device) -> list[float]:
    """Seconds of all embeddings, at once (0) or in chunks of receivers: the workload, with GELU behind each layer."""
    from graphmill.systems.hgt.inference import infer as in_chunks
    from graphmill.systems.hgt.model import HGT, HGTLayer

    counts, edges = typed
    relations = [(e.source_type, e.target_type) for e in edges]
    model = HGT(counts, relations, WIDTHS[0], WIDTHS[-1], 0, HEADS, layer_norm=False, output_norm=False)
    # The product's layers are all as wide as its tables; its norms and heads are no part of the workload.
    model.layers.extend(HGTLayer(len(counts), relations, a, b, HEADS) for a, b in pairwise(WIDTHS))
    model.norms.extend(nn.ModuleList(nn.Identity() for _ in counts) for _ in model.layers)
    model.heads = nn.ModuleList(nn.Identity() for _ in counts)
    model.eval().to(device)
    graph = hgt_graphs.plan(typed).to(device)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        if chunk_rows:
            for _ in in_chunks(model, graph, chunk_rows=chunk_rows):
                pass
        else:
            with torch.no_grad():
                model(graph)
        hgt_products.wait(device)
        seconds.append(time.perf_counter() - start)
    return seconds


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
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--limits", action="store_true", help="also what the device does at its best, in this process")
    parser.add_argument(
        "--products", type=int, default=0, help="after the steps so many more, each followed by the products"
    )
    parser.add_argument(
        "--near", type=int, default=0, help="ours: relations between so few nodes that their rows stay in the cache"
    )
    parser.add_argument("--infer", type=int, help="no training: all embeddings, in chunks of so many rows (0: at once)")
    parser.add_argument(
        "--processor-time", action="store_true", help="with OMP_NUM_THREADS=1, on a machine with others"
    )
    args = parser.parse_args()
    kind, *options = args.variant.split(",")
    torch.manual_seed(0)
    device = torch.device(args.device)
    if "alone" in options:
        sys.modules["numba"] = None  # type: ignore[assignment]  # as where it isn't installed, for products as well
    typed = hgt_graphs.load(args.graph)
    base = memory("VmRSS")
    if args.infer is not None:
        seconds = infer(typed, args.infer, args.steps, device)
        print(json.dumps({"seconds": seconds, "peak_gb": memory("VmHWM"), "imported_gb": base} | on_device(device)))
        return
    if "returned" in options:
        return_large_blocks()
    products = hgt_products.products(hgt_graphs.plan(typed))
    model = (Ours if kind == "ours" else PyG)(typed, set(options)).to(device)
    del typed  # training needs it no more
    if args.near:
        assert isinstance(model, Ours), "--near is for our layer"
        bring_near(model.graph, args.near)

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def train(steps: int, clock: hgt_products.Clock = time.perf_counter) -> list[float]:
        if isinstance(model, Ours) and "edge_sampled" in options:
            return run_sampled(model, optimizer, steps, clock)
        return run(model, optimizer, steps, clock)

    if args.profile:
        train(1)
        with torch.profiler.profile() as profile:
            train(1)
        spent = {e.key: e.self_cpu_time_total / 1e3 for e in profile.key_averages()}
        most = sorted(spent, key=lambda name: -spent[name])[:10]
        parts = {name: spent[name] for name in most}
        print(json.dumps({"total": sum(spent.values()), "parts": parts, "seconds": [sum(spent.values()) / 1e3]}
              | {"peak_gb": memory("VmHWM"), "imported_gb": base}))  # fmt: skip
        return
    clock = time.process_time if args.processor_time else time.perf_counter
    seconds = train(args.steps, clock)
    result: dict[str, Any] = {"graph": args.graph, "variant": args.variant, "seconds": seconds}
    result |= {"peak_gb": memory("VmHWM"), "imported_gb": base, "threads": torch.get_num_threads()}
    result |= on_device(device)
    if kind == "ours":
        result["gflop"] = hgt_products.gflop(products)
    if args.products:
        dtype = torch.bfloat16 if "bf16" in options else torch.float32
        timed = hgt_products.Products(products, dtype, clock, device)
        # The first turn is not counted: the products' operands lie where a step had its arrays, and its heap grows anew.
        turns = [(train(1, clock)[0], timed.seconds()) for _ in range(1 + args.products)][1:]
        result["in_turn"], result["products_in_turn"] = [list(part) for part in zip(*turns, strict=True)]
        result["products"] = timed.seconds(3)
        del timed
        if isinstance(model, Ours) and device.type == "cpu":
            way: hgt_rest.Way = "sparse" if "sparse" in options else "dense" if "torch" in options else "compiled"
            result["rest"] = hgt_rest.seconds(model.graph, dtype=dtype, clock=clock, way=way)
    if args.limits:
        result["limits"] = hgt_products.limits(device)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
