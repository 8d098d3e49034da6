"""What the phases of ``prove_cuda`` share: rows, the folder of their runs, waiting, a profile of one call."""

from __future__ import annotations

import json
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

FOLDER = Path(tempfile.mkdtemp(prefix="prove-"))
BAD: list[str] = []
"""What failed in this phase, or was not as it should be; with any, the phase ends with 1."""


def row(**values: Any) -> None:
    """Print a figure's line, which ``rows.py`` reads: JSON, numbers with four digits."""
    said = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in values.items()}
    print("ROW", json.dumps(said, default=str), flush=True)


@contextmanager
def case(**about: Any) -> Iterator[None]:
    """One case of a phase: an error in it is a row and bad, and the next case follows."""
    try:
        yield
    except Exception as error:
        traceback.print_exc()
        row(**about, failed=f"{type(error).__name__}: {' '.join(str(error).split())[:170]}")
        BAD.append(" ".join(map(str, about.values())))


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def profiled(work: Callable[[], None], device: torch.device) -> dict[str, Any]:
    """Launches, waits and copies of one call, and how long the device is at work in it."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    wait(device)
    with profile(activities=kinds) as seen:
        begin = time.perf_counter()
        work()
        wait(device)
        wall = time.perf_counter() - begin
    events = seen.key_averages()
    count = {e.key: e.count for e in events}
    at_work = sum(
        getattr(e, "self_device_time_total", 0.0) for e in events if str(getattr(e, "device_type", "")).endswith("CUDA")
    )
    names = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
    most = sorted(
        (e for e in events if getattr(e, "self_device_time_total", 0.0) > 0), key=lambda e: -e.self_device_time_total
    )[:8]
    return {
        "launches": sum(count.get(n, 0) for n in names) or sum(c for k, c in count.items() if k.startswith("aten::")),
        "copies": count.get("cudaMemcpyAsync", 0),
        "waits": count.get("cudaStreamSynchronize", 0) + count.get("cudaDeviceSynchronize", 0),
        "device_ms": at_work / 1e3,
        "profiled_wall_ms": wall * 1e3,
        "most": [(e.key[:60], round(e.self_device_time_total / 1e3, 3), e.count) for e in most],
    }
