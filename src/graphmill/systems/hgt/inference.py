"""All embeddings of a trained HGT, layer by layer and in chunks of receivers, without gradients.

A layer's keys and values are computed once, its receivers in chunks, so that no work is repeated. Memory holds four arrays
of nodes × hidden_dim (a layer's input, keys, values and output) and an amount proportional to the chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from graphmill.kernels.hgt.attention import Rows
from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.systems.hgt.model import HGT, HGTLayer


class EmbeddingChunk(NamedTuple):
    """Embeddings [n, embedding_dim] of nodes ``start`` to ``start + n`` of one type."""

    node_type: int
    start: int
    rows: Tensor


@torch.no_grad()
def infer(
    model: HGT, graph: MessageGraph, features: Mapping[int, Tensor] | None = None, chunk_rows: int = 8192
) -> Iterator[EmbeddingChunk]:
    """The model's embeddings in global node order, as ``model.eval()(graph, features)`` would give them.

    A chunk has at most ``chunk_rows`` nodes, all of one type. The model's training mode is restored when the iterator ends.
    """
    if chunk_rows < 1:
        raise ValueError(f"chunk_rows is {chunk_rows}; it must be at least 1")
    training = model.training
    model.eval()
    try:
        x = [rows.detach() for rows in model.inputs(features, None)]
        for number in range(len(model.layers)):
            x = _layer(model, number, x, graph, chunk_rows)
        for t, rows in enumerate(x):
            for start in range(0, rows.shape[0], chunk_rows):
                yield EmbeddingChunk(t, start, model.head(t, rows[start : start + chunk_rows]))
    finally:
        model.train(training)


def _layer(model: HGT, number: int, x: list[Tensor], graph: MessageGraph, chunk_rows: int) -> list[Tensor]:
    layer = model.layer(number)
    keys, values = _keys_values(layer, x, chunk_rows)
    out = list(x)
    for t, rows in enumerate(x):
        if not layer.is_target[t]:
            continue
        out[t] = rows.new_empty(rows.shape[0], layer.out_dim)
        for start in range(0, rows.shape[0], chunk_rows):
            chunk = rows[start : start + chunk_rows]
            receivers = [chunk if other == t else x[other][:0] for other in range(len(x))]
            cut = graph.target_slice(t, start, start + chunk.shape[0])
            sent = Rows(layer.queries(t, chunk), keys, values)
            out[t][start : start + chunk.shape[0]] = model.finish(number, t, layer.receive(receivers, sent, cut)[t])
    return out


def _keys_values(layer: HGTLayer, x: list[Tensor], chunk_rows: int) -> tuple[Tensor, Tensor]:
    """k and v [senders, out_dim] of all types that send."""
    senders = [(t, rows) for t, rows in enumerate(x) if layer.is_source[t]]
    keys, values = x[0].new_empty(2, sum(len(rows) for _, rows in senders), layer.out_dim)
    first = 0
    for t, rows in senders:
        for part in rows.split(chunk_rows):
            here = slice(first, first + len(part))
            keys[here], values[here] = layer.keys_values(t, part).split(layer.out_dim, 1)
            first += len(part)
    return keys, values
