"""Shares of HGT's learned score in a bounded neighbourhood, by integrated gradients over the messages of its edges.

The gradients (Sundararajan et al. 2017) are with respect to a mask that multiplies every message: 0 is a graph without
messages, 1 the graph itself. The shares of all edges sum to the difference of the two scores. Attention weights are
those of the whole graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from graphmill.explain.neighbourhood import Neighbourhood
from graphmill.systems.hgt.model import HGT

Relations = Sequence[tuple[int, int]]
"""Source and target type of each relation."""
Attended = tuple[Tensor | None, Tensor, Tensor]
"""Of one type: its edges' messages [edges, heads, width] (None without a relation into it), their targets and their
pairs int64 [edges]."""
FEWEST_STEPS = 16
_TOLERANCE = 0.01
"""Largest error of the sum of the shares, relative to the score (or to 1 if it is smaller). With a larger error the
integral gets more points."""


def integrated_shares(
    encoder: HGT,
    hood: Neighbourhood,
    relations: Relations,
    inputs: Sequence[Tensor],
    score: Callable[[list[Tensor]], Tensor],
    most_steps: int,
) -> tuple[np.ndarray, float, float]:
    """float64 [pairs] shares of ``hood.pairs``, the score without messages, and the score with all.

    ``inputs``: per type [nodes, hidden_dim], the input of the first layer. ``score``: a function of the seeds'
    embeddings, per type [seeds, embedding_dim] in the neighbourhood's order, to a 0-d tensor. The number of
    Gauss–Legendre points doubles from 16 until the shares sum to the difference, or ``most_steps`` is reached.
    """
    masked, device = _Masked(encoder, hood, relations, inputs), next(encoder.parameters()).device

    def value(mask: Tensor) -> Tensor:
        return score(masked.embeddings(mask))

    count = len(hood.pairs)
    with torch.no_grad():
        none, every = (float(value(torch.full((count,), v, device=device))) for v in (0.0, 1.0))
    if not count:
        return np.zeros(0), none, every
    steps = min(FEWEST_STEPS, most_steps)
    while True:
        points, weights = np.polynomial.legendre.leggauss(steps)
        shares = np.zeros(count)
        for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
            mask = torch.full((count,), float(point), device=device, requires_grad=True)
            (gradient,) = torch.autograd.grad(value(mask), mask)
            shares += weight * gradient.cpu().double().numpy()
        if 2 * steps > most_steps or abs(shares.sum() - (every - none)) <= _TOLERANCE * max(1.0, abs(every)):
            return shares, none, every
        steps *= 2


class _Masked:
    """The layers on a neighbourhood. ``inputs``: as of :func:`integrated_shares`. Memory grows with edges × width."""

    def __init__(self, encoder: HGT, hood: Neighbourhood, relations: Relations, inputs: Sequence[Tensor]) -> None:
        self.encoder, self.hood, self.relations, self.inputs = encoder, hood, relations, inputs
        device = next(encoder.parameters()).device
        every = zip(hood.source, hood.target, hood.pair, strict=True)
        self.graph = [[torch.from_numpy(part).to(device) for part in of_relation] for of_relation in every]
        with torch.no_grad():  # the mask changes only what follows the first layer's messages
            self.first = self._attended(0, inputs)

    def embeddings(self, mask: Tensor) -> list[Tensor]:
        """Per type the seeds' embeddings, with each message multiplied by the ``mask`` [pairs] of its pair."""
        x = list(self.inputs)
        for number in range(len(self.encoder.layers)):
            layer = self.encoder.layer(number)
            receivers, sums = self._receivers(number, x), list[Tensor | None]()
            attended = self._attended(number, x) if number else self.first
            for rows, (messages, target, pair) in zip(receivers, attended, strict=True):
                if messages is None:
                    sums.append(None)
                    continue
                summed = messages.new_zeros(len(rows), layer.num_heads, layer.out_dim // layer.num_heads)
                sums.append(summed.index_add(0, target, messages * mask[pair][:, None, None]).flatten(1))
            x = self.encoder.finish_all(number, layer.update_all(receivers, sums))
        return [self.encoder.head(t, rows) for t, rows in enumerate(x)]

    def _receivers(self, number: int, x: Sequence[Tensor]) -> list[Tensor]:
        """Per type the rows of the nodes that a layer computes."""
        return [rows[:count] for rows, count in zip(x, self.hood.counts[number + 1].tolist(), strict=True)]

    def _attended(self, number: int, x: Sequence[Tensor]) -> list[Attended]:
        """The messages of a layer's edges, weighted by attention, per target type."""
        layer, receivers = self.encoder.layer(number), self._receivers(number, x)
        heads, width = layer.num_heads, layer.out_dim // layer.num_heads
        both = [layer.keys_values(t, rows) for t, rows in enumerate(x)]
        queries = [layer.queries(t, rows) for t, rows in enumerate(receivers)]
        result: list[list[tuple[Tensor, Tensor, Tensor, Tensor]]] = [[] for _ in receivers]
        for r, (source_type, target_type) in enumerate(self.relations):
            edges = self.hood.layer_edges(number, r, target_type)
            src, dst, pair = (part[edges] for part in self.graph[r])
            kv, q = both[source_type], queries[target_type]
            if kv is None or q is None or not len(src):
                continue
            # Apply the relation's matrices to nodes, not to edges: each edge then takes a row of each of the two results.
            keys = torch.einsum("nhd,hdf->nhf", kv[:, : layer.out_dim].view(-1, heads, width), layer.w_k[r])
            values = torch.einsum("nhd,hdf->nhf", kv[:, layer.out_dim :].view(-1, heads, width), layer.w_v[r])
            logits = (q.view(-1, heads, width)[dst] * keys[src]).sum(-1) * layer.prior[r] / math.sqrt(width)
            result[target_type].append((logits, values[src], dst, pair))
        out: list[Attended] = []
        for t, rows in enumerate(receivers):
            none = torch.zeros(0, dtype=torch.int64, device=rows.device)
            if not result[t]:
                out.append((rows.new_zeros(0, heads, width) if layer.is_target[t] else None, none, none))
                continue
            logits, values, dst, pair = (torch.cat(parts) for parts in zip(*result[t], strict=True))
            highest = logits.new_full((len(rows), heads), -math.inf)
            highest = highest.scatter_reduce(0, dst[:, None].expand_as(logits), logits.detach(), "amax")
            weights = (logits - highest[dst]).exp()
            total = logits.new_zeros(len(rows), heads).index_add(0, dst, weights)
            out.append(((weights / total[dst])[:, :, None] * values, dst, pair))
        return out
