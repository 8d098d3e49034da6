"""Half precision on accelerators: casts the weights or rows of all node types at once; autocast casts each separately."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from graphmill.kernels import products

FEW_NUMBERS = 1 << 22
"""Largest count of numbers for which joining the rows of all types costs an accelerator less than one call per type."""


class Linear(products.Linear):
    """A linear map whose weights may be cast together with others'."""

    _low: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """[n, in] → [n, out]."""
        return products.linear(x, *((self.weight, self.bias) if torch.compiler.is_compiling() else self.pair()))

    def pair(self) -> tuple[Tensor, Tensor]:
        """Weight and bias, in autocast's precision within :func:`cast_together`."""
        return self._low or (self.weight, self.bias)


@contextmanager
def cast_together(layers: Sequence[Linear]) -> Iterator[None]:
    """Under autocast on an accelerator, use weights in its precision, from one cast of all of them, in this context.

    Autocast itself makes two calls per weight and two per bias (forward and backward). The gradients are the same.
    """
    kind = layers[0].weight.device.type if layers else "cpu"
    if kind == "cpu" or not torch.is_autocast_enabled(kind):
        yield
        return
    given = [p for layer in layers for p in (layer.weight, layer.bias)]
    low = torch.cat([p.flatten() for p in given]).to(torch.get_autocast_dtype(kind))
    parts = iter(low.split([p.numel() for p in given]))
    for layer in layers:
        layer._low = next(parts).view(layer.weight.shape), next(parts)
    try:
        yield
    finally:
        for layer in layers:
            layer._low = None


def cast_rows(x: Sequence[Tensor]) -> Sequence[Tensor]:
    """Under autocast on an accelerator, cast rows [n_i, d] to its precision in one call, if they are few."""
    kind = x[0].device.type if x else "cpu"
    if kind == "cpu" or not torch.is_autocast_enabled(kind) or sum(rows.numel() for rows in x) > FEW_NUMBERS:
        return x
    return torch.cat(list(x)).to(torch.get_autocast_dtype(kind)).split([len(rows) for rows in x])
