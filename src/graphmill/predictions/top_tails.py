"""Finds the best tails of each head exactly: scores every candidate, for a block of heads at a time, so that memory is
bounded. Finds hubs among them, too: tails that rank high for every head.

Ties are ordered by tail number, so that the result does not depend on the blocks of heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill.errors import TrainingError
from graphmill.evaluation.ranking.ranks import Scorer
from graphmill.graph.sorted_unique import in_sorted, sorted_unique
from graphmill.graph.splits import TRAIN
from graphmill.graph.typed_graph import Relation, TypedGraph
from graphmill.predictions.judgements import Judged
from graphmill.sampling.keyed import sampled
from graphmill.sampling.ranges import ranges

Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]

BLOCK_SCORES = 1 << 22
"""Number of scores in a block: 16 MiB in float32, and the same again for each intermediate result of the scorer."""
UNKNOWN = -1
"""Stands for a split's number if the graph does not have the link."""


@dataclass(frozen=True)
class BestTails:
    """N rows, with heads in the given order and the best tail of each first.

    ``heads``, ``tails`` int64 [N]: local numbers; ``scores`` float32 [N]; ``ranks`` int32 [N], from 1, among the tails that
    were not left out; ``known`` int8 [N]: number of the split that has the link, or :data:`UNKNOWN`.
    """

    heads: Int64
    tails: Int64
    scores: Float32
    ranks: NDArray[np.int32]
    known: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.heads)

    def take(self, rows: Int64) -> BestTails:
        """Some rows."""
        return BestTails(self.heads[rows], self.tails[rows], self.scores[rows], self.ranks[rows], self.known[rows])


@dataclass(frozen=True)
class Candidates:
    """The candidate tails of one relation, their scores, and the links of the graph.

    ``leave_out``: numbers of the splits whose links are not candidates (by default all). ``chosen``: ascending local numbers
    of the tails that are candidates; None: all. ``judged``: what people said of links; with ``leave_judged`` these are no
    candidates.
    """

    graph: TypedGraph
    relation: Relation
    scorer: Scorer
    leave_out: tuple[int, ...] = (0, 1, 2)
    poll: Callable[[], None] = lambda: None
    chosen: Int64 | None = None
    judged: Judged = field(default_factory=Judged)
    leave_judged: bool = False

    @property
    def count(self) -> int:
        """Number of nodes of the target type."""
        return self.graph.node_type(self.relation.target).count

    @property
    def options(self) -> int:
        """Number of nodes that are candidates of some head."""
        return self.count if self.chosen is None else len(self.chosen)

    @cached_property
    def keys(self) -> Int64:
        """All links as (head · count + tail) · 4 + split, ascending. For a link in several splits the first is kept."""
        edges = self.graph.edges(self.relation.index)
        keys = np.asarray(edges.src, np.int64) * self.count + np.asarray(edges.dst)
        keys = sorted_unique(keys * 4 + np.asarray(edges.split))
        return keys[np.diff(keys >> 2, prepend=-1) > 0]

    @cached_property
    def _left_out(self) -> Int64:
        """Links that are not candidates, as head · count + tail, ascending."""
        links = self.keys[np.isin(self.keys & 3, self.leave_out)] >> 2
        return sorted_unique(np.concatenate([links, self.judged.all])) if self.leave_judged else links

    def splits_of(self, heads: Int64, tails: Int64) -> NDArray[np.int8]:
        """int8 [N]: number of the split that has the link, or :data:`UNKNOWN`."""
        wanted, links = heads * self.count + tails, self.keys >> 2
        state = np.full(len(wanted), UNKNOWN, np.int8)
        linked = in_sorted(wanted, links)
        state[linked] = (self.keys[np.searchsorted(links, wanted[linked])] & 3).astype(np.int8)
        return state

    def links_of(self, split: int) -> tuple[Int64, Int64]:
        """Heads and tails int64 [L] of a split's links, sorted by (head, tail)."""
        chosen = self.keys[(self.keys & 3) == split] >> 2
        return chosen // self.count, chosen % self.count

    def true_tails(self, heads: Int64, split: int) -> list[Int64]:
        """For each of the ascending ``heads``, the tails of a split's links, with those judged yes and without those judged
        no."""
        pairs = np.concatenate([np.stack(self.links_of(split)).T @ [self.count, 1], self.judged.yes])
        pairs = sorted_unique(pairs[~in_sorted(pairs, self.judged.no)])
        bounds = np.searchsorted(pairs, np.stack([heads, heads + 1]) * self.count)
        return [pairs[low:high] % self.count for low, high in bounds.T]

    def drawn_heads(self, most: int, purpose: str, seed: int, split: int = TRAIN) -> Int64:
        """A random sample of at most ``most`` heads with a link in ``split``, ascending."""
        return sampled(sorted_unique(self.links_of(split)[0]), most, purpose, seed, self.relation.index)

    def blocks(self, heads: Int64) -> Iterator[tuple[Int64, torch.Tensor]]:
        """Yield blocks of heads with their scores [B, count] on the CPU; −inf for links that are left out, for self-loops
        and for tails that are not chosen.

        Raises:
            TrainingError: a score is not finite.
        """
        rows = max(1, BLOCK_SCORES // max(self.count, 1))
        others = np.ones(self.count, bool)
        others[slice(None) if self.chosen is None else self.chosen] = False
        for begin in range(0, len(heads), rows):
            self.poll()
            block = heads[begin : begin + rows]
            scores = self.scorer.score_targets(self.relation.index, block).detach().float().cpu().clone()
            if not bool(torch.isfinite(scores).all()):
                raise TrainingError(
                    f"relation '{self.relation.name}': scores are not finite: the model has diverged; use an earlier "
                    "checkpoint, a lower learning rate or precision fp32"
                )
            row, tail = self._out(block)
            scores[torch.from_numpy(row), torch.from_numpy(tail)] = -torch.inf
            scores[:, torch.from_numpy(others)] = -torch.inf
            yield block, scores

    def _out(self, block: Int64) -> tuple[Int64, Int64]:
        low, high = (np.searchsorted(self._left_out, (block + more) * self.count) for more in (0, 1))
        row = np.repeat(np.arange(len(block)), high - low)
        tail = self._left_out[ranges(low, high)] % self.count
        if self.relation.source == self.relation.target:
            row, tail = np.concatenate([row, np.arange(len(block))]), np.concatenate([tail, block])
        return row, tail


def best_tails(
    candidates: Candidates,
    heads: Int64,
    k: int,
    see: Callable[[Int64, torch.Tensor], None] = lambda block, scores: None,
) -> BestTails:
    """The ``k`` best tails of each head, or fewer if it has fewer candidates. ``see`` gets every block of scores."""
    none = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.int32))
    parts: list[tuple[Int64, Int64, Float32, NDArray[np.int32]]] = [none]
    for block, scores in candidates.blocks(heads):
        see(block, scores)
        tails, values = top_of_rows(scores, k)
        row, place = np.nonzero(np.isfinite(values))
        parts.append((block[row], tails[row, place], values[row, place], (place + 1).astype(np.int32)))
    of, best, values, ranks = map(np.concatenate, zip(*parts, strict=True))
    return BestTails(of, best, values, ranks, candidates.splits_of(of, best))


