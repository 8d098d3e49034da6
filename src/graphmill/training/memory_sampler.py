"""A thread that samples this process's memory, for the plot and for the leak test."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from graphmill.training.memory import DeviceMemory, device_memory, process_memory


@dataclass(frozen=True)
class MemorySample:
    """Seconds since the start, resident bytes, and bytes held by tensors on the device (0 on the CPU)."""

    seconds: float
    resident: int
    device: int = 0


class MemorySampler:
    """Samples every ``interval`` seconds while its block runs, and holds at most ``capacity`` samples.

    When it is full, it merges neighbouring samples, keeps the larger of two, and doubles the interval. A long run is
    thus recorded from start to end, with its peaks, in bounded memory. ``device`` is a ``torch.device``, or None.
    """

    def __init__(self, interval: float = 0.5, *, capacity: int = 1024, device: Any = None) -> None:
        self.interval = interval
        self.capacity = max(2, capacity - capacity % 2)
        self._device = device
        self._samples: list[MemorySample] = []
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="graphmill-memory", daemon=True)
        self._started = 0.0
        self.device_peak = 0
        """Peak bytes on the device: CUDA's own peak counter; on MPS the driver's largest sampled allocation."""

    def __enter__(self) -> MemorySampler:
        self._started = time.monotonic()
        self._take()
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._end.set()
        self._thread.join()
        self._take()

    def samples(self) -> list[MemorySample]:
        """The samples so far, in order of time."""
        with self._lock:
            return list(self._samples)

    def peak(self) -> int:
        """Largest number of resident bytes sampled. Peaks shorter than the interval can be missed."""
        return max((sample.resident for sample in self.samples()), default=0)

    def _run(self) -> None:
        while not self._end.wait(self.interval):
            self._take()

    def _take(self) -> None:
        device = device_memory(self._device) if self._device is not None else DeviceMemory()
        sample = MemorySample(time.monotonic() - self._started, process_memory(), device.allocated)
        with self._lock:
            self.device_peak = max(self.device_peak, device.peak)
            if len(self._samples) >= self.capacity:
                pairs = zip(self._samples[::2], self._samples[1::2], strict=True)
                self._samples = [max(pair, key=lambda one: (one.resident, one.device)) for pair in pairs]
                self.interval *= 2
            self._samples.append(sample)
