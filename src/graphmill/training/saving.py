"""Checkpoints that do not make a step wait: copied off the accelerator, and written by a thread.

What the store guarantees of a checkpoint holds as it is, since it is the store that writes it; one at a time. On the CPU
everything is written at once: a copy would cost the memory, and the thread the cores, of a step.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from graphmill.training.checkpoint import CheckpointStore, Snapshot


class Saver:
    """Writes a store's checkpoints from a training on ``device``."""

    def __init__(self, store: CheckpointStore, device: torch.device) -> None:
        self.store, self.device = store, device
        self._thread = None if device.type == "cpu" else ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[Any] | None = None
        self._pinned: dict[str, Tensor] = {}

    def save(self, snapshot: Snapshot, **details: Any) -> None:
        """:meth:`graphmill.training.checkpoint.CheckpointStore.save`, begun; the one before has been ended.

        Raises:
            ResourceError: this one, on the CPU, or the one before could not be written.
        """
        self.wait()
        if self._thread is None or snapshot.streamed:
            # What is divided between processes comes block by block while it is written, and they all take part.
            self.store.save(snapshot, **details)
            return
        copied = Snapshot(self._copied(snapshot.tensors), snapshot.state)
        done = None
        if self.device.type == "cuda":
            # The copies stand before the next step's kernels in the device's queue, so that only the thread waits for them.
            done = torch.cuda.Event()
            done.record()

        def write() -> None:
            if done is not None:
                done.synchronize()
            self.store.save(copied, **details)

        self._writing = self._thread.submit(write)

    def look(self) -> None:
        """Between steps: raises what has become of a checkpoint that could not be written."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Until the last checkpoint is whole on the disk. Raises ResourceError where it could not be written."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Let the last checkpoint be written, and end the thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)
        self._pinned.clear()

    def _copied(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Copies on the host, on CUDA in pinned memory that is kept; tied weights stay one tensor."""
        out: dict[str, Tensor] = {}
        seen: dict[tuple[Any, ...], Tensor] = {}
        for name, tensor in tensors.items():
            same = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()) if tensor.numel() else (name,)
            if same not in seen:
                seen[same] = self._copy(name, tensor)
            out[name] = seen[same]
        return out

    def _copy(self, name: str, tensor: Tensor) -> Tensor:
        if tensor.device.type != "cuda":
            return tensor.cpu() if tensor.device.type != "cpu" else tensor.clone()
        kept = self._pinned.get(name)
        if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
            kept = self._pinned[name] = torch.empty(tensor.shape, dtype=tensor.dtype).pin_memory()
        return kept.copy_(tensor, non_blocking=True)
