"""Vectors of nodes added to the graph after training, from their edges to known nodes. Nothing is trained.

Spectral vectors project a new node's neighbourhood onto the basis of the run. The layers make one pass over the graph with
the new nodes in it. Known nodes keep their vectors.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.graph.later_nodes import LaterNodes
from graphmill.kernels.hgt.plan import MessageGraph, TypedEdges
from graphmill.systems.hgt.inference import infer
from graphmill.systems.hgt.model import HGT
from graphmill.systems.hgt.settings import INFERENCE_ROWS

if TYPE_CHECKING:
    from graphmill.systems.hgt.system import HgtSystem


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
