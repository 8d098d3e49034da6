"""Threads wait for a short while, shorter in company, unless somebody has said how they shall wait."""

import os
import subprocess
import sys

import pytest

from graphmill.training import openmp_waiting
from graphmill.training.openmp_waiting import ALONE, ALONE_ON_AMD, IN_COMPANY, machine_is_quiet, waiting_environment

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


@pytest.mark.parametrize(
    ("amd", "quiet", "turns"),
    [(False, True, ALONE), (True, True, ALONE_ON_AMD), (False, False, IN_COMPANY), (True, False, IN_COMPANY)],
)
def test_without_a_word_about_it_threads_spin_for_a_short_while(
    monkeypatch: pytest.MonkeyPatch, amd: bool, quiet: bool, turns: str
) -> None:
    monkeypatch.setattr(openmp_waiting, "_made_by_amd", lambda: amd)
    found = waiting_environment({"PATH": "/bin"}, lambda: quiet)
    assert found == {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": turns}
    assert int(ALONE_ON_AMD) > int(ALONE) > int(IN_COMPANY)


@pytest.mark.parametrize("name", CHOICES)
def test_who_has_chosen_is_left_alone_and_nobody_looks_at_the_machine(name: str) -> None:
    assert waiting_environment({name: "ACTIVE"}, lambda: pytest.fail("looked")) == {}


def test_a_busy_neighbour_is_company() -> None:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        assert not machine_is_quiet()
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def test_openmp_takes_it() -> None:
    """What the runtime that torch brings along says of itself at its start."""
    environment = {k: v for k, v in os.environ.items() if k not in CHOICES}
    chosen = waiting_environment(environment, lambda: True)
    done = subprocess.run(
        [sys.executable, "-c", "import torch; torch.ones(1 << 20).exp()"],
        env={**environment, **chosen, "OMP_DISPLAY_ENV": "VERBOSE"},
        capture_output=True,
        text=True,
        check=True,
    )
    if "GOMP_SPINCOUNT" not in done.stderr:
        pytest.skip("torch's OpenMP runtime is not GNU's")
    assert f"GOMP_SPINCOUNT = '{chosen['GOMP_SPINCOUNT']}'" in done.stderr
