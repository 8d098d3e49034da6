"""HGT's losses of links: sums whose weights are known before, from the embeddings of a step.

``z`` [n, d]: embeddings; ``lookup`` int64 [nodes]: each node's row in ``z``, on the host; None: all nodes in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.losses import info_nce_sums, negative_link_loss, positive_link_loss
from graphmill.kernels.table_rows import table_rows
from graphmill.systems.hgt.batch import HgtBatch
from graphmill.systems.hgt.decoder import LinkDecoder
from graphmill.systems.hgt.settings import TEMPERATURE

if TYPE_CHECKING:
    from graphmill.systems.hgt.system import HgtSystem
from collections.abc import Sequence
from typing import NamedTuple

from graphmill.systems.hgt.data import HgtData


def softmax_sum(system: HgtSystem, decoder: LinkDecoder, chunk: HgtBatch, z: Tensor, lookup: Tensor | None) -> Tensor:
    """Σ share · −log softmax over the links of all relations."""
    total = None
    with torch.autocast(system.device.type, enabled=False):
        for group in side_by_side(links_by_relation(chunk, system.data), system.device):
            part = _softmax_of(system, decoder, chunk, group, z, lookup)
            total = part if total is None else total + part
    assert total is not None
    return total


def _softmax_of(
    system: HgtSystem,
    decoder: LinkDecoder,
    chunk: HgtBatch,
    group: list[RelationLinks],
    z: Tensor,
    lookup: Tensor | None,
) -> Tensor:
    """:func:`softmax_sum` of some relations; padding has weight 0."""
    links, candidates = max(len(a.links) for a in group), max(len(a.candidates) for a in group)
    # The host converts to the scores' dtype: MPS has no float64.
    dtype = np.float64 if decoder.relation.dtype == torch.float64 else np.float32
    degrees = [np.log1p(system.data.relations[a.relation].degree[a.candidates]).astype(np.float32) for a in group]
    absent = np.array([len(a.candidates) for a in group])[:, None] <= np.arange(candidates)
    first = [system.data.relations[a.relation].target_offset for a in group]
    ends = (
        padded([chunk.head[a.links] for a in group], links),
        padded([chunk.tail[a.links] for a in group], links),
        padded([a.candidates + offset for a, offset in zip(group, first, strict=True)], candidates),
    )
    rows = np.concatenate(ends, 1)
    if lookup is not None:
        rows = np.maximum(lookup.numpy()[rows], 0)  # padding may be any row
    tails = padded([chunk.tail_degree[a.links] for a in group], links)
    relation, degree, share, barred, no_candidate, place = system._tensors(
        np.array([a.relation for a in group]),
        np.concatenate([tails, padded(degrees, candidates)], 1),
        padded([chunk.share[a.links].astype(dtype) for a in group], links),
        np.concatenate([_known(system, a, candidates) + n * links * candidates for n, a in enumerate(group)]),
        absent,
        rows,
    )
    vectors = table_rows(z, place).to(decoder.relation.dtype)
    right, scores = decoder.right_and_others(vectors[:, :links], vectors[:, links:], relation, degree)
    # Known targets of a head are no wrong answers; the link's own target is scored separately.
    scores = scores.flatten().index_fill(0, barred, -torch.inf).view(scores.shape)
    if absent.any():
        scores = scores.masked_fill(no_candidate[:, None], -torch.inf)
    losses = torch.logsumexp(torch.cat([right[..., None], scores], -1), -1) - right
    return (losses * share).sum()


def _known(system: HgtSystem, of_relation: RelationLinks, candidates: int) -> np.ndarray:
    """int64: flat positions in the scores [links, ``candidates``] that are training targets of the link's head."""
    rows, known = system.links.known(of_relation.relation, of_relation.heads)
    place = np.searchsorted(of_relation.candidates, known)
    hit = place < len(of_relation.candidates)
    hit[hit] = of_relation.candidates[place[hit]] == known[hit]
    return rows[hit] * candidates + place[hit]


def link_sum(system: HgtSystem, decoder: LinkDecoder, chunk: HgtBatch, z: Tensor, lookup: Tensor | None) -> Tensor:
    """Σ share · (−log σ(score) − mean over wrong targets of log(1 − σ(score))) over the links."""
    exists = chunk.negative >= 0
    # Where no wrong target was found, the right one takes its place with weight 0.
    targets = np.column_stack([chunk.tail, np.where(exists, chunk.negative, chunk.tail[:, None])])
    degrees = np.column_stack([chunk.tail_degree, chunk.negative_degree])
    ends = (chunk.head, targets)
    places = ends if lookup is None else [lookup.numpy()[nodes] for nodes in ends]
    heads, tails, relation, degree, share, present = system._tensors(
        *places, chunk.relation, degrees, chunk.share.astype(np.float32), exists
    )
    scores = decoder(z, heads, relation, tails, degree)
    wrong = (negative_link_loss(scores[:, 1:]) * present).mean(1)
    return ((positive_link_loss(scores[:, 0]) + wrong) * share).sum()


def contrastive_sum(system: HgtSystem, chunk: HgtBatch, z: Tensor, lookup: Tensor | None) -> Tensor:
    """Σ over anchors of the supervised InfoNCE (SupCon, Khosla et al. 2020), of cosines."""
    similar = system.data.similar
    assert similar is not None
    anchor_rows, columns = chunk.anchor - similar.first, chunk.positive - similar.first
    if lookup is None:
        candidates = z[similar.first : similar.first + similar.count]
    else:
        # A sample's candidates are the nodes of the anchors' type that it holds.
        inside = lookup[similar.first : similar.first + similar.count]
        held = (inside >= 0).nonzero().squeeze(1)
        candidates = z[system.placed([inside[held]])[0]]
        anchor_rows, columns = (np.searchsorted(held.numpy(), nodes) for nodes in (anchor_rows, columns))
    rows = np.repeat(np.arange(len(chunk.anchor)), np.diff(chunk.positive_indptr))
    mine, anchor, positive = system._tensors(anchor_rows, rows, columns)
    anchors = candidates.index_select(0, mine)
    return info_nce_sums(anchors, candidates, mine, anchor, positive, TEMPERATURE)


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
