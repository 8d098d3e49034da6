"""How OpenMP's threads wait for the next piece of work, which has to be said before torch is imported.

Spinning for long, the default, takes the time of whatever else runs: two trainings at once on two cores become many times
slower. Sleeping at once costs a wake-up, dear on a virtual machine, at each of the hundreds of operations of a step. A
short spin is between the two: in trials of HGT steps on two cores it took most of the wake-ups' time off a training that
was alone, and cost one beside a busy process less than it had gained. Four times as long gained a little more alone, and
cost far more beside others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

SHORT_SPIN = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}


def waiting_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What to add to the environment of a training process; empty where somebody has chosen already."""
    chosen = any(name in environment for name in (*SHORT_SPIN, "KMP_BLOCKTIME"))
    return {} if chosen else dict(SHORT_SPIN)
