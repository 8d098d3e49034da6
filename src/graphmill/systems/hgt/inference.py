"""All embeddings of a trained HGT, layer by layer and in chunks of receivers, without gradients.

A layer's keys and values are computed once, its receivers in chunks, so that no work is repeated. Memory holds four arrays
of nodes × hidden_dim (a layer's input, keys, values and output) and an amount proportional to the chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.kernels.hgt.relations import Rows, present
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
    both = [_keys_values(layer, t, rows, chunk_rows) for t, rows in enumerate(x)]
    keys = [None if kv is None else kv[:, : layer.out_dim] for kv in both]
    values = [None if kv is None else kv[:, layer.out_dim :] for kv in both]
    out = list(x)
    for t, rows in enumerate(x):
        if not layer.is_target[t]:
            continue
        out[t] = rows.new_empty(rows.shape[0], layer.out_dim)
        for start in range(0, rows.shape[0], chunk_rows):
            chunk = rows[start : start + chunk_rows]
            receivers = [chunk if other == t else x[other][:0] for other in range(len(x))]
            cut = graph.target_slice(t, start, start + chunk.shape[0])
            queries = [layer.queries(other, some) for other, some in enumerate(receivers)]
            updated = layer.receive(receivers, Rows(queries, keys, values), cut)[t]
            out[t][start : start + chunk.shape[0]] = model.finish(number, t, updated)
    return out


def _keys_values(layer: HGTLayer, node_type: int, rows: Tensor, chunk_rows: int) -> Tensor | None:
    if not layer.is_source[node_type]:
        return None
    out = rows.new_empty(rows.shape[0], 2 * layer.out_dim)
    for start in range(0, rows.shape[0], chunk_rows):
        out[start : start + chunk_rows] = present(layer.keys_values(node_type, rows[start : start + chunk_rows]))
    return out
