"""What a worker process must not import: packages that cost start-up time and memory and that it has no use for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.runs.processes import PATIENCE, environment

PROGRAM = """
import json, sys
from graphmill.worker.__main__ import main
code = main(["--job", sys.argv[1]])
print(json.dumps([code, sorted(sys.modules)]))
"""
HEAVY = {"torch_geometric", "sklearn", "dagster", "torch._dynamo"}
"""``torch._dynamo`` is torch's compiler: more than a second of start-up time."""


def test_a_worker_imports_no_library_that_it_does_not_need(values: dict[str, Any], tmp_path: Path) -> None:
    names = modules_after({"settings": values, "where": "test", "run_root": str(tmp_path / "runs")}, tmp_path)
    [report] = (tmp_path / "runs").glob("*/report.json")
    assert "torch" in names
    assert names & HEAVY == set()
    for mode in ("export", "links"):
        names = modules_after({"mode": mode, "run_dir": str(report.parent)}, tmp_path)
        assert "torch" in names, mode
        assert names & (HEAVY - {"sklearn"}) == set(), mode


def modules_after(job: dict[str, Any], folder: Path) -> set[str]:
    """The modules of a worker that has done this job."""
    path = folder / "job.json"
    path.write_text(json.dumps(job))
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    code, names = json.loads(process.stdout.splitlines()[-1])
    assert code == 0, process.stderr
    return set(names)
