"""NBFNet (Zhu et al. 2021): states of nodes relative to a query (head, relation), by propagation from the head."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphmill.kernels.devices import to_device, wide
from graphmill.kernels.frontier import Layer
from graphmill.kernels.frontier.messages import message_sums


class Propagation(nn.Module):
    """One layer: m_v = Σ over edges (u, r, v) of weight · w_r(q) ⊙ h_u, plus the query's vector at the head (the boundary
    condition); h'_v = h_v + ReLU(LayerNorm(A h_v + B m_v + C q + b)), where w_r(q) = w_r + W_r q."""

    def __init__(self, relations: int, dim: int) -> None:
        super().__init__()
        self.relation = nn.Parameter(torch.ones(relations, dim) + 0.1 * torch.randn(relations, dim))
        self.of_query = nn.Parameter(torch.randn(dim, relations * dim) * 0.1 / dim**0.5)
        self.state = nn.Linear(dim, dim, bias=False)
        self.message = nn.Linear(dim, dim)
        self.query = nn.Linear(dim, dim, bias=False)
        self.norm = nn.LayerNorm(dim)

    def factors(self, query: Tensor) -> Tensor:
        """``query`` [S, d] → w_r(q) of every query and relation, [S · R, d]."""
        return (self.relation + (query @ self.of_query).view(-1, *self.relation.shape)).flatten(0, 1)

    def forward(
        self,
        layer: Layer,
        x: Tensor,
        query: Tensor,
        slot: np.ndarray,
        at_head: np.ndarray,
        weight: Tensor | None = None,
    ) -> Tensor:
        """``x`` [rows one layer before, d], ``query`` [S, d], ``slot`` int64 [B]: the query's row in it; ``at_head`` int64
        [B or fewer, 2]: rows of the heads, and their queries → [rows, d]."""
        of_row = _on(x, np.repeat(slot, np.diff(layer.start)))
        rows = np.flatnonzero(layer.previous >= 0)
        stay, came = _on(x, rows), _on(x, layer.previous[rows].astype(np.int64))
        message = message_sums(layer, x, self.factors(query), weight)
        message = message.index_add(0, _on(x, at_head[:, 0]), query[_on(x, slot[at_head[:, 1]])])
        before = x[came]
        updated = self.message(message) + self.query(query)[of_row]
        updated = updated.index_add(0, stay, self.state(before))
        return F.relu(wide(self.norm(updated))).index_add(0, stay, before)


class NBFNet(nn.Module):
    """score(t) = MLP(h_t, q, log degree of t in the relation) + p_r · log degree of t; for a node that no path reaches, the
    MLP's part is a number of the relation."""

    def __init__(self, relations: int, dim: int, layers: int) -> None:
        super().__init__()
        self.relations = relations
        self.query = nn.Parameter(torch.randn(relations, dim))
        self.layers = nn.ModuleList(Propagation(relations, dim) for _ in range(layers))
        self.state, self.of_query = nn.Linear(dim, 2 * dim), nn.Linear(dim, 2 * dim, bias=False)
        self.degree = nn.Parameter(torch.zeros(2 * dim))
        self.out = nn.Linear(2 * dim, 1)
        self.popularity = nn.Parameter(torch.zeros(relations))
        self.unreached = nn.Parameter(torch.zeros(relations))

    def states(
        self, layers: Sequence[Layer], head: np.ndarray, relation: np.ndarray, weights: Sequence[Tensor] = ()
    ) -> tuple[Tensor, Tensor, np.ndarray]:
        """The layers of queries ``head``, ``relation`` int64 [B] → the last layer's states [rows, d], the vectors of
        the distinct relations [S, d] and the query's row in them int64 [B]."""
        slots, slot = np.unique(relation, return_inverse=True)
        query = self.query[_on(self.query, slots)]
        x = query[_on(query, slot)]
        given: Sequence[Tensor | None] = weights or [None] * len(layers)
        for layer, module, weight in zip(layers, self.layers, given, strict=True):
            of_row = np.repeat(np.arange(len(head)), np.diff(layer.start))
            rows = np.flatnonzero(layer.node == head[of_row])
            x = module(layer, x, query, slot, np.stack([rows, of_row[rows]], 1), weight)
        return x, query, slot

    def forward(
        self,
        layers: Sequence[Layer],
        head: np.ndarray,
        relation: np.ndarray,
        first: int,
        log_degree: Tensor,
        weights: Sequence[Tensor] = (),
    ) -> Tensor:
        """Scores [B, C] of queries whose targets are the nodes ``first:first + C``; ``log_degree`` [B, C]; ``weights``:
        of the edges, instead of the layers' own."""
        x, query, slot = self.states(layers, head, relation, weights)
        last = layers[-1]
        of_row = np.repeat(np.arange(len(head)), np.diff(last.start))
        row, column = _on(x, of_row), _on(x, last.node.astype(np.int64) - first)
        degree = log_degree[row, column]
        hidden = self.state(x) + self.of_query(query)[_on(x, slot[of_row])] + degree[:, None] * self.degree
        scores = self.out(F.relu(hidden))[:, 0]
        numbers = _on(x, relation)
        none = self.unreached[numbers]
        base = self.popularity[numbers][:, None] * log_degree + none[:, None]
        return base.index_put((row, column), scores - none[row], accumulate=True)


def _on(like: Tensor, numbers: np.ndarray) -> Tensor:
    return to_device(torch.from_numpy(np.ascontiguousarray(numbers)), like.device)
