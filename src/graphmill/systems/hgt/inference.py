"""All embeddings of a trained HGT, layer by layer and in chunks of receivers, without gradients; and those of later nodes.

A layer's keys and values are computed once, its receivers in chunks, so that no work is repeated. Memory holds four arrays
of nodes × hidden_dim (a layer's input, keys, values and output) and an amount proportional to the chunk.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.graph.later_nodes import LaterNodes
from graphmill.kernels.hgt.attention import Rows
from graphmill.kernels.hgt.plan import MessageGraph, TypedEdges
from graphmill.systems.hgt.model import HGT, HGTLayer
from graphmill.systems.hgt.settings import INFERENCE_ROWS

if TYPE_CHECKING:
    from graphmill.systems.hgt.system import HgtSystem


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


def layers_later(
    system: HgtSystem,
    model: nn.Module,
    later: LaterNodes,
    inputs: Mapping[int, Tensor],
    of_new: np.ndarray | None = None,
) -> np.ndarray:
    """float32 [new nodes (type by type), width]: the layers' output for them. Their table rows are their type's mean.

    ``inputs``: per type [known nodes, f], the layers' input features. ``of_new``: the last columns of these for the new
    nodes. The other columns are features of the data, 0 where a new node has none.
    """
    graph, encoder = system.graph, model.encoder
    known, first = [t.count for t in graph.node_types], later.first
    grown: HGT = copy.deepcopy(encoder)  # type: ignore[assignment]
    grown.type_counts = tuple(n + more for n, more in zip(known, later.counts, strict=True))
    features = {}
    for number, rows in inputs.items():
        of_later = rows.new_zeros(later.counts[number], rows.shape[1])
        given = later.features_of(graph, number)
        of_later[:, : given.shape[1]] = torch.from_numpy(given)
        if of_new is not None:
            of_later[:, rows.shape[1] - of_new.shape[1] :] = torch.from_numpy(of_new[first[number] : first[number + 1]])
        features[number] = torch.cat([rows, of_later])
    with torch.no_grad():
        tables = [(t, t.sum(0, keepdim=True) / max(len(t), 1)) for t in grown.tables]
        rows_of = (torch.cat([t, mean.expand(n, -1)]) for (t, mean), n in zip(tables, later.counts, strict=False))
        grown.tables = nn.ParameterList(rows_of)
    edges = []
    for r, (src, dst) in zip(system.data.relations, later.edges, strict=True):
        sources, targets = np.concatenate([r.src, src]), np.concatenate([r.dst, dst])
        order = np.lexsort((sources, targets))
        edges.append(TypedEdges(r.source_type, r.target_type, sources[order], targets[order], np.zeros_like(order)))
    messages = MessageGraph.build(grown.type_counts, edges).on(system.device)
    chunks = infer(grown, messages, features, INFERENCE_ROWS)
    return np.concatenate([c.rows[max(known[c.node_type] - c.start, 0) :].float().cpu().numpy() for c in chunks])
