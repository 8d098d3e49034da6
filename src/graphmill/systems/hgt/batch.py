"""The data of one HGT step: supervised links with their negatives, contrastive anchors, and the pairs to mask.

Node numbers are global. A batch is plain arrays. With ``edge_sampled`` it also holds the edges that carry its messages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from graphmill.graph.sorted_unique import sorted_unique

LINK = "link"
CONTRASTIVE = "contrastive"
NEARLY_ALL = 0.95
"""Share of all nodes. If the loss of a ``full`` step reads more, all are computed: leaving some out would save little."""
_OF_LINKS = ("relation", "head", "tail", "negative", "share", "tail_degree", "negative_degree")


@dataclass(frozen=True)
class HgtBatch:
    """Rows of one step (or of one micro-batch, chunk or shard of it).

    ``relation``, ``head``, ``tail`` int64 [P]; ``negative`` int64 [P, k] (−1 = none). ``share`` float64 [P] is
    1 / (links of the relation supervised in the whole step): a sum weighted by it is a mean over each relation's links.
    ``tail_degree`` [P] and ``negative_degree`` [P, k] float32 are log(1 + degree), without counting the link itself.
    ``anchor`` int64 [A] with positives as CSR (``positive_indptr`` [A + 1], ``positive``).
    ``masked`` int64: the masks (:attr:`graphmill.systems.hgt.data.HgtData.masks`) whose edges carry no message in this step.
    ``read`` int64, ascending: in ``full`` batching the nodes whose embeddings the loss of the whole step reads. None in the
    other modes, where each part reads its own nodes (:meth:`seeds`).
    ``messages``: per relation the positions of the edges that carry messages; None: all edges.
    ``candidate`` int64, ascending: the softmax's wrong targets for all links. A relation uses those of its target type.
    """

    relation: np.ndarray
    head: np.ndarray
    tail: np.ndarray
    negative: np.ndarray
    share: np.ndarray
    tail_degree: np.ndarray
    negative_degree: np.ndarray
    anchor: np.ndarray
    positive_indptr: np.ndarray
    positive: np.ndarray
    masked: np.ndarray
    read: np.ndarray | None = None
    messages: tuple[np.ndarray, ...] | None = None
    candidate: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    micro: tuple[HgtBatch, ...] = field(default=())

    @property
    def weights(self) -> Mapping[str, float]:
        """Number of relations with a supervised link, and number of anchors."""
        parts = self.micro or (self,)
        out = {LINK: float(sum(p.share.sum() for p in parts))}
        anchors = sum(len(p.anchor) for p in parts)
        return out | ({CONTRASTIVE: float(anchors)} if anchors else {})

    @property
    def replicated(self) -> bool:
        """Whether every rank encodes the same graph: the full graph, not samples."""
        return not self.micro and not self._is_sampled()

    def groups(self) -> Sequence[HgtBatch]:
        """The micro-batches of a sampled mode, or the batch itself."""
        if self.micro:
            return self.micro
        return () if self._is_sampled() and not self._rows() else (self,)

    def split(self, parts: int) -> Sequence[HgtBatch]:
        """At most ``parts`` chunks of links and anchors, none empty."""
        if parts == 1 and self._rows():
            return [self]
        links = np.array_split(np.arange(len(self.relation)), parts)
        anchors = np.array_split(np.arange(len(self.anchor)), parts)
        return [self._take(i, a) for i, a in zip(links, anchors, strict=True) if len(i) or len(a)]

    def shard(self, rank: int, world: int) -> HgtBatch:
        """Every ``world``-th micro-batch, or without micro-batches link and anchor; ``masked`` and ``read`` stay whole."""
        if self.micro:
            mine = self.micro[rank::world]
            return replace(self, micro=mine) if mine else replace(self._take(np.arange(0), np.arange(0)), messages=())
        links = np.arange(rank, len(self.relation), world)
        return self._take(links, np.arange(rank, len(self.anchor), world))

    def arrays(self) -> dict[str, np.ndarray]:
        """The links and anchors, with what is drawn for them, of each micro-batch."""
        out = {}
        for number, part in enumerate(self.micro or (self,)):
            prefix = f"micro{number}." if self.micro else ""
            links = ("relation", "head", "tail", "negative", "share", "masked", "candidate")
            for name in (*links, "anchor", "positive_indptr", "positive"):
                out[prefix + name] = getattr(part, name)
        return out

    def seeds(self) -> np.ndarray:
        """int64: the nodes whose embeddings the loss reads, ascending."""
        parts = [self.head, self.tail, self.negative.ravel(), self.anchor, self.positive, self.candidate]
        nodes = sorted_unique(np.concatenate(parts))
        return nodes[nodes >= 0]

    def _is_sampled(self) -> bool:
        return self.messages is not None

    def _rows(self) -> int:
        return len(self.relation) + len(self.anchor)

    def _take(self, links: np.ndarray, anchors: np.ndarray) -> HgtBatch:
        starts, stops = self.positive_indptr[anchors], self.positive_indptr[anchors + 1]
        indptr = np.concatenate([[0], np.cumsum(stops - starts)])
        positive = [self.positive[a:b] for a, b in zip(starts, stops, strict=True)]
        return replace(
            self,
            **{name: getattr(self, name)[links] for name in _OF_LINKS},
            anchor=self.anchor[anchors],
            positive_indptr=indptr.astype(np.int64),
            positive=np.concatenate(positive) if positive else self.positive[:0],
            micro=(),
        )


def rounded(size: float, count: int) -> int:
    """``size`` rounded up to a multiple of a sixteenth of ``count``; at most ``count``."""
    part = -(-count // 16)
    return min(-(-math.ceil(size) // part) * part, count) if part else 0


def round_up(nodes: np.ndarray, count: int) -> np.ndarray:
    """int64, ascending: ``nodes`` and the first of the other ``count`` nodes, as many in all as :func:`rounded` gives."""
    missing = rounded(len(nodes), count) - len(nodes)
    if not missing:
        return nodes
    chosen = np.zeros(count, dtype=bool)
    chosen[nodes] = True
    chosen[np.flatnonzero(~chosen)[:missing]] = True
    return np.flatnonzero(chosen)


def empty_anchors() -> dict[str, Any]:
    """The anchor fields of a batch without a contrastive term."""
    none = np.zeros(0, dtype=np.int64)
    return {"anchor": none, "positive_indptr": np.zeros(1, dtype=np.int64), "positive": none}
