"""Batch normalisation with the statistics of the whole step, over all processes.

``torch.nn.SyncBatchNorm`` supports only CUDA. With one process this is torch's own batch norm.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from graphmill.kernels.devices import wide


class SyncedBatchNorm(nn.Module):
    """Normalises channel 1 of [B, C, ...] (Ioffe & Szegedy 2015), in fp32 or wider; affine, with running statistics.

    With several processes, mean and variance are weighted by each process's number of entries, and the backward pass is
    that of the whole batch; a process may have no row. A batch with a single entry per channel gives β.
    """

    eps, momentum = 1e-5, 0.1
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.recording = True
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, ...] → the same shape."""
        x = wide(x)
        if not self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        entries = x.numel() // max(x.shape[1], 1)
        if not _several_processes() and entries > 1:
            # In the recomputation of a checkpointed layer a copy takes the update, so that it does not count twice.
            mean, variance = (x if self.recording else x.clone() for x in (self.running_mean, self.running_var))
            return F.batch_norm(x, mean, variance, self.weight, self.bias, True, self.momentum, self.eps)
        return self._over_processes(x)

    def _over_processes(self, x: Tensor) -> Tensor:
        axes = [0, *range(2, x.dim())]
        shape = [1, -1, *(1 for _ in axes[1:])]
        count = x.new_full((1,), x.numel() // x.shape[1])
        first = summed_over_processes(torch.cat([x.sum(axes), count]))
        total = first[-1].detach().clamp(min=1.0)
        mean = first[:-1] / total
        centred = x - mean.view(shape)
        variance = summed_over_processes((centred * centred).sum(axes)) / total
        self.record(mean, variance, total)
        return centred * ((variance + self.eps).rsqrt() * self.weight).view(shape) + self.bias.view(shape)

    @torch.no_grad()
    def record(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Adds one batch's statistics [C] (with biased variance) of ``count`` entries per channel to the running
        statistics."""
        if self.recording:
            unbiased = variance * (count / (count - 1).clamp(min=1.0))
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)


@contextmanager
def statistics_kept(model: nn.Module) -> Iterator[None]:
    """Keeps running statistics unchanged in this context: a checkpointed layer runs twice, but is one pass over the
    batch."""
    norms = [module for module in model.modules() if isinstance(module, SyncedBatchNorm)]
    for norm in norms:
        norm.recording = False
    try:
        yield
    finally:
        for norm in norms:
            norm.recording = True


def _several_processes() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def summed_over_processes(x: Tensor) -> Tensor:
    """The sum over all processes; its gradient is the sum of their gradients."""
    if not _several_processes():
        return x
    from torch.distributed.nn.functional import all_reduce

    return all_reduce(x)
