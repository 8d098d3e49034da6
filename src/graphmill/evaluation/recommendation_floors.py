"""What a recommender has to beat: popularity, item-kNN and EASE, fitted in seconds on the same training interactions.

* popularity: the training count of an item;
* item-kNN: Σ over the user's items of cosine similarity, c_ij = n_ij / (√(n_i n_j) + shrink), over each item's nearest;
* EASE (Steck 2019): scores R_u B with B = I − P / diag P, P = (RᵀR + λ)⁻¹, diag B = 0: the linear model in closed form.

Their settings are chosen on the validation split. Where there is none, a tenth of each user's training items stands in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from graphmill.evaluation.item_ranking import rank_items
from graphmill.evaluation.recommendation import Int64, KnownItems, ScoreBlock
from graphmill.sampling.keyed import generator

if TYPE_CHECKING:
    import torch

NEIGHBOURS = (0, 100)
"""0: all of them."""
SHRINKS = (0.0, 10.0, 100.0, 1000.0)
LAMBDAS = (10.0, 50.0, 200.0, 800.0, 3000.0)
EASE_ITEMS = 10_000
"""EASE inverts a matrix of items × items: of more items, the ones with most interactions take part."""
TUNING_USERS = 3_000
_SEED = 2024


class FloorModels:
    """The predictors, fitted on ``train`` (the items of each user)."""

    def __init__(self, train: KnownItems, num_items: int) -> None:
        self.num_items = num_items
        users = len(train.indptr) - 1
        ones = np.ones(len(train.items), np.float32)
        self.rows = sp.csr_matrix((ones, train.items, train.indptr), (users, num_items))
        self.popularity = np.bincount(train.items, minlength=num_items).astype(np.float32)
        self._together: Any = None
        self._kept: dict[tuple[str, float, int], Any] = {}

    @property
    def together(self) -> sp.csr_matrix:
        """n_ij, sparse [I, I]: users that have both items."""
        if self._together is None:
            self._together = sp.csr_matrix(self.rows.T @ self.rows)
        return self._together

    def popularity_scores(self) -> ScoreBlock:
        """Every user alike."""
        return lambda users: _tensor(np.broadcast_to(self.popularity, (len(users), self.num_items)))

    def knn_scores(self, neighbours: int, shrink: float) -> ScoreBlock:
        """Item-kNN over each item's ``neighbours`` nearest (0: all)."""
        similarity = self._keep(("knn", shrink, neighbours), lambda: self._similarity(neighbours, shrink))
        return lambda users: _tensor(_dense(self.rows[users] @ similarity))

    def ease_scores(self, penalty: float) -> ScoreBlock:
        """EASE with λ = ``penalty``; items beyond :data:`EASE_ITEMS` have score 0."""
        chosen, weights = self._keep(("ease", penalty, 0), lambda: self._ease(penalty))

        def score(users: Int64) -> torch.Tensor:
            out = np.zeros((len(users), self.num_items), np.float32)
            out[:, chosen] = _dense(self.rows[users][:, chosen] @ weights)
            return _tensor(out)

        return score

    def _keep(self, key: tuple[str, float, int], make: Callable[[], Any]) -> Any:
        """One model of each family at a time: they can be as large as items × items."""
        if key not in self._kept:
            self._kept = {other: value for other, value in self._kept.items() if other[0] != key[0]}
            self._kept[key] = make()
        return self._kept[key]

    def _similarity(self, neighbours: int, shrink: float) -> sp.csr_matrix:
        found = self.together.tocoo()
        off = found.row != found.col
        row, col = found.row[off], found.col[off]
        norm = np.sqrt(self.popularity[row] * self.popularity[col]) + np.float32(shrink)
        cosine = sp.csr_matrix((found.data[off] / norm, (row, col)), found.shape)
        return _nearest(cosine, neighbours) if neighbours else cosine

    def _ease(self, penalty: float) -> tuple[Int64, NDArray[np.float32]]:
        chosen = np.sort(np.argsort(-self.popularity, kind="stable")[:EASE_ITEMS])
        gram = _dense(self.together[chosen][:, chosen]).astype(np.float32)
        gram[np.diag_indices_from(gram)] += penalty
        # Positive definite: half the work of a general inverse, in place.
        factor, _ = scipy.linalg.lapack.spotrf(gram, lower=1, overwrite_a=1)
        inverse, _ = scipy.linalg.lapack.spotri(factor, lower=1, overwrite_c=1)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        weights = -inverse / np.diag(inverse)
        np.fill_diagonal(weights, 0.0)
        return chosen, weights


