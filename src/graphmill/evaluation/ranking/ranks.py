"""Computes exact filtered ranks: scores every candidate, leaves out all other known links, and counts ties.

It needs torch for the scores. :mod:`graphmill.evaluation.ranking.links` computes the metrics.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import TrainingError
from graphmill.evaluation.ranking.queries import Int64, RelationQueries
from graphmill.evaluation.ranking.shared_queries import current_share, fill_shared
from graphmill.sampling.ranges import ranges

if TYPE_CHECKING:
    import torch

#: Bytes for the scores of one block and its intermediate results, if the caller gives no number of rows.
BLOCK_BYTES = 256 * 2**20
#: Bytes per score: the score, a copy per query of a shared head, and comparison masks.
BYTES_PER_SCORE = 16


class Scorer(Protocol):
    """Scores all candidate targets of a relation."""

    def score_targets(self, relation: int, heads: NDArray[np.int64]) -> "torch.Tensor":
        """Local head numbers int64 (B) → floating-point scores (B × candidates); higher is better."""


@dataclass(frozen=True)
class QueryRanks:
    """Ranks of Q queries among the candidates that are not known links.

    ``above``, ``tied``: int64, number of other candidates with a higher, or the same, score. ``options``: int64, number
    of ranked candidates, including the target.
    """

    above: Int64
    tied: Int64
    options: Int64

    @property
    def realistic(self) -> NDArray[np.float64]:
        """The mean of the optimistic rank 1 + #{s > s*} and the pessimistic one #{s ≥ s*}: the expected rank if ties are
        broken at random."""
        return 1.0 + self.above + self.tied / 2


def ranks_of(scorer: Scorer, queries: RelationQueries, *, batch_rows: int = 0) -> QueryRanks:
    """Rank every query.

    Each head is scored once, ``batch_rows`` heads at a time (0: as many as fit :data:`BLOCK_BYTES`). Several processes
    share the blocks (:mod:`graphmill.evaluation.ranking.shared_queries`). The target's score is taken from the same
    product as the other candidates' scores, so that it ties exactly with itself. Raises :class:`TrainingError` if a
    score is not finite.
    """
    import torch

    total = len(queries.heads)
    most = current_share().at_once(BLOCK_BYTES, BLOCK_BYTES) // (BYTES_PER_SCORE * max(queries.candidates, 1))
    rows = batch_rows or max(1, most)
    above, tied = np.zeros(total, dtype=np.int64), np.zeros(total, dtype=np.int64)
    heads, first = np.unique(queries.heads, return_index=True)
    bounds = np.append(first, total)

    def fill(start: int, stop: int) -> None:
        block_heads = heads[start:stop]
        block = scorer.score_targets(queries.relation, block_heads)
        if queries.chosen is not None:
            block = block[:, _on(block, queries.chosen)]
        _require_usable(block, queries, len(block_heads))
        for begin in range(bounds[start], bounds[stop], rows):
            part = slice(begin, min(begin + rows, bounds[stop]))
            place = np.searchsorted(block_heads, queries.heads[part])
            scores = block if len(place) == len(block) == bounds[stop] - bounds[start] else block[_on(block, place)]
            above[part], tied[part] = count_rivals(scores, queries, part)

    blocks = [(start, min(start + rows, len(heads))) for start in range(0, len(heads), rows)]
    with torch.no_grad():
        above, tied = fill_shared([above, tied], blocks, fill)
    known = np.diff(queries.known_indptr)[queries.heads]
    return QueryRanks(above, tied, queries.candidates - known + 1)


def count_rivals(scores: "torch.Tensor", queries: RelationQueries, part: slice) -> tuple[Int64, Int64]:
    """int64 (B) each: number of candidates above, and tied with, the target, without known links.

    ``scores`` (B × C): one row for each query of ``part``.
    """
    import torch

    from graphmill.kernels.rank_counts import rank_counts

    heads, tails = queries.heads[part], queries.tails[part]
    target = torch.gather(scores, 1, _on(scores, tails)[:, None])
    above, tied, _ = rank_counts(scores, target[:, 0])
    upto = above + tied
    start, stop = queries.known_indptr[heads], queries.known_indptr[heads + 1]
    row_on = _on(scores, np.repeat(np.arange(len(heads)), stop - start))
    column_on = _on(scores, queries.known_tails[ranges(start, stop)])
    known, target_scores = scores[row_on, column_on], target[row_on, 0]
    known_above = torch.bincount(row_on[known > target_scores], minlength=len(heads))
    known_upto = torch.bincount(row_on[known >= target_scores], minlength=len(heads))  # this includes the target itself
    higher = (above - known_above).cpu().numpy()
    return higher, (upto - known_upto).cpu().numpy() - higher


def _on(like: "torch.Tensor", index: NDArray[np.integer]) -> "torch.Tensor":
    import torch

    return torch.from_numpy(np.ascontiguousarray(index, dtype=np.int64)).to(like.device)


def _require_usable(scores: "torch.Tensor", queries: RelationQueries, rows: int) -> None:
    import torch

    if tuple(scores.shape) != (rows, queries.candidates):
        raise ValueError(f"{queries.name}: scores are {tuple(scores.shape)}, not {(rows, queries.candidates)}")
    if scores.numel() and not all(torch.isfinite(bound).item() for bound in torch.aminmax(scores)):
        bad = int((~torch.isfinite(scores)).sum())
        raise TrainingError(
            f"relation '{queries.name}': {bad} of {scores.numel()} scores in a block are not finite: the model has "
            "diverged; use an earlier checkpoint, a lower learning rate or precision fp32"
        )
