"""Calls whose intermediate results are not kept for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch.utils.checkpoint import checkpoint

R = TypeVar("R")


def recomputed(again: bool, part: Callable[..., R], *given: object) -> R:
    """``part(*given)``; with ``again``, the backward pass computes it a second time and needs only ``given`` for it."""
    return checkpoint(part, *given, use_reentrant=False) if again else part(*given)
