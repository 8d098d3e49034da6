"""Chooses the device of a run and records why; sets threads and determinism."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import torch

from graphmill.errors import ResourceError
from graphmill.training.machine import allowed_cores
from graphmill.training.memory import device_memory

MPS_TORCH = (2, 10)
"""The first version of torch whose MPS back end has every operation that a training calls."""
DETERMINISTIC = ("cpu",)
"""Devices on which torch uses deterministic algorithms. On the others they cost time."""
_MPS_SHARE = 0.9
"""A run's limit on MPS, as a fraction of the memory that is free when it begins."""


@dataclass(frozen=True)
class DeviceChoice:
    """The device, the device asked for, and the reason if they differ; recorded in the manifest."""

    device: torch.device
    requested: str
    reason: str


def available_devices() -> dict[str, str]:
    """Device type → "" if it can be used, else the reason why not."""
    out = {"cpu": ""}
    on_mac = sys.platform == "darwin"
    no_cuda = "no CUDA device, as on any Mac" if on_mac else "no CUDA device, or a CPU build of torch"
    out["cuda"] = "" if torch.cuda.is_available() else no_cuda
    no_mps = "no Apple GPU" if torch.backends.mps.is_built() else "torch built without MPS"
    out["mps"] = "" if torch.backends.mps.is_available() else no_mps
    if not out["mps"] and tuple(map(int, torch.__version__.split(".")[:2])) < MPS_TORCH:
        out["mps"] = (
            f"torch {torch.__version__}, whose MPS has no gradient of embedding_bag, which every graph system here needs; "
            f"pip install -U 'torch>={MPS_TORCH[0]}.{MPS_TORCH[1]}'"
        )
    return out


def choose_device(requested: str, *, local_rank: int = 0) -> DeviceChoice:
    """Choose the device. ``auto`` tries cuda, then mps, then cpu.

    Raises:
        ResourceError: the device asked for is absent.
    """
    state = available_devices()
    if requested == "auto":
        kind = next(name for name in ("cuda", "mps", "cpu") if not state[name])
        skipped = [f"{name}: {state[name]}" for name in ("cuda", "mps") if state[name] and name != kind]
        reason = f"auto took {kind}" + (f" ({'; '.join(skipped)})" if skipped and kind == "cpu" else "")
    elif not state[requested]:
        kind, reason = requested, f"{requested} as asked for"
    else:
        raise ResourceError(
            f"device '{requested}' was asked for, but there is {state[requested]}; set acceleration.device: auto "
            "to use what there is"
        )
    count = torch.cuda.device_count() if kind == "cuda" else 0
    device = torch.device("cuda", local_rank % count if count else local_rank) if kind == "cuda" else torch.device(kind)
    return DeviceChoice(device, requested, reason)


def here(requested: str) -> str:
    """The requested device, or ``auto`` if this machine has no such device."""
    return "auto" if available_devices().get(requested) else requested


def threads_of(processes: int) -> int:
    """CPU threads of one of so many processes of this machine: OMP_NUM_THREADS (of a list, the outermost), or all allowed
    cores divided by them. OpenMP itself says that a value is invalid."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(wanted) if wanted.isdigit() and int(wanted) else max(1, allowed_cores() // processes)


def configure_torch(device: torch.device, processes: int) -> int:
    """Set threads and determinism for this process; returns the number of threads."""
    threads = threads_of(processes)
    torch.set_num_threads(threads)
    # Without it, cuBLAS may compute the same product in different orders. cuBLAS reads it at its first use.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # warn: an operator without a deterministic form on this device is named in the log, and the run continues.
    # Not use_deterministic_algorithms: it imports torch's compiler, which takes a second.
    torch.set_deterministic_debug_mode("warn" if device.type in DETERMINISTIC else "default")
    # Otherwise torch fills every array that it allocates, which costs time. It does so to find reads of uninitialised
    # memory.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif device.type == "mps":
        limit_mps_memory()
    return threads


def limit_mps_memory() -> float:
    """Limit MPS so that an allocation fails before macOS swaps and the ladder can react; returns the fraction of the
    recommended memory.

    torch's own limit is 1.7 times what Metal recommends, and ignores the memory of other programs.
    """
    memory = device_memory(torch.device("mps"))
    part = min(max((memory.peak + memory.free * _MPS_SHARE) / max(memory.total, 1), 0.05), 1.0)
    torch.mps.set_per_process_memory_fraction(part)
    return part


def empty_device_cache(device: torch.device) -> None:
    """Return cached, unused device memory to the driver. On the CPU this does nothing."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()
