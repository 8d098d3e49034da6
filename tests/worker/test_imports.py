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
print(json.dumps([code, sorted(name for name in sys.modules if "." not in name)]))
"""
HEAVY = {"torch_geometric", "sklearn", "dagster"}


def test_a_worker_that_trains_imports_neither_pyg_nor_scikit_learn(values: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"settings": values, "where": "test", "run_root": str(tmp_path / "runs")}))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    code, names = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    assert list((tmp_path / "runs").glob("*/report.json")), "it trained"
    assert "torch" in names
    assert set(names) & HEAVY == set()