@dataclass(frozen=True)
class ItemFloor:
    """A predictor at its best setting. ``seconds``: how long finding that took."""

    setting: str
    scores: Callable[[FloorModels], ScoreBlock]
    seconds: float = 0.0


FAMILIES: Mapping[str, Mapping[str, Callable[[FloorModels], ScoreBlock]]] = {
    "popularity": {"-": FloorModels.popularity_scores},
    "item_knn": {
        f"neighbours {n or 'all'}, shrink {s:g}": partial(FloorModels.knn_scores, neighbours=n, shrink=s)
        for s in SHRINKS
        for n in NEIGHBOURS
    },
    "ease": {f"lambda {p:g}": partial(FloorModels.ease_scores, penalty=p) for p in LAMBDAS},
}


def tune_item_floors(
    train: KnownItems, held_out: KnownItems, num_items: int, metric: str = "recall@20"
) -> dict[str, ItemFloor]:
    """Each predictor at the setting that is best by ``metric``: fitted on ``train``, asked for ``held_out``.

    Where nothing is held out, on a tenth of ``train`` that is taken out for it. At most :data:`TUNING_USERS` users are
    asked (a seeded sample).
    """
    if not len(held_out.items):
        train, held_out = take_out(train)
    name, _, cut = metric.partition("@")
    k = min(int(cut or 20), num_items)
    asked = np.flatnonzero(np.diff(held_out.indptr) > 0)
    if len(asked) > TUNING_USERS:
        asked = np.sort(generator(_SEED, "tuning users").choice(asked, TUNING_USERS, replace=False))
    models = FloorModels(train, num_items)
    out = {}
    for family, settings in FAMILIES.items():
        started = time.perf_counter()
        best, highest = next(iter(settings)), -1.0
        for setting, make in settings.items() if len(settings) > 1 and len(asked) else ():
            lists = rank_items(make(models), num_items, train, held_out, k, users=asked)
            value = lists.metrics([name], [k])[f"{name}@{k}"]
            if value > highest:
                best, highest = setting, value
        out[family] = ItemFloor(best, settings[best], time.perf_counter() - started)
    return out


def take_out(train: KnownItems) -> tuple[KnownItems, KnownItems]:
    """What is left of ``train``, and a tenth of it that stands in for a validation split: a seeded draw for each item.

    Both have the users of ``train``: indptr int64 [U + 1], items int64. One item of each user always stays, so that of
    users with a single item, and now and then of a few users, nothing is taken out.
    """
    counts = np.diff(train.indptr)
    user = np.repeat(np.arange(len(counts)), counts)
    out = (generator(_SEED, "held out for floors").random(len(user)) < 0.1) & (counts[user] > 1)
    first = np.zeros(len(user), bool)
    first[train.indptr[:-1][counts > 0]] = True  # one item of each user stays
    out &= ~first

    def part(mask: NDArray[np.bool_]) -> KnownItems:
        indptr = np.concatenate(([0], np.cumsum(np.bincount(user[mask], minlength=len(counts)))))
        return KnownItems(indptr, train.items[mask])

    return part(~out), part(out)


def _nearest(matrix: sp.csr_matrix, k: int) -> sp.csr_matrix:
    """The ``k`` largest numbers of each column: the neighbours of the item that is scored."""
    turned = matrix.T.tocsr()
    row = np.repeat(np.arange(turned.shape[0]), np.diff(turned.indptr))
    order = np.lexsort((-turned.data, row))
    place = np.arange(len(order)) - np.repeat(turned.indptr[:-1], np.diff(turned.indptr))
    kept = order[place < k]
    return sp.csr_matrix((turned.data[kept], (turned.indices[kept], row[kept])), matrix.shape)


def _dense(matrix: Any) -> NDArray[np.float32]:
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()


def _tensor(scores: NDArray[np.float32]) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.array(scores, dtype=np.float32))
