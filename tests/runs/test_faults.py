"""What happens to long trainings, done to a real worker: signals, damage, full and read-only disks, a second writer."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.errors import RunLockedError
from graphmill.runs.recorder import RunListener
from graphmill.runs.resolve import merge
from graphmill.runs.train import prepare
from graphmill.training.checkpoint import CheckpointStore
from graphmill.training.memory import process_memory
from graphmill.training.run_directory import RunDirectory
from tests.runs.kill_storm import storm
from tests.runs.processes import environment, finish, in_own_mounts, run_directory, start, steps_done, wait_until
from tests.training.runs import Outcome, assert_same, outcome, run

LONG = {
    "training": {"epochs": 4000, "lr_decay_epochs": 3},
    "evaluation": {"eval_every": 100_000},
    "acceleration": {"checkpoint_every_epochs": 5},
}


@pytest.fixture
def long(values: dict[str, Any]) -> dict[str, Any]:
    return merge(values, LONG)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_within_ten_seconds_and_the_rest_equals(
    number: signal.Signals, long: dict[str, Any], tmp_path: Path
) -> None:
    process = start(long, tmp_path)
    wait_until(lambda: steps_done(tmp_path) > 20, process)
    process.send_signal(number)
    began = time.monotonic()
    code, stderr = finish(process)
    assert time.monotonic() - began < 10
    assert code == 75, stderr
    assert "stopped as asked after" in stderr
    assert "Traceback" not in stderr
    run_dir = run_directory(tmp_path)
    assert run_dir is not None
    saved = CheckpointStore(run_dir / "checkpoints").list()[-1]
    assert saved.step == steps_done(tmp_path), "nothing that was done is lost"
    few = merge(long, {"training": {"epochs": saved.epoch + 2}})
    together = outcome(run(few, tmp_path))
    assert_same(together, outcome(run(few, tmp_path / "alone")))


def test_a_damaged_checkpoint_is_passed_over_and_the_rest_equals(long: dict[str, Any], tmp_path: Path) -> None:
    process = start(long, tmp_path / "torn")
    wait_until(lambda: steps_done(tmp_path / "torn") > 60, process)
    process.kill()
    finish(process)
    shutil.copytree(tmp_path / "torn", tmp_path / "flipped")
    results = []
    for damage in ("torn", "flipped"):
        run_dir = run_directory(tmp_path / damage)
        assert run_dir is not None
        before, newest = CheckpointStore(run_dir / "checkpoints").list()[-2:]
        content = bytearray(newest.path.read_bytes())
        if damage == "torn":
            del content[len(content) // 2 :]
        else:
            content[-7] ^= 1
        newest.path.write_bytes(content)
        few = merge(long, {"training": {"epochs": newest.epoch + 1}})
        code, stderr = finish(start(few, tmp_path / damage))
        assert code == 0, stderr
        assert f"the checkpoint {newest.path} is damaged" in stderr
        assert f"going on from epoch {before.epoch} of" in stderr
        result = run(few, tmp_path / damage)
        assert result["reused"]
        results.append(outcome(result))
    alone = outcome(run(few, tmp_path / "alone"))
    for each in results:
        assert_same(each, alone)


def test_a_second_process_on_one_run_is_refused_and_harms_nothing(long: dict[str, Any], tmp_path: Path) -> None:
    first = start(long, tmp_path)
    wait_until(lambda: steps_done(tmp_path) > 4, first)
    code, stderr = finish(start(long, tmp_path))
    assert code == 2
    assert f"process {first.pid} on" in stderr
    assert "is writing it" in stderr
    with pytest.raises(RunLockedError):
        run(long, tmp_path)
    steps = steps_done(tmp_path)
    wait_until(lambda: steps_done(tmp_path) > steps, first)
    first.kill()
    finish(first)


SMALL_DISK = """
import json, sys
from graphmill.errors import GraphmillError
from graphmill.runs.train import train
values = json.loads(sys.argv[1])
try:
    result = train(values, "test", root=sys.argv[2])
except GraphmillError as error:
    print("exit", error.exit_code, error)
else:
    print("done", result["epochs_done"])
"""


def test_a_disk_that_is_full_or_read_only_ends_in_a_sentence(values: dict[str, Any], tmp_path: Path) -> None:
    few = json.dumps(merge(values, {"training": {"epochs": 2}}))
    more = json.dumps(merge(values, {"training": {"epochs": 3, "lr_decay_epochs": 0}}))
    disk = tmp_path / "disk"
    disk.mkdir()
    program = tmp_path / "program.py"
    program.write_text(SMALL_DISK)
    # Full before the start; then room for a run; then full when the next run wants to save; then read-only.
    script = """
