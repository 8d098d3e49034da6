"""Saves checkpoints without delaying a step: copies them from the accelerator and writes them in a thread.

The store writes them, one at a time, so all its guarantees hold. On the CPU a checkpoint is written at once: a copy
would use memory, and a thread would use cores, that the steps need.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from graphmill.training.checkpoint import CheckpointStore, Snapshot


class Saver:
    """Writes the checkpoints of a training on ``device`` to a store."""

    def __init__(self, store: CheckpointStore, device: torch.device) -> None:
        self.store, self.device = store, device
        self._thread = None if device.type == "cpu" else ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[Any] | None = None
        self._pinned: dict[str, Tensor] = {}

    def save(self, snapshot: Snapshot, **details: Any) -> None:
        """Wait for the previous checkpoint, then begin :meth:`graphmill.training.checkpoint.CheckpointStore.save`.

        Raises:
            ResourceError: the previous checkpoint, or on the CPU this one, could not be written.
        """
        self.wait()
        if self._thread is None or snapshot.streamed:
            # Tensors divided between processes are fetched block by block during the write, and all processes take
            # part.
            self.store.save(snapshot, **details)
            return
        copied = Snapshot({name: self._copy(name, each) for name, each in snapshot.tensors.items()}, snapshot.state)
        completed = None
        if self.device.type == "cuda":
            # The copies precede the next step's kernels in the device's queue, so only the thread waits for them.
            completed = torch.cuda.Event()
            completed.record()

        def write() -> None:
            if completed is not None:
                completed.synchronize()
            self.store.save(copied, **details)

        self._writing = self._thread.submit(write)

    def raise_failure(self) -> None:
        """Call between steps. Raises the error of a checkpoint that could not be written."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the last checkpoint is on the disk. Raises ResourceError if it could not be written."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Finish the last checkpoint, and end the thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)
        self._pinned.clear()

    def _copy(self, name: str, tensor: Tensor) -> Tensor:
        """A copy on the host; for CUDA in pinned memory that is reused."""
        if tensor.device.type != "cuda":
            return tensor.cpu() if tensor.device.type != "cpu" else tensor.clone()
        kept = self._pinned.get(name)
        if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
            kept = self._pinned[name] = torch.empty(tensor.shape, dtype=tensor.dtype).pin_memory()
        return kept.copy_(tensor, non_blocking=True)
