"""Checks that all processes hold the same weights, because the engine reduces gradients without DDP."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphmill.errors import TrainingError
from graphmill.training.processes import Ranks
from graphmill.training.sharding import Shards

# Integers up to 2⁵² are exact as float64, which is what the ranks compare.
_MASK = (1 << 52) - 1


def require_equal_replicas(model: nn.Module, ranks: Ranks, where: str, shards: Shards | None = None) -> None:
    """Compare a checksum of every parameter's bits over all ranks. This is one small collective call.

    Parameters that are divided by rows have no copies, and are skipped.

    Raises:
        TrainingError: a parameter differs. It is raised on all ranks and names the first such parameter.
    """
    if ranks.world == 1:
        return
    named = {n: p for n, p in model.named_parameters() if not (shards and shards.holds(p))}
    if not named:
        return
    sums = [float(_checksum(parameter.detach()) & _MASK) for parameter in named.values()]
    result = ranks.max_floats([*sums, *(-s for s in sums)])
    for name, largest, negated_smallest in zip(named, result, result[len(sums) :], strict=False):
        if largest != -negated_smallest:
            raise TrainingError(
                f"the processes' copies of parameter '{name}' differ {where}; nothing was saved of it. The last "
                "checkpoint is whole: start again from it, with one process if this comes back, and check that all "
                "machines have the same processor or accelerator and the same versions (graphmill doctor --processes 2)"
            )


def _checksum(parameter: Tensor) -> int:
    """The sum of the bits, read as integers."""
    width = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}[parameter.element_size()]
    return int(parameter.contiguous().view(width).sum(dtype=torch.int64))
