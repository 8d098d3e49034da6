"""Closed forms that recommend items: popularity, item-kNN and EASE, fitted in seconds on training interactions.

They are systems (``systems/item_models``), and baselines of the other recommenders.

* popularity: the training count of an item;
* item-kNN: Σ over the user's items of cosine similarity, c_ij = n_ij / (√(n_i n_j) + shrink), over each item's nearest
  items; if interactions have weights and validation gains by it, Σ of weight times similarity;
* EASE (Steck 2019): scores R_u B with B = I − P / diag P, P = (RᵀR + λ)⁻¹, diag B = 0: the linear model in closed form.

The validation split chooses their settings. If there is none, a tenth of the training items takes its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from graphmill.errors import TrainingError
from graphmill.evaluation.ranking.items import rank_items
from graphmill.evaluation.ranking.recommendation import Int64, KnownItems, ScoreBlock
from graphmill.graph.co_occurrence import row_blocks
from graphmill.sampling.keyed import generator, sampled

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
NEIGHBOURS = (0, 100)
"""0: all of them."""
SHRINKS = (0.0, 10.0, 100.0, 1000.0)
LAMBDAS = (10.0, 50.0, 200.0, 800.0, 3000.0)
EASE_ITEMS = 10_000
"""Largest number of items in the baseline EASE, which inverts a matrix of items × items. Of more items, those with most
interactions are used."""
EASE_TUNING_ITEMS = 5_000
"""The same while λ is chosen."""
PAIRS = 200_000_000
"""Largest number of item pairs in item-kNN, over all users. If there are more, the items with most interactions are used."""
TUNING_USERS = 3_000
_TILE = 1024
_BLOCK_NUMBERS = 1 << 22
_SEED = 2024


class ItemModels:
    """The predictors, fitted on ``train`` (the items of each user), whose weights item-kNN can read.

    ``ease_items``: the largest number of items in EASE; of more, those with most interactions are used.
    """

    def __init__(self, train: KnownItems, num_items: int, ease_items: int = EASE_ITEMS) -> None:
        self.num_items, self.ease_items = num_items, ease_items
        users = len(train.indptr) - 1
        ones = np.ones(len(train.items), np.float32)
        self.rows = sp.csr_matrix((ones, train.items, train.indptr), (users, num_items))
        self.weighted = self.rows
        if train.weights is not None:
            self.weighted = sp.csr_matrix((train.weights, train.items, train.indptr), (users, num_items))
        self.popularity = np.bincount(train.items, minlength=num_items).astype(np.float32)
        self._kept: dict[tuple[str, float, int], Any] = {}

    @cached_property
    def paired(self) -> Int64:
        """Int64, ascending: the items used in item-kNN. These are all, or the most frequent ones with at most
        :data:`PAIRS` pairs in total."""
        by_count = np.argsort(-self.popularity, kind="stable")
        rows = self.rows[:, by_count]
        rows.sort_indices()
        # The n-th item of a user (from 0, most frequent first) adds 2n + 1 pairs: with itself and with the items
        # before.
        pairs = 2 * (np.arange(rows.nnz) - np.repeat(rows.indptr[:-1], np.diff(rows.indptr))) + 1
        total = np.cumsum(np.bincount(rows.indices, pairs, minlength=self.num_items))
        return np.sort(by_count[: int(np.searchsorted(total, PAIRS, side="right"))])

    @cached_property
    def together(self) -> sp.csr_matrix:
        """n_ij of the :attr:`paired` items, sparse: number of users that have both, in the fewest bytes."""
        rows = self.rows[:, self.paired]
        # Both are in the order of rows, so the product is, too: turning it would copy all pairs.
        result = sp.csr_matrix(rows.T.tocsr() @ rows)
        result.sort_indices()
        result.data = result.data.astype(np.min_scalar_type(int(result.data.max(initial=0))))
        return result

    @cached_property
    def frequent(self) -> Int64:
        """Int64, ascending: the items used in EASE."""
        return np.sort(np.argsort(-self.popularity, kind="stable")[: self.ease_items])

    def popularity_scores(self) -> ScoreBlock:
        """The training counts, the same for every user."""
        return lambda users: tensor_of(np.broadcast_to(self.popularity, (len(users), self.num_items)))

    def knn_scores(self, neighbours: int, shrink: float, weighted: bool = False) -> ScoreBlock:
        """Item-kNN over the ``neighbours`` nearest of each item (0: all). Items that are not used have score 0.
        ``weighted``: an item of the user counts by its weight."""
        similarity = self._keep(("knn", shrink, neighbours), lambda: self.knn_weights(neighbours, shrink))
        rows = self.weighted if weighted else self.rows
        return lambda users: weighted_scores(rows[users], self.paired, similarity)

    def ease_scores(self, penalty: float) -> ScoreBlock:
        """EASE with λ = ``penalty``; items beyond ``ease_items`` have score 0."""
        weights = self._keep(("ease", penalty, 0), lambda: ease_weights(self.rows[:, self.frequent], penalty))
        return lambda users: weighted_scores(self.rows[users], self.frequent, weights)

    def _keep(self, key: tuple[str, float, int], make: Callable[[], Any]) -> Any:
        """Cache only one model of each family: a model can be as large as items × items."""
        if key not in self._kept:
            self._kept = {other: value for other, value in self._kept.items() if other[0] != key[0]}
            self._kept[key] = make()
        return self._kept[key]

    def knn_weights(self, neighbours: int, shrink: float) -> sp.csr_matrix:
        """The similarity of the :attr:`paired` items [n, n]; with ``neighbours``, the nearest of each column's item."""
        result, count = self.together, self.popularity[self.paired]
        cosine = np.empty(result.nnz, np.float32)
        for first, end in row_blocks(np.diff(result.indptr), _BLOCK_NUMBERS):
            part, lengths = slice(result.indptr[first], result.indptr[end]), np.diff(result.indptr[first : end + 1])
            col = result.indices[part]
            norm = np.sqrt(np.repeat(count[first:end], lengths) * count[col]) + np.float32(shrink)
            np.divide(result.data[part], norm, out=cosine[part])
            cosine[part][col == np.repeat(np.arange(first, end, dtype=col.dtype), lengths)] = 0.0
        similarity = sp.csr_matrix((cosine, result.indices, result.indptr), result.shape)
        return nearest_items(similarity, neighbours) if neighbours else similarity


