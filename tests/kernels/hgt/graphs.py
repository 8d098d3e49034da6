"""Random typed graphs and inputs for the attention tests."""

from __future__ import annotations

from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from graphmill.kernels.hgt import attention
from graphmill.kernels.hgt.attention import TypeRows, joined
from graphmill.kernels.hgt.plan import MessageGraph, TypedEdges


class Inputs(NamedTuple):
    q: list[Tensor | None]
    k: list[Tensor | None]
    v: list[Tensor | None]
    w_k: Tensor
    w_v: Tensor
    prior: Tensor

    def leaves(self) -> list[Tensor]:
        rows = [x for part in (self.q, self.k, self.v) for x in part if x is not None]
        return [*rows, self.w_k, self.w_v, self.prior]


def hgt_attention(
    q: TypeRows, k: TypeRows, v: TypeRows, w_k: Tensor, w_v: Tensor, prior: Tensor, graph: MessageGraph,
    masked: Tensor | None = None,
) -> list[Tensor | None]:  # fmt: skip
    """The attention of rows by type."""
    return attention.hgt_attention(joined(q, k, v, graph, w_k), w_k, w_v, prior, graph, masked)


Shape = tuple[list[int], list[tuple[int, int, int]], int]


def random_edges(counts: list[int], relations: list[tuple[int, int, int]], seed: int) -> list[TypedEdges]:
    """``relations``: (source type, target type, edges). Parallel edges and self loops happen; two edges are a pair."""
    g = torch.Generator().manual_seed(seed)
    edges = []
    for source, target, size in relations:
        size = size if counts[source] and counts[target] else 0
        src = torch.randint(max(counts[source], 1), (size,), generator=g)
        dst = torch.randint(max(counts[target], 1), (size,), generator=g)
        order = torch.argsort(dst * max(counts[source], 1) + src)
        edges.append(TypedEdges(source, target, src[order], dst[order], torch.arange(size) // 2))
    return edges


def hub(size: int) -> list[TypedEdges]:
    """Two types; node 2 of type 1 receives every edge of both relations."""
    src, dst, pair = torch.arange(size) % 5, torch.full((size,), 2), torch.arange(size)
    return [TypedEdges(0, 1, src.sort().values, dst, pair), TypedEdges(1, 1, torch.arange(size) * 0 + 1, dst, pair)]


def inputs(graph: MessageGraph, heads: int, width: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Inputs:
    g = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype).requires_grad_()

    d, r = heads * width, len(graph.relations)
    q = [draw(n, d) if t in graph.target_types else None for t, n in enumerate(graph.target_counts)]
    k = [draw(n, d) if t in graph.source_types else None for t, n in enumerate(graph.source_counts)]
    v = [draw(n, d) if t in graph.source_types else None for t, n in enumerate(graph.source_counts)]
    return Inputs(q, k, v, draw(r, heads, width, width), draw(r, heads, width, width), draw(r, heads))


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Counts per type (0 and 1 among them), relations with 0 to 40 edges, a seed."""
    counts = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))
    kinds = st.integers(0, len(counts) - 1)
    relations = draw(st.lists(st.tuples(kinds, kinds, st.integers(0, 40)), min_size=1, max_size=5))
    return counts, relations, draw(st.integers(0, 2**16))
