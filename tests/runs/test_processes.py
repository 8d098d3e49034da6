"""Several worker processes: killed, stopped, started on two "machines"; nothing is orphaned and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from graphmill.runs.resolve import merge
from graphmill.training.checkpoint import CheckpointStore
from tests.runs.processes import (
    assert_gone,
    descendants,
    environment,
    finish,
    kill,
    run_directory,
    start,
    steps_done,
    wait_until,
    workers,
)
from tests.training.runs import outcome, run

# Long enough to be interrupted, fast enough to be finished afterwards by asking for fewer epochs.
LONG = {"training": {"epochs": 4000}, "evaluation": {"eval_every": 1000}}
LONG_DECAY = {"training": {"lr_decay_epochs": 3}}


@pytest.fixture
def long(values: dict[str, Any]) -> dict[str, Any]:
    return merge(merge(values, LONG), LONG_DECAY)


def test_a_killed_process_ends_all_and_a_restart_goes_on(long: dict[str, Any], tmp_path: Path) -> None:
    process = start(long, tmp_path, "--processes", "2")
    wait_until(lambda: steps_done(tmp_path) > 20, process)
    everybody = descendants(process)
    kill(workers(process)[1])
    began = time.monotonic()
    code, stderr = finish(process, 60)
    assert time.monotonic() - began < 60
    assert code == 75, stderr
    assert "another process of this training has ended" in stderr
    assert_gone(everybody)

    run_dir = run_directory(tmp_path)
    assert run_dir is not None
    saved = CheckpointStore(run_dir / "checkpoints").list()[-1]
    few = merge(long, {"training": {"epochs": saved.epoch + 2}, "evaluation": {"eval_every": 10_000}})
    code, stderr = finish(start(few, tmp_path, "--processes", "2"))
    assert code == 0, stderr
    assert f"going on from epoch {saved.epoch} of" in stderr
    assert CheckpointStore(run_dir / "checkpoints").list()[-1].epoch == saved.epoch + 2


def test_the_first_process_killed_is_said_to_have_been_killed(long: dict[str, Any], tmp_path: Path) -> None:
    process = start(long, tmp_path, "--processes", "2")
    wait_until(lambda: steps_done(tmp_path) > 4, process)
    everybody = descendants(process)
    kill(workers(process)[0])
    code, _ = finish(process, 60)
    assert code == 128 + signal.SIGKILL
    assert_gone(everybody)


@pytest.mark.parametrize("how", ["SIGTERM to the command", "Ctrl-C at a terminal"])
def test_a_stop_of_the_command_line_saves_in_all_and_ends_with_75(
    how: str, long: dict[str, Any], tmp_path: Path
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump(merge(long, {"acceleration": {"processes": 2}})))
    root = tmp_path / "runs"
    root.mkdir()
    command = [sys.executable, "-m", "graphmill.cli", "train", str(settings), "--output", str(root)]
    process = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_until(lambda: steps_done(root) > 20, process)
    everybody = descendants(process)
    if how.startswith("SIGTERM"):
        process.send_signal(signal.SIGTERM)
    else:  # the terminal sends it to the whole foreground group
        os.killpg(process.pid, signal.SIGINT)
    began = time.monotonic()
    code, stderr = finish(process, 60)
    assert code == 75, stderr
    assert "stopped as asked" in stderr
    assert time.monotonic() - began < 30
    assert_gone(everybody)
    run_dir = run_directory(root)
    assert run_dir is not None
    # Saved at the step at which it stopped, not only at the last epoch's end.
    assert CheckpointStore(run_dir / "checkpoints").list()[-1].step == steps_done(root)


def test_workers_end_with_a_supervisor_that_is_killed(long: dict[str, Any], tmp_path: Path) -> None:
    process = start(long, tmp_path, "--processes", "2")
    wait_until(lambda: steps_done(tmp_path) > 4, process)
    everybody = descendants(process)
    process.kill()
    finish(process, 60)
    assert_gone(everybody, 60)


def test_two_machines_with_one_process_each_train_as_one(values: dict[str, Any], tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    plain = merge(values, {"model": {"dropout": 0.0}})
    root = tmp_path / "runs"
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"settings": plain, "run_root": str(root)}))
    machines = []
    for rank in (0, 1):
        options = ["--nnodes=2", "--nproc-per-node=1", f"--node-rank={rank}", "--master-addr=127.0.0.1"]
        launcher = [sys.executable, "-m", "torch.distributed.run", *options, f"--master-port={port}"]
        command = [*launcher, "-m", "graphmill.worker", "--job", str(job)]
        machines.append(subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True))
    for machine in machines:
        code, stderr = finish(machine)
        assert code == 0, stderr
    run_dir = run_directory(root)
    assert run_dir is not None
    last = CheckpointStore(run_dir / "checkpoints").load("final").snapshot.tensors
    alone = outcome(run(plain, tmp_path / "alone")).tensors
    for name, tensor in alone.items():
        torch.testing.assert_close(last[name], tensor, rtol=1e-3, atol=1e-4)
