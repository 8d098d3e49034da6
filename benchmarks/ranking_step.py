"""Seconds of one full ranking of 100,000 users × 25,000 items in this process, one JSON line. ``benchmarks.recommenders``
runs it.

Scores are given: those of 2,000 users fifty times. Each user has 50 items to mask and 20 held out; six metrics at four
lengths. ``--variant``:

* ``ours``: :func:`graphmill.evaluation.ranking.items.rank_items`
* ``recbole``: RecBole's own collector, evaluator and metrics (``recbole.evaluator``), called as its trainer calls them: a
  batch of scores with what is masked at -inf, ``eval_batch_collect``, and ``evaluate`` of all at the end. Its data loader,
  which puts together what is masked and held out user by user in Python, is left out, and its batches are of 4,096,000
  scores (163 users; its default of 4,096 would be one user at a time): both are to its advantage. It needs an interpreter
  that has RecBole 1.2.1 and ray (``pip install torch==2.13.0 recbole==1.2.1 ray`` in an environment of its own: RecBole
  was written for numpy 1, whose names are put back here, and its dependencies are none of graphmill's). This module imports
  nothing that RecBole's environment lacks.
* ``dense``: an imitation of the same, for where there is no such interpreter
* ``loop``: each held-out item sought in the user's array, in Python, as MMRec does (it cannot be installed)
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, NamedTuple

import numpy as np
import torch

USERS, DISTINCT, ITEMS, SEEN, HELD = 100_000, 2000, 25_000, 50, 20
LENGTHS = (5, 10, 20, 50)


class Task(NamedTuple):
    """``scores`` [8000, I]: as many rows follow each other as the largest block has users. ``known`` and ``test``: items of
    each user, ascending."""

    scores: torch.Tensor
    known: np.ndarray
    test: np.ndarray

    @classmethod
    def drawn(cls, users: int, kind: str = "random") -> Task:
        """The same in every process. ``kind``: random scores; counts of items, the same for all users, many of them equal
        (popularity); or all equal (constant)."""
        torch.manual_seed(0)
        rng = np.random.default_rng(0)
        scores = torch.randn(DISTINCT, ITEMS).repeat(4, 1)
        if kind != "random":
            counts = rng.geometric(0.05, ITEMS) if kind == "popularity" else np.ones(ITEMS)
            scores = torch.from_numpy(counts.astype(np.float32)).repeat(4 * DISTINCT, 1)
        items = rng.permuted(np.tile(np.arange(1000), (DISTINCT, 1)), axis=1)[:, : SEEN + HELD] * 25
        items = np.tile(items, (users // DISTINCT, 1))
        return cls(scores, np.sort(items[:, :SEEN], axis=1), np.sort(items[:, SEEN:], axis=1))


def ours(task: Task) -> dict[str, float]:
    """Seconds and recall."""
    from graphmill.evaluation.ranking.items import METRICS, rank_items
    from graphmill.evaluation.ranking.recommendation import KnownItems

    users = len(task.test)

    def rows(part: np.ndarray) -> KnownItems:
        return KnownItems(np.arange(users + 1) * part.shape[1], part.ravel())

    def of_users(asked: np.ndarray) -> torch.Tensor:
        first = int(asked[0]) % DISTINCT
        return task.scores[first : first + len(asked)]

    known, test = rows(task.known), rows(task.test)
    rank_items(of_users, ITEMS, known, test, max(LENGTHS), users=np.arange(8))  # compiles
    started = time.perf_counter()
    lists = rank_items(of_users, ITEMS, known, test, max(LENGTHS))
    recall = lists.metrics(METRICS, list(LENGTHS))["recall@20"]
    return {"seconds": time.perf_counter() - started, "recall": recall}


def recbole(task: Task) -> dict[str, Any]:
    """Seconds and recall, and RecBole's version."""
    for old, new in (("float_", np.float64), ("complex_", np.complex128), ("unicode_", np.str_), ("bool8", np.bool_)):
        if not hasattr(np, old):
            setattr(np, old, new)  # RecBole 1.2.1 was written for numpy 1
    import recbole
    from recbole.config import Config
    from recbole.evaluator import Collector, Evaluator

    settings = {
        "metrics": ["Recall", "NDCG", "Precision", "MAP", "Hit", "MRR"],
        "topk": list(LENGTHS),
        "valid_metric": "Recall@20",
        "eval_args": {"split": {"RS": [0.8, 0.1, 0.1]}, "order": "RO", "mode": "full", "group_by": "user"},
        "metric_decimal_place": 12,
        "use_gpu": False,
    }
    sys.argv = sys.argv[:1]  # RecBole reads the command line
    config = Config(model="BPR", dataset="none", config_dict=settings)
    collector, evaluator = Collector(config), Evaluator(config)
    # Its items are numbered from 1 on; 0 fills up, and is never recommended.
    scores = torch.nn.functional.pad(task.scores, (1, 0))
    started = time.perf_counter()
    block = 4_096_000 // ITEMS
    for first in range(0, len(task.test), block):
        known, held = task.known[first : first + block], task.test[first : first + block]
        masked = scores[first % DISTINCT :][: len(held)]
        masked[:, 0] = -np.inf
        masked[torch.arange(len(held)).repeat_interleave(SEEN), torch.from_numpy(known.ravel() + 1)] = -np.inf
        rows = torch.arange(len(held)).repeat_interleave(HELD)
        collector.eval_batch_collect(masked, None, rows, torch.from_numpy(held.ravel() + 1))
    found = evaluator.evaluate(collector.get_data_struct())
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "recall": float(found["recall@20"]), "version": recbole.__version__}


