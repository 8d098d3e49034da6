"""What becomes of a run whose device fails, has too little memory, or makes numbers that are not finite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_a_failing_device_costs_no_run(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.device.failures", kind],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    back = found["falls back"]
    assert back.pop("without leave") == "CUDA error: an illegal memory access was encountered"
    for name, run in back.items():
        assert (run["device"], run["steps"], run["reused"], run["later"]) == ("cpu", 8, True, "cpu"), name
        assert run["reason"].startswith(f"{kind} failed in the middle of the run ("), name
        assert run["reason"].endswith("; fell back to the CPU"), name
    short = found["runs short"]
    assert short["shrunk"], "the ladder has found a size"
    assert short["apart"] < 1e-5
    assert short["peak"] > 0
    if kind == "cuda":
        assert found["rolls back"]["precision"] == "fp32"
        assert found["rolls back"]["steps"] == 8
        assert found["rolls back"]["problems"] == {}
        assert found["casts"] < 1e-6, "weights that are cast together are those that autocast casts"
    else:
        found = found["copies"]
        assert len(found["alone"]) == 1, "the rehearsal sees a source that goes before its copy is done"
        assert (found["kept"], found["right"]) == ([], True)
        assert found["waits"] == 1, "sixty-four sources are kept"
