"""How much memory this machine has left for this process, and sizes as people read them.

Imports no torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil

try:
    import resource
except ImportError:  # pragma: no cover - not a POSIX system
    resource = None  # type: ignore[assignment]


def format_size(count: float) -> str:
    """Three significant digits and a binary unit: "1.5 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < (1024 if unit == "bytes" else 1000):
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process can still take: the least of free memory, every cgroup limit above it, and RLIMIT_AS.

    ``root`` is where ``proc`` and ``sys`` are (tests put a small tree there).
    """
    process = psutil.Process()
    amounts = [int(psutil.virtual_memory().available), *_cgroup_rooms(root)]
    if resource is not None:
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            amounts.append(soft - int(process.memory_info().vms))
    return max(0, min(amounts))


def memory_limit(root: Path = Path("/")) -> int:
    """Bytes that this process could have if nothing else ran: the machine's memory, or the least cgroup limit above it."""
    return min([int(psutil.virtual_memory().total), *(limit for limit, _ in _cgroups(root))])


def _cgroup_rooms(root: Path) -> Iterator[int]:
    for limit, used in _cgroups(root):
        yield limit - used


def _cgroups(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use of each memory cgroup that this process is in, outer ones included; v2 and v1."""
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
        # In a container the path may be the host's: what is mounted then starts at the container's own group.
        group = mount / path.lstrip("/")
        while group == mount or mount in group.parents:
            with contextlib.suppress(OSError, ValueError):  # "max" is a ValueError: no limit
                used = int((group / usage).read_text()) - _cache(group / "memory.stat", cache)
                yield int((group / limit).read_text()), used
            group = group.parent


def _cache(stat: Path, field: str) -> int:
    """File cache that the kernel gives back before it refuses: counted as used, but not in the way."""
    with contextlib.suppress(OSError):
        for line in stat.read_text().splitlines():
            if line.startswith(field + " "):
                return int(line.split()[1])
    return 0
