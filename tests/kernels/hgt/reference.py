"""HGT's attention by its formula, for tests of the fast one: a loop over relations, with all edges' values in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from graphmill.kernels.hgt.plan import MessageGraph


def hgt_attention_reference(
    q: Sequence[Tensor | None],
    k: Sequence[Tensor | None],
    v: Sequence[Tensor | None],
    w_k: Tensor,
    w_v: Tensor,
    prior: Tensor,
    graph: MessageGraph,
    masked_pairs: Tensor | None = None,
) -> list[Tensor | None]:
    """See :func:`graphmill.kernels.hgt.attention.hgt_attention`; memory grows with edges × width."""
    _, heads, width, _ = w_k.shape
    logits: list[list[Tensor]] = [[] for _ in graph.target_counts]
    messages: list[list[Tensor]] = [[] for _ in graph.target_counts]
    receivers: list[list[Tensor]] = [[] for _ in graph.target_counts]
    for number, r in enumerate(graph.relations):
        src, dst = r.source_nodes[r.source], r.target_nodes[r.target]
        if masked_pairs is not None:
            kept = ~masked_pairs[r.pair.long()]
            src, dst = src[kept], dst[kept]
        q_r, k_r, v_r = q[r.target_type], k[r.source_type], v[r.source_type]
        assert q_r is not None
        assert k_r is not None
        assert v_r is not None
        keys = torch.einsum("ehd,hdf->ehf", k_r[src].view(-1, heads, width), w_k[number])
        queries = q_r[dst].view(-1, heads, width)
        logits[r.target_type].append((queries * keys).sum(-1) * prior[number] / math.sqrt(width))
        messages[r.target_type].append(torch.einsum("ehd,hdf->ehf", v_r[src].view(-1, heads, width), w_v[number]))
        receivers[r.target_type].append(dst)
    outputs: list[Tensor | None] = []
    for node_type, count in enumerate(graph.target_counts):
        if not logits[node_type]:
            outputs.append(None)
            continue
        a, m, dst = torch.cat(logits[node_type]), torch.cat(messages[node_type]), torch.cat(receivers[node_type])
        highest = a.new_full((count, heads), -math.inf)
        highest = highest.scatter_reduce(0, dst[:, None].expand_as(a), a.detach(), "amax")
        weights = (a - highest[dst]).exp()
        total = a.new_zeros(count, heads).index_add(0, dst, weights)
        alpha = weights / total[dst]
        outputs.append(m.new_zeros(count, heads, width).index_add(0, dst, alpha[:, :, None] * m).flatten(1))
    return outputs
