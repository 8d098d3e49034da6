"""Divides rows by their norm."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.devices import wide

SMALLEST = 1e-12
"""Lower bound of the divisor, so that a zero row stays zero."""


def normalise_rows(x: Tensor) -> Tensor:
    """[n, d] → each row divided by max(‖row‖₂, 1e-12), in the dtype of ``x``; norms are taken in at least fp32."""
    return F.normalize(wide(x), dim=1, eps=SMALLEST).to(x.dtype)
