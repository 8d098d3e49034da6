"""Sets up the memory allocator of a training process, and how its OpenMP threads wait. Most of it has to happen before the
process starts.

glibc returns a big block to the system when it is freed, and fetches it again, page by page, in the next step. Where
page faults are expensive (above all on virtual machines), a training with big temporaries then spends most of its time
in the kernel. ``keep_heap`` is the remedy: environment variables that keep freed memory in the process. It costs a
larger peak, up to 1.6 times in the loops measured, because the heap cannot reuse every hole. So it is used only where
there is room.

:func:`return_large_blocks` does the opposite. It maps every block from 1 MiB on its own, so that a freed block is
returned at once and the peak is the memory in use. By default glibc does so only for blocks from 32 MiB, and its heap
also grows where sizes differ from step to step (sampled batching). A running process can switch to this mode. The
planner allows it where a run would not fit otherwise.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import time
from collections.abc import Mapping
from typing import Literal

from graphmill.memory import available_memory
from graphmill.training.memory import process_memory

KEEP_HEAP = {
    "MALLOC_MMAP_MAX_": "0",  # take every block from the heap; never map one on its own
    "MALLOC_TRIM_THRESHOLD_": "100000000000",  # never return the end of the heap
    "MALLOC_TOP_PAD_": "67108864",  # grow by 64 MiB at a time
}
Heap = Literal["kept", "returned", "stock", "other"]
"""What happens to freed blocks. "other": another C library or allocator, whose behaviour is not known."""
RETURNED_FROM = 1 << 20
"""A block of at least this many bytes is returned when it is freed, in the mode ``returned``."""
# mallopt's parameters (malloc.h). Smaller blocks stay in the heap. The trim threshold keeps glibc from returning the
# end of the heap and fetching it again.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -2, -3, -4
_RETURNED = ((_MMAP_MAX, 65_536), (_MMAP_THRESHOLD, RETURNED_FROM), (_TRIM_THRESHOLD, 8 << 20), (_TOP_PAD, 1 << 20))
_returned = False

ENOUGH = 8 << 30
"""The heap is kept only where so many bytes are available."""

MOST_GROWTH = 1.6
"""Ratio of resident memory to that after the first step; above it, unused memory of the heap is returned."""
_LEAST_GROWTH = 256 << 20
_LOOKS_APART = 1.0
_TIMES_APART = 20.0

# Variables that configure the allocator. If the user has set one of them, graphmill sets none.
VARIABLES = (
    *KEEP_HEAP, "THP_MEM_ALLOC_ENABLE", "LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_",
)  # fmt: skip


def allocator_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables to add to the environment of a worker before it starts; empty if none are needed.

    Nothing is added if the user has set one of ``VARIABLES``, or on a system other than Linux with glibc.
    """
    if platform.libc_ver()[0] != "glibc" or any(name in environment for name in VARIABLES):
        return {}
    return dict(KEEP_HEAP) if available_memory() >= ENOUGH else {}


def heaps(environment: Mapping[str, str] = os.environ) -> list[Heap]:
    """Heap modes that this process can have, the fastest first: the mode it started in, then ``returned`` if it can
    switch.

    It cannot switch if the user has chosen an allocator or its thresholds, or if the C library is not glibc.
    """
    if _returned and environment is os.environ:
        return ["returned"]
    result = {name: environment[name] for name in VARIABLES if name in environment and name != "MALLOC_ARENA_MAX"}
    if platform.libc_ver()[0] != "glibc" or (result and result != KEEP_HEAP):
        return ["other"]
    return ["kept" if result else "stock", "returned"]


def return_large_blocks() -> None:
    """Map each block of :data:`RETURNED_FROM` bytes or more on its own from now on, and return it when it is freed.

    This holds until the process ends.

    Raises OSError if this C library cannot switch (:func:`heaps`).
    """
    global _returned
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not all(libc.mallopt(name, value) for name, value in _RETURNED):
        raise OSError("this C library does not let a process choose how large blocks are allocated")
    libc.malloc_trim(0)
    _returned = True


def trim() -> None:
    """Collect garbage, and return unused memory of the heap to the system, where the C library can (glibc)."""
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


class HeapWatch:
    """Returns unused memory of the heap to the system when the process has :data:`MOST_GROWTH` times the memory it had
    after its first step, and at least 256 MiB more.

    In a trial with samples of PrimeKG's edges, the process had 3.6 GB after the first step and 7.3 GB after fourteen,
    of which 1.2 GB were in use. Returning the rest takes 0.2 s, and the next step fetches what it needs again. The next
    look therefore comes after twenty times as long, so that this stays a small part of the time.
    """

    def __init__(self) -> None:
        self._first = 0
        self._seen, self._apart = 0.0, _LOOKS_APART
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if platform.libc_ver()[0] == "glibc" else None

    def after_step(self) -> bool:
        """Call this between two steps; it looks at most once a second. Returns whether memory was returned to the
        system."""
        now = time.monotonic()
        if self._trim is None or (self._first and now - self._seen < self._apart):
            return False
        resident, self._seen = process_memory(), now
        if not self._first:
            self._first = resident
        if resident < max(MOST_GROWTH * self._first, self._first + _LEAST_GROWTH):
            return False
        self._trim(0)
        self._apart = max(_LOOKS_APART, _TIMES_APART * (time.monotonic() - now))
        # What is left is in use.
        self._first = max(self._first, process_memory())
        return True


# By default OpenMP's threads spin for long. This takes processor time from other programs: two trainings at once on two
# cores become many times slower. If threads sleep at once, each of the hundreds of operations of a step costs a wake-up,
# which is slow on a virtual machine. A short spin is between the two.
SPIN = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "4000"}
"""Turns of GOMP's spin loop, one pause instruction each."""
_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def waiting_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables to add to the environment of a training process before torch is imported; empty if the user has set one."""
    return {} if any(name in environment for name in _CHOICES) else dict(SPIN)
