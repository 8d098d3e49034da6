"""Host arrays as tensors: several in one copy to a device, or one in its own memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.devices import to_device

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
