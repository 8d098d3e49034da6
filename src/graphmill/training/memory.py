"""Measures available and used memory, and recognises errors of running out of memory.

Importing this module is fast: torch is imported only when a device is asked for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
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

LIMIT_VARIABLE = "GRAPHMILL_ALLOCATION_LIMIT"
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)

# Phrases in the errors of torch's allocators and of the libraries that torch calls, in lower case.
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
        SettingsError: not a size; the message names the setting ``name`` and shows valid sizes.
    """
    if text.strip().lower() == "auto" and auto is not None:
        return auto
    if (match := _SIZE.fullmatch(text)) and (match[2] or not match[3]):
        value = float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2].lower()]
        if value >= 1:
            return int(value)
    understood = '"auto" or a size' if auto is not None else "a size"
    raise SettingsError(f'{name} = "{text}" is not understood; give {understood} such as "6GiB" or "800MB"')


# -- this process ----------------------------------------------------------------------------------------------------


def process_memory() -> int:
    """Resident bytes of this process now."""
    return int(psutil.Process().memory_info().rss)


def peak_memory() -> int:
    """Largest resident bytes of this process since its start."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes on an accelerator: used by tensors now, at the peak, free, and in total. Zeros for the CPU."""

    allocated: int = 0
    peak: int = 0
    free: int = 0
    total: int = 0


def device_memory(device: Any) -> DeviceMemory:
    """Memory of a ``torch.device``. MPS records no peak: there ``peak`` is the driver's current allocation."""
    if device.type not in ("cuda", "mps"):
        return DeviceMemory()
    import torch

    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return DeviceMemory(
            torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device), int(free), int(total)
        )
    used, held = torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()
    total = torch.mps.recommended_max_memory()
    # The device shares the machine's memory: memory of other programs is not free.
    return DeviceMemory(used, held, max(0, min(total - held, available_memory())), total)


def device_memory_row(report: Mapping[str, Any]) -> list[str]:
    """A row of the run report's table: peak device memory beside the planner's estimate; [] for a run on the CPU."""
    peak, planned = report.get("peak_device_memory_bytes") or 0, report.get("planned_memory_bytes") or 0
    if not peak or report.get("device", "cpu") == "cpu":
        return []
    extra = f" (planned: {planned / 2**30:.2f} GiB)" if planned else ""
    return [f"peak memory of {report['device']}", f"{peak / 2**30:.2f} GiB{extra}"]


# -- out of memory ---------------------------------------------------------------------------------------------------


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` is a failed allocation: on the CPU, CUDA or MPS, in torch or in a library that it called."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # torch.OutOfMemoryError, without importing torch
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def out_of_memory_reason(error: BaseException) -> str:
    """The first line of the allocator's message, or the error's type if it has no message (Python's MemoryError)."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def out_of_memory_error(reason: str, remedy: str) -> OutOfMemoryError:
    """The error for the user: the allocator's message, memory in use and available, and what to do."""
    in_use, available = format_size(process_memory()), format_size(available_memory())
    return OutOfMemoryError(f"out of memory ({reason}); in use {in_use}, available {available}; {remedy}")


LESS_MEMORY_BESIDE_STEPS = "free memory on this machine, or choose a smaller model or graph"
"""What to do if the batch size does not matter: in evaluations, and for the optimizer's moments."""


@contextlib.contextmanager
def memory_in_a_sentence() -> Iterator[None]:
    """Turn a failed allocation into an error with a message for the user. For work outside the steps, which has no
    ladder.

    Raises:
        OutOfMemoryError: an allocation failed inside the block.
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
    """Whether a simulated limit is set. Only then do callers need to count their bytes."""
    return bool(os.environ.get(LIMIT_VARIABLE, ""))


def check_allocation(count: int, what: str) -> None:
    """Fail like torch's CPU allocator if ``count`` bytes exceed the simulated limit; else do nothing.

    The environment variable ``GRAPHMILL_ALLOCATION_LIMIT`` (a size) sets the limit, also for worker processes. Tests of
    the ladder use it. It also shows how a run behaves on a small device.

    Raises:
        RuntimeError: with the allocator's wording, so that :func:`is_out_of_memory` recognises it.
    """
    if not allocation_is_limited():
        return
    limit = parse_size(os.environ[LIMIT_VARIABLE], name=LIMIT_VARIABLE)
    if count > limit:
        raise RuntimeError(
            f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {count} bytes for {what}, "
            f"and the simulated limit is {limit} bytes"
        )
