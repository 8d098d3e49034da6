"""No accelerator runs these tests, so every system's whole life is rehearsed on a pretended one (``pretend.py``).

One process for all cases, device and precision; a case fails here where it would have failed on the device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.device.rehearsal import AS_IT_IS, MANY_RELATIONS, counted_in_ci
from tests.training.cases import STEPPED

ROOT = Path(__file__).parents[2]
MOST_WAITS = 2
"""In a step of each phase."""


def most_launches(name: str) -> int:
    """In a step of each phase. A sampled mode has four micro-batches."""
    if name == AS_IT_IS:
        return 700
    return 3000 if "sampled" in name else 1500


WAYS = ["kgat", "conve-kvsall", "sasrec", "hgt-softmax"]
"""Cases whose step is not that of another one."""
OTHERS = ["mf-softmax", "lightgcn", "mmgcn", "dragon", "conve-softmax", "complex", "rotate", "nbfnet", AS_IT_IS]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("device", "precision", "cases"),
    [
        ("mps", "fp32", WAYS),
        ("cuda", "fp32", [*WAYS, *OTHERS]),
        pytest.param("mps", "fp32", [], marks=pytest.mark.long),
        pytest.param("cuda", "fp32", [], marks=pytest.mark.long),
        pytest.param("cuda", "bf16", [], marks=pytest.mark.long),
        pytest.param("cuda", "fp16", [], marks=pytest.mark.long),
    ],
)
def test_every_case_lives_through_without_a_problem(
    device: str, precision: str, cases: list[str], tmp_path: Path
) -> None:
    """All cases, or some: others of these systems are in the long tests."""
    out = tmp_path / "found.json"
    command = [sys.executable, "-m", "tests.device.rehearsal", device, *cases, "--precision", precision]
    command += ["--out", str(out)]
    process = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    result = json.loads(out.read_text())
    assert {name: one["error"] for name, one in result.items() if one["error"]} == {}
    assert {name: one["problems"] for name, one in result.items() if one["problems"]} == {}
    counts = {(name, phase): count for name, one in result.items() for phase, count in one["steps"].items()}
    assert min(counts.values()) >= 6, counts  # two epochs of three, however often it was stopped
    assert (len(result["hgt-softmax"]["phases"]), len(result["kgat"]["phases"])) == (1, 2)
    waits = {name: one["a_step"]["waits"] for name, one in result.items()}
    assert {name: count for name, count in waits.items() if count > MOST_WAITS} == {}
    if device == "cuda" and precision != "fp16":  # Adagrad's steps are skipped on the device
        assert waits["complex"] == waits["hgt-softmax"] == waits[AS_IT_IS] == 0
    launches = {name: one["a_step"]["launches"] for name, one in result.items()}
    assert {name: count for name, count in launches.items() if count > most_launches(name)} == {}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_many_relations_in_half_precision(precision: str, tmp_path: Path) -> None:
    """What the rehearsal of all cases leaves out."""
    names = [name for name in MANY_RELATIONS if not counted_in_ci(name, precision)]
    out = tmp_path / "found.json"
    command = [sys.executable, "-m", "tests.device.rehearsal", "cuda", *names]
    command += ["--precision", precision, "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    result = json.loads(out.read_text())
    assert list(result) == names
    for name, one in result.items():
        assert (one["error"], one["problems"]) == ("", {}), name
        assert one["a_step"]["launches"] <= most_launches(name), name
        assert one["a_step"]["waits"] <= MOST_WAITS, name


def _apart(device: str, cases: list[str]) -> dict[str, float]:
    """The cases whose losses differ from the CPU's by more than rounding."""
    command = [sys.executable, "-m", "tests.device.traces", device, *cases]
    process = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    result = json.loads(process.stdout.splitlines()[-1])
    assert list(result) == cases
    return {name: apart for name, apart in result.items() if not apart <= 1e-5}


@pytest.mark.parametrize("device", ["cuda", pytest.param("mps", marks=pytest.mark.long)])
def test_ways_of_their_own_lead_to_the_cpus_losses(device: str) -> None:
    assert _apart(device, WAYS) == {}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_every_other_case_has_the_cpus_losses(device: str) -> None:
    assert _apart(device, [name for name in STEPPED if name not in WAYS]) == {}


def test_the_layers_of_the_kernel_workload_take_few_launches_and_no_wait(tmp_path: Path) -> None:
    """HGT's layers on a twentieth of the 67,000 nodes, whose count is that of the whole."""
    out = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks.device.launches", "--scale", "0.05", "--json", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    result = json.loads(out.read_text())
    assert result["launches"] <= 400
    assert result["waits"] == 0