mount -t tmpfs -o size=1m none "$1"
dd if=/dev/zero of="$1/ballast" bs=1k count=940 2>/dev/null
"$2" "$3" "$4" "$1/runs"
rm "$1/ballast"
"$2" "$3" "$4" "$1/runs"
mount -o remount,ro "$1"
"$2" "$3" "$5" "$1/runs"
"""
    out = in_own_mounts(script, str(disk), sys.executable, str(program), few, more).splitlines()
    assert out[0].startswith("exit 2 ")
    assert "more checkpoints of" in out[0] or "cannot write" in out[0]
    assert out[1] == "done 2"
    assert out[2].startswith("exit 2 the run directory ")
    assert "cannot be" in out[2]


def test_the_ladder_finishes_a_run_that_does_not_fit_with_the_same_trace(
    values: dict[str, Any], tmp_path: Path
) -> None:
    plain = merge(values, {"model": {"dropout": 0.0}, "acceleration": {"micro_batches": 1}})
    whole = outcome(run(plain, tmp_path / "whole"))
    step = prepare(plain, "test").system
    largest = sum(array.nbytes for array in step.step(step.phases[0], 0, 0).arrays().values())
    code, stderr = finish(start(plain, tmp_path / "shrunk", GRAPHMILL_ALLOCATION_LIMIT=str(int(largest * 0.6))))
    assert code == 0, stderr
    assert "out of memory in the loss (" in stderr
    assert "going on with loss in 8 chunks" in stderr
    run_dir = run_directory(tmp_path / "shrunk")
    assert run_dir is not None
    report = RunDirectory(run_dir).read_json("report.json")
    assert report["shrunk"]
    assert report["epochs_done"] == 3
    losses = [
        [s["losses"]["total"] for s in steps] for steps in (whole.steps, RunDirectory(run_dir).metrics.read("step"))
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


OUT_OF_MEMORY = re.compile(r"error: out of memory \((.+)\); in use [\d.]+ [KMG]iB, available [\d.]+ [KMGT]iB; (.+)")


def test_the_ladders_end_is_a_sentence_with_what_was_tried(values: dict[str, Any], tmp_path: Path) -> None:
    code, stderr = finish(start(values, tmp_path, GRAPHMILL_ALLOCATION_LIMIT="1"))
    assert code == 2
    assert "Traceback" not in stderr
    result = OUT_OF_MEMORY.fullmatch(stderr.splitlines()[-1])
    assert result, stderr
    assert "the simulated limit is 1 bytes" in result[1]
    assert result[2].startswith("tried: loss in 24 chunks; loss in 192 chunks; ")
    assert "gradient checkpointing on" in result[2]
    assert ". Reduce sampling.edge_sample_size" in result[2]


HUNGRY = """
import sys
import torch
from graphmill.systems.hgt.system import HgtSystem
from graphmill.worker.__main__ import main
HgtSystem.evaluate = lambda *arguments, **options: torch.empty(1 << 60)
sys.exit(main(sys.argv[1:]))
"""


def test_out_of_memory_outside_the_steps_is_a_sentence_too(values: dict[str, Any], tmp_path: Path) -> None:
    """What the allocator itself says when an evaluation asks for more than there is."""
    job = {"settings": values, "where": "test", "run_root": str(tmp_path)}
    (tmp_path / "job.json").write_text(json.dumps(job))
    (tmp_path / "hungry.py").write_text(HUNGRY)
    command = [sys.executable, str(tmp_path / "hungry.py"), "--job", str(tmp_path / "job.json")]
    code, stderr = finish(subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True))
    assert code == 2, stderr
    assert "Traceback" not in stderr
    result = OUT_OF_MEMORY.fullmatch(stderr.splitlines()[-1])
    assert result, stderr
    assert "DefaultCPUAllocator: can't allocate memory" in result[1]
    assert result[2] == "free memory on this machine, or choose a smaller model or graph"


# -- kills -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kills", [8, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_a_storm_of_kills_changes_no_bit(values: dict[str, Any], tmp_path: Path, kills: int) -> None:
    stormy = merge(
        values,
        {
            "training": {"epochs": 6 * kills, "patience_epochs": 0},
            "evaluation": {"eval_every": 40},
            "acceleration": {"checkpoint_every_epochs": 2, "keep_influence": 2},
        },
    )
    result = storm(stormy, tmp_path / "storm", kills=kills, chance=random.Random(1), longest=0.01)
    assert result.kills == kills
    assert result.resumed > kills // 2
    assert result.largest_loss <= 2 * 4, "at most one save interval of steps"
    assert result.damaged == 0
    expected: Outcome = outcome(run(stormy, tmp_path / "alone"))
    assert_same(outcome(result.result), expected)


@pytest.mark.long
@pytest.mark.slow
def test_two_hundred_epochs_leak_nothing(values: dict[str, Any], tmp_path: Path) -> None:
    resident: list[int] = []
    descriptors: list[int] = []
    on_epoch = RunListener.on_epoch

    def watch(self: RunListener, record: dict[str, Any]) -> None:
        on_epoch(self, record)
        resident.append(process_memory())
        descriptors.append(len(os.listdir("/proc/self/fd")))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunListener, "on_epoch", watch)
        run(
            merge(values, {"training": {"epochs": 200, "patience_epochs": 0}, "evaluation": {"eval_every": 10}}),
            tmp_path,
        )
    late = np.array(resident[50:], dtype=float)
    slope = np.polyfit(np.arange(len(late)), late, 1)[0]
    assert slope * 10 < 1_000_000, f"{slope * 10 / 1e6:.2f} MB per 10 epochs"
    assert max(descriptors[50:]) <= descriptors[50] + 1


def test_prepare_writes_nothing(values: dict[str, Any], tmp_path: Path) -> None:
    prepare(values, "test", root=str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()
