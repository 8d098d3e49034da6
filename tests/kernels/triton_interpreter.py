"""Triton's kernels on the CPU: in Triton's interpreter, in a process of its own.

``triton.jit`` decides where a function is defined whether it will be interpreted, for Triton's own functions too, and
torch's compiler may have imported Triton before a test gets to ask for it. So the variable is set for a process that runs
these tests alone, and no other test sees an interpreted kernel.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import Phase, settings

from graphmill.kernels import hgt

INSTALLED = importlib.util.find_spec("triton") is not None
INTERPRETED = INSTALLED and os.environ.get("TRITON_INTERPRET") == "1"
"""Whether this process is the one for the interpreter."""

TRITON = ["triton"] if INTERPRETED else []
"""A backend of the tests, in that process."""

FEW = settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
"""Examples there; one that fails is shown as it is, since to look for a smaller one takes minutes."""

Relations = list[tuple[int, int, int]]

_MARKS = (
    pytest.mark.skipif(not INSTALLED, reason="triton is optional: pip install triton (Linux; no GPU is needed)"),
    pytest.mark.skipif(INTERPRETED, reason="this is the process for Triton's interpreter"),
    pytest.mark.slow,
)


def starts_the_process(test: Callable[[], None]) -> Callable[[], None]:
    """Marks of a test that does no more than :func:`run_tests`."""
    for mark in _MARKS:
        test = mark(test)
    return test


def interpret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the edges done by Triton's kernels, on the CPU, where none but a test may ask for them."""
    from graphmill.kernels import hgt_triton

    monkeypatch.setattr(hgt, "edge_backend", lambda *_: hgt_triton)


def light(counts: list[int], relations: Relations, by: int = 10) -> tuple[list[int], Relations]:
    """Fewer nodes and edges in the interpreter, which takes a millisecond or two for each program of a kernel."""
    if not INTERPRETED:
        return counts, relations
    return [-(-n // by) for n in counts], [(s, t, -(-size // by)) for s, t, size in relations]


def run_tests(path: str) -> None:
    """The tests of a file with Triton as their backend, interpreted."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "triton", path]
    # Of xdist the process has nothing: it is no worker, though one may have started it.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, env=inherited | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
