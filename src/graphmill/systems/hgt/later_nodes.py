"""Vectors of nodes added to the graph after training, from their edges to known nodes. Nothing is trained.

The spectral part projects a new node's neighbourhood onto the basis of the run. The learned part is one pass of the layers
over the graph with the new nodes in it. Known nodes keep their vectors.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from graphmill.graph.later_nodes import LaterNodes
from graphmill.graph.spectral import Neighbourhoods
from graphmill.graph.training_links import TrainingLinks
from graphmill.kernels.hgt.plan import MessageGraph, TypedEdges
from graphmill.systems.factor.model import products
from graphmill.systems.hgt.inference import infer
from graphmill.systems.hgt.model import HGT
from graphmill.systems.hgt.settings import INFERENCE_ROWS

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.systems.hgt.data import HgtData
    from graphmill.systems.hgt.system import HgtSystem

Links = TypeVar("Links", bound=TrainingLinks)


def neighbourhoods_of(later: LaterNodes, data: HgtData, entries: Neighbourhoods) -> sp.csr_matrix:
    """float32 [new nodes (type by type), columns]: the new nodes' neighbourhoods in the columns of the run's basis."""
    graph, relations = data.graph, len(data.relations)
    known = [t.count for t in graph.node_types]
    first = later.first
    rows, keys = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number, (r, ends) in enumerate(zip(data.relations, later.edges, strict=True)):
        kinds, offsets = (r.source_type, r.target_type), (r.source_offset, r.target_offset)
        # A relation that is stored in only one direction has columns for both. For others the lookup below finds none.
        for place, (mine, theirs) in ((number, (0, 1)), (relations + number, (1, 0))):
            new = (ends[mine] >= known[kinds[mine]]) & (ends[theirs] < known[kinds[theirs]])
            rows.append(ends[mine][new] - known[kinds[mine]] + first[kinds[mine]])
            keys.append(ends[theirs][new] + offsets[theirs] + np.int64(place) * graph.num_nodes)
    row, key = np.concatenate(rows), np.concatenate(keys)
    column = np.minimum(np.searchsorted(entries.columns, key), max(len(entries.columns) - 1, 0))
    there = entries.columns[column] == key if len(entries.columns) else np.zeros(len(key), bool)
    found = row[there], column[there]
    return sp.csr_matrix((entries.weights[found[1]], found), (int(first[-1]), len(entries.columns)))


def learned_later(
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
    told = {}
    for number, rows in inputs.items():
        own = rows.new_zeros(later.counts[number], rows.shape[1])
        if (given := later.features.get((number, ""))) is not None:
            own[:, : given.shape[1]] = torch.from_numpy(given)
        if of_new is not None:
            own[:, rows.shape[1] - of_new.shape[1] :] = torch.from_numpy(of_new[first[number] : first[number + 1]])
        told[number] = torch.cat([rows, own])
    with torch.no_grad():
        tables = [(t, t.sum(0, keepdim=True) / max(len(t), 1)) for t in grown.tables]
        rows_of = (torch.cat([t, mean.expand(n, -1)]) for (t, mean), n in zip(tables, later.counts, strict=True))
        grown.tables = nn.ParameterList(rows_of)
    edges = []
    for r, (src, dst) in zip(system.data.relations, later.edges, strict=True):
        sources, targets = np.concatenate([r.src, src]), np.concatenate([r.dst, dst])
        order = np.lexsort((sources, targets))
        edges.append(TypedEdges(r.source_type, r.target_type, sources[order], targets[order], np.zeros_like(order)))
    messages = MessageGraph.build(grown.type_counts, edges).on(system.device)
    chunks = infer(grown, messages, told, INFERENCE_ROWS)
    return np.concatenate([c.rows[max(known[c.node_type] - c.start, 0) :].float().cpu().numpy() for c in chunks])


def grown_links(later: LaterNodes, links: Links, graph: TypedGraph) -> Links:
    """The training edges and the new edges together, with the node numbers of the grown graph."""
    number = {t.name: n for n, t in enumerate(graph.node_types)}
    counts = np.array([t.count for t in graph.node_types]) + np.array(later.counts)
    offset = np.concatenate([[0], np.cumsum(counts)])
    outgoing, offsets = [], []
    for relation, matrix, (src, dst) in zip(graph.relations, links.outgoing, later.edges, strict=True):
        source, target = number[relation.source], number[relation.target]
        old = matrix.tocoo()
        ends = np.concatenate([old.row, src]), np.concatenate([old.col, dst])
        whole = sp.csr_matrix((np.ones(len(ends[0]), np.int64), ends), (counts[source], counts[target]))
        whole.data[:] = 1  # a new edge may repeat a known one
        outgoing.append(whole)
        offsets.append((int(offset[source]), int(offset[target])))
    return type(links)(outgoing, offsets)


def grown_factors(
    later: LaterNodes, graph: TypedGraph, links: TrainingLinks, factors: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """float32 [nodes of the grown graph, f]: ComplEx's vectors. ``links``: of the grown graph. ``factors``: of the known
    nodes and of the relations.

    A ridge regression per type predicts a node's vector from its edges to known nodes: from the sum of the vectors whose
    product with it is an edge's score, divided by √(1 + edges) and by 1 + edges.
    """
    nodes, relations = (torch.from_numpy(np.asarray(part, np.float32)) for part in factors)
    of_type = nodes.split([t.count for t in graph.node_types])
    sums = [np.zeros((len(y) + more, nodes.shape[1])) for y, more in zip(of_type, later.counts, strict=True)]
    edges = [np.zeros((len(total), 1)) for total in sums]
    number = {t.name: n for n, t in enumerate(graph.node_types)}
    for relation, matrix in zip(graph.relations, links.outgoing, strict=True):
        ends, own = (number[relation.source], number[relation.target]), relations[relation.index][None]
        real, imaginary = own.chunk(2, dim=1)
        conjugate = torch.cat([real, -imaginary], 1)
        for mine, theirs, told, weight in ((*ends, matrix, conjugate), (*ends[::-1], matrix.T, own)):
            known = told.tocsr()[:, : len(of_type[theirs])]
            sums[mine] += known @ products(of_type[theirs], weight, "complex").numpy()
            edges[mine] += np.asarray(known.sum(1)).reshape(-1, 1)
    parts = []
    for y, total, count in zip(of_type, sums, edges, strict=True):
        x = np.concatenate([total / np.sqrt(1 + count), total / (1 + count)], 1)
        known, new = x[: len(y)], x[len(y) :]
        weights = np.linalg.solve(known.T @ known + np.eye(x.shape[1]), known.T @ y.numpy())
        parts += [y.numpy(), (new @ weights).astype(np.float32)]
    return np.concatenate(parts)
