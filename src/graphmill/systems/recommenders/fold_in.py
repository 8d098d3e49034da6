"""Vectors of users and items that are not in the training data, in closed form: all scores are dot products.

A user's vector v minimises α Σ_i ⟨v, i⟩² + Σ_{i met} (1 − ⟨v, i⟩)² + λ s ‖v‖² over the trained items (the user's step
of implicit alternating least squares, Hu et al. 2008), where s is the items' mean squared length. With λ = ∞, v is the
sum of the user's items, each divided by a power of its number of users: one step of propagation. α, λ and the power are
chosen on known users, folded in from their training items, by the ranks of their validation items. Among the settings
that are not significantly worse than the best, the largest λ is chosen, because the items' vectors were trained with
these users. A new item's vector is computed from its users in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch

from graphmill.evaluation.ranking.recommendation import (
    ExcludeSeen,
    KnownItems,
    excluded,
    of_all,
    set_metrics,
    top_k,
)
from graphmill.graph.histories import Histories
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.sampling.keyed import sampled
from graphmill.systems.recommenders.evaluate import known

if TYPE_CHECKING:
    from torch import nn

    from graphmill.systems.recommenders.system import RecommenderSystem

UNMET = (0.0, 0.01, 0.1, 1.0)
"""α: what an item that was not met counts beside one that was."""
REGULARISATION = (0.1, 1.0, 10.0, 100.0)
"""λ."""
TUNING_USERS = 1000
"""Known users whose validation items choose among them."""
_SEED = 2024


@dataclass(frozen=True)
class FoldIn:
    """α and λ, or with λ = ∞ the exponent of an item's number of users."""

    unmet: float = 0.1
    regularisation: float = 1.0
    power: float = 0.0

    @property
    def name(self) -> str:
        """The method's name for people."""
        if np.isinf(self.regularisation):
            return f"sum of the items met, by (number of users)^-{self.power:g}"
        return f"least squares, unmet {self.unmet:g}, regularisation {self.regularisation:g}"


SETTINGS = (
    FoldIn(0.0, np.inf, 0.0),
    *(FoldIn(a, r) for r, a in product(reversed(REGULARISATION), UNMET)),
    FoldIn(0.0, np.inf, 0.5),
)
"""From the largest λ."""


class Folding:
    """Folds in with the vectors [n, d] of one side; ``counts`` [n]: the number of interactions of each."""

    def __init__(self, vectors: np.ndarray, counts: np.ndarray) -> None:
        self.vectors = vectors.astype(np.float64)
        self.gram = self.vectors.T @ self.vectors
        self.size = max(float(np.square(self.vectors).sum(1).mean()), 1e-30)
        self.counts = np.maximum(counts, 1).astype(np.float64)

    def __call__(self, met: sp.csr_matrix, setting: FoldIn) -> np.ndarray:
        """float64 [rows, d]: a vector for each row of ``met`` (ones) [rows, n]; 0 for an empty row."""
        if np.isinf(setting.regularisation):
            return np.asarray((met @ sp.diags(self.counts**-setting.power)) @ self.vectors)
        always = setting.unmet * self.gram + setting.regularisation * self.size * np.eye(len(self.gram))
        out = np.zeros((met.shape[0], len(self.gram)))
        for row in np.flatnonzero(np.diff(met.indptr)):
            mine = self.vectors[met.indices[met.indptr[row] : met.indptr[row + 1]]]
            out[row] = np.linalg.solve(always + mine.T @ mine, mine.sum(0))
        return out


