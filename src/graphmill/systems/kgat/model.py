"""KGAT: Knowledge Graph Attention Network (Wang et al. 2019).

Vectors of all nodes; a translation and a projection per relation (TransR); layers that combine a node with its
neighbours in the collaborative knowledge graph, weighted by the attention of the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphmill.kernels.devices import wide
from graphmill.kernels.products import linear
from graphmill.kernels.propagation import SparseMatrix, propagate
from graphmill.kernels.recomputed import recomputed
from graphmill.kernels.row_norm import normalise_rows
from graphmill.kernels.table_rows import table_rows
from graphmill.systems.recommenders.row_selection import select_rows, with_neighbours

Aggregation = Literal["bi_interaction", "gcn", "graphsage"]
_TOGETHER = 8_192
"""Nodes of a divided table that are mixed at a time; what is between the operations is made again on the way back."""


class NeighbourSums(Protocol):
    """A rank's rows of a matrix A, where both A and X are sharded by rows over the ranks."""

    def product(self, x: Tensor) -> Tensor:
        """This rank's rows of X → this rank's rows of A X."""


class Layer(nn.Module):
    """Combines nodes e with their neighbourhood n = A e; σ is the leaky ReLU.

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

    def forward(self, nodes: Tensor, matrix: SparseMatrix | NeighbourSums) -> Tensor:
        """[N, dim_in] → [N, dim_out]; with sharded tables, this rank's nodes."""
        if not isinstance(matrix, SparseMatrix):
            parts = zip(nodes.split(_TOGETHER), matrix.product(nodes).split(_TOGETHER), strict=True)
            return torch.cat([recomputed(True, self._mixed, *part) for part in parts])
        return self._mixed(nodes, propagate(matrix, nodes))

    def _mixed(self, nodes: Tensor, around: Tensor) -> Tensor:
        """The layer of some nodes and their neighbourhoods [n, dim_in]."""
        if self.kind == "graphsage":
            mixed = F.leaky_relu(self.sum(torch.cat((nodes, around), 1)), self.slope)
        else:
            mixed = F.leaky_relu(linear(nodes + around, self.sum.weight, self.sum.bias), self.slope)
        if self.kind == "bi_interaction":
            product = linear(nodes * around, self.product.weight, self.product.bias)
            mixed = mixed + F.leaky_relu(product, self.slope)
        return F.dropout(mixed, self.dropout, self.training)

    def at(
        self, nodes: Tensor, matrix: SparseMatrix, rows: Tensor, whole: bool, read: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The result for all nodes or, without ``whole``, only for ``rows`` int64 [n]; and these rows of ``nodes``.

        ``read`` int64 [m], ascending: the only rows of the ``whole`` result that are read; on a CPU the others are 0.
        On a CPU only the rows that are read are computed.
        """
        looked_up, chosen = table_rows(nodes, rows), read if whole else rows
        if chosen is None or nodes.device.type != "cpu":
            out = self(nodes, matrix)
            return out if whole else table_rows(out, rows), looked_up
        computed = table_rows(nodes, chosen) if whole else looked_up
        out = self._mixed(computed, propagate(select_rows(matrix, chosen.numpy()), nodes))
        return out.new_zeros(len(nodes), out.shape[1]).index_copy(0, chosen, out) if whole else out, looked_up


class Kgat(nn.Module):
    """``counts``: nodes of each type, in the graph's order; ``edges``: of the collaborative knowledge graph.

    ``attention`` [edges] is the weight of each edge in the current epoch: a buffer, and part of every checkpoint.
    """

    attention: Tensor

    def __init__(
        self,
        counts: Sequence[int],
        num_relations: int,
        attention: Tensor,
        dim: int,
        layer_dims: Sequence[int],
        kind: Aggregation,
        dropout: float,
        slope: float,
        layer_length: float = 1.0,
    ) -> None:
        super().__init__()
        self.layer_length = layer_length
        self.tables = nn.ParameterList([nn.Parameter(torch.empty(count, dim)) for count in counts])
        # Initialised as one table of all nodes: the bound depends on their number.
        bound = (6.0 / (sum(counts) + dim)) ** 0.5
        for table in self.tables:
            nn.init.uniform_(table, -bound, bound)
        self.translations = nn.Parameter(torch.empty(num_relations, dim))
        self.projections = nn.Parameter(torch.empty(num_relations, dim, dim))
        nn.init.xavier_uniform_(self.translations)
        nn.init.xavier_uniform_(self.projections)
        dims = [dim, *layer_dims]
        self.layers = nn.ModuleList([Layer(a, b, kind, dropout, slope) for a, b in pairwise(dims)])
        self.register_buffer("attention", attention)
        self.checkpointing = False

    def nodes(self) -> Tensor:
        """[N, d]: the trainable vectors of all nodes in the graph's order."""
        return torch.cat(list(self.tables))

    def forward(self, nodes: Tensor, matrix: SparseMatrix | NeighbourSums, rows: Tensor | None = None) -> list[Tensor]:
        """e⁰ and each layer's result: [N, d] or, for ``rows`` int64 [n] (ascending, distinct), [n, d]; :meth:`final`
        makes vectors from them.
        """
        out, state = [], nodes
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            run: Any = layer if rows is None else layer.at
            # No layer reads the last layer's result, and the last layer reads only the neighbours of its rows.
            more: tuple[Any, ...] = ()
            if rows is not None:
                assert isinstance(matrix, SparseMatrix), "rows of divided tables are fetched from the results"
                before_last = number + 2 == len(self.layers)
                more = rows, number + 1 < len(self.layers), with_neighbours(matrix, rows) if before_last else None
            result = recomputed(self.checkpointing and self.training, run, state, matrix, *more)
            following, looked_up = (result, state) if rows is None else result
            out.append(looked_up)
            state = following
        return [*out, state]

    def final(self, states: Sequence[Tensor]) -> Tensor:
        """[n, d + Σ layer dims], at least fp32: the node's vector ‖ each layer's result, scaled to ``layer_length``."""
        layers = [normalise_rows(wide(state)) for state in states[1:]]
        if self.layer_length != 1.0:
            layers = [layer * self.layer_length for layer in layers]
        return torch.cat([wide(states[0]), *layers], 1)
