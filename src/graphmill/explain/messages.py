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
from torch.nn import functional as F

from graphmill.explain.neighbourhood import Neighbourhood
from graphmill.systems.hgt.model import HGT, HGTLayer

Relations = Sequence[tuple[int, int]]
"""Source and target type of each relation."""
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
    device = next(encoder.parameters()).device
    graph = [
        (torch.from_numpy(hood.source[n]).to(device), torch.from_numpy(hood.target[n]).to(device),
         torch.from_numpy(hood.pair[n]).to(device))
        for n in range(len(relations))
    ]  # fmt: skip

    def value(mask: Tensor) -> Tensor:
        return score(masked_embeddings(encoder, hood, relations, graph, inputs, mask))

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


def masked_embeddings(
    encoder: HGT,
    hood: Neighbourhood,
    relations: Relations,
    graph: Sequence[tuple[Tensor, Tensor, Tensor]],
    inputs: Sequence[Tensor],
    mask: Tensor,
) -> list[Tensor]:
    """Per type the seeds' embeddings, with each message multiplied by the ``mask`` [pairs] of its pair. Memory grows
    with edges × width."""
    x = list(inputs)
    for number in range(len(encoder.layers)):
        layer = encoder.layer(number)
        counts = hood.counts[number + 1]
        receivers = [rows[:count] for rows, count in zip(x, counts.tolist(), strict=True)]
        both = [layer.keys_values(t, rows) for t, rows in enumerate(x)]
        arrived = _messages(layer, number, hood, relations, graph, receivers, both, mask)
        out = layer.update_all(receivers, arrived)
        x = encoder.finish_all(number, out)
    return [encoder.head(t, rows) for t, rows in enumerate(x)]


def _messages(
    layer: HGTLayer,
    number: int,
    hood: Neighbourhood,
    relations: Relations,
    graph: Sequence[tuple[Tensor, Tensor, Tensor]],
    receivers: Sequence[Tensor],
    both: Sequence[Tensor | None],
    mask: Tensor,
) -> list[Tensor | None]:
    heads = layer.num_heads
    width = layer.out_dim // heads
    result: list[list[tuple[Tensor, Tensor, Tensor]]] = [[] for _ in receivers]
    queries = [layer.queries(t, rows) for t, rows in enumerate(receivers)]
    for r, (source_type, target_type) in enumerate(relations):
        edges = hood.layer_edges(number, r, target_type)
        src, dst, pair = (part[edges] for part in graph[r])
        kv, q = both[source_type], queries[target_type]
        if kv is None or q is None or not len(src):
            continue
        # Apply the relation's matrices to nodes, not to edges: each edge then takes a row of each of the two results.
        keys = torch.einsum("nhd,hdf->nhf", kv[:, : layer.out_dim].view(-1, heads, width), layer.w_k[r])
        values = torch.einsum("nhd,hdf->nhf", kv[:, layer.out_dim :].view(-1, heads, width), layer.w_v[r])
        logits = (q.view(-1, heads, width)[dst] * keys[src]).sum(-1) * layer.prior[r] / math.sqrt(width)
        result[target_type].append((logits, values[src] * mask[pair][:, None, None], dst))
    out: list[Tensor | None] = []
    for t, rows in enumerate(receivers):
        if not layer.is_target[t]:
            out.append(None)
            continue
        if not result[t]:
            out.append(rows.new_zeros(len(rows), layer.out_dim))
            continue
        logits, values, dst = (torch.cat(parts) for parts in zip(*result[t], strict=True))
        highest = logits.new_full((len(rows), heads), -math.inf)
        highest = highest.scatter_reduce(0, dst[:, None].expand_as(logits), logits.detach(), "amax")
        weights = (logits - highest[dst]).exp()
        total = logits.new_zeros(len(rows), heads).index_add(0, dst, weights)
        messages = (weights / total[dst])[:, :, None] * values
        out.append(values.new_zeros(len(rows), heads, width).index_add(0, dst, messages).flatten(1))
    return out


def sampled_inputs(encoder: HGT, rows: Sequence[np.ndarray], given: Sequence[np.ndarray | None]) -> list[Tensor]:
    """Per type [n, hidden_dim]: the first layer's input for some nodes. ``given``: their features, if there are any."""
    out, device = [], next(encoder.parameters()).device
    with torch.no_grad():
        for t, numbers in enumerate(rows):
            parts = [F.embedding(torch.from_numpy(numbers).to(device), table) for table in encoder.tables[t : t + 1]]
            features = given[t]
            if str(t) in encoder.features and features is not None:
                parts.append(encoder.features[str(t)](torch.from_numpy(features).to(device, torch.float32)))
            out.append(sum(parts[1:], parts[0]))
    return out
