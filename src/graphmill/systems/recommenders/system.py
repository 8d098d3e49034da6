"""The base system of recommenders: a loss of pairs on one graph forward pass, full ranking by dot product. A system
adds its network, its encoding and its own terms. Evaluation, recommendations and export use only its vectors of users
and items.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphmill.errors import InputError
from graphmill.evaluation.health.figures import sampled_rows
from graphmill.evaluation.ranking.recommendation import ExcludeSeen, ScoreBlock, excluded, top_k
from graphmill.graph.histories import Histories
from graphmill.graph.interactions import Interactions, interaction_view, knowledge_view, require_items
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.pair_losses import pair_losses
from graphmill.kernels.products import product
from graphmill.systems.base_system import BaseSystem, DividedBatch, M, blocks_of
from graphmill.systems.recommenders.evaluate import RecommenderEvaluator, known
from graphmill.systems.recommenders.fold_in import fold_in
from graphmill.systems.recommenders.sampler import Draw, PairSampler, Pool
from graphmill.systems.recommenders.settings import RecommenderSettings
from graphmill.training.contract import EmbeddingBlock, Encoded, ParameterGroup, Phase, Term

SAMPLED_SOFTMAX = "sampled_softmax"
USERS, ITEMS = "users", "items"
"""Names of the vectors in an encoding."""


class PairRows(NamedTuple):
    """Vectors of users [m, d] and items [n, d], and the rows of each pair."""

    users: Tensor
    items: Tensor
    user_rows: Tensor
    """int64 [B]"""
    item_rows: Tensor
    """int64 [B, 1 + k]: a pair's item, and its negatives."""


