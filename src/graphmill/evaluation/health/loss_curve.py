"""Judges a loss curve from the epochs' mean losses: whether it is finite and falling."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


def total_loss(losses: Mapping[str, Any]) -> float:
    """The total loss of an epoch; for a system with several phases, the sum of their totals ("cf/total" and "kg/total")."""
    if "total" in losses:
        return float(losses["total"])
    return sum(float(value) for name, value in losses.items() if name.endswith("/total"))


def weighted_losses(record: Mapping[str, Any]) -> dict[str, float]:
    """The ``losses`` of an epoch's record as parts that add up: ``total``, and each term times its weight in it."""
    losses, weights = record["losses"], record.get("coefficients") or {}
    terms = {name: weights.get(name, 1.0) * float(value) for name, value in losses.items() if not is_total(name)}
    return {"total": total_loss(losses)} | terms


def is_total(name: str) -> bool:
    """Whether a loss is the total of a training or of a phase."""
    return name.rpartition("/")[2] == "total"


@dataclass(frozen=True)
class Curve:
    """The total loss of each epoch, in order (floats; may be nan or inf)."""

    losses: Sequence[float]

    @property
    def first_nonfinite(self) -> int:
        """1-based epoch of the first loss that is not finite; 0 if all are."""
        return next((epoch for epoch, loss in enumerate(self.losses, 1) if not math.isfinite(loss)), 0)

    @property
    def drop(self) -> float:
        """Mean of the first quarter of the epochs minus that of the last; nan for fewer than two finite epochs."""
        if len(self.losses) < 2 or self.first_nonfinite:
            return math.nan
        quarter = max(1, len(self.losses) // 4)
        return float(np.mean(self.losses[:quarter]) - np.mean(self.losses[-quarter:]))