def weighted_scores(rows: sp.csr_matrix, chosen: Int64, weights: Any) -> torch.Tensor:
    """fp32 [B, I]: ``rows`` [B, I] of items met, times the ``weights`` [n, n] between the ``chosen`` items (dense or
    sparse); 0 for other items."""
    if len(chosen) == rows.shape[1]:
        return scores_of(rows, weights)
    scores = scores_of(rows[:, chosen], weights)
    out = scores.new_zeros(rows.shape)
    out[:, chosen] = scores
    return out


def scores_of(rows: sp.csr_matrix, weights: NDArray[np.float32] | sp.csr_matrix) -> torch.Tensor:
    """fp32 [B, m]: ``rows`` [B, n] times ``weights`` [n, m], dense or sparse. Sums have the order of a row's entries."""
    import torch

    from graphmill.kernels.propagation import CsrMatrix, product
    from graphmill.kernels.sparse_products import sparse_product

    if sp.issparse(weights):
        return torch.from_numpy(sparse_product(rows, weights))
    index = [torch.from_numpy(each.astype(np.int64)) for each in (rows.indptr, rows.indices)]
    return product(CsrMatrix(index[0], index[1], index[1], torch.from_numpy(rows.data)), torch.from_numpy(weights))


def ease_weights(rows: sp.csr_matrix, penalty: float) -> NDArray[np.float32]:
    """B of EASE, float32 [n, n], from ``rows`` [U, n] of ones: one matrix of that size, inverted in place.

    Raises:
        TrainingError: the matrix cannot be inverted in float32; the message says what to do.
    """
    from graphmill.kernels.sparse_products import sparse_product

    matrix, size = sparse_product(rows.T.tocsr(), rows), rows.shape[1]
    matrix[np.diag_indices_from(matrix)] += np.float32(penalty)
    # It is symmetric and positive definite: Cholesky takes half the work of a general inverse. LAPACK works in place on
    # columns, so its lower triangle is the upper one here.
    factor, problem = scipy.linalg.lapack.spotrf(matrix.T, lower=1, overwrite_a=1, clean=0)
    if not problem:
        inverse, problem = scipy.linalg.lapack.spotri(factor, lower=1, overwrite_c=1)
    if problem:
        raise TrainingError(
            f"EASE: its matrix of items cannot be inverted in float32 with λ = {penalty:g}; set a larger regularisation"
        )
    result: NDArray[np.float32] = inverse.T
    for first in range(0, size, _TILE):  # mirror the triangle
        tile = slice(first, first + _TILE)
        for before in range(0, first, _TILE):
            result[tile, before : before + _TILE] = result[before : before + _TILE, tile].T
        square = np.triu(result[tile, tile])
        result[tile, tile] = square + np.triu(square, 1).T
    result /= -np.diag(result).copy()
    np.fill_diagonal(result, 0.0)
    return result


@dataclass(frozen=True)
class ItemBaseline:
    """A predictor at its best setting: ``scores`` makes its scorer. ``seconds``: time of the tuning."""

    setting: str
    scores: Callable[[Any], ScoreBlock]
    seconds: float = 0.0

    @property
    def values(self) -> Mapping[str, float]:
        """The setting as numbers by name."""
        given = getattr(self.scores, "keywords", {})
        return {name: value for name, value in given.items() if isinstance(value, int | float)}


