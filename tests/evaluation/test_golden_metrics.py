"""Metrics of random rankings equal those of scikit-learn, ranx and PyKEEN, which ``golden_metrics.json`` holds.

``lists``: scores of 30 items for 12 users, without ties, and one to five held-out items each (so that ranx' average
precision, which is over all held-out items, is ours). ``ranks``: 40 queries with many ties.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.evaluation.ranking.links import LinkQueries, rank_links
from graphmill.evaluation.ranking.queries import relation_queries
from graphmill.evaluation.ranking.recommendation import KnownItems, set_metrics, top_k

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("golden_metrics.json").read_text())
PYKEEN = {"mean_reciprocal_rank": "mrr", "mean_rank": "mr", "adjusted_mean_rank_index": "amri"}


def test_lists_are_measured_as_ranx_and_scikit_learn_do() -> None:
    golden = GOLDEN["lists"]
    scores, held_out = torch.tensor(golden["scores"], dtype=torch.float32), golden["held_out"]
    users = np.arange(len(scores))
    items = KnownItems(np.cumsum([0, *map(len, held_out)]), np.concatenate(held_out).astype(np.int64))
    nothing = KnownItems(np.zeros(len(users) + 1, np.int64), np.zeros(0, np.int64))
    lists, _ = top_k(lambda batch: scores[torch.from_numpy(batch)], users, scores.shape[1], nothing, 10)
    result = set_metrics(lists, items, users, [5, 10])
    for program in ("ranx", "scikit-learn"):
        expected = {name.replace("hit_rate", "hit"): value for name, value in golden[program].items()}
        assert {name: result[name] for name in expected} == pytest.approx(expected, abs=1e-12), program


def test_ranks_are_measured_as_pykeen_does() -> None:
    golden = GOLDEN["ranks"]
    scores, targets = torch.tensor(golden["scores"], dtype=torch.float32), np.array(golden["targets"])

    class Table:
        def score_targets(self, relation: int, heads: np.ndarray) -> torch.Tensor:
            return scores[torch.from_numpy(heads)]

    none = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    heads = np.arange(len(targets))
    queries = relation_queries(0, "r", (heads, targets), none, [], *scores.shape)
    result = rank_links(Table(), LinkQueries("test", (queries,)), ks=(1, 3, 10)).micro
    for name, value in golden["PyKEEN"].items():
        metric = name.removeprefix("realistic.")
        ours = PYKEEN.get(metric, metric.replace("hits_at_", "hits@"))
        assert result[ours] == pytest.approx(value, abs=1e-12), name
