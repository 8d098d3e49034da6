"""Sets how OpenMP's threads wait for work. This has to be set before torch is imported.

By default threads spin for long. This takes processor time from other programs: two trainings at once on two cores
become many times slower. If threads sleep at once, each of the hundreds of operations of a step costs a wake-up, which
is slow on a virtual machine. A short spin is between the two.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

SPIN = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "4000"}
"""Turns of GOMP's spin loop, one pause instruction each."""
_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def waiting_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables to add to the environment of a training process; empty if the user has set one of them."""
    return {} if any(name in environment for name in _CHOICES) else dict(SPIN)
