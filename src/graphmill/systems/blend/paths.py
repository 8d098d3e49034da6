"""The part of a blend that counts paths of one or two edges from head to target, and the links that it is fitted to.

Each channel (kind of path) has a weight, and a logarithm compresses the sum. The counts are those of Himmelstein & Baranzini
(2015). An export computes them from its training links.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from graphmill.errors import InputError
from graphmill.graph.interactions import CsrPattern, largest
from graphmill.graph.splits import TRAIN
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.graph.typed_paths import NONE, TypedPaths, blocks
from graphmill.sampling.keyed import generator
from graphmill.systems.blend.part import TIE_BREAK, Part

CHANNELS = 64
"""Largest number of channels of a relation."""
LINKS, ALL_LINKS, CANDIDATES = 400, 20_000, 500
"""To fit the channels' weights: training links per relation, links over all relations, and wrong targets per link."""
DECAY = 2e-3
"""Coefficient of the squared weights in the fit, beside the mean loss of a link."""


class PathWeights(nn.Module):
    """The paths in a checkpoint: ``channels`` int32 [relations, 64, 2] and ``weights`` [relations, 64] (0: no channel).

    ``fitted`` bool []: whether :meth:`fit` has run.
    """

    def __init__(self, relations: int) -> None:
        super().__init__()
        self.channels: Tensor
        self.weights: Tensor
        self.fitted: Tensor
        self.register_buffer("channels", torch.full((relations, CHANNELS, 2), NONE, dtype=torch.int32))
        self.register_buffer("weights", torch.zeros(relations, CHANNELS))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))

    def fit(self, links: PairedLinks, seed: int) -> None:
        """Fit the weights, once, by a softmax over each link's candidates, with the channels' counts as features. The paths
        leave out the links of the fit and their reverses.
        """
        if bool(self.fitted):
            return
        most = max(10, min(LINKS, ALL_LINKS // max(len(links.outgoing), 1)))
        chosen, rest = _apart(links, most, seed)
        paths = TypedPaths(rest)
        for relation, (heads, tails) in enumerate(chosen):
            if len(heads):
                channels = _channels(paths, relation, heads, tails)
                weights = _fitted(paths, relation, channels, heads, tails, links, seed)
                self.channels[relation, : len(channels)] = torch.tensor(channels, dtype=torch.int32).view(-1, 2)
                self.weights[relation, : len(channels)] = torch.from_numpy(weights)
        self.fitted.fill_(True)


class Paths(Part):
    """The part's scores, from the training links and the arrays of :class:`PathWeights`."""

    alone = (1.0, TIE_BREAK)
    amounts = (0.0, 1.0, 3.0)

    def __init__(self, links: TrainingLinks, channels: np.ndarray, weights: np.ndarray) -> None:
        self.channels, self.weights = channels, weights
        self.typed = TypedPaths(links)
        self._of: tuple[int, Any] = (NONE, None)

    def require_channels(self) -> None:
        """Raise :class:`InputError` unless each channel with a weight leads from its relation's sources to its targets."""
        kinds = self.typed.kinds
        for relation, number in np.argwhere(self.weights != 0).tolist():
            first, second = self.channels[relation, number].tolist()
            start, end = kinds[relation]
            middle = kinds[first][1] if first in kinds and kinds[first][0] == start else None
            if not (middle == end if second == NONE else second in kinds and kinds[second] == (middle, end)):
                raise InputError(f"channel {number} of relation {relation} is no path of it")

    def scores(self, relation: int, heads: np.ndarray) -> Tensor:
        """The weighted counts of paths, summed over channels and :func:`compressed`: :meth:`Part.scores`."""
        if self._of[0] != relation:
            kept = self.weights[relation] != 0
            self._of = (relation, self._reach(self.channels[relation][kept], self.weights[relation][kept]))
        steps, reach = self._of[1]
        _, (_, count) = self.typed.kinds[relation]
        out = np.zeros((len(heads), count), np.float32)
        if reach is not None:
            for part in blocks(len(heads), max(count, reach.shape[0])):
                out[part] = (sp.hstack([step[heads[part]] for step in steps], "csr") @ reach).toarray()
        return torch.from_numpy(compressed(out))

    def _reach(self, channels: np.ndarray, weights: np.ndarray) -> tuple[list[sp.csr_matrix], sp.csr_matrix | None]:
        """The first steps, and their weighted second steps stacked by rows: one product then computes all channels."""
        ahead: dict[int, sp.csr_matrix] = {}
        for (first, second), weight in zip(channels.tolist(), weights.tolist(), strict=True):
            if second == NONE:
                step = sp.identity(self.typed.step(first).shape[1], np.float32, "csr")
            else:
                step = self.typed.step(second)
            step = step * np.float32(weight)
            ahead[first] = ahead[first] + step if first in ahead else step
        if not ahead:
            return [], None
        return [self.typed.step(first) for first in ahead], sp.vstack(list(ahead.values()), "csr")


def compressed(x: np.ndarray) -> np.ndarray:
    """sign(x) log(1 + |x|): a second path adds less than the first."""
    return np.copysign(np.log1p(np.abs(x)), x)


def _apart(links: PairedLinks, most: int, seed: int) -> tuple[list[tuple[np.ndarray, np.ndarray]], TrainingLinks]:
    """Some links of each relation (heads, tails), at most a third; and all links without these and their reverses."""
    entries = [matrix.tocoo() for matrix in links.outgoing]
    kept, gone = [], [np.zeros(0, np.int64)]
    for number, coo in enumerate(entries):
        chosen = generator(seed, "paths", number).permutation(coo.nnz)[: min(most, coo.nnz // 3)]
        kept.append((coo.row[chosen].astype(np.int64), coo.col[chosen].astype(np.int64)))
        gone.append(coo.data[chosen])
    left_out = np.zeros(max((int(coo.data.max(initial=0)) for coo in entries), default=0), bool)
    left_out[np.concatenate(gone) - 1] = True
    return kept, links.without(left_out)


def _channels(paths: TypedPaths, relation: int, heads: np.ndarray, tails: np.ndarray) -> list[tuple[int, int]]:
    source, target = paths.kinds[relation]
    firsts = sum(start == source for start, _ in paths.kinds.values())
    if firsts * sum(end == target for _, end in paths.kinds.values()) <= CHANNELS**2 // 2:
        channels = list(paths.between(relation))
        if len(channels) <= CHANNELS:
            return channels
    return paths.common(relation, heads, tails, CHANNELS)


def _fitted(
    paths: TypedPaths,
    relation: int,
    channels: list[tuple[int, int]],
    heads: np.ndarray,
    tails: np.ndarray,
    links: TrainingLinks,
    seed: int,
) -> np.ndarray:
    """float32 [channels]: weights of the counts."""
    if not channels:
        return np.zeros(0, np.float32)
    candidates = paths.kinds[relation][1][1]
    wrong = np.sort(generator(seed, "paths against", relation).permutation(candidates)[:CANDIDATES])
    counts = np.zeros((len(channels), len(heads), 1 + len(wrong)), np.float32)
    for row, (first, second) in zip(counts, channels, strict=True):
        products = paths.step(first)[heads]
        products = products if second == NONE else products @ paths.step(second)
        row[:, 0] = np.asarray(products[np.arange(len(heads)), tails]).ravel()
        row[:, 1:] = products[:, wrong].toarray()
    size = np.sqrt((counts[:, :, 0] ** 2).mean(1) + (counts[:, :, 1:] ** 2).mean((1, 2))) + 1e-6
    barred = torch.from_numpy(links.outgoing[relation][heads][:, wrong].toarray() != 0)
    features = torch.from_numpy(counts / size[:, None, None])
    weights = torch.zeros(len(channels), requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=50, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        scores = torch.tensordot(weights, features, 1)
        right, others = scores[:, 0], scores[:, 1:].masked_fill(barred, -torch.inf)
        every = torch.cat([right[:, None], others], 1)
        loss: Tensor = (torch.logsumexp(every, 1) - right).mean() + DECAY * (weights**2).sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(closure)
    return (weights.detach().numpy() / size).astype(np.float32)


class PairedLinks(TrainingLinks):
    """An entry of ``outgoing`` is the link's undirected pair + 1, since an entry of 0 would be none to scipy."""

    @classmethod
    def of_graph(cls, graph: TypedGraph) -> PairedLinks:
        """Those of a graph."""
        links = super().of_graph(graph)
        for relation, matrix in zip(graph.relations, links.outgoing, strict=True):
            edges = graph.edges(relation)
            pair = np.asarray(edges.pair, np.int64)[np.asarray(edges.split) == TRAIN] + 1
            rows = CsrPattern(matrix.indptr, matrix.indices)
            matrix.data = largest(rows, matrix.shape[1], *graph.training_edges(relation), pair)
        return links

    @cached_property
    def incoming(self) -> list[sp.csr_matrix]:
        """:attr:`outgoing` from the other end."""
        return [matrix.T.tocsr() for matrix in self.outgoing]

    def without(self, pairs: np.ndarray) -> PairedLinks:
        """The links without the ``pairs``, bool [pairs]."""
        kept, weights = [], []
        for matrix, strengths in zip(self.outgoing, self.weights, strict=True):
            entries = matrix.tocoo()
            keep = ~pairs[entries.data - 1]
            weights.append(None if strengths is None else strengths[keep])
            kept.append(sp.csr_matrix((entries.data[keep], (entries.row[keep], entries.col[keep])), matrix.shape))
        return PairedLinks(kept, self.offsets, weights)