def by_hand(task: Task, variant: str) -> dict[str, float]:
    """Seconds and recall of ``loop`` and ``dense``."""
    known, test = task.known, task.test
    started = time.perf_counter()
    block = 4096 if variant == "loop" else 4_096_000 // ITEMS
    hits = []
    for first in range(0, len(test), block):
        part = slice(first, first + block)
        masked = task.scores[first % DISTINCT :][: len(test[part])]
        row_of = torch.arange(len(masked)).repeat_interleave(SEEN)
        masked[row_of, torch.from_numpy(known[part].ravel())] = -1e10
        top = torch.topk(masked, max(LENGTHS), dim=1).indices
        if variant == "dense":
            matrix = torch.zeros_like(masked, dtype=torch.int)
            matrix[torch.arange(len(masked)).repeat_interleave(HELD), torch.from_numpy(test[part].ravel())] = 1
            hits.append(torch.gather(matrix, 1, top).numpy().astype(bool))
        else:
            # What is held out of a user is an array there, and so is each list.
            hits.append(np.array([[i in own for i in line] for own, line in zip(test[part], top.numpy(), strict=True)]))
    hit = np.concatenate(hits)
    place = np.log2(np.arange(2, max(LENGTHS) + 2))
    for k in LENGTHS:  # the metrics beside recall, so that all do the same work
        (hit[:, :k] / place[:k]).sum(1).mean()
        (np.cumsum(hit[:, :k], 1) * hit[:, :k] / np.arange(1, k + 1)).sum(1).mean()
    recall = float((hit[:, :20].sum(1) / HELD).mean())
    return {"seconds": time.perf_counter() - started, "recall": recall}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", choices=["ours", "recbole", "dense", "loop"], default="ours")
    parser.add_argument("--users", type=int, default=USERS, help=f"a multiple of {DISTINCT:,}")
    parser.add_argument(
        "--scores", choices=["random", "popularity", "constant"], default="random", help="ties: none to all"
    )
    arguments = parser.parse_args()
    task = Task.drawn(arguments.users, arguments.scores)
    if arguments.variant == "ours":
        print(json.dumps(ours(task)))
    elif arguments.variant == "recbole":
        print(json.dumps(recbole(task)))
    else:
        print(json.dumps(by_hand(task, arguments.variant)))


if __name__ == "__main__":
    main()
