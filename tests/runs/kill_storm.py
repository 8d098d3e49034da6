"""SIGKILLs at random moments of one training: does it finish, and does it equal the run that nobody touched?

The training is forked from a process that has torch loaded, so a kill costs no import. What is counted: steps that a kill
cost (at most those since the last save) and damaged files that were met on a resume (none may be).
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmill.runs.train import prepare, train
from graphmill.training.checkpoint import CheckpointMissingError, CheckpointStore
from graphmill.training.run_directory import RunDirectory


@dataclass(frozen=True)
class Storm:
    """What the kills did. ``resumed``: starts that went on from a checkpoint. ``largest_loss``: steps done after the
    checkpoint that a kill threw the run back to."""

    kills: int
    resumed: int
    largest_loss: int
    damaged: int
    killed_while_writing: int
    result: dict[str, Any]


def storm(values: dict[str, Any], root: Path, *, kills: int, chance: random.Random, longest: float) -> Storm:
    """Start the training again and again, kill it, then let it finish.

    Each kill comes after 1 to 20 steps beyond the newest checkpoint and at most ``longest`` seconds more, so that the
    training gets on however slow the machine is.

    Raises:
        RuntimeError: the training came to its end before it was killed so often; give it more epochs.
    """
    run = prepare(values, "kill_storm", root=str(root)).run
    process = resumed = largest = damaged = partial = saved = 0
    while process < kills:
        resumed += saved > 0
        child = _fork(values, root)
        if not _wait_for_step(run, saved + chance.randint(1, 20), child):
            raise RuntimeError("the training ended before it could be killed: more epochs are needed")
        time.sleep(chance.uniform(0.0, longest))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            raise RuntimeError("the training ended before its kill: more epochs or shorter waits are needed")
        process += 1
        partial += len(list(run.checkpoints.glob(".*.part")))
        saved = _saved_step(run)
        largest = max(largest, _last_step(run) - saved)
        damaged += len(list(run.checkpoints.glob("*.damaged")))
    result = train(values, "kill_storm", root=str(root))
    damaged += len(list(run.checkpoints.glob("*.damaged")))
    return Storm(process, resumed, largest, damaged, partial, result)


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


def _wait_for_step(run: RunDirectory, step: int, child: int) -> bool:
    """Whether the child came to ``step`` before it ended."""
    seen = _written(run)
    while True:
        if (now := _written(run)) != seen:
            seen = now
            if _last_step(run) >= step:
                return True
        pid, _ = os.waitpid(child, os.WNOHANG)
        if pid:
            return False
        time.sleep(0.002)


def _written(run: RunDirectory) -> tuple[int, int]:
    """When the trace was written last, and its size."""
    if not run.metrics.path.exists():
        return 0, 0
    state = run.metrics.path.stat()
    return state.st_mtime_ns, state.st_size
