"""The model of a system in closed form: named arrays, whose shapes are known once they have been computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class SolvedArrays(nn.Module):
    """Buffers by name, on the CPU. Before :meth:`put` they are empty."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            self.register_buffer(name, torch.empty(0))

    def put(self, arrays: Mapping[str, np.ndarray | Tensor]) -> None:
        """Replace all arrays, of any shape and dtype. They are not copied.

        Raises:
            KeyError: the names are not those of the model.
        """
        if set(arrays) != set(self._buffers):
            raise KeyError(f"{sorted(arrays)} are not the arrays {sorted(self._buffers)}")
        for name, array in arrays.items():
            self._buffers[name] = array if isinstance(array, Tensor) else torch.from_numpy(array)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:  # torch's named tuple of missing and unexpected keys
        """:meth:`put` of copies."""
        self.put({name: tensor.clone() for name, tensor in state_dict.items()})
        return nn.modules.module._IncompatibleKeys([], [])

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays, which share their memory."""
        return {name: self.array(name) for name in self._buffers}

    def array(self, name: str) -> np.ndarray:
        """One array, which shares its memory."""
        result = self._buffers[name]
        assert result is not None
        return result.numpy()

    def _apply(self, fn: object, recurse: bool = True) -> SolvedArrays:
        """Stay as they are: closed forms are computed and scored on the CPU."""
        return self
