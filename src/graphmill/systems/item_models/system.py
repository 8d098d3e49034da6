"""The systems of popularity, item-kNN (Sarwar et al. 2001), EASE (Steck 2019) and iALS (Hu et al. 2008, by implicit)."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphmill.errors import SettingsError
from graphmill.evaluation.baselines.recommendation import (
    EASE_TUNING_ITEMS,
    LAMBDAS,
    PAIRS,
    ItemModels,
    ease_weights,
    scores_of,
    take_out,
)
from graphmill.evaluation.ranking.items import rank_items
from graphmill.evaluation.ranking.recommendation import KnownItems
from graphmill.graph.features import comparable
from graphmill.graph.interactions import interaction_relation
from graphmill.graph.splits import TRAIN
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.base_system import blocks_of
from graphmill.systems.closed_form import arrays_of
from graphmill.systems.closed_form import matrix_of as weights_of
from graphmill.systems.item_models.settings import (
    ALIKE,
    NEAREST,
    EaseSettings,
    IalsSettings,
    ItemKnnSettings,
    PopularitySettings,
)
from graphmill.systems.recommenders.closed_form import ItemClosedForm, matrix_of
from graphmill.systems.recommenders.evaluate import known
from graphmill.systems.recommenders.fold_in import FoldIn, Folding
from graphmill.systems.recommenders.memory import closed_form_parts, sizes_of
from graphmill.systems.recommenders.settings import ClosedFormRecommenderSettings
from graphmill.training.allocator import trim
from graphmill.training.contract import EmbeddingBlock
from graphmill.training.planning import Part, Setup
from graphmill.training.solved import SolvedArrays

DAY = 86_400


class PopularitySystem(ItemClosedForm):
    """``counts`` float32 [I]: training interactions of each item."""

    ARRAYS = ("counts",)
    settings: PopularitySettings

    def __init__(self, graph: TypedGraph, settings: PopularitySettings, batching: str) -> None:
        """Raises SettingsError for ``days`` on interactions without times."""
        super().__init__(graph, settings, batching)
        self.interactions = graph.edges(interaction_relation(graph))
        if settings.model.days and self.interactions.timestamp is None:
            raise SettingsError(
                f"model.days: the interactions of {graph.path} have no times; leave it out, or build the graph from a file "
                "with a timestamp column"
            )

    def fitted(self, poll: Callable[[], None]) -> Mapping[str, np.ndarray]:
        """The counts; items without an interaction in the last days come after the others, by their count of all time."""
        every = self.view.train_by_item.counts.astype(np.float32)
        if not self.settings.model.days:
            return {"counts": every}
        train = np.asarray(self.interactions.split) == TRAIN
        times, items = np.asarray(self.interactions.timestamp)[train], np.asarray(self.interactions.dst)[train]
        late = times > times.max() - self.settings.model.days * DAY
        counts = np.bincount(items[late], minlength=self.view.num_items)
        return {"counts": (counts + every / (every.sum() + 1.0)).astype(np.float32)}

    def scores(self, model: SolvedArrays, met: sp.csr_matrix) -> Tensor:
        """The counts, for every user."""
        return torch.from_numpy(model.array("counts")).expand(met.shape[0], -1).contiguous()


FEW = 3.0
"""Interactions of an item at which the similarity by features counts half."""
KEPT = 0.99
"""Share of the best figure on validation that must be left: the largest such amount is taken, because items with few
interactions are few on validation."""
BLOCK = 512


class ItemKnnSystem(ItemClosedForm):
    """The similarities [I, I] as rows: ``indptr`` int64 [I + 1], ``items`` int32 and ``weights`` float32 [nnz];
    ``neighbours``, ``shrink`` and ``alike`` [1]; ``weighted`` int64 [1]: whether an item that a user has met counts by the
    interaction's weight, such as a rating, which the validation split chooses.

    Items with features, such as those from attributes, also have similarities by them: ``alike`` times
    :func:`alike_items`, as much as validation allows. So an item without interactions has a score.

    With very many pairs of items, the items with most interactions are used (:attr:`ItemModels.paired`).
    """

    ARRAYS = ("indptr", "items", "weights", "neighbours", "shrink", "alike", "weighted")
    settings: ItemKnnSettings

    def fitted(self, poll: Callable[[], None]) -> Mapping[str, np.ndarray]:
        """The settings that are 0 by validation, and the similarities."""
        model = self.settings.model
        neighbours, shrink, weighted = model.neighbours, model.shrink, False
        if not (neighbours and shrink) or self.view.train_weights is not None:
            best = self.chosen("item_knn", poll).values
            neighbours, shrink = neighbours or int(best["neighbours"]), shrink or best["shrink"]
            weighted = bool(best.get("weighted"))
        poll()
        models = ItemModels(known(self.view.train), self.view.num_items)
        entries = models.knn_weights(neighbours, shrink).tocoo()
        row, column = models.paired[entries.row], models.paired[entries.col]
        whole = sp.csr_matrix((entries.data, (row, column)), (self.view.num_items,) * 2)
        alike, whole = self._with_features(whole, weighted, poll) if self.view.features else (0.0, whole)
        chosen = {"neighbours": np.array([neighbours]), "shrink": np.array([shrink], np.float32)}
        chosen["weighted"] = np.array([weighted], np.int64)
        return arrays_of(whole) | chosen | {"alike": np.array([alike], np.float32)}

    def met(self, model: SolvedArrays, items: KnownItems) -> sp.csr_matrix:
        """float32 [U, I]: 1, or the weight, of each item of a user."""
        return matrix_of(items, self.view.num_items) if model.array("weighted")[0] else super().met(model, items)

    def _with_features(
        self, whole: sp.csr_matrix, weighted: bool, poll: Callable[[], None]
    ) -> tuple[float, sp.csr_matrix]:
        """The best of :data:`ALIKE` on the validation split, and the similarities with as much of those by features."""
        counts, rows = self.view.train_by_item.counts, comparable([*zip(*self._features(), strict=True)])
        by_features = alike_items(rows, counts)
        scale = float(whole.data.mean()) / max(float(by_features.data.mean()), 1e-12) if whole.nnz else 1.0
        cases = {str(each): (each, (whole + by_features * np.float32(each * scale)).tocsr()) for each in ALIKE}
        train, valid = known(self.view.train, self.view.train_weights), known(self.view.valid)
        if not len(valid.items):
            train, valid = take_out(train)
        train = train if weighted else KnownItems(train.indptr, train.items)
        met, users = matrix_of(train, self.view.num_items), np.flatnonzero(np.diff(valid.indptr) > 0)
        name, _, cut = self.settings.evaluation.selection_metric.partition("@")
        k = min(int(cut or 20), self.view.num_items)

        def value(case: tuple[float, sp.csr_matrix]) -> float:
            poll()
            scores = lambda part: scores_of(met[part], case[1])  # noqa: E731
            lists = rank_items(scores, self.view.num_items, train, valid, k, users=users, poll=poll)
            return lists.metrics([name], [k])[f"{name}@{k}"]

        values = {name: value(case) for name, case in cases.items()}
        kept = [name for name in cases if values[name] >= KEPT * max(values.values())]
        return cases[kept[-1]]

    def _features(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        names = list(self.view.features)
        return [np.asarray(self.view.features[n]) for n in names], [np.asarray(self.view.present[n]) for n in names]

    def candidates(self) -> np.ndarray:
        """Int64, ascending: items with a training interaction or features."""
        known_items = self.view.train_by_item.counts > 0
        return np.flatnonzero(np.any([known_items, *self._features()[1]], axis=0))

    def scores(self, model: SolvedArrays, met: sp.csr_matrix) -> Tensor:
        """The sum of the similarities of the items met."""
        return scores_of(met, weights_of(model.arrays))


def alike_items(rows: np.ndarray, counts: np.ndarray) -> sp.csr_matrix:
    """float32 [I, I]: for each item (column) its :data:`NEAREST` items by the products of ``rows`` float32 [I, f], times
    ``FEW / (FEW + n)`` for an item with ``counts`` n of interactions; negative products are left out."""
    parts, nearest = [], min(NEAREST, len(rows) - 1)
    for first in range(0, len(rows), BLOCK):
        block = rows[first : first + BLOCK] @ rows.T
        block[np.arange(len(block)), np.arange(first, first + len(block))] = -1
        kept = np.argpartition(-block, nearest, axis=1)[:, :nearest]
        values = np.maximum(np.take_along_axis(block, kept, 1), 0)
        values *= (FEW / (FEW + counts[first : first + BLOCK]))[:, None]
        places = np.repeat(np.arange(len(block)), nearest), kept.ravel()
        parts.append(sp.csr_matrix((values.ravel().astype(np.float32), places), block.shape))
    similar = sp.vstack(parts, "csr")
    similar.eliminate_zeros()
    return similar.T.tocsr()


_ITEMS, _USERS = 2_000, 1_000


class EaseSystem(ItemClosedForm):
    """``weights`` float32 [I, I]; ``regularisation`` [1]: λ."""

    ARRAYS = ("weights", "regularisation")
    settings: EaseSettings

    def fitted(self, poll: Callable[[], None]) -> Mapping[str, np.ndarray]:
        """λ by validation, if the setting is 0, and the weights."""
        penalty = self.settings.model.regularisation or self.chosen("ease", poll).values["penalty"]
        poll()
        trim()  # the smaller matrices of the choice: garbage, as the first use of a kernel ties frames together
        rows = ItemModels(known(self.view.train), self.view.num_items).rows
        return {"weights": ease_weights(rows, penalty), "regularisation": np.array([penalty], np.float32)}

    def scores(self, model: SolvedArrays, met: sp.csr_matrix) -> Tensor:
        """The sum of the weights of the items met."""
        return scores_of(met, model.array("weights"))

    def sampled_seconds(self) -> float:
        """By the time of a smaller inverse, whose work grows with the cube of the items, and of some users' pairs of items;
        for λ by validation of several matrices."""
        rows, side = ItemModels(known(self.view.train), self.view.num_items).rows, min(self.view.num_items, _ITEMS)
        some, alone = rows[:_USERS], sp.identity(side, np.float32, format="csr")
        inverse = _seconds(lambda: ease_weights(alone, 1.0)) / side**3
        product = _seconds(lambda: some.T @ some) * _pairs(rows) / max(_pairs(some), 1.0)
        tuned = 0 if self.settings.model.regularisation else len(LAMBDAS)
        work = self.view.num_items**3 + tuned * min(self.view.num_items, EASE_TUNING_ITEMS) ** 3
        return inverse * work + product * (1 + tuned)


def _seconds(work: Callable[[], object]) -> float:
    """The less of two times; the first one may import."""
    times = []
    for _ in range(2):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def _pairs(rows: sp.csr_matrix) -> float:
    """Pairs of items that a user has, over all users."""
    return float((np.diff(rows.indptr).astype(np.float64) ** 2).sum())


REGULARISATIONS = (0.001, 0.003, 0.01, 0.03)
WITHOUT_VALIDATION = 0.01


class IalsSystem(ItemClosedForm):
    """``user`` float32 [U, d] and ``item`` float32 [I, d]; ``regularisation`` [1].

    A user's scores follow from the history alone: the vector is solved for the items' vectors, as in training.
    """

    ARRAYS = ("user", "item", "regularisation")
    rotation_keeps_scores = True
    settings: IalsSettings

    def __init__(self, graph: TypedGraph, settings: IalsSettings, batching: str) -> None:
        """Raises SettingsError if the library is not installed."""
        if importlib.util.find_spec("implicit") is None:
            raise SettingsError(
                'the system ials needs the package implicit: pip install "graphmill[ials]", or take the system mf'
            )
        super().__init__(graph, settings, batching)

    def penalty(self, regularisation: float) -> float:
        """λ as one number for users and items, which is all that the library takes."""
        m, size = self.settings.model, (self.view.num_users, self.view.num_items)
        rows = [len(self.view.train) / count + m.unobserved_weight * other for count, other in (size, size[::-1])]
        return regularisation * float(np.mean(rows))

    def fitted(self, poll: Callable[[], None]) -> Mapping[str, np.ndarray]:
        """The vectors of both sides, and λ by validation if the setting is 0."""
        written = self.settings.model.regularisation
        met = matrix_of(known(self.view.train), self.view.num_items)
        if written or not len(self.view.valid):
            return self._fit(met, written or WITHOUT_VALIDATION, poll)
        metric, best = self.settings.evaluation.selection_metric, (-1.0, dict[str, np.ndarray]())
        for regularisation in REGULARISATIONS:
            arrays = self._fit(met, regularisation, poll)
            score = partial(self._scores_of_users, met, arrays["item"], regularisation)
            value = self.evaluator.evaluate(score, "valid", final=False, poll=poll)[metric]
            best = max(best, (value, arrays), key=lambda each: each[0])
        return best[1]

    def sampled_seconds(self) -> float:
        """By the time of one iteration."""
        met, m = matrix_of(known(self.view.train), self.view.num_items), self.settings.model
        started = time.perf_counter()
        self._fit(met, WITHOUT_VALIDATION, lambda: None, 1)
        tried = 1 if m.regularisation or not len(self.view.valid) else len(REGULARISATIONS)
        return (time.perf_counter() - started) * m.iterations * tried

    def _fit(
        self, met: sp.csr_matrix, regularisation: float, poll: Callable[[], None], iterations: int = 0
    ) -> dict[str, np.ndarray]:
        """The vectors after so many iterations, 0: those of the settings."""
        from implicit.cpu.als import AlternatingLeastSquares
        from threadpoolctl import threadpool_limits

        m = self.settings.model
        # The library weighs what was met by 1 + 1 / α beside 1 for the rest.
        with threadpool_limits(1, "blas"):  # the library's threads would wait for those of its products
            solver = AlternatingLeastSquares(
                factors=m.embedding_dim,
                regularization=self.penalty(regularisation) / m.unobserved_weight,
                alpha=1.0 + 1.0 / m.unobserved_weight,
                iterations=iterations or m.iterations,
                num_threads=torch.get_num_threads(),
                random_state=self.settings.training.seed,
            )
            solver.fit(met, show_progress=False, callback=lambda *_: poll())
        tables = {"user": np.array(solver.user_factors), "item": np.array(solver.item_factors)}
        return {**tables, "regularisation": np.array([regularisation], np.float32)}

    def scores(self, model: SolvedArrays, met: sp.csr_matrix) -> Tensor:
        """Products of the items' vectors with those that fit the items met."""
        return self._scores(model.array("item"), float(model.array("regularisation")[0]), met)

    def _scores_of_users(
        self, met: sp.csr_matrix, items: np.ndarray, regularisation: float, users: np.ndarray
    ) -> Tensor:
        return self._scores(items, regularisation, met[users])

    def _scores(self, items: np.ndarray, regularisation: float, met: sp.csr_matrix) -> Tensor:
        folding = Folding(items, self.view.train_by_item.counts)
        setting = FoldIn(self.settings.model.unobserved_weight, self.penalty(regularisation) / folding.size)
        return torch.from_numpy(folding(met, setting).astype(np.float32) @ items.T)

    def health(self, model: SolvedArrays) -> dict[str, float]:
        """Participation ratio, mean cosine and rank of the vectors."""
        tables = model.array("user"), model.array("item")
        return self.health_of(np.concatenate(tables), np.repeat([0, 1], [len(table) for table in tables]))

    def embeddings(self, model: SolvedArrays) -> Iterator[EmbeddingBlock]:
        """Vectors of users and items, in the graph's order; zero for other nodes."""
        rows = np.zeros((self.graph.num_nodes, self.settings.model.embedding_dim), np.float32)
        for name, first in (("user", self.view.user_offset), ("item", self.view.item_offset)):
            vectors = model.array(name)
            rows[first : first + len(vectors)] = vectors
        return blocks_of(rows)


