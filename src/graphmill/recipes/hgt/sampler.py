"""Draws HGT's steps: supervised links, their negatives, anchors, and (sampled) which edges carry messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphmill.recipes.hgt.batch import HgtBatch, empty_anchors
from graphmill.recipes.hgt.data import HgtData, RelationEdges, Similar
from graphmill.recipes.hgt.settings import HgtAcceleration, HgtObjective
from graphmill.sampling.keyed import generator
from graphmill.sampling.negatives import corrupt_tails


class HgtSampler:
    """A step is a function of (seed, epoch, index): the same numbers on a resume, on any rank, in any thread."""

    def __init__(
        self, data: HgtData, objective: HgtObjective, acceleration: HgtAcceleration, mode: str, seed: int
    ) -> None:
        self.data = data
        self.objective = objective
        self.acceleration = acceleration
        self.mode = mode
        self.seed = seed
        self._orders: dict[tuple[int, int], np.ndarray] = {}

    def supervised_per_step(self, relation: RelationEdges) -> int:
        """At most ``edge_sample_size`` links, at most ``supervision_fraction`` of the relation, at least one."""
        count = len(relation.src)
        part = int(count * self.acceleration.supervision_fraction)
        return min(self.acceleration.edge_sample_size, max(part, 1), count)

    def step(self, epoch: int, index: int) -> HgtBatch:
        """The batch of one optimizer step."""
        chosen = [self._choose(number, epoch, index) for number in range(len(self.data.relations))]
        if self.mode == "full":
            masked = np.unique(np.concatenate([r.pair[c] for r, c in zip(self.data.relations, chosen, strict=True)]))
            shares = [1.0 / max(len(c), 1) for c in chosen]
            return self._batch(
                chosen, shares, self._anchors(epoch, index, 0, 1), masked.astype(np.int64), epoch, index, 0
            )
        return self._sampled(chosen, epoch, index)

    def _choose(self, number: int, epoch: int, index: int) -> np.ndarray:
        """Slices of one shuffled order per epoch: every link is supervised before any is supervised twice."""
        relation = self.data.relations[number]
        count, size = len(relation.src), self.supervised_per_step(relation)
        if not count:
            return np.zeros(0, dtype=np.int64)
        start = index * size
        turn, at = divmod(start, count)
        order = self._order(number, epoch, turn)
        rows = order[at : at + size]
        if len(rows) < size:
            more = self._order(number, epoch, turn + 1)
            rows = np.unique(np.concatenate([rows, more[: size - len(rows)]]))
        return np.sort(rows)

    def _order(self, number: int, epoch: int, turn: int) -> np.ndarray:
        key = (number, epoch * 1_000_003 + turn)
        if key not in self._orders:
            if len(self._orders) > 4 * len(self.data.relations):
                self._orders.clear()
            rng = generator(self.seed, "supervision", epoch, turn, number)
            self._orders[key] = rng.permutation(len(self.data.relations[number].src))
        return self._orders[key]

    def _batch(
        self,
        chosen: list[np.ndarray],
        shares: list[float],
        anchors: dict[str, Any],
        masked: np.ndarray,
        epoch: int,
        index: int,
        micro: int,
        messages: tuple[np.ndarray, ...] | None = None,
    ) -> HgtBatch:
        k = self.objective.negatives_per_positive
        columns: dict[str, list[np.ndarray]] = {name: [] for name in _COLUMNS}
        for number, (relation, rows) in enumerate(zip(self.data.relations, chosen, strict=True)):
            if not len(rows):
                continue
            head, tail = relation.src[rows].astype(np.int64), relation.dst[rows].astype(np.int64)
            rng = generator(self.seed, "negatives", epoch, index, micro, number)
            popular = relation.dst if self.objective.negatives == "degree" else None
            negative = corrupt_tails(rng, head, relation.keys, relation.num_targets, k, popular=popular)
            columns["relation"].append(np.full(len(rows), number, dtype=np.int64))
            columns["head"].append(head + relation.source_offset)
            columns["tail"].append(tail + relation.target_offset)
            columns["negative"].append(np.where(negative < 0, -1, negative + relation.target_offset))
            columns["share"].append(np.full(len(rows), shares[number]))
            # Without the link itself: a supervised link must not be given away by having been counted.
            columns["tail_degree"].append(np.log(np.maximum(relation.degree[tail], 1)).astype(np.float32))
            columns["negative_degree"].append(np.log1p(relation.degree[np.maximum(negative, 0)]).astype(np.float32))
        joined: dict[str, Any] = {
            name: np.concatenate(parts) if parts else np.zeros((0, k) if name.startswith("negative") else 0)
            for name, parts in columns.items()
        }
        return HgtBatch(**joined, **anchors, masked=masked, messages=messages)

    def _anchors(self, epoch: int, index: int, micro: int, micros: int) -> dict[str, Any]:
        similar = self.data.similar
        if similar is None:
            return empty_anchors()
        size = min(self.objective.contrastive_anchors, len(similar.anchors))
        order = generator(self.seed, "anchors", epoch, index).permutation(len(similar.anchors))[:size]
        return positives_of(similar, np.sort(similar.anchors[order[micro::micros]]))

    def _sampled(self, chosen: list[np.ndarray], epoch: int, index: int) -> HgtBatch:
        micros = self.acceleration.accumulation_steps
        size = max(self.acceleration.edge_sample_size // micros, 1)
        parts = []
        shares = [1.0 / max(len(c), 1) for c in chosen]
        for micro in range(micros):
            own = [c[micro::micros] for c in chosen]
            masked = np.unique(np.concatenate([r.pair[c] for r, c in zip(self.data.relations, own, strict=True)]))
            messages = []
            for number, relation in enumerate(self.data.relations):
                count = len(relation.src)
                rng = generator(self.seed, "messages", epoch, index, micro, number)
                rows = rng.choice(count, min(size, count), replace=False) if count else np.zeros(0, dtype=np.int64)
                # Disjoint from the supervision: the pair, in any direction and relation, carries no message.
                rows = np.sort(rows[~np.isin(relation.pair[rows], masked)])
                messages.append(rows.astype(np.int64))
            anchors = self._anchors(epoch, index, micro, micros)
            batch = self._batch(own, shares, anchors, masked.astype(np.int64), epoch, index, micro, tuple(messages))
            if len(batch.relation) or len(batch.anchor):
                parts.append(batch)
        whole = self._batch([c[:0] for c in chosen], shares, empty_anchors(), parts[0].masked[:0], epoch, index, -1, ())
        return replace(whole, micro=tuple(parts))


_COLUMNS = ("relation", "head", "tail", "negative", "share", "tail_degree", "negative_degree")


def positives_of(similar: Similar, anchors: np.ndarray) -> dict[str, Any]:
    """Anchor fields (global numbers) of a batch, from local anchor numbers."""
    starts, stops = similar.indptr[anchors], similar.indptr[anchors + 1]
    positive = [similar.positives[a:b] for a, b in zip(starts, stops, strict=True)]
    return {
        "anchor": anchors.astype(np.int64) + similar.first,
        "positive_indptr": np.concatenate([[0], np.cumsum(stops - starts)]).astype(np.int64),
        "positive": (np.concatenate(positive) if positive else np.zeros(0)).astype(np.int64) + similar.first,
    }