def top_of_rows(scores: torch.Tensor, k: int) -> tuple[Int64, Float32]:
    """``scores`` [B, C] → columns int64 [B, min(k, C)] and values, best first; of equal values the lower column comes
    first."""
    k = min(k, scores.shape[1])
    values, places = scores.topk(k)
    # topk does not define which of equal scores it takes. If more columns have the last score than it took, take the
    # lowest columns.
    for row in torch.nonzero((scores >= values[:, -1:]).sum(1) > k)[:, 0].tolist():
        chosen = torch.nonzero(scores[row] >= values[row, -1])[:, 0]
        chosen = chosen[torch.argsort(scores[row, chosen], descending=True, stable=True)][:k]
        places[row], values[row] = chosen, scores[row, chosen]
    tails, best = places.numpy(), values.numpy()
    order = np.lexsort((tails, -best))
    return np.take_along_axis(tails, order, 1), np.take_along_axis(best, order, 1)


def diversity(best: BestTails, candidates: Candidates, n: int) -> dict[str, Any]:
    """How diverse the tails with rank 1 to ``n`` are, and whether all heads get the same.

    The figures are the number of distinct tails, the fraction of heads that have the most frequent tail
    (``top_tail_share``), and the fraction of rows with one of the ten most frequent tails (``top_10_share``).
    """
    counts = np.bincount(best.tails[best.ranks <= n], minlength=candidates.count)
    present = counts[counts > 0]
    share = present / max(int(present.sum()), 1)
    heads = len(np.unique(best.heads))
    return {
        "n": n,
        "distinct_tails": len(present),
        "top_tail_share": float(present.max(initial=0) / max(heads, 1)),
        "top_10_share": float(np.sort(share)[-10:].sum()),
    }


def median_ranks(candidates: Candidates, most_heads: int, seed: int) -> NDArray[np.float32]:
    """float32 [count]: the median of each tail's rank over sampled heads; nan if it was a candidate of none.

    At most ``most_heads`` heads with a training link in the relation are sampled. A tail's rank is among the candidates
    of a head, with ties by tail number. Heads for which the tail is not a candidate are left out.
    """
    heads = candidates.drawn_heads(most_heads, "median-ranks", seed)
    ranks = np.zeros((candidates.count, len(heads)), np.int32)  # 0: not a candidate
    column = 0
    for _, scores in candidates.blocks(heads):
        for row in scores:  # one head at a time: sorting needs eight bytes per candidate
            order = torch.argsort(row, descending=True, stable=True)[: int(torch.isfinite(row).sum())].numpy()
            ranks[order, column] = np.arange(1, len(order) + 1)
            column += 1
    ranks.sort(axis=1)
    absent, result = (ranks == 0).sum(1), np.full(candidates.count, np.nan, np.float32)
    known = np.flatnonzero(absent < len(heads))
    times = len(heads) - absent[known]
    middle = [ranks[known, absent[known] + shift] for shift in ((times - 1) // 2, times // 2)]
    result[known] = np.mean(middle, axis=0)
    return result