def fold_in(
    system: RecommenderSystem[Any], model: nn.Module, histories: Histories, k: int, exclude_seen: ExcludeSeen
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Items int64 [U, k] (local numbers, new items last; −1: none left), scores [U, k], and the method."""
    view = system.view
    users, items = (rows.cpu().numpy() for rows in system.vectors(model))
    of_items = Folding(items, view.train_by_item.counts)
    setting, about = choose(system, of_items, users)
    row, column = histories.users, histories.items
    new = column >= view.num_items
    if histories.new_items:
        fresh = new & (histories.known[row] >= 0)
        met = _ones(column[fresh] - view.num_items, histories.known[row[fresh]], (histories.new_items, view.num_users))
        of_users = Folding(users, view.train.counts)
        trained = sp.csr_matrix((np.ones(len(view.train)), view.train_by_item.columns, view.train_by_item.indptr))
        trained.resize(view.num_items, view.num_users)
        new_items = _as_known(of_users, setting, met, trained, items)
        items = np.concatenate([items, new_items.astype(items.dtype)])
        of_items = Folding(items, np.concatenate([view.train_by_item.counts, np.diff(met.indptr)]))
    met = _ones(row, column, (len(histories.known), len(items)))
    candidates = np.concatenate((system.candidates(), sorted_unique(column[new & (histories.known[row] >= 0)])))
    usable = np.isin(column, candidates)  # vectors of other items are random
    read = _ones(row[usable], column[usable], met.shape)
    of_known = sp.csr_matrix((np.ones(len(view.train)), view.train.columns, view.train.indptr))
    of_known.resize(view.num_users, len(items))
    vectors = _as_known(of_items, setting, read, of_known, users)
    left, right = torch.from_numpy(vectors.astype(np.float32)), torch.from_numpy(items).float().T
    seen = KnownItems(met.indptr.astype(np.int64), met.indices.astype(np.int64))
    seen = excluded(seen, histories.disliked, exclude_seen != "never")
    queried = np.flatnonzero(np.diff(read.indptr) > 0)
    lists = top_k(lambda u: left[torch.from_numpy(u)] @ right, queried, len(items), seen, k, candidates)
    return *of_all(len(vectors), queried, *lists), {"fold_in": setting.name, **about}


def fold_in_rows(
    system: RecommenderSystem[Any], users: np.ndarray, items: np.ndarray, missing: Mapping[str, np.ndarray]
) -> None:
    """Fill the ``missing`` rows of "item" and then of "user" in float32 ``users`` [U, d] and ``items`` [I, d], in place: new
    items from known users, new users from all items.
    """
    view, none = system.view, np.zeros(0, np.int64)
    sides = [(items, missing.get("item", none), users, view.train_by_item, view.train.counts),
             (users, missing.get("user", none), items, view.train, view.train_by_item.counts)]  # fmt: skip
    for table, new, _, _, _ in sides:
        table[new] = 0.0  # a zero vector says nothing where the other side is folded in
    setting, _ = choose(system, Folding(items, view.train_by_item.counts), users)
    for table, new, others, links, counts in sides:
        met = sp.csr_matrix((np.ones(len(links)), links.columns, links.indptr), (len(table), len(others)))
        known = np.delete(np.arange(len(table)), new)
        table[new] = _as_known(Folding(others, counts), setting, met[new], met[known], table[known])


def choose(system: RecommenderSystem[Any], folding: Folding, users: np.ndarray) -> tuple[FoldIn, dict[str, float]]:
    """The first of :data:`SETTINGS` that ranks known users' validation items as well as the best, and its metric with
    that of the trained vectors; without validation items, the default and nothing.
    """
    view = system.view
    queried = np.flatnonzero(view.valid.counts > 0)
    if not len(queried):
        return FoldIn(), {}
    queried = sampled(queried, TUNING_USERS, _SEED, "fold in")
    train, valid = known(view.train), known(view.valid)
    indptr, columns = train.rows(queried)
    met = sp.csr_matrix((np.ones(len(columns)), columns, indptr), (len(queried), view.num_items))
    wanted = system.settings.evaluation.selection_metric
    depth = int(wanted.partition("@")[2])
    turned = torch.from_numpy(folding.vectors).float().T
    place = np.zeros(view.num_users, np.int64)
    place[queried] = np.arange(len(queried))

    def figure(vectors: np.ndarray) -> float:
        rows = torch.from_numpy(vectors).float()
        lists, _ = top_k(lambda u: rows[torch.from_numpy(place[u])] @ turned, queried, view.num_items, train, depth)
        metrics = set_metrics(lists, valid, queried, [depth])
        return metrics.get(wanted, metrics[f"recall@{depth}"])

    figures = [figure(folding(met, setting)) for setting in SETTINGS]
    chance = 0.5 * np.sqrt(max(figures) * (1.0 - max(figures)) / len(queried))  # at most half a standard error
    best = next(n for n, value in enumerate(figures) if value >= max(figures) - chance)
    return SETTINGS[best], {f"valid_{wanted}": figures[best], f"valid_{wanted}_trained": figure(users[queried])}


def _as_known(
    folding: Folding, setting: FoldIn, met: sp.csr_matrix, of_known: sp.csr_matrix, trained: np.ndarray
) -> np.ndarray:
    """Vectors folded in from the rows of ``met``, scaled by the factor that gives some known nodes (``of_known`` [k, n])
    their trained mean length (``trained`` [k, d]), so that scores of old and new are comparable."""
    some = np.flatnonzero(np.diff(of_known.indptr) > 0)[:TUNING_USERS]
    vectors, length = folding(met, setting), float(np.linalg.norm(folding(of_known[some], setting), axis=1).mean())
    return vectors * (float(np.linalg.norm(trained[some], axis=1).mean()) / length) if length > 0 else vectors


def _ones(row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> sp.csr_matrix:
    matrix = sp.csr_matrix((np.ones(len(row)), (row, column)), shape)
    matrix.data[:] = 1.0  # repeated interactions count once
    matrix.sort_indices()
    return matrix
