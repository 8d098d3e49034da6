"""SIGKILLs at random moments of one training: does it finish, and does it equal the run that nobody touched?

``python -m benchmarks.kill_storm [--kills 100] [--json]``. The training is forked from a process that has torch loaded,
so a kill costs no import. What is counted: steps that a kill cost (at most those since the last save), damaged files
that were met on a resume (none may be), and whether weights, optimizer, trace and embeddings equal the run alone.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmill.runs.train import prepare, train
from graphmill.training.checkpoint import CheckpointMissingError, CheckpointStore
from graphmill.training.run_directory import RunDirectory


@dataclass(frozen=True)
class Storm:
    """What the kills did. ``largest_loss``: steps done after the checkpoint that a kill threw the run back to."""

    kills: int
    attempts: int
    largest_loss: int
    damaged: int
    killed_while_writing: int
    result: dict[str, Any]


def storm(values: dict[str, Any], root: Path, *, kills: int, chance: random.Random, longest: float) -> Storm:
    """Start the training again and again, kill it after at most ``longest`` seconds of training, then let it finish.

    Raises:
        RuntimeError: the training came to its end before it was killed so often; give it more epochs.
    """
    run = prepare(values, "kill_storm", root=str(root)).run
    done = attempts = largest = damaged = partial = 0
    while done < kills:
        attempts += 1
        began = _last_step(run)
        child = _fork(values, root)
        # From its first new step on, so that every kill meets a training and not its start.
        if not _wait_for_step(run, began, child):
            raise RuntimeError("the training ended before it could be killed: more epochs are needed")
        time.sleep(chance.uniform(0.0, longest))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            raise RuntimeError("the training ended before its kill: more epochs or shorter waits are needed")
        done += 1
        partial += len(list(run.checkpoints.glob(".*.partial")))
        largest = max(largest, _last_step(run) - _saved_step(run))
        damaged += len(list(run.checkpoints.glob("*.damaged")))
    result = train(values, "kill_storm", root=str(root))
    damaged += len(list(run.checkpoints.glob("*.damaged")))
    return Storm(done, attempts, largest, damaged, partial, result)


def _fork(values: dict[str, Any], root: Path) -> int:
    child = os.fork()
    if child == 0:
        try:
            train(values, "kill_storm", root=str(root))
        finally:
            os._exit(0)
    return child


def _last_step(run: RunDirectory) -> int:
    steps = run.metrics.read("step")
    return int(steps[-1]["step"]) if steps else 0


def _saved_step(run: RunDirectory) -> int:
    """The step of the newest checkpoint, verified."""
    try:
        loaded = CheckpointStore(run.checkpoints).load()
    except CheckpointMissingError:
        return 0
    return loaded.step


def _wait_for_step(run: RunDirectory, began: int, child: int) -> bool:
    before = run.metrics.path.stat().st_mtime_ns if run.metrics.path.exists() else 0
    while True:
        if run.metrics.path.exists() and run.metrics.path.stat().st_mtime_ns > before and _last_step(run):
            return True
        pid, _ = os.waitpid(child, os.WNOHANG)
        if pid:
            return False
        time.sleep(0.002)


def main(arguments: list[str]) -> int:
    """Run the storm on the biomedical sample and write ``benchmarks/results/kill_storm.json``."""
    from tests.training.cases import CASES
    from tests.training.runs import assert_same, outcome, settings_of

    from benchmarks.card import row, write
    from graphmill.runs.resolve import merge

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=0, help="of four steps each; 0: 20 per kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/kill_storm.json")
    options = parser.parse_args(arguments)
    rows = []
    for name in ("hgt-full", "conve-slcwa"):
        with tempfile.TemporaryDirectory() as folder:
            graph = CASES[name].graph(Path(folder) / "graph")
            changes = {
                "training": {"epochs": options.epochs or 20 * options.kills, "patience_epochs": 0},
                "evaluation": {"eval_every": 50},
                "acceleration": {"checkpoint_every_epochs": 2},
            }
            values = merge(settings_of(CASES[name], graph), changes)
            chance = random.Random(options.seed)
            found = storm(values, Path(folder) / "storm", kills=options.kills, chance=chance, longest=0.4)
            alone = train(values, "kill_storm", root=str(Path(folder) / "alone"))
            assert_same(outcome(found.result), outcome(alone))
        what = f"{name}, {found.kills} kills"
        note = f"{found.killed_while_writing} kills while a checkpoint was written; equal to the run alone, bit for bit"
        lost = float(found.largest_loss)
        rows.append(row(what, "most steps lost by a kill", "steps", lost, target="ours <= 8", note=note))
        rows.append(row(what, "damaged files met", "files", float(found.damaged), target="ours <= 0", note=note))
    for r in rows:
        print(f"{r.workload}: {r.metric} {r.ours:g} ({r.target}). {r.note}")
    if options.json:
        command = f"python -m benchmarks.kill_storm --json --kills {options.kills} --seed {options.seed}"
        print(f"wrote {write('kill_storm', rows, command).name}")
    return 0 if all(r.holds for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
