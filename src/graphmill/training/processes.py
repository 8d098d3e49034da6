"""The processes of a distributed training: this process's rank, and collective operations. With one process, every call
costs nothing.

There is no DDP wrapper (ADR 1): the engine itself reduces the gradients, once a step, in one call per dtype.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from graphmill.errors import ResourceError, StoppedError


class PeerLostError(StoppedError):
    """Another process of this training has ended or does not answer. The same command resumes from the checkpoint."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            "another process of this training has ended or does not answer, so this one ends, too; run the same "
            f"command again to resume from the last checkpoint ({detail})"
        )


@dataclass
class Ranks:
    """This process's rank among ``world`` processes.

    ``bytes_reduced`` counts the payload of the gradient reductions, ``bytes_exchanged`` the rows that this rank sent to
    others (sharding by rows), and ``collectives`` every collective call, for the cost report (ADR 2).
    """

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1
    bytes_reduced: int = 0
    bytes_exchanged: int = 0
    collectives: int = 0

    @property
    def main(self) -> bool:
        """Whether this is rank 0, which alone writes and reports."""
        return self.rank == 0

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Sum each tensor over all ranks, in place, with one all-reduce per dtype."""
        if self.world == 1 or not tensors:
            return
        for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
            same = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.reshape(-1) for tensor in same]) if len(same) > 1 else same[0].reshape(-1)
            with self._collective():
                dist.all_reduce(flat)
            self.bytes_reduced += flat.numel() * flat.element_size()
            offset = 0
            for tensor in same:
                tensor.copy_(flat[offset : offset + tensor.numel()].view_as(tensor))
                offset += tensor.numel()

    def sum_floats(self, values: Sequence[float]) -> list[float]:
        """Sums of float64 scalars over all ranks."""
        return self.sum_array(np.asarray(values, dtype=np.float64)).tolist()

    def sum_array(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Elementwise sums of a float64 array over all ranks."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def max_floats(self, values: Sequence[float]) -> list[float]:
        """Largest of float64 scalars over all ranks."""
        return self._reduced(np.asarray(values, dtype=np.float64), dist.ReduceOp.MAX).tolist()

    def _reduced(self, values: NDArray[np.float64], operation: dist.ReduceOp.RedOpType) -> NDArray[np.float64]:
        if self.world == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=self._device())
        with self._collective():
            dist.all_reduce(tensor, operation)
        return tensor.cpu().numpy()

    def any(self, *flags: bool) -> list[bool]:
        """For each flag, whether it is set on any rank."""
        return [value > 0 for value in self.max_floats([float(flag) for flag in flags])]

    def exchange(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """``rows`` [Σ sent, …], ordered by destination rank → [Σ received, …], ordered by source rank."""
        if self.world == 1:
            return rows
        existing = rows.detach().to(self._device()).contiguous()
        out = existing.new_empty(sum(received), *rows.shape[1:])
        width = math.prod(rows.shape[1:]) * rows.element_size()
        with self._collective():
            # Send bytes: every back end supports them, whatever the dtype.
            dist.all_to_all_single(
                _bytes(out), _bytes(existing), [n * width for n in received], [n * width for n in sent]
            )
        self.bytes_exchanged += (sum(sent) - sent[self.rank]) * width
        return out.to(rows.device)

    def send(self, tensor: Tensor, to: int) -> None:
        """Send one tensor to another rank, which must call :meth:`receive`."""
        with self._collective():
            dist.send(_bytes(tensor.detach().to(self._device()).contiguous()), to)

    def receive(self, shape: Sequence[int], dtype: torch.dtype, source: int) -> Tensor:
        """Receive the tensor that rank ``source`` sends, on the CPU."""
        out = torch.empty(*shape, dtype=dtype, device=self._device())
        with self._collective():
            dist.recv(_bytes(out), source)
        return out.cpu()

    def spread_(self, tensor: Tensor, source: int) -> None:
        """Copy the tensor of rank ``source`` into those of all ranks, in place."""
        if self.world == 1 or not tensor.numel():
            return
        existing = tensor.detach().to(self._device()).contiguous()
        with self._collective():
            dist.broadcast(_bytes(existing), source)
        if existing.data_ptr() != tensor.data_ptr():
            tensor.copy_(existing)

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's (picklable, small) value on every rank."""
        if self.world == 1:
            return value
        box: list[Any] = [value]
        with self._collective():
            dist.broadcast_object_list(box, src=0, device=self._device())
        return box[0]

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return rank 0's tensors on every rank, on the CPU, sent one at a time. Those of the others are not read."""
        if self.world == 1:
            return dict(tensors)
        shapes = self.broadcast({name: (tuple(t.shape), t.dtype) for name, t in tensors.items()})
        out = {}
        for name, (shape, dtype) in shapes.items():
            out[name] = tensors[name].detach().cpu() if self.main else torch.empty(shape, dtype=dtype)
            self.spread_(out[name], 0)
        return out

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.world > 1:
            self.sum_floats([0.0])

    def close(self) -> None:
        """Leave the process group."""
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()

    @contextmanager
    def _collective(self) -> Iterator[None]:
        self.collectives += 1
        with _peers_may_be_lost():
            yield

    def _device(self) -> torch.device:
        if dist.get_backend() == "nccl":
            return torch.device("cuda", self.local_rank)
        return torch.device("cpu")


@contextmanager
def _peers_may_be_lost() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # The back ends have no exception type for it: a reset connection, a timeout and an abort are all RuntimeErrors.
        raise PeerLostError(" ".join(str(error).split())[:200]) from None


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)


def join(device: str = "auto", *, timeout_seconds: float = 600.0) -> Ranks:
    """Join the ranks that torchrun started (even a single one). Without torchrun, return a single process.

    The back end is nccl where ``device`` ("auto", "cuda", "mps", "cpu") will be CUDA, else gloo. ``timeout_seconds``
    bounds how long a rank waits for one that hangs. A rank that died is noticed at once: the connection breaks, and
    torchrun ends the others.

    Raises:
        ResourceError: nccl, with fewer CUDA devices on this machine than processes.
        PeerLostError: the other ranks did not join in time.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return Ranks()
    ranks = Ranks(
        rank=int(os.environ["RANK"]),
        world=int(os.environ["WORLD_SIZE"]),
        local_rank=int(os.environ.get("LOCAL_RANK", 0)),
        local_world=int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])),
    )
    if ranks.world > 1:
        on_cuda = device in ("auto", "cuda") and torch.cuda.is_available()
        chosen = "nccl" if on_cuda else "gloo"
        if chosen == "nccl" and (existing := torch.cuda.device_count()) < ranks.local_world:
            raise ResourceError(
                f"acceleration.processes is {ranks.local_world}, but there are {existing} CUDA devices here and nccl "
                "needs one for each; lower it, or set acceleration.device: cpu"
            )
        rank_device: torch.device | None = None
        if on_cuda:
            # Also with gloo: otherwise every process would allocate memory on the first device.
            torch.cuda.set_device(ranks.local_rank % torch.cuda.device_count())
            rank_device = torch.device("cuda", ranks.local_rank) if chosen == "nccl" else None
        with _peers_may_be_lost():
            # With device_id, nccl connects at once and to the right device.
            dist.init_process_group(chosen, timeout=timedelta(seconds=timeout_seconds), device_id=rank_device)
    return ranks
