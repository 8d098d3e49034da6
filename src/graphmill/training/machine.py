"""Finds the device that a training would use on this machine, and its memory, without importing torch.

This serves decisions before a worker starts, such as the defaults of the Launchpad. The worker itself asks torch
(``device.py``). If the two differ (a driver that torch cannot use), the worker's answer holds.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from graphmill.errors import SettingsError
from graphmill.training.memory import memory_limit


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
    cores = allowed_cores()
    most = max(16, 2 * cores)
    if count > most:
        text = f"{where}: acceleration.processes = {count}, and this machine has {cores} cores: write {most} at most"
        raise SettingsError(text)


def torch_is_built_for_cuda() -> bool:
    """Read from torch's version file, because importing torch takes seconds."""
    result = importlib.util.find_spec("torch")
    file = Path(result.origin).with_name("version.py") if result and result.origin else None
    if file is None or not file.is_file():
        return False
    return re.search(r"^cuda\b[^=]*=\s*['\"]", file.read_text(encoding="utf-8"), re.MULTILINE) is not None


def cuda_memory() -> int:
    """Memory in bytes of the first CUDA device that the driver's ``nvidia-smi`` lists; 0 if there is none."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError, IndexError):
        listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
        return int(listed.split()[0]) << 20
    return 0
