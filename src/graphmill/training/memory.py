"""How much memory there is, how much is used, and what "out of memory" looks like.

Light: torch is imported only where a device is asked for. The sampler that draws the memory plot is in
``memory_sampler.py``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from graphmill.errors import GraphmillError, OutOfMemoryError, SettingsError
from graphmill.memory import available_memory
from graphmill.memory import format_size as format_size
from graphmill.memory import memory_limit as memory_limit

try:
    import resource
except ImportError:  # pragma: no cover - not a POSIX system
    resource = None  # type: ignore[assignment]

LIMIT_VARIABLE = "GRAPHMILL_ALLOCATION_LIMIT"
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)

# Wordings of torch's allocators and of the libraries that it calls, in lower case.
_OUT_OF_MEMORY = (
    "defaultcpuallocator: can't allocate memory",
    "defaultcpuallocator: not enough memory",
    "cuda out of memory",
    "cuda error: out of memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "mps backend out of memory",
    "hip out of memory",
    "std::bad_alloc",
)


# -- sizes -----------------------------------------------------------------------------------------------------------


def parse_size(text: str, *, auto: int | None = None, name: str = "size") -> int:
    """Bytes of "6GiB", "512 MB", "1.5g" or "1000"; ``auto`` for "auto". A unit without i is decimal: 1 GB = 10⁹.

    Raises:
        SettingsError: not a size; the sentence names ``name`` and shows what is understood.
    """
    if text.strip().lower() == "auto" and auto is not None:
        return auto
    match = _SIZE.fullmatch(text)
    if match and (match[2] or not match[3]):
        value = float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2].lower()]
        if value >= 1:
            return int(value)
    understood = '"auto" or a size' if auto is not None else "a size"
    raise SettingsError(f'{name} = "{text}" is not understood; give {understood} such as "6GiB" or "800MB"')


# -- this process ----------------------------------------------------------------------------------------------------


def process_memory() -> int:
    """Resident bytes of this process now."""
    return int(psutil.Process().memory_info().rss)


def reset_peak() -> bool:
    """Start a new high-water mark; False where the system cannot (then :func:`peak_memory` is since the start)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_memory() -> int:
    """Largest resident bytes of this process since :func:`reset_peak`, or since its start."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if resource is None:
        return process_memory()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes on an accelerator: held by tensors now and at most, still free, and in all. Zeros for the CPU."""

    allocated: int = 0
    peak: int = 0
    free: int = 0
    total: int = 0


def device_memory(device: Any) -> DeviceMemory:
    """Memory of a ``torch.device``. MPS has no high-water mark: there ``peak`` is what the driver holds now."""
    if device.type == "cuda":
        import torch

        free, total = torch.cuda.mem_get_info(device)
        return DeviceMemory(
            torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device), int(free), int(total)
        )
    if device.type == "mps":
        import torch

        used, held = torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()
        total = torch.mps.recommended_max_memory()
        # It is the machine's own memory: what other programs have is not free.
        return DeviceMemory(used, held, max(0, min(total - held, available_memory())), total)
    return DeviceMemory()


def device_memory_row(report: Mapping[str, Any]) -> list[str]:
    """A table's row on the device's memory in a run's report, beside the planner's figure; [] for a run on the CPU."""
    peak, planned = report.get("peak_device_memory_bytes") or 0, report.get("planned_memory_bytes") or 0
    if not peak or report.get("device", "cpu") == "cpu":
        return []
    beside = f" (planned: {planned / 2**30:.2f} GiB)" if planned else ""
    return [f"peak memory of {report['device']}", f"{peak / 2**30:.2f} GiB{beside}"]


# -- out of memory ---------------------------------------------------------------------------------------------------


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed: on the CPU, CUDA or MPS, in torch or in a library that it called."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if type(error).__name__ == "OutOfMemoryError":  # torch.OutOfMemoryError, without importing torch
        return True
    if not isinstance(error, RuntimeError):
        return False
    text = str(error).lower()
    return any(words in text for words in _OUT_OF_MEMORY)


def out_of_memory_reason(error: BaseException) -> str:
    """The first line of what an allocator said; a MemoryError of the interpreter says nothing."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def out_of_memory_error(reason: str, remedy: str) -> OutOfMemoryError:
    """The error that is addressed to the user: what the allocator said, this process's figures, and what to do."""
    in_use, available = format_size(process_memory()), format_size(available_memory())
    return OutOfMemoryError(f"out of memory ({reason}); in use {in_use}, available {available}; {remedy}")


LESS_MEMORY_BESIDE_STEPS = "free memory on this machine, or choose a smaller model or graph"
"""What to do where the size of a batch has no part in it: evaluations, and the optimizer's moments."""


@contextlib.contextmanager
def memory_in_a_sentence() -> Iterator[None]:
    """For work outside the steps, where there is no ladder: a failed allocation becomes one error with a sentence.

    Raises:
        OutOfMemoryError: an allocation failed inside, and nothing inside had a sentence for it.
    """
    try:
        yield
    except GraphmillError:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        remedy = "free memory on this machine, or make the work smaller: a smaller batch, model or graph"
        raise out_of_memory_error(out_of_memory_reason(error), remedy) from None


def allocation_is_limited() -> bool:
    """Whether a simulated limit is in force: what it is checked against has to be counted only then."""
    return bool(os.environ.get(LIMIT_VARIABLE, ""))


def check_allocation(count: int, what: str) -> None:
    """Fail like torch's CPU allocator when ``count`` bytes are above the simulated limit; else do nothing.

    The limit is the environment's ``GRAPHMILL_ALLOCATION_LIMIT`` (a size), which reaches worker processes. It makes the
    ladder of ``on_oom`` testable, and shows how a run behaves on a small device.

    Raises:
        RuntimeError: in the allocator's words, so that :func:`is_out_of_memory` knows it.
    """
    if not allocation_is_limited():
        return
    limit = parse_size(os.environ[LIMIT_VARIABLE], name=LIMIT_VARIABLE)
    if count > limit:
        raise RuntimeError(
            f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {count} bytes for {what}, "
            f"and the simulated limit is {limit} bytes"
        )
