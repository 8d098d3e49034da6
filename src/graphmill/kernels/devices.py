"""What a kind of device lacks, where an operation has to know."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
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
    """A tensor of the host on a device, without waiting for it where that is CUDA."""
    if device.type == "cuda" and x.device.type == "cpu":
        return x.pin_memory().to(device, non_blocking=True)
    return x.to(device)


_ALIGNED = 16
"""Bytes that every part of a packed copy begins at a multiple of: what kernels read at once."""


def in_one_copy(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """Arrays of the host on a device, each with its dtype and shape: views of one copy, which on CUDA nobody waits for."""
    packed = np.zeros(sum(-(-array.nbytes // _ALIGNED) * _ALIGNED for array in arrays), np.uint8)
    places, first = [], 0
    for array in arrays:
        packed[first : first + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        places.append(slice(first, first + array.nbytes))
        first += -(-array.nbytes // _ALIGNED) * _ALIGNED
    there = to_device(torch.from_numpy(packed), device)
    pairs = zip(arrays, places, strict=True)
    return [there[at].view(torch.from_numpy(array[:0]).dtype).view(array.shape) for array, at in pairs]


def own_copy(array: np.ndarray) -> Tensor:
    """A copy of the numbers, of their dtype, in torch's own memory, which begins with a cache line.

    What numpy allocates does not always, nor does a part of a mapped file. A library's product may add up in another order
    then, and a training that is resumed in another process would not go on with the same bits.
    """
    out = torch.from_numpy(np.empty(0, array.dtype)).new_empty(array.shape)
    out.numpy()[...] = array
    return out
