"""Tables divided by rows over the processes of a training (ADR 2), and the exchange of rows between processes.

A rank holds the rows of its ranges with their gradients and moments, and fetches other rows that it reads. The backward
pass sums the gradients on the rank that holds the rows. It sums in the order of the ranks, so results are reproducible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.errors import InputError, TrainingError
from graphmill.training.checkpoint_format import Streamed, in_order, row_blocks
from graphmill.training.processes import Ranks

Bounds = tuple[int, ...]
"""R + 1 ascending row numbers for R ranks: rank r holds the rows ``bounds[r]`` to ``bounds[r + 1]``; there may be none."""

_BLOCK = 32 << 20
"""Bytes of other ranks' rows to hold at a time when columns can be processed in blocks."""


def divide(work: np.ndarray, parts: int) -> Bounds:
    """Contiguous ranges of rows with about equal sums of ``work`` [rows]."""
    completed = np.concatenate(([0.0], np.cumsum(work, dtype=np.float64)))
    wanted = completed[-1] * np.arange(1, parts) / parts
    cuts = np.minimum(np.searchsorted(completed, wanted), len(work))
    return (0, *(int(cut) for cut in np.maximum.accumulate(cuts)), len(work))


class Shards:
    """The rows of parameters and buffers that this rank holds: ``bounds`` by name."""

    def __init__(self, ranks: Ranks, bounds: Mapping[str, Bounds]) -> None:
        self.ranks, self.bounds = ranks, dict(bounds)
        self._own: set[int] = set()

    def range_of(self, name: str) -> tuple[int, int]:
        """First row that this rank holds, and the one after the last."""
        bounds = self.bounds[name]
        return bounds[self.ranks.rank], bounds[self.ranks.rank + 1]

    def cut(self, model: nn.Module) -> None:
        """Keep only this rank's rows in a model that has all rows, in place."""
        named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        for name in self.bounds:
            first, last = self.range_of(name)
            named[name].data = named[name].data[first:last].clone()
        self._own = {id(named[name]) for name in self.bounds}

    def holds(self, parameter: Tensor) -> bool:
        """Whether a tensor of the last model given to :meth:`cut` is divided."""
        return id(parameter) in self._own

    def whole(self, bounds: Bounds, rows: Tensor) -> Tensor:
        """This rank's rows [n, …] of a table with these bounds → all rows, on every rank."""
        out = rows.new_empty(bounds[-1], *rows.shape[1:])
        rank = self.ranks.rank
        out[bounds[rank] : bounds[rank + 1]] = rows.detach()
        for source in range(self.ranks.world):
            self.ranks.spread_(out[bounds[source] : bounds[source + 1]], source)
        return out

    # ---------------------------------------------------------------- checkpoints

    def divides(self, name: str) -> bool:
        """Whether a checkpoint's tensor of this name (``model.NAME``, ``optimizer.PHASE.NAME.MOMENT``) is divided."""
        return _parameter(name) in self.bounds

    def gathered(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Streamed]]:
        """Split a rank's tensors into those that are equal on all ranks, and divided ones, which rank 0 streams from
        all ranks."""
        divided = {n: t for n, t in tensors.items() if t.dim() and self.divides(n)}
        streams = {n: self._stream(n, t) for n, t in divided.items()}
        return {n: t for n, t in tensors.items() if n not in divided}, streams

    def hand_over(self, streams: Mapping[str, Streamed]) -> None:
        """Call on the other ranks while rank 0 writes: send it the rows that it needs, in the order of the file."""
        for name in in_order({name: stream.dtype for name, stream in streams.items()}):
            for first, last in row_blocks(streams[name].shape, streams[name].dtype):
                streams[name].rows(first, last)

    def dealt_out(self, streams: Mapping[str, Streamed], path: str) -> dict[str, Tensor]:
        """Distribute rank 0's tensors in a file: returns this rank's rows of each, on the CPU. The others pass none.

        Raises:
            InputError: a tensor and its table differ in the number of rows; raised on all ranks.
        """
        shapes = self.ranks.broadcast({n: (s.shape, s.dtype) for n, s in streams.items()})
        out = {}
        for name, (shape, dtype) in shapes.items():
            bounds = self.bounds[_parameter(name)]
            if shape[0] != bounds[-1]:
                raise InputError(
                    f"{path} does not fit this model: '{name}' has {shape[0]} rows there and {bounds[-1]} here; train "
                    "with acceleration.resume: never"
                )
            parts = []
            for owner, first, last in _pieces(bounds, row_blocks(shape, dtype)):
                if self.ranks.main:
                    part = streams[name].rows(first, last)
                    if owner:
                        self.ranks.send(part, owner)
                        continue
                elif owner == self.ranks.rank:
                    part = self.ranks.receive((last - first, *shape[1:]), dtype, 0)
                else:
                    continue
                parts.append(part)
            out[name] = torch.cat(parts) if parts else torch.empty(0, *shape[1:], dtype=dtype)
        return out

    def _stream(self, name: str, tensor: Tensor) -> Streamed:
        bounds, rank = self.bounds[_parameter(name)], self.ranks.rank

        def rows(first: int, last: int) -> Tensor:
            parts = []
            for owner, low, high in _pieces(bounds, [(first, last)]):
                mine = tensor.detach()[low - bounds[rank] : high - bounds[rank]] if owner == rank else None
                if self.ranks.main:
                    shape = (high - low, *tensor.shape[1:])
                    parts.append(self.ranks.receive(shape, tensor.dtype, owner) if mine is None else mine.cpu())
                elif mine is not None:
                    self.ranks.send(mine, 0)
            return torch.cat(parts) if parts else tensor[:0]

        return Streamed((bounds[-1], *tensor.shape[1:]), tensor.dtype, rows)


