"""KGAT: Knowledge Graph Attention Network (Wang et al. 2019).

Vectors of all nodes, relations with a translation and a projection each (TransR), and layers that mix a node with its
neighbours in the collaborative knowledge graph, weighted by the attention of the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from graphmill.kernels.bi_interaction import bi_interaction
from graphmill.kernels.dropout import dropout
from graphmill.kernels.propagation import SparseMatrix, propagate
from graphmill.kernels.row_norm import normalise_rows

Aggregation = Literal["bi_interaction", "gcn", "graphsage"]


class Layer(nn.Module):
    """One mixing of nodes e with their neighbourhood n = A e; σ is the leaky ReLU.

    bi_interaction: σ((e + n) W₁ + b₁) + σ((e ⊙ n) W₂ + b₂); gcn: σ((e + n) W + b); graphsage: σ([e ‖ n] W + b).
    """

    def __init__(self, dim_in: int, dim_out: int, kind: Aggregation, rate: float, slope: float) -> None:
        super().__init__()
        self.kind, self.slope = kind, slope
        self.sum = nn.Linear(2 * dim_in if kind == "graphsage" else dim_in, dim_out)
        nn.init.xavier_uniform_(self.sum.weight)
        if kind == "bi_interaction":
            self.product = nn.Linear(dim_in, dim_out)
            nn.init.xavier_uniform_(self.product.weight)
        self.dropout = rate

    def forward(self, nodes: Tensor, matrix: SparseMatrix) -> Tensor:
        """[N, dim_in] → [N, dim_out]."""
        if self.kind == "bi_interaction":
            of_sum, of_product = (self.sum.weight, self.sum.bias), (self.product.weight, self.product.bias)
            return bi_interaction(matrix, nodes, of_sum, of_product, self.slope, self.dropout, self.training)
        around = propagate(matrix, nodes)
        joined = torch.cat((nodes, around), 1) if self.kind == "graphsage" else nodes + around
        return dropout(F.leaky_relu(self.sum(joined), self.slope), self.dropout, self.training)


class Kgat(nn.Module):
    """``counts``: nodes of each type, in the graph's order; ``edges``: of the collaborative knowledge graph.

    ``attention`` [edges] is the weight of each edge in the epoch at hand: a buffer, and part of every checkpoint.
    """

    attention: Tensor

    def __init__(
        self,
        counts: Sequence[int],
        num_relations: int,
        attention: Tensor,
        dim: int,
        relation_dim: int,
        layer_dims: Sequence[int],
        kind: Aggregation,
        dropout: float,
        slope: float,
    ) -> None:
        super().__init__()
        self.tables = nn.ParameterList([nn.Parameter(torch.empty(count, dim)) for count in counts])
        # As one table of all nodes, whose bound depends on how many there are.
        bound = (6.0 / (sum(counts) + dim)) ** 0.5
        for table in self.tables:
            nn.init.uniform_(table, -bound, bound)
        self.translations = nn.Parameter(torch.empty(num_relations, relation_dim))
        self.projections = nn.Parameter(torch.empty(num_relations, dim, relation_dim))
        nn.init.xavier_uniform_(self.translations)
        nn.init.xavier_uniform_(self.projections)
        dims = [dim, *layer_dims]
        self.layers = nn.ModuleList([Layer(a, b, kind, dropout, slope) for a, b in pairwise(dims)])
        self.register_buffer("attention", attention)
        self.checkpointing = False

    def nodes(self) -> Tensor:
        """[N, d]: the vectors of all nodes in the graph's order, as they are trained."""
        return torch.cat(list(self.tables))

    def forward(self, nodes: Tensor, matrix: SparseMatrix) -> list[Tensor]:
        """[N, d]: e⁰ and each layer's result; :func:`final` makes vectors of them, for the rows that are asked for."""
        out = [nodes]
        for layer in self.layers:
            if self.checkpointing and self.training:
                out.append(checkpoint(layer, out[-1], matrix, use_reentrant=False))
            else:
                out.append(layer(out[-1], matrix))
        return out


def final(states: Sequence[Tensor]) -> Tensor:
    """[n, d + Σ layer dims], at least fp32: the node's own vector ‖ each layer's result, scaled to length 1."""
    wide = [x if x.dtype == torch.float64 else x.float() for x in states]
    return torch.cat([wide[0], *(normalise_rows(x) for x in wide[1:])], 1)
