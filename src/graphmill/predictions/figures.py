"""How good predicted links are: over the whole matrix of heads and tails, and against a list of judged links."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill.evaluation.ranking.paired_difference import paired_bootstrap
from graphmill.graph.sorted_unique import in_sorted, sorted_unique
from graphmill.predictions.judgements import Judged
from graphmill.predictions.top_tails import Candidates, best_tails, diversity

Int64 = NDArray[np.int64]
PAIRS = (100, 1000)
"""Numbers n of the best pairs of a relation's matrix."""
K = 10
"""Tails of each head."""


def matrix_figures(candidates: Candidates, heads: Int64, split: int, seed: int = 0) -> dict[str, Any]:
    """Figures of the matrix of some ``heads`` (ascending local numbers) and all candidates of one relation.

    ``recall@n``: share of these heads' links in ``split`` that are among the n pairs with the best scores.
    ``hits_by_head``: share of the heads with such a link that have one among their :data:`K` best tails. Both have
    intervals. ``hub_share``: share of all heads' :data:`K` best tails that are one of the ten most frequent.
    """
    pairs, scores = np.zeros(0, np.int64), np.zeros(0, np.float32)

    def keep(block: Int64, places: torch.Tensor) -> None:
        nonlocal pairs, scores
        values, place = places.flatten().topk(min(PAIRS[-1], places.numel()))
        kept = block[place.numpy() // candidates.count] * candidates.count + place.numpy() % candidates.count
        pairs, scores = np.concatenate([pairs, kept]), np.concatenate([scores, values.numpy()])
        order = np.lexsort((pairs, -scores))[: PAIRS[-1]]
        pairs, scores = pairs[order], scores[order]

    best = best_tails(candidates, heads, K, keep)
    of, tails = candidates.links_of(split)
    kept = in_sorted(of, heads) & ~in_sorted(of * candidates.count + tails, candidates.judged.all)
    if candidates.chosen is not None:
        kept &= in_sorted(tails, candidates.chosen)
    of, tails = of[kept], tails[kept]
    linked = sorted_unique(of)
    hit = in_sorted(linked, sorted_unique(best.heads[best.known == split]))
    recall = {
        f"recall@{n}": _share(in_sorted(of * candidates.count + tails, np.sort(pairs[:n])), of, seed) for n in PAIRS
    }
    return {
        "relation": " | ".join(candidates.relation.key),
        "heads": len(heads),
        "links": len(of),
        **recall,
        "hits_by_head": _share(hit, linked, seed),
        "hub_share": diversity(best, candidates, K)["top_10_share"],
    }


def agreement(parts: Iterable[tuple[Candidates, Judged]], seed: int = 0) -> dict[str, Any]:
    """How a model ranks links that an outside list says are true or not. Candidates leave training links out.

    ``yes``, ``no``: the number of judged links, ``hits`` (share among the head's :data:`K` best tails) and ``rank`` (mean
    relative rank: 0 the best, 1 the last), with intervals. ``auc``: probability that a true link has a better relative rank
    than a false one, with its interval over other true links; None unless the list has both. ``trained``: judged links that
    are left out, because training has them.
    """
    none = np.zeros(0, np.int64), np.zeros(0), np.zeros(0, bool)
    ranked: dict[str, list[tuple[Int64, NDArray[np.float64], NDArray[np.bool_]]]] = {"yes": [none], "no": [none]}
    trained = 0
    for candidates, judged in parts:
        pairs = judged.all
        heads, relative, hit = pairs // candidates.count, np.full(len(pairs), np.nan), np.zeros(len(pairs), bool)
        for block, scores in candidates.blocks(sorted_unique(heads)):
            rows = np.flatnonzero(in_sorted(heads, block))
            head_scores = scores[torch.from_numpy(np.searchsorted(block, heads[rows]))]
            score = head_scores.gather(1, torch.from_numpy(pairs[rows] % candidates.count)[:, None])
            above, tied = (head_scores > score).sum(1).numpy(), (head_scores == score).sum(1).numpy() - 1
            last = np.maximum(torch.isfinite(head_scores).sum(1).numpy() - 1, 1)
            finite = torch.isfinite(score[:, 0]).numpy()
            rank = above + tied / 2
            relative[rows], hit[rows] = np.where(finite, rank / last, np.nan), rank < K
        kept = ~np.isnan(relative)
        trained += int((~kept).sum())
        for word, pairs_of_word in (("yes", judged.yes), ("no", judged.no)):
            part = kept & in_sorted(pairs, pairs_of_word)
            ranked[word].append((heads[part] + (candidates.relation.index << 40), relative[part], hit[part]))
    by_word = {word: [np.concatenate(column) for column in zip(*parts, strict=True)] for word, parts in ranked.items()}
    yes, no = by_word["yes"], by_word["no"]
    auc = None
    if len(yes[1]) and len(no[1]):
        ordered = np.sort(no[1])
        worse = len(ordered) - np.searchsorted(ordered, yes[1], side="right")
        tied = len(ordered) - np.searchsorted(ordered, yes[1], side="left") - worse
        auc = _share((worse + tied / 2) / len(ordered), yes[0], seed)
    figures: dict[str, Any] = {
        word: {"links": len(rank), "hits": _share(hit, heads, seed), "rank": _share(rank, heads, seed)}
        for word, (heads, rank, hit) in by_word.items()
    }
    return figures | {"auc": auc, "trained": trained}


def _share(values: NDArray[Any], units: Int64, seed: int) -> dict[str, float] | None:
    """The mean with its interval over other units (heads); None of nothing."""
    if not len(values):
        return None
    interval = paired_bootstrap(values.astype(float), np.zeros(len(values)), units=units, seed=seed)
    return {"value": interval.first, "low": interval.low, "high": interval.high}
