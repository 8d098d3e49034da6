"""Finds the device that a training would use on this machine, and its memory, without importing torch.

This serves decisions before a worker starts, such as the defaults of the Launchpad. The worker itself asks torch
(``device.py``). If the two differ (a driver that torch cannot use), the worker's answer holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from graphmill.errors import SettingsError
from graphmill.training.memory import memory_limit

_NVML = ("libnvidia-ml.so.1", "libnvidia-ml.so")


@dataclass(frozen=True)
class Machine:
    """``device``: cuda, mps or cpu; ``memory_bytes``: the device's total memory, or the limit of this process."""

    device: str
    memory_bytes: int


def this_machine(root: Path = Path("/")) -> Machine:
    """cuda if torch was built for it and the driver shows a device, mps on Apple silicon, else cpu.

    The result is the same at every call on one machine, because it counts total memory, not free memory. ``root`` is
    the folder of ``proc`` and ``sys`` (tests put a small tree there).
    """
    if torch_is_built_for_cuda() and (memory := cuda_memory()):
        return Machine("cuda", memory)
    main = memory_limit(root)
    apple = platform.system() == "Darwin" and platform.machine() == "arm64"
    return Machine("mps" if apple else "cpu", main)


def allowed_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def require_processes(count: int, where: str) -> None:
    """Raise :class:`SettingsError` for far more processes than this machine has cores."""
    require_count("acceleration.processes", count, max(16, 2 * allowed_cores()), where)


def require_count(name: str, requested: int, most: int, where: str) -> None:
    """Raise :class:`SettingsError` if ``requested`` is more than ``most``."""
    if requested > most:
        cores = allowed_cores()
        raise SettingsError(f"{where}: {name} = {requested}, and this machine has {cores} cores: write {most} at most")


def torch_is_built_for_cuda() -> bool:
    """Read from torch's version file, because importing torch takes seconds."""
    result = importlib.util.find_spec("torch")
    file = Path(result.origin).with_name("version.py") if result and result.origin else None
    if file is None or not file.is_file():
        return False
    return re.search(r"^cuda\b[^=]*=\s*['\"]", file.read_text(encoding="utf-8"), re.MULTILINE) is not None


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def cuda_memory() -> int:
    """Memory in bytes of the first CUDA device that the driver's management library shows; 0 if there is none."""
    library = _load(_NVML)
    if library is None or library.nvmlInit_v2() != 0:
        return 0
    try:
        handle, memory = ctypes.c_void_p(), _Memory()
        if library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) != 0:
            return 0
        return int(memory.total) if library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0 else 0
    finally:
        library.nvmlShutdown()


def _load(names: tuple[str, ...]) -> ctypes.CDLL | None:
    for name in names:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None
