"""Groups a chunk's links by relation, and pads relations to one size to score them together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from graphmill.systems.hgt.batch import HgtBatch
from graphmill.systems.hgt.data import HgtData

FEW_SCORES = 1 << 20
"""Up to this number of scores, an accelerator takes no longer than for the calls, so any share of padding is free."""
MOST_SCORES = 1 << 24
"""Largest number of scores of several relations at once on an accelerator: 64 MiB in fp32. A loss holds seven of these."""


class RelationLinks(NamedTuple):
    """One relation: its ``links`` [B], as rows of the chunk; ``heads``, ``tails`` [B], ``candidates`` [C]: local numbers."""

    relation: int
    links: np.ndarray
    heads: np.ndarray
    tails: np.ndarray
    candidates: np.ndarray

    @property
    def scores(self) -> int:
        """B · C."""
        return len(self.links) * len(self.candidates)


def links_by_relation(chunk: HgtBatch, data: HgtData) -> list[RelationLinks]:
    """The relations that have a link in the chunk."""
    with_links = []
    for number in np.unique(chunk.relation).tolist():
        r = data.relations[number]
        links = np.flatnonzero(chunk.relation == number)
        first, last = np.searchsorted(chunk.candidate, [r.target_offset, r.target_offset + r.num_targets])
        heads, tails = chunk.head[links] - r.source_offset, chunk.tail[links] - r.target_offset
        with_links.append(RelationLinks(number, links, heads, tails, chunk.candidate[first:last] - r.target_offset))
    return with_links


def side_by_side(parts: Sequence[RelationLinks], device: torch.device) -> list[list[RelationLinks]]:
    """Groups of relations to score in one call: on the CPU each alone, elsewhere those of similar size."""
    if device.type == "cpu":
        return [[one] for one in parts]
    groups: list[list[RelationLinks]] = []
    for one in sorted(parts, key=lambda a: (-len(a.links), a.relation)):
        wider = [*groups[-1], one] if groups else []
        scores = (
            len(wider)
            * max((len(a.links) for a in wider), default=0)
            * max((len(a.candidates) for a in wider), default=0)
        )
        if wider and scores <= min(max(2 * sum(a.scores for a in wider), FEW_SCORES), MOST_SCORES):
            groups[-1] = wider
        else:
            groups.append([one])
    return groups


def padded(parts: Sequence[np.ndarray], size: int) -> np.ndarray:
    """[parts, size, ...]: the parts, each filled up with zeros."""
    if len(parts) == 1 and len(parts[0]) == size:
        return parts[0][None]
    out = np.zeros((len(parts), size, *parts[0].shape[1:]), parts[0].dtype)
    for row, part in zip(out, parts, strict=True):
        row[: len(part)] = part
    return out