def memory_parts(graph: TypedGraph, settings: ClosedFormRecommenderSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    sizes = sizes_of(graph)
    shared = closed_form_parts(graph)
    if isinstance(settings, EaseSettings):  # the matrix is inverted in place
        remedy = "take the system item_knn, whose weights are sparse, or leave items out of the graph"
        return [Part("weights between items", "always", float(sizes.items) ** 2, remedy=remedy), *shared]
    if isinstance(settings, IalsSettings):  # both tables, and the items' in float64 while users are folded in
        d, remedy = settings.model.embedding_dim, "lower model.embedding_dim"
        return [
            Part("vectors", "always", sizes.nodes * d, remedy=remedy),
            Part("vectors of an evaluation", "evaluation", sizes.items * d, 8, remedy=remedy),
            *shared,
        ]
    return [*_pairs_of_items(graph), *shared] if isinstance(settings, ItemKnnSettings) else shared


def _pairs_of_items(graph: TypedGraph) -> list[Part]:
    """A pair counts with its common users, each pair once at most."""
    relation = interaction_relation(graph)
    edges = graph.edges(relation)
    counts = np.bincount(np.asarray(edges.src)[np.asarray(edges.split) == 0]).astype(float)
    sizes = sizes_of(graph, () if graph.feature_sets(relation.target) else None)
    pairs, width = min(float(np.square(counts).sum()), float(sizes.items) ** 2, PAIRS), sum(sizes.widths)
    # Features and their copies; the nearest items by them, added to the others for each amount that is tried.
    alike = sizes.items * (3 * width + len(ALIKE) * 3 * NEAREST * (width > 0))
    return [
        # Common users, similarities, the nearest and their order; in rows and as pairs.
        Part("pairs of items", "always", pairs, 48, remedy="leave items out of the graph (k_core of its source)"),
        Part("items alike by features", "always", float(alike)),
    ]
