"""The system of EASE: R ≈ R B with diag B = 0, where B = I − P / diag P and P = (RᵀR + λ)⁻¹."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from graphmill.evaluation.baselines.recommendation import EASE_TUNING_ITEMS, LAMBDAS, ItemModels, ease_weights
from graphmill.systems.closed_form import scores_of
from graphmill.systems.ease.settings import EaseSettings
from graphmill.systems.recommenders.closed_form import ItemClosedForm
from graphmill.systems.recommenders.evaluate import known
from graphmill.training.solved import SolvedArrays

_SAMPLE = 1_000


class EaseSystem(ItemClosedForm):
    """``weights`` float32 [I, I]; ``regularisation`` [1]: λ."""

    ARRAYS = ("weights", "regularisation")
    settings: EaseSettings

    def fitted(self, poll: Callable[[], None]) -> Mapping[str, np.ndarray]:
        """λ by validation, if the setting is 0, and the weights."""
        penalty = self.settings.model.regularisation or self.chosen("ease", poll).values["penalty"]
        poll()
        rows = ItemModels(known(self.view.train), self.view.num_items).rows
        return {"weights": ease_weights(rows, penalty), "regularisation": np.array([penalty], np.float32)}

    def scores(self, model: SolvedArrays, met: sp.csr_matrix) -> Tensor:
        """The sum of the weights of the items met."""
        return scores_of(met, model.array("weights"))

    def seconds_to_solve(self) -> float:
        """By the time for some of the items: the work grows with the cube of their number."""
        models = ItemModels(known(self.view.train), self.view.num_items, _SAMPLE)
        started = time.perf_counter()
        ease_weights(models.rows[:, models.frequent], 1000.0)
        unit = (time.perf_counter() - started) / max(len(models.frequent), 1) ** 3
        tuned = 0 if self.settings.model.regularisation else len(LAMBDAS)
        return unit * (self.view.num_items**3 + tuned * min(self.view.num_items, EASE_TUNING_ITEMS) ** 3)
