"""How the memory allocator of a training process is set up, which has to happen before the process starts.

glibc hands big blocks back to the system when they are freed and fetches them again, page by page, in the next step. Where
page faults are dear (virtual machines above all), loops with big temporaries then spend most of their time in the
kernel. The remedy is environment variables that keep freed memory in the process (``keep_heap``). Its price is a larger
peak, up to 1.6 times in the loops measured, because a heap cannot reuse every hole; so it is used only where there is room.

The opposite (:func:`return_large_blocks`) maps every block from 1 MiB on its own, so that what is freed is gone at once and
the peak is what is alive. glibc as installed does so for blocks from 32 MiB only, and where sizes differ from step to step
(sampled batching) its heap grows as well. A running process can switch to that: the planner lets it where a run would
not fit otherwise.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from graphmill.training.memory import available_memory, process_memory

KEEP_HEAP = {
    "MALLOC_MMAP_MAX_": "0",  # every block from the heap, none mapped on its own and unmapped when freed
    "MALLOC_TRIM_THRESHOLD_": "100000000000",  # never hand the end of the heap back
    "MALLOC_TOP_PAD_": "67108864",  # grow by 64 MiB at a time
}
Heap = Literal["kept", "returned", "stock", "other"]
"""What becomes of freed blocks; "other": another C library or allocator, of which nothing is known."""
RETURNED_FROM = 1 << 20
"""Bytes from which on a block is handed back by itself where the heap is ``returned``."""
# mallopt's parameters (malloc.h). Smaller blocks stay in the heap, whose end is not to be handed back and fetched in turn.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -2, -3, -4
_RETURNED = ((_MMAP_MAX, 65_536), (_MMAP_THRESHOLD, RETURNED_FROM), (_TRIM_THRESHOLD, 8 << 20), (_TOP_PAD, 1 << 20))
_returned = False

ROOM = 2.0  # keep_heap only where this many times the expected peak is available
ENOUGH = 8 << 30  # ... or, without an estimate, this many bytes

MOST_GROWTH = 1.6
"""Resident memory over that after a training's first step, from which on holes are given back."""
_LEAST_GROWTH = 256 << 20
_LOOKS_APART = 1.0
_TIMES_APART = 20.0

# Everything that steers the allocator; who has set one of them has chosen.
VARIABLES = (
    *KEEP_HEAP, "THP_MEM_ALLOC_ENABLE", "LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_",
)  # fmt: skip
_HUGE_PAGE_STATE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def allocator_environment(expected_bytes: int = 0, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What to add to the environment of a worker before it starts; empty where nothing is to be set.

    ``expected_bytes`` is the planner's estimate of the worker's peak, 0 where there is none. Whoever has set one of
    ``VARIABLES`` has chosen already, and nothing is added. Other systems than Linux with glibc need none of this.
    """
    if platform.libc_ver()[0] != "glibc" or any(name in environment for name in VARIABLES):
        return {}
    needed = ROOM * expected_bytes if expected_bytes else ENOUGH
    return dict(KEEP_HEAP) if available_memory() >= needed else {}


def heaps(environment: Mapping[str, str] = os.environ) -> list[Heap]:
    """What the heap of this process can be, the fastest first: as it was started, then ``returned`` where that is possible.

    Who has chosen an allocator or its thresholds keeps them, and other C libraries than glibc have no such switch.
    """
    if _returned and environment is os.environ:
        return ["returned"]
    found = {name: environment[name] for name in VARIABLES if name in environment and name != "MALLOC_ARENA_MAX"}
    if platform.libc_ver()[0] != "glibc" or (found and found != KEEP_HEAP):
        return ["other"]
    return ["kept" if found else "stock", "returned"]


def return_large_blocks() -> None:
    """From now on, map each block of :data:`RETURNED_FROM` bytes or more on its own, and hand it back when it is freed.

    For as long as the process lives.

    Raises OSError where this C library has no such switch (:func:`heaps`).
    """
    global _returned
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not all(libc.mallopt(name, value) for name, value in _RETURNED):
        raise OSError("this C library does not let a process choose how large blocks are allocated")
    libc.malloc_trim(0)
    _returned = True


class HeapWatch:
    """Gives the holes of the heap back to the system when the process has :data:`MOST_GROWTH` times the memory it had after
    its first step, and 256 MiB more.

    PrimeKG's shape in samples of its edges had 3.6 GB after the first step and 7.3 after fourteen, 1.2 of them in use (in a
    trial). To give the rest back takes 0.2 s, and the next step fetches again what it needs; so that this stays a small part
    of the time, it next looks when twenty times as long has passed.
    """

    def __init__(self) -> None:
        self._first = 0
        self._seen, self._apart = 0.0, _LOOKS_APART
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if platform.libc_ver()[0] == "glibc" else None

    def after_step(self) -> bool:
        """Between two steps; looks once a second at most. Whether something was given back."""
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
        # What is in use by now is no hole.
        self._first = max(self._first, process_memory())
        return True


def describe_allocator(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """How this process was set up, for the manifest: C library, choice, its variables, and the system's huge pages."""
    found = {name: environment[name] for name in VARIABLES if name in environment}
    choice = (
        "returned" if _returned else "stock" if not found else "keep_heap" if found == KEEP_HEAP else "the user's own"
    )
    try:
        state = _HUGE_PAGE_STATE.read_text().partition("[")[2].partition("]")[0]
    except OSError:
        state = "unknown"
    library = " ".join(platform.libc_ver()) or platform.system()
    return {"library": library.strip(), "choice": choice, "huge_pages": state} | found
