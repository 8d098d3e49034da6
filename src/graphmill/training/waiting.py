"""How OpenMP's threads wait for the next piece of work, which has to be said before torch is imported.

Spinning for long, the default, takes the time of whatever else runs: two trainings at once on two cores become many times
slower. Sleeping at once costs a wake-up, about a tenth of a millisecond on a virtual machine, at each of the hundred
operations of a step. A short spin has most of both: of a 50 ms ConvE step on two cores, 4,000 turns (about a quarter of
a millisecond) took a tenth less than none when alone, and a tenth more with a second one beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

SHORT_SPIN = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "4000"}


def waiting_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What to add to the environment of a training process; empty where somebody has chosen already."""
    chosen = any(name in environment for name in (*SHORT_SPIN, "KMP_BLOCKTIME"))
    return {} if chosen else dict(SHORT_SPIN)
