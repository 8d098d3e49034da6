"""Threads wait for a short while, unless somebody has said how they shall wait."""

import os
import subprocess
import sys

import pytest

from graphmill.training.allocator import waiting_environment

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


@pytest.mark.parametrize("name", CHOICES)
def test_who_has_chosen_is_left_alone(name: str) -> None:
    assert waiting_environment({name: "ACTIVE"}) == {}


def test_openmp_takes_it() -> None:
    """What the runtime that torch brings along says of itself at its start."""
    environment = {k: v for k, v in os.environ.items() if k not in CHOICES}
    chosen = waiting_environment(environment)
    process = subprocess.run(
        [sys.executable, "-c", "import torch; torch.ones(1 << 20).exp()"],
        env={**environment, **chosen, "OMP_DISPLAY_ENV": "VERBOSE"},
        capture_output=True,
        text=True,
        check=True,
    )
    if "GOMP_SPINCOUNT" not in process.stderr:
        pytest.skip("torch's OpenMP runtime is not GNU's")
    assert f"GOMP_SPINCOUNT = '{chosen['GOMP_SPINCOUNT']}'" in process.stderr
