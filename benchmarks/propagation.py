"""``python -m benchmarks.propagation --json``: the sparse product of the recommenders beside torch's ways of making it.

Â X in fp32 on graphs of trainings, in turn, in one process: ours (a pass over sorted rows), torch's CSR product, torch's
weighted bags of embeddings (what is taken without numba), and gathered rows added up by ``index_add_`` in the order of the
rows, which writes edges × width numbers. All give the same sums. Milliseconds, the median of some rounds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.card import Row, as_a_worker, fresh, milliseconds_in_turn, row, write
from graphmill.kernels.propagation import Rows, SparseMatrix, bipartite, product

ROUNDS, SECONDS = 9, 0.1
CASES = {"tiktok": (64, 256), "last-fm": (64,), "amazon-book": (64,)}
"""Graph to widths: MMGCN's and DRAGON's, KGAT's collaborative one, and the shape of a large one (all random)."""


def matrix_of(data: str) -> SparseMatrix:
    """The normalised adjacency of a training."""
    with tempfile.TemporaryDirectory() as folder:
        if data == "tiktok":
            from benchmarks.recommender_data import graph_of
            from graphmill.graph.interactions import interaction_view

            view = interaction_view(graph_of(data, Path(folder)))
            return bipartite(view.train.row, view.train.columns, view.num_users, view.num_items)
        from benchmarks.kgat_step import recipe_of

        matrix: SparseMatrix = recipe_of(data, Path(folder)).facts.matrix
        return matrix


def ways(rows: Rows, shape: tuple[int, int], x: Tensor) -> dict[str, Callable[[], Tensor]]:
    """The same product."""
    csr = torch.sparse_csr_tensor(rows.indptr, rows.column, rows.value, shape, check_invariants=False)

    def added() -> Tensor:
        messages = x.index_select(0, rows.column).mul_(rows.value.unsqueeze(1))
        return torch.zeros(shape[0], x.shape[1]).index_add_(0, rows.row, messages)

    return {
        "ours": lambda: product(rows, x, "numba"),
        "torch's CSR": lambda: csr @ x,
        "bags of embeddings": lambda: product(rows, x, "torch"),
        "sorted index_add_": added,
    }


def measure(data: str) -> list[Row]:
    """The rows of a graph, in this process."""
    torch.manual_seed(0)
    matrix, found = matrix_of(data), []
    edges = len(matrix.forward.column)
    for width in CASES[data]:
        all_ways = ways(matrix.forward, matrix.shape, torch.randn(matrix.shape[1], width))
        first = all_ways["ours"]()
        for way in all_ways.values():
            torch.testing.assert_close(way(), first, rtol=1e-3, atol=1e-4)
        ours, *others = milliseconds_in_turn(all_ways, ROUNDS, SECONDS).items()
        note = f"{torch.get_num_threads()} threads; {edges:,} entries"
        for name, time_of in others:
            workload = f"{data}, width {width}"
            found.append(row(workload, "product", "ms", ours[1], rival=name, theirs=time_of, note=note))
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/propagation.json")
    parser.add_argument("--here", choices=list(CASES), help="measure one graph in this process")
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps({"rows": [r.__dict__ for r in measure(arguments.here)]}))
        return
    found = [
        Row(**r) for data in CASES for r in fresh("benchmarks.propagation", ["--here", data], as_a_worker())["rows"]
    ]
    for r in found:
        print(f"{r.workload:24} {r.ours:8.3f} {r.theirs or 0:8.3f} ms  {r.rival:20} {r.ratio or 0:.2f} x")
    if arguments.json:
        write("propagation", found, "python -m benchmarks.propagation --json")


if __name__ == "__main__":
    main()
