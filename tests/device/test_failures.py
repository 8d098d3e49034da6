"""What becomes of a run whose device fails, has too little memory, or makes numbers that are not finite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["cuda", pytest.param("mps", marks=pytest.mark.long)])
def test_a_failing_device_is_said(kind: str) -> None:
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
    said = found["is said"]
    assert said[f"a kernel, {kind}"] == "RuntimeError: CUDA error: an illegal memory access was encountered"
    for name in ("a dtype", "an operator", "a kernel"):
        assert said[f"{name}, auto"].startswith(f"ResourceError: {kind} failed ("), name
        assert "acceleration.device: cpu trains on the CPU" in said[f"{name}, auto"], name
    short = found["runs short"]
    assert short["shrunk"], "the ladder has found a size"
    assert short["apart"] < 1e-5
    assert short["peak"] > 0
    drawn = [problem.split(" at ") for problem in found["draws ahead"]]
    assert {what for what, _ in drawn} == {"a thread that draws batches uses the device"}
    assert len(drawn) == 1, "both ways of one line"
    if kind == "cuda":
        skipped = found["skips"]
        assert skipped["same"] == [False, False, True, False], "skipped on the device, and read at the epoch's end"
        assert skipped["error"] == "NonFiniteError"
        assert found["casts"] < 1e-6, "weights that are cast together are those that autocast casts"
    else:
        doctor = found["doctor"]
        assert doctor["a training uses"].startswith("mps")
        assert doctor["device mps"].startswith("usable")
        assert "no CUDA device" in doctor["device cuda"]
        assert "GiB available" in doctor["memory"]
        assert all("work" in doctor[f"{kind} on mps"] for kind in ("bf16", "fp16"))
        assert "bf16 on cpu" not in doctor
        found = found["copies"]
        assert len(found["alone"]) == 1, "the rehearsal sees a source that goes before its copy is done"
        assert (found["kept"], found["right"]) == ([], True)
        assert found["waits"] == 1, "a hundred and twenty-eight sources are kept"
