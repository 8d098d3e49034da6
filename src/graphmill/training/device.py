"""Which device a run uses, and why; threads and determinism with it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import torch

from graphmill.errors import ResourceError
from graphmill.training.machine import allowed_cores
from graphmill.training.memory import device_memory
from graphmill.training.settings import AccelerationSettings

MPS_TORCH = (2, 10)
"""The first torch whose MPS has all that a training calls."""
_MPS_SHARE = 0.9
"""Of what is free when a run begins, its limit on MPS."""


@dataclass(frozen=True)
class DeviceChoice:
    """The device, what was asked for, and the reason for the difference, as recorded in the manifest."""

    device: torch.device
    requested: str
    reason: str


def available_devices() -> dict[str, str]:
    """Device type → "" where it can be used, else why not."""
    out = {"cpu": ""}
    on_mac = sys.platform == "darwin"
    no_cuda = "no CUDA device, as on any Mac" if on_mac else "no CUDA device, or a CPU build of torch"
    out["cuda"] = "" if torch.cuda.is_available() else no_cuda
    no_mps = "no Apple GPU" if torch.backends.mps.is_built() else "torch built without MPS"
    out["mps"] = "" if torch.backends.mps.is_available() else no_mps
    if not out["mps"] and _release() < MPS_TORCH:
        out["mps"] = (
            f"torch {torch.__version__}, whose MPS has no gradient of embedding_bag, which every graph system here needs; "
            f"pip install -U 'torch>={MPS_TORCH[0]}.{MPS_TORCH[1]}'"
        )
    return out


def _release() -> tuple[int, int]:
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def choose_device(requested: str, *, allow_fallback: bool, local_rank: int = 0) -> DeviceChoice:
    """``auto`` takes cuda, then mps, then cpu. A device that is absent falls back to the CPU where that is allowed.

    Raises:
        ResourceError: the device asked for is absent and ``allow_fallback`` is off.
    """
    state = available_devices()
    if requested == "auto":
        kind = next(name for name in ("cuda", "mps", "cpu") if not state[name])
        skipped = [f"{name}: {state[name]}" for name in ("cuda", "mps") if state[name] and name != kind]
        reason = f"auto took {kind}" + (f" ({'; '.join(skipped)})" if skipped and kind == "cpu" else "")
    elif not state[requested]:
        kind, reason = requested, f"{requested} as asked for"
    elif allow_fallback:
        kind, reason = "cpu", f"{requested} asked for, but {state[requested]}; fell back to the CPU"
    else:
        raise ResourceError(
            f"device '{requested}' was asked for, but there is {state[requested]}; set acceleration.device: auto, "
            "or acceleration.allow_fallback: true to use the CPU instead"
        )
    count = torch.cuda.device_count() if kind == "cuda" else 0
    device = torch.device("cuda", local_rank % count if count else local_rank) if kind == "cuda" else torch.device(kind)
    return DeviceChoice(device, requested, reason)


def configure_torch(settings: AccelerationSettings, device: torch.device, processes: int) -> int:
    """Set threads and determinism for this process; returns the number of threads."""
    threads = settings.threads or max(1, allowed_cores() // processes)
    torch.set_num_threads(threads)
    # Without it cuBLAS may take another way through a product each time; it is read when CUDA's products are first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    deterministic = settings.deterministic == "on" or (settings.deterministic == "auto" and device.type == "cpu")
    # warn_only: an operator without a deterministic form on this device is better named in the log than a dead run.
    torch.use_deterministic_algorithms(deterministic, warn_only=settings.deterministic == "auto")
    # Otherwise torch writes into every array that it allocates, to show up code that reads what it has not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif device.type == "mps":
        limit_mps_memory()
    return threads


def limit_mps_memory() -> float:
    """Let an allocation fail before macOS swaps, so that the ladder sees it; returns the part of the recommended memory.

    torch's own limit is 1.7 times what Metal recommends, and knows of no other program.
    """
    memory = device_memory(torch.device("mps"))
    part = min(max((memory.peak + memory.free * _MPS_SHARE) / max(memory.total, 1), 0.05), 1.0)
    torch.mps.set_per_process_memory_fraction(part)
    return part


def empty_device_cache(device: torch.device) -> None:
    """Give cached, unused device memory back to the driver; nothing on the CPU."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()
