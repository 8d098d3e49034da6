"""What a kind of device lacks, where an operation has to know."""

from __future__ import annotations

import threading

import torch
from torch import Tensor


def sum_dtype(device: torch.device, wide: torch.dtype) -> torch.dtype:
    """What few but important numbers are added up in: float64, which costs nothing there; MPS does not have it."""
    return wide if device.type == "mps" else torch.float64


ACCELERATOR_BYTES = 64 * 2**20
"""What an operation that works in parts holds at a time on an accelerator."""


def part_bytes(device: torch.device, on_cpu: int) -> int:
    """Bytes of a part: ``on_cpu`` is what a CPU's cache holds; on an accelerator every part costs its calls instead."""
    return on_cpu if device.type == "cpu" else ACCELERATOR_BYTES


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device; nobody waits for the copy."""
    if x.device.type == "cpu" and device.type == "cuda":
        return x.pin_memory().to(device, non_blocking=True)
    if x.device.type == "cpu" and device.type == "mps":
        return _to_mps(x, device)
    return x.to(device)


MOST_COPIES, _MOST_BYTES = 64, 4 << 20
_SOURCES: list[Tensor] = []
_LOCK = threading.Lock()


def _to_mps(x: Tensor, device: torch.device) -> Tensor:
    """A copy whose source, which nobody else writes to, is kept until the host has waited; what is large is waited for.

    Not every torch keeps it, and then a copy reads whatever is there by then (pytorch/pytorch#139550, #189690).
    """
    if x.nbytes > _MOST_BYTES:
        return x.to(device)
    with _LOCK:
        if len(_SOURCES) >= MOST_COPIES:
            torch.mps.synchronize()
            _SOURCES.clear()
        _SOURCES.append(x.clone())
        return _SOURCES[-1].to(device, non_blocking=True)
