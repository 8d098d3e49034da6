"""What a kind of device lacks, where an operation has to know."""

from __future__ import annotations

import torch


def sum_dtype(device: torch.device, wide: torch.dtype) -> torch.dtype:
    """What few but important numbers are added up in: float64, which costs nothing there; MPS does not have it."""
    return wide if device.type == "mps" else torch.float64


def has_sparse(device: torch.device) -> bool:
    """Whether sparse tensors can be added to dense ones; MPS has none."""
    return device.type != "mps"
