"""Differences between devices that operations must know about."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def sum_dtype(device: torch.device, wide: torch.dtype) -> torch.dtype:
    """The dtype for sums of few, important numbers: float64, or ``wide`` on MPS, which has no float64."""
    return wide if device.type == "mps" else torch.float64


def wide(x: Tensor) -> Tensor:
    """At least fp32."""
    return x if x.dtype == torch.float64 else x.float()


def suits_compiled(*tensors: Tensor) -> bool:
    """Whether compiled code can take the tensors: all fp32 or all float64, on the CPU, without torch.compile."""
    return (
        not torch.compiler.is_compiling()
        and all(t.device.type == "cpu" and t.dtype == tensors[0].dtype for t in tensors)
        and tensors[0].dtype in (torch.float32, torch.float64)
    )


ACCELERATOR_BYTES = 64 * 2**20
"""Bytes of one part on an accelerator, in operations that work in parts."""


def part_bytes(device: torch.device, on_cpu: int) -> int:
    """Bytes of one part: ``on_cpu``, which fits a cache, or more on an accelerator, where each part costs launches."""
    return on_cpu if device.type == "cpu" else ACCELERATOR_BYTES


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor of the host to a device without waiting for the copy."""
    if x.device.type == "cpu" and device.type == "cuda":
        return x.pin_memory().to(device, non_blocking=True)
    if x.device.type == "cpu" and device.type == "mps":
        return _to_mps(x, device)
    return x.to(device)


MOST_COPIES, _MOST_BYTES = 128, 4 << 20
_SOURCES: list[Tensor] = []
_LOCK = threading.Lock()


def _to_mps(x: Tensor, device: torch.device) -> Tensor:
    """Copy to MPS. A private copy of the source is kept until the host has synchronised. For large tensors, the call waits.

    Some versions of torch do not keep the source, and then the copy reads later content (pytorch/pytorch#139550, #189690).
    """
    if x.nbytes > _MOST_BYTES:
        return x.to(device)
    with _LOCK:
        if len(_SOURCES) >= MOST_COPIES:
            torch.mps.synchronize()
            _SOURCES.clear()
        _SOURCES.append(x.clone())
        return _SOURCES[-1].to(device, non_blocking=True)


_ALIGNED = 16
"""Bytes that every part of a packed copy begins at a multiple of: what kernels read at once."""


def in_one_copy(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """Copies host arrays to a device, each with its dtype and shape: views of one copy, asynchronous on CUDA."""
    packed = np.zeros(sum(-(-array.nbytes // _ALIGNED) * _ALIGNED for array in arrays), np.uint8)
    places, first = [], 0
    for array in arrays:
        packed[first : first + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        places.append(slice(first, first + array.nbytes))
        first += -(-array.nbytes // _ALIGNED) * _ALIGNED
    copied = to_device(torch.from_numpy(packed), device)
    pairs = zip(arrays, places, strict=True)
    return [copied[at].view(torch.from_numpy(array[:0]).dtype).view(array.shape) for array, at in pairs]


def writable_copy(array: np.ndarray) -> Tensor:
    """A copy with the same dtype in torch's own memory, which is aligned to a cache line.

    Memory from numpy or a part of a mapped file is not always aligned. Then a library's product may sum in another
    order, and a training resumed in another process would not continue with the same bits.
    """
    out = torch.from_numpy(np.empty(0, array.dtype)).new_empty(array.shape)
    out.numpy()[...] = array
    return out