FAMILIES: Mapping[str, Mapping[str, Callable[[ItemModels], ScoreBlock]]] = {
    "popularity": {"-": ItemModels.popularity_scores},
    "item_knn": {
        f"neighbours {n or 'all'}, shrink {s:g}": partial(ItemModels.knn_scores, neighbours=n, shrink=s)
        for s in SHRINKS
        for n in NEIGHBOURS
    },
    "ease": {f"lambda {p:g}": partial(ItemModels.ease_scores, penalty=p) for p in LAMBDAS},
}


def tune_item_baselines(
    train: KnownItems,
    held_out: KnownItems,
    num_items: int,
    metric: str = "recall@20",
    poll: Callable[[], None] = lambda: None,
    *,
    wanted: Sequence[str] = tuple(FAMILIES),
) -> dict[str, ItemBaseline]:
    """Tune each ``wanted`` predictor by ``metric``: fitted on ``train``, evaluated on ``held_out``.

    If nothing is held out, a tenth of ``train`` is held out for it. At most :data:`TUNING_USERS` users are evaluated (a
    seeded sample). ``poll`` is called between parts of the work, and may raise to stop it.
    """
    if not wanted:
        return {}
    if not len(held_out.items):
        train, held_out = take_out(train)
    name, _, cut = metric.partition("@")
    k = min(int(cut or 20), num_items)
    requested = sampled(np.flatnonzero(np.diff(held_out.indptr) > 0), TUNING_USERS, _SEED, "tuning users")
    models = ItemModels(train, num_items, EASE_TUNING_ITEMS)

    def value(make: Callable[[ItemModels], ScoreBlock]) -> float:
        poll()
        lists = rank_items(make(models), num_items, train, held_out, k, users=requested, poll=poll)
        return lists.metrics([name], [k])[f"{name}@{k}"]

    out = {}
    for family in wanted:
        settings, started = FAMILIES[family], time.perf_counter()
        best = best_setting(settings, value) if len(requested) else next(iter(settings))
        if family == "item_knn" and train.weights is not None and len(requested):
            scores: Callable[..., ScoreBlock] = settings[best]
            settings = {best: scores, f"{best}, weighted": partial(scores, weighted=True)}
            best = best_setting(settings, value)
        out[family] = ItemBaseline(best, settings[best], time.perf_counter() - started)
    return out


def best_setting(settings: Mapping[str, T], value: Callable[[T], float]) -> str:
    """The setting with the largest ``value``, the first of equal ones. A single setting is not measured."""
    return max(settings, key=lambda name: value(settings[name])) if len(settings) > 1 else next(iter(settings))


def take_out(train: KnownItems) -> tuple[KnownItems, KnownItems]:
    """Split ``train`` into the rest and a tenth that takes the place of a validation split, by a seeded draw for each item.

    Both have the users of ``train``: indptr int64 [U + 1], items int64, and their weights. One item of each user always
    stays. So nothing is held out of a user with one item, and sometimes nothing of other users.
    """
    counts = np.diff(train.indptr)
    user = np.repeat(np.arange(len(counts)), counts)
    # These words key the draw. Do not change them: it would hold out other items and change every baseline.
    out = (generator(_SEED, "held out for floors").random(len(user)) < 0.1) & (counts[user] > 1)
    out[train.indptr[:-1][counts > 0]] = False  # one item of each user stays

    def part(mask: NDArray[np.bool_]) -> KnownItems:
        indptr = np.concatenate(([0], np.cumsum(np.bincount(user[mask], minlength=len(counts)))))
        return KnownItems(indptr, train.items[mask], None if train.weights is None else train.weights[mask])

    return part(~out), part(out)


def nearest_items(matrix: sp.csr_matrix, k: int) -> sp.csr_matrix:
    """Keep the ``k`` largest numbers of each column of a symmetric matrix, of equal ones the first: the neighbours of the
    item to score."""
    kept, counts = np.ones(matrix.nnz, bool), np.diff(matrix.indptr)
    for row in np.flatnonzero(counts > k).tolist():
        entries = slice(matrix.indptr[row], matrix.indptr[row + 1])
        values = matrix.data[entries]
        least = np.partition(values, -k)[-k]
        np.greater_equal(values, least, out=kept[entries])
        if extra := np.count_nonzero(kept[entries]) - k:
            kept[entries.start + np.flatnonzero(values == least)[-extra:]] = False
    starts = np.concatenate(([0], np.cumsum(np.minimum(counts, k))))
    return sp.csc_matrix((matrix.data[kept], matrix.indices[kept], starts), matrix.shape).tocsr()


def tensor_of(scores: Any) -> torch.Tensor:
    """A copy of scores in float32."""
    import torch

    return torch.from_numpy(np.array(scores, dtype=np.float32))
