"""Golden loss traces: 50 steps (of the first phase) of every case, at one thread, in ``golden/NAME.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from graphmill.graph.typed_graph import TypedGraph
from graphmill.training.run_directory import RunDirectory
from tests.training.cases import CASES
from tests.training.runs import run, settings_of

FOLDER = Path(__file__).with_name("golden")
THREADS = 1
STEPS = 50
LONG = {
    "training": {"epochs": 5, "steps_per_epoch": 10, "warmup_steps": 5, "patience_epochs": 0},
    "acceleration": {"checkpoint_every_epochs": 0},
    "evaluation": {"eval_every": 5},
}


def trace(name: str, graph: TypedGraph, root: Path, *sections: dict[str, Any]) -> list[float]:
    """The total loss of each of the 50 steps; with two phases, of the second's steps too, epoch by epoch."""
    result = run(settings_of(CASES[name], graph, LONG, *sections), root)
    losses = [record["losses"]["total"] for record in RunDirectory(result["run_dir"]).metrics.read("step")]
    assert len(losses) >= STEPS
    return losses


def read(name: str) -> dict[str, Any]:
    """The committed trace of a case."""
    result: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return result


def write(name: str, losses: list[float]) -> None:
    """Commit a new one."""
    FOLDER.mkdir(exist_ok=True)
    content = {"case": name, "threads": THREADS, "precision": "fp32", "losses": [float(f"{v:.8g}") for v in losses]}
    (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
