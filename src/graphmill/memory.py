"""Reads the memory that is available to this process, and formats sizes for people.

It does not import torch.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import psutil


def format_size(count: float) -> str:
    """Three significant digits and a binary unit: "1.5 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < (1024 if unit == "bytes" else 1000):
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process can still allocate: the minimum of free memory, its cgroups' limits, and RLIMIT_AS.

    ``root`` is the folder of ``proc`` and ``sys`` (tests use a small tree).
    """
    process = psutil.Process()
    amounts = [int(psutil.virtual_memory().available), *(limit - used for limit, used in _cgroups(root))]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        amounts.append(soft - int(process.memory_info().vms))
    return max(0, min(amounts))


def memory_limit(root: Path = Path("/")) -> int:
    """Bytes that this process could allocate if nothing else ran: the machine's memory, or the smallest of its cgroups'
    limits."""
    return min([int(psutil.virtual_memory().total), *(limit for limit, _ in _cgroups(root))])


def _cgroups(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use of each memory cgroup of this process, including outer ones; v2 and v1."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, limit, usage, cache = root / "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            mount, limit = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
            usage, cache = "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        # In a container the path may be that of the host; the mount then starts at the container's own cgroup.
        group = mount / path.lstrip("/")
        while group == mount or mount in group.parents:
            with contextlib.suppress(OSError, ValueError):  # "max" is a ValueError: no limit
                used = int((group / usage).read_text()) - _cache(group / "memory.stat", cache)
                yield int((group / limit).read_text()), used
            group = group.parent


def _cache(stat: Path, field: str) -> int:
    """File cache, which counts as used but which the kernel frees before an allocation fails."""
    with contextlib.suppress(OSError):
        for line in stat.read_text().splitlines():
            if line.startswith(field + " "):
                return int(line.split()[1])
    return 0
