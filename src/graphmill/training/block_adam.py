"""Adam with less state or less work than Adam: moments in bfloat16, or only the rows that a step has touched.

Neither gives what Adam gives, which is why they have settings of their own:

- ``lazy`` (LazyAdam; torch's SparseAdam does the same with sparse gradients): a row of a table whose gradient is zero in
  this step stays as it is, with its moments. Adam would go on moving it by its decaying first moment.
- bfloat16 moments: half of the optimizer's memory. The second moment changes by a thousandth a step, which is less than
  bfloat16 can tell, so it is rounded up or down at random with the right mean (stochastic rounding); the first is rounded
  to the nearest.

Weights are worked on in blocks of rows, in fp32, so that what is unpacked stays in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.sampling.keyed import key_of

_BLOCK = 1 << 18
"""Entries worked on at a time."""


class BlockAdam(torch.optim.Optimizer):
    """Adam (Kingma & Ba 2015) or AdamW (``decoupled``, Loshchilov & Hutter 2019) with the same update as torch's.

    ``lazy`` acts on parameters of two dimensions. ``moments``: the dtype of both, None for the parameter's own.
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float],
        decoupled: bool,
        lazy: bool,
        moments: torch.dtype | None,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})
        self.decoupled = decoupled
        self.lazy = lazy
        self.moments = moments

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        number = 0
        for group in self.param_groups:
            for parameter in group["params"]:
                number += 1
                if parameter.grad is not None:
                    self._update(group, parameter, number)

    def _update(self, group: dict[str, Any], parameter: Tensor, number: int) -> None:
        state = self.state[parameter]
        if not state:
            dtype = self.moments or parameter.dtype
            state["step"] = torch.zeros((), dtype=torch.float32)
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(parameter, dtype=dtype)
        state["step"] += 1
        step = int(state["step"])
        assert parameter.grad is not None
        weight, gradient = _rows(parameter), _rows(parameter.grad)
        first, second = _rows(state["exp_avg"]), _rows(state["exp_avg_sq"])
        touched = (gradient != 0).any(1).nonzero()[:, 0] if self.lazy and parameter.dim() == 2 else None
        if touched is not None and len(touched) == len(weight):
            touched = None
        size = max(1, _BLOCK // max(weight.shape[1], 1))
        count = len(weight) if touched is None else len(touched)
        for start in range(0, count, size):
            part: slice | Tensor = slice(start, start + size)
            if touched is not None:
                part = touched[start : start + size]
            # A slice is a view, and working on it works on the parameter; chosen rows are a copy, and are put back.
            block = weight[part]
            one, two = first[part].to(block.dtype), second[part].to(block.dtype)
            self._move(group, block, gradient[part], one, two, step)
            if touched is not None:
                weight[part] = block
            first[part] = one.to(first.dtype)
            if second.dtype == torch.bfloat16 and two.dtype != torch.bfloat16:
                second[part] = stochastically_rounded(two, key_of("second moment", step, number, start))
            else:
                second[part] = two

    def _move(
        self, group: dict[str, Any], weight: Tensor, gradient: Tensor, one: Tensor, two: Tensor, step: int
    ) -> None:
        beta1, beta2 = group["betas"]
        rate, decay = group["lr"], group["weight_decay"]
        if decay and self.decoupled:
            weight.mul_(1.0 - rate * decay)
        elif decay:
            gradient = gradient.add(weight, alpha=decay)
        one.lerp_(gradient, 1.0 - beta1)
        two.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        spread = two.sqrt().div_((1.0 - beta2**step) ** 0.5).add_(group["eps"])
        weight.addcdiv_(one, spread, value=-rate / (1.0 - beta1**step))


def stochastically_rounded(x: Tensor, key: int) -> Tensor:
    """fp32 → bfloat16, up or down at random so that the mean is x; ``key`` decides the random bits. x is finite."""
    x = x.float().contiguous()
    words = np.random.SFC64(key).random_raw(-(-x.numel() // 4)).view(np.uint16)[: x.numel()]
    # The lower half of a float32 is what bfloat16 has no room for: a random number of that size carries over rightly.
    noise = torch.from_numpy(words.astype(np.int32)).view(x.shape).to(x.device)
    return ((x.view(torch.int32) + noise) & -65536).view(torch.float32).to(torch.bfloat16)


def _rows(x: Tensor) -> Tensor:
    """A view of at least two dimensions, rows first."""
    if x.dim() >= 2:
        return x.flatten(1)
    return x.view(-1, 1)