def _parameter(name: str) -> str:
    kind, _, rest = name.partition(".")
    return rest if kind == "model" else rest.partition(".")[2].rpartition(".")[0]


def _pieces(bounds: Bounds, blocks: Any) -> Iterator[tuple[int, int, int]]:
    """(rank, first, last): the blocks, cut at the bounds between ranks."""
    for first, last in blocks:
        for owner in range(len(bounds) - 1):
            low, high = max(first, bounds[owner]), min(last, bounds[owner + 1])
            if low < high:
                yield owner, low, high


class RowExchange:
    """Fetches rows of a divided table from the ranks that hold them. ``wanted`` int64 [n]: ascending, unique row numbers.

    All ranks must construct it at the same time, each with its own ``wanted``, and call it at the same time.
    """

    def __init__(self, ranks: Ranks, bounds: Bounds, wanted: np.ndarray, device: torch.device) -> None:
        self.ranks = ranks
        self.first, self.last = bounds[ranks.rank], bounds[ranks.rank + 1]
        starts = np.searchsorted(wanted, bounds)
        self._received = np.diff(starts).tolist()
        each = [1] * ranks.world
        self._sent = ranks.exchange(torch.tensor(self._received), each, each).tolist()
        requested = torch.from_numpy(np.ascontiguousarray(wanted, dtype=np.int64))
        # int64 [Σ sent]: the rows of this rank that the others want, in the order of the ranks.
        self._places = (ranks.exchange(requested, self._received, self._sent) - self.first).to(device)

    def fetch(self, rows: Tensor) -> Tensor:
        """This rank's rows [last − first, d] → the rows that it wants [n, d]; differentiable."""
        out: Tensor = _Fetch.apply(rows, self)
        return out

    def forward(self, rows: Tensor) -> Tensor:
        """The same as :meth:`fetch`, but not differentiable."""
        return self.ranks.exchange(rows.index_select(0, self._places), self._sent, self._received)

    def backward(self, gradient: Tensor) -> Tensor:
        """Gradients of the wanted rows [n, d] → gradients of this rank's rows [last − first, d], summed in the order of
        the ranks."""
        back = self.ranks.exchange(gradient, self._received, self._sent)
        out = gradient.new_zeros(self.last - self.first, *gradient.shape[1:])
        # Each rank wants a row at most once. So no two rows of a part go to the same place, and every sum has one order
        # on any device.
        for places, part in zip(self._places.split(self._sent), back.split(self._sent), strict=True):
            out.index_add_(0, places, part)
        return out


class _Fetch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, exchange: RowExchange) -> Tensor:
        ctx.exchange = exchange
        return exchange.forward(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.exchange.backward(gradients[0].contiguous()), None


def column_blocks(rows: int, columns: int, element_size: int) -> Iterator[slice]:
    """Slices of columns, small enough for the memory limit of a block with this many rows, but at least 16 columns wide."""
    width = max(_BLOCK // max(rows * element_size, 1) // 16 * 16, 16)
    for first in range(0, columns, width):
        yield slice(first, min(first + width, columns))


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
                "machines have the same processor or accelerator and the same versions of torch and graphmill"
            )


def _checksum(parameter: Tensor) -> int:
    """The sum of the bits, read as integers."""
    width = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}[parameter.element_size()]
    return int(parameter.contiguous().view(width).sum(dtype=torch.int64))
