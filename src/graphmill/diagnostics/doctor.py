"""Reports what this machine supports: devices, precisions, compilers, optional packages."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from graphmill.memory import available_memory
from graphmill.training.device import available_devices, choose_device
from graphmill.training.machine import allowed_cores
from graphmill.training.memory import device_memory


@dataclass(frozen=True)
class Finding:
    """One line of the report. If a ``required`` one is not ok, the command exits with code 1."""

    what: str
    ok: bool
    detail: str
    required: bool = False


def examine() -> list[Finding]:
    """Check everything that a run may use on this machine."""
    out = [Finding("torch", True, torch.__version__), Finding("cores", True, f"{allowed_cores()} may be used")]
    limits = " (limits of the container count)" if sys.platform == "linux" else ", as long as other programs leave it"
    out.append(Finding("memory", True, f"{available_memory() / 2**30:.1f} GiB available{limits}"))
    chosen = choose_device("auto").device.type
    out.append(Finding("a training uses", True, _NAMES[chosen]))
    for name, why in available_devices().items():
        out.append(Finding(f"device {name}", not why, why or _usable(name)))
    out += [_matmul("bf16", torch.bfloat16, chosen), _matmul("fp16", torch.float16, chosen)]
    compiler = next((path for name in ("g++", "c++", "clang++") if (path := shutil.which(name))), None)
    none = "no C++ compiler, which acceleration.compile alone would need; it is off unless you ask for it"
    out.append(Finding("compile on the CPU", compiler is not None, compiler or none))
    existing = importlib.util.find_spec("numba") is not None
    said = "numba is installed" if existing else "pip install graphmill[numba] to have them"
    out.append(Finding("fast CPU kernels", existing, said))
    out.append(_writable(Path.cwd()))
    return out


_NAMES = {
    "cpu": "the CPU: there is no accelerator that it could take",
    "mps": "mps, the Mac's GPU, by itself (acceleration.device: auto)",
    "cuda": "cuda, the GPU, by itself (acceleration.device: auto)",
}


def _usable(name: str) -> str:
    """The finding for a usable device; for an accelerator also its memory."""
    if name == "cpu":
        return "usable"
    memory = device_memory(torch.device(name))
    return f"usable; {memory.free / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free"


def _matmul(name: str, dtype: torch.dtype, device: str) -> Finding:
    """Whether matrix products of a dtype work on the device that a training uses."""
    try:
        a = torch.ones(8, 8, dtype=dtype, device=device)
        ok = bool((a @ a == 8).all())
    except (RuntimeError, TypeError) as error:
        return Finding(f"{name} on {device}", False, str(error).splitlines()[0])
    return Finding(f"{name} on {device}", ok, "matrix products work")


def _writable(folder: Path) -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Finding("working folder", False, f"{folder} cannot be written: {error.strerror}", required=True)
    free = shutil.disk_usage(folder).free / 2**30
    return Finding("working folder", True, f"writable, {free:.1f} GiB free", required=True)
