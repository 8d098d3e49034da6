"""How OpenMP's threads wait for the next piece of work, which has to be said before torch is imported.

Spinning for long, the default, takes the time of whatever else runs: two trainings at once on two cores become many times
slower. Sleeping at once costs a wake-up, dear on a virtual machine, at each of the hundreds of operations of a step. A
short spin is between the two. How short depends on company, which is looked at when a process starts: in trials on two
cores steps of SASRec and HGT were faster alone with four times the spin, and slower by more beside a busy process.
A turn of the waiting loop is one pause instruction, which AMD's processors are done with in a fraction of the time that
Intel's take, so that alone they spin ten times as many: with as few as Intel's, threads fell asleep between the
operations of a step (seen on an EPYC of the fifth generation).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

ALONE, ALONE_ON_AMD, IN_COMPANY = "4000", "40000", "1000"
"""Turns of GOMP's waiting loop."""
_QUIET_PERCENT = 10.0
_LOOK_SECONDS = 0.1
_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def machine_is_quiet() -> bool:
    """Whether less than a tenth of the processors' time goes to anybody, looking for a tenth of a second."""
    import psutil

    return float(psutil.cpu_percent(_LOOK_SECONDS)) < _QUIET_PERCENT


def waiting_environment(
    environment: Mapping[str, str] = os.environ, quiet: Callable[[], bool] = machine_is_quiet
) -> dict[str, str]:
    """What to add to the environment of a training process; empty where somebody has chosen already."""
    if any(name in environment for name in _CHOICES):
        return {}
    alone = ALONE_ON_AMD if _made_by_amd() else ALONE
    return {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": alone if quiet() else IN_COMPANY}


@cache
def _made_by_amd() -> bool:
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")[:4096]
    except OSError:
        return False
