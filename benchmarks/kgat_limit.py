"""The least that KGAT's steps and a renewal of its attention have to move and to multiply, in seconds, from the graph alone.

``python -m benchmarks.kgat_limit --data amazon-book`` prints it, with what it is made of. Work is cut into passes: a pass
needs all of what the one before it made (a neighbour may be any node). The limit of a pass is the sum of three things, each
counted at its least and at the best rate measured here in the same run: it is under any program that does them one after the
other. ``at once`` stands beside it: the slowest of the three in each pass, which is under any program whatever.

* **memory**: each array that it needs is read once and each that it makes written once, at the rate of a copy. What the
  last-level cache can hold of what is read may be there from before, and of what is written may stay there: both are taken
  off. Vectors, indices and weights have four bytes a number. Nothing that a layer might keep for its way back is counted.
* **rows**: a row of the neighbour for every edge. Not counted are edges to those nodes, the most frequent ones, whose rows
  would fill all second caches. The next most frequent ones may fill the third: theirs come at the rate at which all threads
  read an array of half of it, one row after the other. Where a table is larger, the others come from memory, at the rate at
  which an array of eight times the third cache is read. (A graph without order cannot be cut into blocks whose rows are
  nearer: of 184,166 nodes with 35 edges each, a block of rows that fits has less than one edge of a node.)
* **products**: additions and multiplications in matrix products, at the rate of x [65536, 64] times [64, 64], by torch or by
  our own form, whichever is the faster here.

Work on single numbers (sums, activations, tanh, norms, the draws) is not counted.

What is in the passes (N nodes, d₀ … d₃ widths; S₃: the nodes of a batch, Sₗ₋₁: Sₗ and its neighbours; Eₗ: edges of Sₗ):

* ``cf``, forward of layer l: reads 8 bytes for each of Eₗ and the rows of Sₗ₋₁ (dₗ₋₁ wide), writes those of Sₗ (dₗ wide); a
  row for each of Eₗ; two products of [Sₗ, dₗ₋₁] with [dₗ₋₁, dₗ].
* ``cf``, backward of layer l: reads edges and input again and the gradient of Sₗ, writes that of Sₗ₋₁; a row (dₗ₋₁ wide) for
  each of Eₗ; four products (those of the input's and of the maps' gradients).
* In the last of these, instead of writing the gradient, Adam (which moves every row in every step): vectors and both moments
  of all N nodes read and written.
* ``kg``: Adam on all nodes and relations' matrices as above; three rows of each fact times its relation's matrix, and their
  gradients' two products.
* ``attention``: reads the vectors of all nodes and an index of four bytes for each edge, writes a weight for each; a row for
  each edge (the other one stays at hand); for each relation r the fewer of Hᵣ + Tᵣ rows (heads and tails are projected) and
  2 Hᵣ (a head's vector is brought back into the tails' space) times a matrix.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import rates
from benchmarks.kgat_step import DIMS, SHAPES, recipe_of
from graphmill.kernels.products import product

SECOND, THIRD = 1 << 21, 1 << 25
"""Bytes of the caches where the system does not say."""


@dataclass(frozen=True)
class Machine:
    """Operations and bytes a second, and bytes of the caches; ``read``: bytes read from memory, where nothing is written."""

    products: float
    copy: float
    read: float
    third: float
    second_bytes: int
    third_bytes: int

    @classmethod
    def here(cls) -> Machine:
        """As measured now."""
        second, third = rates.cache_bytes(2) or SECOND, rates.cache_bytes(3) or THIRD
        products = max(rates.product_rate(1 << 16, 64, multiply) for multiply in (torch.mm, product))
        return cls(products, rates.copy_rate(), rates.read_rate(8 * third), rates.read_rate(third // 2), second, third)


@dataclass(frozen=True)
class Pass:
    """Bytes ``read`` and ``written``, each array once; bytes of neighbours' ``rows``, and of these ``remote``: the ones that
    the third cache cannot hold; operations in ``products``."""

    name: str
    read: float
    written: float
    rows: float
    remote: float
    products: float

    def parts(self, machine: Machine) -> dict[str, float]:
        """Seconds of each of the three."""
        moved = sum(max(size - machine.third_bytes, 0.0) for size in (self.read, self.written))
        return {
            "memory": moved / machine.copy,
            "rows": (self.rows - self.remote) / machine.third + self.remote / machine.read,
            "products": self.products / machine.products,
        }


class Edges:
    """Edges sorted by head: ``indptr`` int64 [N + 1], ``tail`` int64 [E]. Bytes of the ``second`` and ``third`` caches."""

    def __init__(self, indptr: np.ndarray, tail: np.ndarray, second: int, third: int) -> None:
        self.indptr, self.tail, self.num_nodes = indptr, tail, len(indptr) - 1
        self.second, self.third = second, third
        counts = np.bincount(tail, minlength=self.num_nodes)
        self.rank = np.empty(self.num_nodes, np.int64)
        self.rank[np.argsort(-counts, kind="stable")] = np.arange(self.num_nodes)

    def rows(self, tails: np.ndarray, width: int) -> tuple[float, float]:
        """Bytes of the rows, ``width`` numbers each, of edges to ``tails`` beyond the second caches and beyond the third."""
        size, rank = 4.0 * width, self.rank[tails]
        return tuple(size * np.count_nonzero(rank >= held // (4 * width)) for held in (self.second, self.third))  # type: ignore[return-value]

    def of(self, nodes: np.ndarray) -> np.ndarray:
        """Tails of the edges of ``nodes``."""
        starts, counts = self.indptr[nodes], self.indptr[nodes + 1] - self.indptr[nodes]
        ends = np.cumsum(counts)
        return self.tail[np.arange(ends[-1]) + np.repeat(starts - ends + counts, counts)]


def cf_passes(edges: Edges, batch: np.ndarray, dims: Sequence[int]) -> list[Pass]:
    """A step on interactions; ``batch``: the nodes whose vectors it looks up."""
    layers = list(pairwise(dims))
    outputs = [np.unique(batch)]
    inputs: list[np.ndarray] = []
    tails: list[np.ndarray] = []
    for _ in layers:
        found = edges.of(outputs[0])
        tails.insert(0, found)
        inputs.insert(0, np.union1d(outputs[0], found))
        outputs.insert(0, inputs[0])
    outputs = outputs[1:]
    passes: list[Pass] = []
    back: list[Pass] = []
    for number, ((a, b), s, into, t) in enumerate(zip(layers, outputs, inputs, tails, strict=True), start=1):
        known, rows = 8.0 * len(t) + 4.0 * a * len(into), edges.rows(t, a)
        products = 2.0 * 2 * a * b * len(s)
        passes.append(Pass(f"forward {number}", known, 4.0 * b * len(s), *rows, products))
        read, written = known + 4.0 * b * len(s), 4.0 * a * len(into)
        if number == 1:
            update = 3 * 4.0 * a * edges.num_nodes
            read, written = 8.0 * len(t) + 4.0 * b * len(s) + update, update
        back.insert(0, Pass(f"backward {number}", read, written, *rows, 2 * products))
    return [*passes, *back]


def kg_passes(num_nodes: int, num_relations: int, facts: int, width: int) -> list[Pass]:
    """A step on facts."""
    tables = 3 * 4.0 * width * (num_nodes + num_relations * (width + 1))
    return [Pass("update", tables, tables, 0.0, 0.0, 3 * 3 * facts * 2.0 * width * width)]


def attention_passes(edges: Edges, relations: Sequence[tuple[int, int]], width: int) -> list[Pass]:
    """A renewal; ``relations``: of each the distinct heads and tails."""
    projected = sum(min(heads + tails, 2 * heads) for heads, tails in relations)
    count = len(edges.tail)
    rows = edges.rows(edges.tail, width)
    read = 4.0 * width * edges.num_nodes + 4.0 * count
    return [Pass("all", read, 4.0 * count, *rows, projected * 2.0 * width * width)]


def limits(phases: Mapping[str, Sequence[Pass]], machine: Machine) -> dict[str, Any]:
    """Seconds of each phase, were its parts to go on at once as well, and a note of what they are made of."""
    out: dict[str, Any] = {}
    for name, passes in phases.items():
        parts = [p.parts(machine) for p in passes]
        out[name] = sum(sum(p.values()) for p in parts)
        out[f"{name} at once"] = sum(max(p.values()) for p in parts)
        out[f"{name} note"] = _made_of(passes, parts, machine)
    return out


def _made_of(passes: Sequence[Pass], parts: Sequence[Mapping[str, float]], machine: Machine) -> str:
    """The three parts in words."""
    taken = {key: f"{1e3 * sum(p[key] for p in parts):.3g} ms" for key in parts[0]}
    moved = sum(p.read + p.written for p in passes) / 1e9
    rows, remote = (sum(getattr(p, name) for p in passes) / 1e9 for name in ("rows", "remote"))
    work = sum(p.products for p in passes) / 1e9
    return (
        f"{len(passes)} passes: memory {taken['memory']} ({moved:.2f} GB before caches, {machine.copy / 1e9:.3g} GB/s), "
        f"rows {taken['rows']} ({rows - remote:.2f} GB, {machine.third / 1e9:.3g} GB/s; {remote:.2f} GB, "
        f"{machine.read / 1e9:.3g} GB/s), "
        f"products {taken['products']} ({work:.3g} GFLOP, {machine.products / 1e9:.3g} GFLOP/s)"
    )


def phases_of(recipe: Any, machine: Machine) -> dict[str, list[Pass]]:
    """The passes of KGAT as :mod:`benchmarks.kgat_step` times it."""
    g, width = recipe.facts, DIMS[0]
    edges = Edges(g.indptr.astype(np.int64), g.tail, machine.second_bytes, machine.third_bytes)
    cf, kg = recipe.phases
    relations = [
        (int(np.unique(g.head[g.relation == r]).size), int(np.unique(g.tail[g.relation == r]).size))
        for r in range(g.num_relations)
    ]
    return {
        "cf": cf_passes(edges, recipe.step(cf, 1, 1).nodes, DIMS),
        "kg": kg_passes(g.num_nodes, g.num_relations, kg.batch_size, width),
        "attention": attention_passes(edges, relations, width),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=["last-fm", *SHAPES], default="amazon-book")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine.here()
        phases = phases_of(recipe_of(arguments.data, Path(folder) / "graph"), machine)
    print(json.dumps(limits(phases, machine), ensure_ascii=False))


if __name__ == "__main__":
    main()
