"""Sets how OpenMP's threads wait for work. This has to be set before torch is imported.

By default threads spin for long. This takes processor time from other programs: two trainings at once on two cores
become many times slower. If threads sleep at once, each of the hundreds of operations of a step costs a wake-up, which
is slow on a virtual machine. A short spin is between the two.

The best length depends on whether other programs run. It is chosen when a process starts. In trials on two cores, steps
of SASRec and HGT alone were faster with four times the spin, and beside a busy process they were slower by more than
that gain.

One turn of the spin loop is one pause instruction. It takes AMD's processors a fraction of the time that it takes
Intel's. A process alone on AMD therefore spins ten times as many turns. With Intel's number, threads fell asleep
between the operations of a step (seen on a fifth-generation EPYC).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

ALONE, ALONE_ON_AMD, IN_COMPANY = "4000", "40000", "1000"
"""Turns of GOMP's spin loop."""
_QUIET_PERCENT = 10.0
_LOOK_SECONDS = 0.1
_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def machine_is_quiet() -> bool:
    """Whether all programs together use less than a tenth of the processors' time, measured over 0.1 s."""
    import psutil

    return float(psutil.cpu_percent(_LOOK_SECONDS)) < _QUIET_PERCENT


def waiting_environment(
    environment: Mapping[str, str] = os.environ, quiet: Callable[[], bool] = machine_is_quiet
) -> dict[str, str]:
    """Variables to add to the environment of a training process; empty if the user has set one of them."""
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
