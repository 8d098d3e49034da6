"""Several processes as one: who am I, and exact sums over all of us. With one process every call is free.

There is no DDP wrapper (docs/adr/001): the engine itself reduces gradients, once a step, coalesced.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass
class Ranks:
    """This process among ``world``; ``bytes_sent`` counts the payload of every reduction, for the cost report."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1
    bytes_sent: int = 0

    @property
    def main(self) -> bool:
        """Rank 0 alone writes and reports."""
        return self.rank == 0

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Add the tensors up over all ranks, in place: one all-reduce per dtype, whatever their number."""
        if self.world == 1 or not tensors:
            return
        for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
            same = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.reshape(-1) for tensor in same]) if len(same) > 1 else same[0].reshape(-1)
            dist.all_reduce(flat)
            self.bytes_sent += flat.numel() * flat.element_size()
            offset = 0
            for tensor in same:
                tensor.copy_(flat[offset : offset + tensor.numel()].view_as(tensor))
                offset += tensor.numel()

    def sum_floats(self, values: Sequence[float]) -> list[float]:
        """Sums of float64 scalars over all ranks."""
        if self.world == 1:
            return list(values)
        tensor = torch.tensor(list(values), dtype=torch.float64, device=self._device())
        dist.all_reduce(tensor)
        return [float(v) for v in tensor.cpu()]

    def max_floats(self, values: Sequence[float]) -> list[float]:
        """Largest of float64 scalars over all ranks."""
        if self.world == 1:
            return list(values)
        tensor = torch.tensor(list(values), dtype=torch.float64, device=self._device())
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return [float(v) for v in tensor.cpu()]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return (self.world > 1 and self.max_floats([float(flag)])[0] > 0) or flag

    def broadcast(self, value: object) -> object:
        """Rank 0's (picklable, small) value on every rank."""
        if self.world == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self._device())
        return box[0]

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.world > 1:
            self.sum_floats([0.0])

    def close(self) -> None:
        """Leave the process group."""
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()

    def _device(self) -> torch.device:
        if dist.get_backend() == "nccl":
            return torch.device("cuda", self.local_rank)
        return torch.device("cpu")


def launched_by_torchrun() -> bool:
    """Whether torchrun's environment is there."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def join(backend: str, *, timeout_seconds: float = 600.0) -> Ranks:
    """The ranks that torchrun started (also with one), or a single process.

    ``timeout_seconds`` bounds how long a rank waits for one that hangs; a dead one is noticed at once (the connection
    breaks, and torchrun ends the others).
    """
    if not launched_by_torchrun():
        return Ranks()
    ranks = Ranks(
        rank=int(os.environ["RANK"]),
        world=int(os.environ["WORLD_SIZE"]),
        local_rank=int(os.environ.get("LOCAL_RANK", 0)),
        local_world=int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])),
    )
    if ranks.world > 1:
        chosen = backend if backend != "auto" else ("nccl" if torch.cuda.is_available() else "gloo")
        if chosen == "nccl":
            torch.cuda.set_device(ranks.local_rank)
        dist.init_process_group(chosen, timeout=timedelta(seconds=timeout_seconds))
    return ranks
