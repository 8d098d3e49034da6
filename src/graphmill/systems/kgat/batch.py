"""The data of one step of KGAT's knowledge phase: facts and false tails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from graphmill.systems.base_recipe import DividedBatch

FACTS, FACT_NORM = "facts", "fact_norm"


@dataclass(frozen=True)
class FactBatch(DividedBatch):
    """B facts, int64 [B] each, sorted by relation: global node numbers, and relation numbers."""

    heads: np.ndarray
    relations: np.ndarray
    tails: np.ndarray
    wrong_tails: np.ndarray

    replicated = True
    ROWS = ("heads", "relations", "tails", "wrong_tails")

    @property
    def weights(self) -> Mapping[str, float]:
        """Facts."""
        return {FACTS: float(len(self)), FACT_NORM: float(len(self))}