class RecommenderSystem(BaseSystem[M], ABC):
    """The base class. ``batching`` is "full": every step runs over the whole graph."""

    algorithm_version = 1
    term_names: tuple[str, ...] = ()
    """Terms beyond that of the pairs."""
    loss_scale = 1.0
    """Factor of the pairs' term."""
    draw: Draw = "pairs"
    negatives: Pool = "seen"

    def __init__(self, graph: TypedGraph, settings: RecommenderSettings, batching: str) -> None:
        """Raises :func:`require_cut_off`'s error."""
        super().__init__(graph, settings)
        self.settings: RecommenderSettings = settings
        self.view = interaction_view(graph)
        require_cut_off(settings, self.view.num_items)
        size = settings.step_size()
        self.sampler = PairSampler(
            self.view.train,
            self.view.num_items,
            size,
            settings.training.seed,
            draw=self.draw,
            negatives=self.negatives,
            per_positive=settings.objective.negatives_per_positive,
        )
        steps = settings.training.steps_per_epoch or self.sampler.steps_per_epoch
        self.phases = [Phase("train", steps, size, settings.base_batch)]
        self.evaluator = RecommenderEvaluator(self.view, settings)

    # ---------------------------------------------------------------- methods of a system

    @abstractmethod
    def encode(self, model: M, batch: PairBatch) -> Encoded:
        """``users`` [U, d] and ``items`` [I, d] (and further tensors that the terms need): the graph forward pass of a
        step."""

    def parameter_groups(self, model: M, phase: Phase) -> list[ParameterGroup]:
        """The parameters that the phase's optimizer updates; by default all (tables), without weight decay."""
        return self.groups(model, lambda name, p: False)

    def row_keys(self, model: M) -> dict[str, tuple[str, list[str]]]:
        """Parameter → (label, its rows' keys), for ``init_from`` by node id; by default the tables of users and items."""
        return {kind: (kind, self.ids(kind)) for kind in ("user", "item")}

    def extra_terms(self, model: M, chunk: PairBatch, encoded: Encoded) -> list[Term]:
        """The terms of ``term_names``, each with weight ``len(chunk)``."""
        return []

    # ---------------------------------------------------------------- model

    def ids(self, kind: str) -> list[str]:
        """Ids of "user" or "item" nodes, or of "all", in the graph's order: the keys of table rows."""
        column = self.graph.node_table().column("id")
        view = self.view
        ranges = {"user": (view.user_offset, view.num_users), "item": (view.item_offset, view.num_items)}
        start, count = ranges.get(kind, (0, len(column)))
        return column.slice(start, count).to_pylist()

    # ---------------------------------------------------------------- a step

    def step(self, phase: Phase, epoch: int, index: int) -> PairBatch:
        """Draws the training triples of a step."""
        return PairBatch(*self.sampler.step(epoch, index), terms=(self.loss, *self.term_names))

    @property
    def loss(self) -> str:
        """The name of the pairs' term."""
        return str(self.settings.objective.loss)

    def terms(self, model: M, chunk: PairBatch, encoded: Encoded | None) -> list[Term]:
        """The loss of each pair with its k negatives, and the system's own terms."""
        assert encoded is not None
        loss, _ = self.pair_losses(self.rows(model, chunk.users, chunk.items, encoded))
        return [Term(self.loss, loss, self.loss_scale), *self.extra_terms(model, chunk, encoded)]

    def pair_losses(self, rows: PairRows) -> tuple[Tensor, Tensor]:
        """The loss chosen in the settings, and the norm, as sums over pairs: :func:`graphmill.kernels.pair_losses`."""
        return pair_losses(*rows, together=self.loss == SAMPLED_SOFTMAX)

    def rows(self, model: M, users: np.ndarray, items: np.ndarray, encoded: Encoded) -> PairRows:
        """Final vectors, and the rows of ``users`` int64 [B] and ``items`` int64 [B, n] in them."""
        tensors = encoded.tensors
        return PairRows(tensors[USERS], tensors[ITEMS], *self._tensors(users, items))

    # ---------------------------------------------------------------- evaluation and export

    def vectors(self, model: M) -> tuple[Tensor, Tensor]:
        """Users [U, d] and items [I, d], fp32, of the model in eval mode."""
        training = model.training
        model.eval()
        nobody = np.zeros(0, np.int64)
        with torch.no_grad():
            tensors = self.encode(model, PairBatch(nobody, nobody, nobody)).tensors
        model.train(training)
        return tensors[USERS].detach().float(), tensors[ITEMS].detach().float()

    def scorer(self, model: M) -> RecommenderScorer:
        """Scores from vectors that are computed once."""
        return RecommenderScorer(*self.vectors(model))

    def evaluate(self, model: M, split: str, *, final: bool, poll: Callable[[], None]) -> dict[str, float]:
        """Full-ranking metrics; with ``final`` also metrics of the catalogue and the baselines."""
        score = self.scorer(model)
        return self.evaluator.evaluate(score.of_users, split, final=final, poll=poll)

    def held_out(self, split: str) -> int:
        """The number of held-out pairs."""
        return len(self.view.held_out(split))

    def recommend(
        self, model: M, k: int, exclude_seen: ExcludeSeen = "auto"
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """:func:`recommended` of :meth:`candidates`."""
        return recommended(self.view, self.scorer(model).of_users, self.candidates(), k, exclude_seen)

    def candidates(self) -> np.ndarray:
        """Int64, ascending: the items of which the system knows something: by default those with a training interaction.
        Others are never recommended, because their vectors are the random ones of the beginning."""
        return np.flatnonzero(self.view.train_by_item.counts > 0)

    def fold_in(
        self, model: M, histories: Histories, k: int, exclude_seen: ExcludeSeen = "auto"
    ) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """:func:`graphmill.systems.recommenders.fold_in.fold_in`."""
        return fold_in(self, model, histories, k, exclude_seen)

    def health(self, model: M) -> dict[str, float]:
        """Participation ratio, mean cosine and rank of the vectors."""
        view = self.view
        rows = sampled_rows(view.num_users + view.num_items, self.settings.training.seed)
        users, items = rows[rows < view.num_users], rows[rows >= view.num_users] - view.num_users
        every = zip(self.vectors(model), (users, items), strict=True)
        parts = [vectors[self._tensor(numbers)].cpu().numpy() for vectors, numbers in every]
        return self.health_of(np.concatenate(parts), np.repeat([0, 1], [len(users), len(items)]))

    folds_in_items = True
    """:meth:`fold_in` also makes vectors of new items, from their known users."""
    rotation_keeps_scores = True
    """Scores are dot products of the exported vectors."""

    def embeddings(self, model: M) -> Iterator[EmbeddingBlock]:
        """Vectors of all nodes in the graph's order."""
        return blocks_of(self.all_vectors(model))

    def all_vectors(self, model: M) -> np.ndarray:
        """fp32 [N, d]: the vectors of users and items that scores use. Other nodes, for which the system has no
        vectors, get the mean of their neighbours by facts, in the order of distance; a node that no fact reaches gets
        the mean of the items.
        """
        users, items = (t.cpu().numpy() for t in self.vectors(model))
        view = self.view
        rows = np.zeros((self.graph.num_nodes, users.shape[1]), np.float32)
        reached = np.zeros(len(rows), bool)
        for start, vectors in ((view.user_offset, users), (view.item_offset, items)):
            rows[start : start + len(vectors)] = vectors
            reached[start : start + len(vectors)] = True
        if reached.all():
            return rows
        facts = knowledge_view(self.graph, directed=False)
        head, tail = np.concatenate((facts.head, facts.tail)), np.concatenate((facts.tail, facts.head))
        while True:
            lead = ~reached[head] & reached[tail]
            if not lead.any():
                break
            heads = sorted_unique(head[lead])
            means = sp.csr_matrix((np.ones(int(lead.sum())), (head[lead], tail[lead])), (len(rows),) * 2)[heads]
            rows[heads] = (means @ rows) / np.asarray(means.sum(1))
            reached[heads] = True
        rows[~reached] = items.mean(0)
        return rows

    def units_per_step(self, phase: Phase) -> tuple[str, float]:
        """The number of training triples per step."""
        return "triples", self.sampler.num_pairs / self.sampler.steps_per_epoch


def recommended(
    view: Interactions, score: ScoreBlock, candidates: np.ndarray, k: int, exclude_seen: ExcludeSeen
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every user with training items, the ``k`` best of the ``candidates`` (int64, ascending) without a known
    interaction of the user; with ``never``, of all candidates but those that the user dislikes. ``auto`` is ``always``:
    systems of users and items are evaluated only on new items.

    Users int64 [U] and items int64 [U, k] are global node numbers, best first (−1: none left); scores [U, k].
    """
    users = np.flatnonzero(view.train.counts > 0)
    seen = excluded(known(view.everything()), view.disliked, exclude_seen != "never")
    items, scores = top_k(score, users, view.num_items, seen, k, candidates)
    return users + view.user_offset, np.where(items >= 0, items + view.item_offset, -1), scores


def require_cut_off(settings: Any, items: int) -> None:
    """Raise InputError for a single item, and if the cut-off of the metric that chooses the epoch is larger than the
    number of items."""
    require_items(settings.data, items)
    wanted = settings.evaluation.selection_metric
    if int(wanted.partition("@")[2]) > items:  # it could not distinguish epochs
        raise InputError(
            f"evaluation.selection_metric: {wanted} looks at more items than the {items} of {settings.data}; take "
            f"a cut-off of at most {items}, and name it in evaluation.top_k"
        )


class RecommenderScorer:
    """Dot products of users and items."""

    def __init__(self, users: Tensor, items: Tensor) -> None:
        self.users, self.items = users, items.T.contiguous()

    def of_users(self, users: np.ndarray) -> Tensor:
        """Local user numbers int64 [B] → fp32 [B, I]."""
        rows = self.users[torch.from_numpy(np.ascontiguousarray(users)).to(self.users.device)]
        return product(rows, self.items)

    def score_targets(self, relation: int, heads: np.ndarray) -> Tensor:
        """:meth:`of_users`; ``relation`` is 0, the only one."""
        return self.of_users(heads)


@dataclass(frozen=True)
class PairBatch(DividedBatch):
    """B training triples (user, positive, negative), int64 [B] each, local numbers; with k negatives int64 [B, k]. Each
    of ``terms`` has weight B.

    ``masked``: int64, edges of the graph whose messages are left out in this step; ``nodes``: int64, ascending, nodes
    whose vectors the step looks up. Every chunk and every rank has both of the whole batch. ``replicated``: whether
    every rank encodes the whole graph; ``ranks``: the number of ranks that share the batch.
    """

    users: np.ndarray
    positives: np.ndarray
    negatives: np.ndarray
    terms: tuple[str, ...] = ()
    replicated: bool = True
    ranks: int = 1
    masked: np.ndarray | None = None
    nodes: np.ndarray | None = None

    ROWS = ("users", "positives", "negatives")

    @property
    def weights(self) -> Mapping[str, float]:
        """The number of rows, for each term."""
        return dict.fromkeys(self.terms, float(len(self)))

    @property
    def wrong(self) -> np.ndarray:
        """``negatives`` as int64 [B, k], also for one negative."""
        return self.negatives.reshape(len(self), -1)

    @property
    def items(self) -> np.ndarray:
        """int64 [B, 1 + k]: each pair's item, and its negatives."""
        return np.column_stack((self.positives, self.wrong))

    def shard(self, rank: int, world: int) -> PairBatch:
        """Every ``world``-th row."""
        return replace(super().shard(rank, world), ranks=world)
