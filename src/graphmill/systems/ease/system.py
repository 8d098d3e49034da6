"""The system of EASE: R ≈ R B with diag B = 0, where B = I − P / diag P and P = (RᵀR + λ)⁻¹."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from graphmill.evaluation.baselines.recommendation import (
    EASE_TUNING_ITEMS,
    LAMBDAS,
    ItemModels,
    ease_weights,
    scores_of,
)
from graphmill.systems.ease.settings import EaseSettings
from graphmill.systems.recommenders.closed_form import ItemClosedForm
from graphmill.systems.recommenders.evaluate import known
from graphmill.training.allocator import trim
from graphmill.training.solved import SolvedArrays

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
