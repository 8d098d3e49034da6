"""Draws HGT's steps: supervised links, their negatives, anchors, and with ``edge_sampled`` the edges of messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphmill.graph.sorted_unique import in_sorted, sorted_unique
from graphmill.sampling.keyed import generator
from graphmill.sampling.negatives import corrupt_tails
from graphmill.sampling.ranges import ranges
from graphmill.systems.hgt.batch import HgtBatch, empty_anchors
from graphmill.systems.hgt.data import HgtData
from graphmill.systems.hgt.settings import ANCHORS, SAMPLES, SUPERVISED, HgtSettings


def links_per_step(settings: HgtSettings, edges: int) -> int:
    """Links of a relation: at most ``edge_sample_size``, at most :data:`SUPERVISED` of the edges, at least one."""
    return min(settings.sampling.edge_sample_size, max(int(edges * SUPERVISED), 1), edges)


class HgtSampler:
    """A step depends only on (seed, epoch, index): it is the same after a resume, on any rank and in any thread."""

    def __init__(self, data: HgtData, settings: HgtSettings, mode: str) -> None:
        self.data = data
        self.objective = settings.objective
        self.sample_size = max(settings.sampling.edge_sample_size // SAMPLES, 1)
        self.mode = mode
        self.seed = settings.training.seed
        self._orders: dict[tuple[int, int], np.ndarray] = {}
        self.links = [links_per_step(settings, len(r.src)) for r in data.relations]
        anchors = 0 if data.similar is None else len(data.similar.anchors)
        self.anchors = min(ANCHORS, anchors)
        self.candidates = self.objective.drawn_candidates

    def step(self, epoch: int, index: int) -> HgtBatch:
        """The batch of one optimizer step."""
        chosen = [self._choose(number, epoch, index) for number in range(len(self.data.relations))]
        micros = 1 if self.mode == "full" else SAMPLES
        parts = []
        shares = [1.0 / max(len(c), 1) for c in chosen]
        for micro in range(micros):
            links = [c[micro::micros] for c in chosen]
            masked = sorted_unique(np.concatenate([r.mask[c] for r, c in zip(self.data.relations, links, strict=True)]))
            anchors = self._anchors(epoch, index, micro, micros)
            batch = self._batch(links, shares, anchors, masked.astype(np.int64), (epoch, index, micro))
            if self.mode == "full":
                return replace(batch, read=batch.seeds())
            if not len(batch.relation) and not len(batch.anchor):
                continue
            parts.append(replace(batch, messages=self._messages(masked, epoch, index, micro)))
        none = [c[:0] for c in chosen]
        whole = self._batch(none, shares, empty_anchors(), parts[0].masked[:0], (epoch, index, -1))
        return replace(whole, messages=(), micro=tuple(parts))

    def _choose(self, number: int, epoch: int, index: int) -> np.ndarray:
        """Slices of one shuffled order per epoch: every link is supervised before any is supervised twice."""
        relation = self.data.relations[number]
        count, size = len(relation.src), self.links[number]
        if not count:
            return np.zeros(0, dtype=np.int64)
        turn, at = divmod(index * size, count)
        rows = self._order(number, epoch, turn)[at : at + size]
        if len(rows) < size:
            more = self._order(number, epoch, turn + 1)
            rows = sorted_unique(np.concatenate([rows, more[: size - len(rows)]]))
        return np.sort(rows)

    def _order(self, number: int, epoch: int, turn: int) -> np.ndarray:
        key = (number, epoch * 1_000_003 + turn)
        order = self._orders.get(key)
        if order is None:
            if len(self._orders) > 4 * len(self.data.relations):
                self._orders.clear()
            rng = generator(self.seed, "supervision", epoch, turn, number)
            order = self._orders[key] = rng.permutation(len(self.data.relations[number].src))
        return order  # not read from the cache: another thread that prepares batches may have cleared it

    def _batch(
        self,
        chosen: list[np.ndarray],
        shares: list[float],
        anchors: dict[str, Any],
        masked: np.ndarray,
        key: tuple[int, int, int],
    ) -> HgtBatch:
        """``key``: epoch, index and number of the micro-batch."""
        k = self.objective.negatives_a_link
        columns: dict[str, list[np.ndarray]] = {
            name: [np.zeros((0, k) if name.startswith("negative") else 0, kind)] for name, kind in _COLUMNS.items()
        }
        for number, (relation, rows) in enumerate(zip(self.data.relations, chosen, strict=True)):
            if not len(rows):
                continue
            head, tail = relation.src[rows].astype(np.int64), relation.dst[rows].astype(np.int64)
            rng = generator(self.seed, "negatives", *key, number)
            negative = np.zeros((len(head), 0), dtype=np.int64)
            if k:
                negative = corrupt_tails(rng, head, relation.keys, relation.num_targets, k)
            columns["relation"].append(np.full(len(rows), number, dtype=np.int64))
            columns["head"].append(head + relation.source_offset)
            columns["tail"].append(tail + relation.target_offset)
            columns["negative"].append(np.where(negative < 0, -1, negative + relation.target_offset))
            columns["share"].append(np.full(len(rows), shares[number]))
            # The link itself is not counted: the degree must not give away a supervised link.
            columns["tail_degree"].append(np.log(np.maximum(relation.degree[tail], 1)).astype(np.float32))
            columns["negative_degree"].append(np.log1p(relation.degree[np.maximum(negative, 0)]).astype(np.float32))
        joined: dict[str, Any] = {name: np.concatenate(parts) for name, parts in columns.items()}
        candidate = self._candidates(joined["relation"], key)
        return HgtBatch(**joined, **anchors, masked=masked, candidate=candidate)

    def _candidates(self, relations: np.ndarray, key: tuple[int, int, int]) -> np.ndarray:
        """int64, ascending global numbers: ``candidates`` nodes, or all, of each type that a link of the batch ends in."""
        if not self.candidates:
            return np.zeros(0, dtype=np.int64)
        parts = [np.zeros(0, dtype=np.int64)]
        for number in sorted({self.data.relations[r].target_type for r in np.unique(relations)}):
            node_type = self.data.graph.node_types[number]
            rows = np.arange(node_type.count)
            if node_type.count > self.candidates:
                rng = generator(self.seed, "candidates", *key, number)
                rows = np.sort(rng.choice(node_type.count, self.candidates, replace=False))
            parts.append(rows + node_type.offset)
        return np.concatenate(parts)

    def _anchors(self, epoch: int, index: int, micro: int, micros: int) -> dict[str, Any]:
        """Anchor fields (global numbers) of a batch."""
        similar = self.data.similar
        if similar is None:
            return empty_anchors()
        order = generator(self.seed, "anchors", epoch, index).permutation(len(similar.anchors))[: self.anchors]
        anchors = np.sort(similar.anchors[order[micro::micros]])
        starts, stops = similar.indptr[anchors], similar.indptr[anchors + 1]
        return {
            "anchor": anchors.astype(np.int64) + similar.first,
            "positive_indptr": np.concatenate([[0], np.cumsum(stops - starts)]).astype(np.int64),
            "positive": similar.positives[ranges(starts, stops)].astype(np.int64) + similar.first,
        }

    def _messages(self, masked: np.ndarray, epoch: int, index: int, micro: int) -> tuple[np.ndarray, ...]:
        """``edge_sampled``: per relation the edges that carry a micro-batch's messages."""
        messages = []
        for number, relation in enumerate(self.data.relations):
            count = len(relation.src)
            rng = generator(self.seed, "messages", epoch, index, micro, number)
            rows = (
                rng.choice(count, min(self.sample_size, count), replace=False) if count else np.zeros(0, dtype=np.int64)
            )
            # Disjoint from the supervised links: their pairs carry no message, in any direction or relation.
            messages.append(np.sort(rows[~in_sorted(relation.mask[rows], masked)]).astype(np.int64))
        return tuple(messages)


# Dtypes of the columns. A batch with anchors alone needs them too: its empty columns are used as indices.
_COLUMNS: dict[str, type] = {
    **dict.fromkeys(("relation", "head", "tail", "negative"), np.int64),
    "share": np.float64,
    **dict.fromkeys(("tail_degree", "negative_degree"), np.float32),
}
