"""What becomes of a run whose device fails, has too little memory, or makes numbers that are not finite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphmill.errors import ResourceError
from graphmill.runs.fallback import require_fallback

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["cuda", pytest.param("mps", marks=pytest.mark.long)])
def test_a_failing_device_costs_no_run(kind: str) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "tests.device.failures", kind],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    result = json.loads(process.stdout.splitlines()[-1])
    back = result["falls back"]
    assert back.pop("without leave") == "CUDA error: an illegal memory access was encountered"
    assert list(back) == ["a dtype", "an operator", "a kernel", "an evaluation"]
    for name, run in back.items():
        assert (run["device"], run["steps"], run["reused"], run["later"]) == ("cpu", 8, True, "cpu"), name
        assert run["reason"].startswith(f"{kind} failed in the middle of the run ("), name
        assert run["reason"].endswith("; fell back to the CPU"), name
    short = result["runs short"]
    assert short["shrunk"], "the ladder has found a size"
    assert short["apart"] < 1e-5
    assert short["peak"] > 0
    drawn = [problem.split(" at ") for problem in result["draws ahead"]]
    assert {what for what, _ in drawn} == {"a thread that draws batches uses the device"}
    assert len(drawn) == 1, "both ways of one line"
    if kind == "cuda":
        skipped = result["skips"]
        assert skipped["same"] == [False, False, True, False], "skipped on the device, and read at the epoch's end"
        assert skipped["error"] == "NonFiniteError"
        assert result["casts"] < 1e-6, "weights that are cast together are those that autocast casts"
    else:
        doctor = result["doctor"]
        assert doctor["a training uses"].startswith("mps")
        assert doctor["device mps"].startswith("usable")
        assert "no CUDA device" in doctor["device cuda"]
        assert "GiB available" in doctor["memory"]
        assert all("work" in doctor[f"{kind} on mps"] for kind in ("bf16", "fp16"))
        assert "bf16 on cpu" not in doctor
        result = result["copies"]
        assert len(result["alone"]) == 1, "the rehearsal sees a source that goes before its copy is done"
        assert (result["kept"], result["right"]) == ([], True)
        assert result["waits"] == 1, "a hundred and twenty-eight sources are kept"


def test_several_processes_and_tf32_cannot_fall_back_and_say_so() -> None:
    job: Any = SimpleNamespace(device=torch.device("cuda"), precision="fp32")
    require_fallback(job, 1, "why")
    with pytest.raises(ResourceError) as refused:
        require_fallback(job, 2, "why")
    assert str(refused.value).startswith("cuda failed (why)")
    assert "acceleration.device: cpu" in str(refused.value)
    job.precision = "tf32"
    with pytest.raises(ResourceError, match=r"tf32 cannot .*acceleration\.precision: fp32"):
        require_fallback(job, 1, "why")
