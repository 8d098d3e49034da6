"""One rank's part of HGT if tables are divided among ranks: the messages into its nodes, and their embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from graphmill.graph.sorted_unique import sorted_unique
from graphmill.kernels.hgt.plan import MessageGraph, TypedEdges
from graphmill.kernels.recomputed import recomputed
from graphmill.systems.hgt.batch import HgtBatch
from graphmill.systems.hgt.model import HGT, take
from graphmill.training.sharding import Bounds, RowExchange, Shards, divide

if TYPE_CHECKING:
    from graphmill.systems.hgt.data import HgtData
    from graphmill.training.processes import Ranks

_EDGE = 40.0
"""Bytes of an edge: its entries in a message plan and its logits."""


def node_shards(data: HgtData, dim: int, tables: bool, ranks: Ranks) -> tuple[Shards, Bounds]:
    """Divide the nodes of all types into ranges of about equal memory, one per rank; types' ``tables`` follow them."""
    degree = np.zeros(data.graph.num_nodes)
    for r in data.relations:
        degree[r.target_offset : r.target_offset + r.num_targets] += r.degree
    # Per node: vector, gradient and two moments; input, query, message and result of two layers.
    bounds = divide(12.0 * 4.0 * dim + _EDGE * degree, ranks.world)
    of_types = enumerate(_within(bounds, data)) if tables else ()
    return Shards(ranks, {f"encoder.tables.{number}": rows for number, rows in of_types}), bounds


def _within(bounds: Bounds, data: HgtData) -> list[Bounds]:
    """By type the ``bounds``, global node numbers, as numbers of the type's rows."""
    return [tuple(min(max(b - t.offset, 0), t.count) for b in bounds) for t in data.graph.node_types]


class RankMessages:
    """``bounds``: the ranks' ranges of global node numbers; ``rank_rows`` [types]: this rank's rows of each type."""

    def __init__(self, data: HgtData, shards: Shards, bounds: Bounds, device: torch.device) -> None:
        self.shards, self.bounds, self.device = shards, bounds, device
        self.data, ranks = data, shards.ranks
        self.first, self.last = bounds[ranks.rank], bounds[ranks.rank + 1]
        self.rank_rows = [slice(*rows[ranks.rank : ranks.rank + 2]) for rows in _within(bounds, data)]
        sources, edges = [], []
        for r in data.relations:
            mine = self.rank_rows[r.target_type]
            kept = slice(*np.searchsorted(r.dst, [mine.start, mine.stop]))  # edges are sorted by their target
            edges.append((r, kept))
            sources.append(r.src[kept].astype(np.int64) + r.source_offset)
        # The nodes that the edges read, and this rank's nodes: one projection for both.
        held = sorted_unique(np.concatenate((*sources, np.arange(self.first, self.last))))
        self.exchange = RowExchange(ranks, bounds, held, device)
        by_type = data.by_type(held)
        self.counts = [len(rows) for rows in by_type]
        starts = [int(np.searchsorted(rows, part.start)) for rows, part in zip(by_type, self.rank_rows, strict=True)]
        self.placed = [slice(a, a + part.stop - part.start) for a, part in zip(starts, self.rank_rows, strict=True)]
        """Position of this rank's rows of each type among the rows that it holds in a layer."""
        typed = [
            TypedEdges(
                r.source_type,
                r.target_type,
                np.searchsorted(by_type[r.source_type], r.src[kept]),
                r.dst[kept] - self.rank_rows[r.target_type].start + self.placed[r.target_type].start,
                r.mask[kept],
            )
            for r, kept in edges
        ]
        self.graph = MessageGraph.build(self.counts, typed).on(device)

    def embedded(
        self, encoder: HGT, features: Mapping[int, Tensor], masked: Tensor, batch: HgtBatch
    ) -> tuple[Tensor, np.ndarray]:
        """Embeddings [n, d] that this rank's share of a batch reads, from all ranks, and the nodes' numbers, ascending.

        ``features``: of this rank's nodes.
        """
        assert batch.read is not None
        # ``read`` is the same on all ranks: the nodes that any of them wants.
        read, wanted = self._with_candidates(batch.read), self._with_candidates(batch.seeds())
        mine = read[(read >= self.first) & (read < self.last)]
        needed = [
            torch.from_numpy(rows - part.start)
            for rows, part in zip(self.data.by_type(mine), self.rank_rows, strict=True)
        ]
        z = self._embed(encoder, features, masked, needed)
        # Nodes are numbered by their position in ``read``. Every rank has computed its own part of them.
        bounds = tuple(np.searchsorted(read, self.bounds).tolist())
        exchange = RowExchange(self.shards.ranks, bounds, np.searchsorted(read, wanted), self.device)
        return exchange.fetch(z), wanted

    def _with_candidates(self, nodes: np.ndarray) -> np.ndarray:
        """``nodes`` and, where there is a contrastive term, all nodes of the anchors' type."""
        if (similar := self.data.similar) is None:
            return nodes
        return sorted_unique(np.concatenate((nodes, np.arange(similar.first, similar.first + similar.count))))

    @torch.no_grad()
    def whole(self, encoder: HGT, features: Mapping[int, Tensor]) -> Tensor:
        """Embeddings [N, d] of all nodes in eval mode, on every rank."""
        training = encoder.training
        encoder.eval()
        z = self._embed(encoder, features, None, None)
        encoder.train(training)
        return self.shards.whole(self.bounds, z)

    def _embed(
        self, encoder: HGT, features: Mapping[int, Tensor], masked: Tensor | None, needed: list[Tensor] | None
    ) -> Tensor:
        """Embeddings of this rank's nodes, or of the ``needed`` ones among them, type by type."""
        x = encoder.inputs(features, None)
        for number in range(len(encoder.layers)):
            chosen = needed if number == len(encoder.layers) - 1 else None
            x = recomputed(encoder.again, self._layer, encoder, number, masked, chosen, *x)
        if needed is not None and not len(encoder.layers):
            x = take(x, needed)
        return encoder.embed_all(x)

    def _layer(
        self, encoder: HGT, number: int, masked: Tensor | None, needed: list[Tensor] | None, *x: Tensor
    ) -> list[Tensor]:
        layer, receivers = encoder.layer(number), list(x)
        held = self.exchange.fetch(torch.cat(x)).split(self.counts)
        # Queries, keys and values of the held rows are larger than all that a rank keeps: they are recomputed.
        again = torch.is_grad_enabled() and not encoder.again
        whole = recomputed(again, layer.messages, held, self.graph, masked)
        messages = [None if m is None else m[at] for m, at in zip(whole, self.placed, strict=True)]
        if needed is not None:
            receivers, messages = take(receivers, needed), take(messages, needed)
        return encoder.finish_all(number, layer.update_all(receivers, messages))
