"""A blend's part for features: its scores by hand, and the amount that targets with few links get."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphmill.evaluation.ranking.queries import LinkQueries, RelationQueries
from graphmill.graph.training_links import TrainingLinks
from graphmill.systems.blend.mix import FEW_LINKS, mix_for_few_links
from graphmill.systems.blend.part import FEATURES, FEW, POPULARITY, BlendScorer, FeatureSimilarity, Part, Popularity

HEADS, TARGETS, KNOWN = 12, 12, 8
"""Heads and targets are of two groups in turn. The first ``KNOWN`` targets have links, the others none."""
GROUPS = np.eye(2, dtype=np.float32)[np.r_[np.arange(HEADS), np.arange(TARGETS)] % 2]


def links() -> tuple[TrainingLinks, np.ndarray, np.ndarray]:
    """The training links, and held-out heads and targets: of each head one target with links, and one without."""
    training, held = np.zeros((HEADS, TARGETS), np.int64), []
    for head in range(HEADS):
        mine = np.arange(head % 2, KNOWN, 2)
        out = mine[head // 2 % len(mine)]
        training[head, mine[mine != out]] = 1
        held += [(head, out), (head, KNOWN + head % 2)]
    heads, targets = np.array(held).T
    return TrainingLinks([sp.csr_matrix(training)], [(0, HEADS)]), heads, targets


def queries(training: TrainingLinks, heads: np.ndarray, targets: np.ndarray) -> LinkQueries:
    known = training.outgoing[0].toarray()
    degrees = known.sum(0), known.sum(1)
    known[tuple(links()[1:])] = 1
    indptr, tails = np.r_[0, known.sum(1).cumsum()], np.nonzero(known)[1]
    return LinkQueries("valid", (RelationQueries(0, "treats", heads, targets, TARGETS, indptr, tails, *degrees),))


def test_a_score_is_mean_similarity_that_shrinks_with_the_links_of_the_candidate() -> None:
    training, *_ = links()
    rows = np.random.default_rng(0).normal(size=GROUPS.shape).astype(np.float32)
    mine, theirs, matrix = rows[:HEADS], rows[HEADS:], training.outgoing[0].toarray()
    scores = FeatureSimilarity(training, rows).scores(0, np.arange(HEADS)).numpy()
    for head in range(HEADS):
        for target in range(TARGETS):
            others, sources = np.flatnonzero(matrix[head]), np.flatnonzero(matrix[:, target])
            similar = (theirs[others] @ theirs[target]).sum() / (1 + len(others))
            similar += (mine[sources] @ mine[head]).sum() / (1 + len(sources))
            assert scores[head, target] == pytest.approx(FEW / (FEW + len(sources)) * similar, abs=1e-5)


@pytest.mark.parametrize(("case", "taken"), [("alike", True), ("misleading", False), ("many links", False)])
def test_targets_with_few_links_get_features_where_validation_gains(case: str, taken: bool) -> None:
    training, heads, targets = links()
    rows = GROUPS.copy()
    if case == "misleading":  # a target without links looks like those of the other group
        rows[HEADS + KNOWN :] = rows[HEADS + KNOWN :, ::-1]
    if case == "many links":
        heads, targets = heads[::2], targets[::2]
        assert training.degrees(0)[targets].min() > FEW_LINKS
    parts = {POPULARITY: Popularity(training), FEATURES: FeatureSimilarity(training, rows)}
    before = np.array([[1.0, 0.0]], np.float32)
    mix = mix_for_few_links(BlendScorer(training, parts, before), queries(training, heads, targets), 0, FEATURES)
    assert mix[0, 0] == before[0, 0]
    assert (mix[0, 1] > 0) == taken


class Given(Part):
    """Scores [heads, targets] as they are given."""

    alone, amounts = (1.0, 0.0), (1.0,)

    def __init__(self, scores: list[list[float]]) -> None:
        self.given = torch.tensor(scores)

    def scores(self, relation: int, heads: np.ndarray) -> torch.Tensor:
        return self.given[heads]


@pytest.mark.parametrize(("last", "taken"), [([0.0, 9.0, 8.0, 7.0], False), ([9.0, 0.0, 0.0, 0.0], True)])
def test_a_gain_of_targets_with_few_links_is_not_taken_where_others_may_lose_by_chance(
    last: list[float], taken: bool
) -> None:
    """Features lift target 3 for head 2, and target 0 for head 0; they lift (or sink) target 0 for head 1. The mean rises in
    both cases. In one it is a win and a loss."""
    training = TrainingLinks([sp.csr_matrix(np.array([[0, 1, 1, 0]] * 2 + [[1, 1, 1, 0]] * 4))], [(0, 6)])
    heads, targets = np.array([0, 1, 2]), np.array([0, 0, 3])
    indptr, tails = np.arange(7), np.array([0, 0, 3, 0, 0, 0])
    relation = RelationQueries(
        0, "treats", heads, targets, 4, indptr, tails, training.degrees(0), np.array([2, 2, 3, 3, 3, 3])
    )
    base = [[2.0, 3.0, 1.0, 0.0]] * 2 + [[1.0, 2.0, 3.0, 0.0]] * 4
    features = [[9.0, 0.0, 0.0, 0.0], last, *[[1.0, 8.0, 9.0, 1.5]] * 4]
    parts = {POPULARITY: Given(base), FEATURES: Given(features)}
    scorer = BlendScorer(training, parts, np.array([[1.0, 0.0]], np.float32))
    mix = mix_for_few_links(scorer, LinkQueries("valid", (relation,)), 0, FEATURES)
    assert (mix[0, 1] > 0) == taken
