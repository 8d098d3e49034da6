"""One writer, files that are whole, a trace that equals the uninterrupted one, and old runs that go."""

import json
import logging
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.atomic_files import replacing
from graphmill.errors import InputError, ResourceError, RunLockedError
from graphmill.training.checkpoint import CheckpointStore, Snapshot
from graphmill.training.metrics_log import MetricsLog
from graphmill.training.run_directory import RunDirectory, prune_runs

HOLDER = """
import sys, time
from graphmill.training.run_directory import RunDirectory
with RunDirectory(sys.argv[1]).lock():
    print("locked", flush=True)
    time.sleep(60)
"""


class TestLock:
    def test_another_process_is_named_and_a_kill_frees_it(self, tmp_path: Path) -> None:
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], stdout=subprocess.PIPE, text=True)
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "locked\n"
            with pytest.raises(
                RunLockedError, match=rf"process {holder.pid} on {os.uname().nodename} .* is writing it"
            ):
                RunDirectory(tmp_path).lock().__enter__()
        finally:
            holder.kill()
            holder.wait()
        with RunDirectory(tmp_path).lock():
            pass

    def test_holds_within_one_process_too_and_ends_with_the_block(self, tmp_path: Path) -> None:
        with RunDirectory(tmp_path).lock(), pytest.raises(RunLockedError, match=f"process {os.getpid()} "):
            RunDirectory(tmp_path).lock().__enter__()
        with RunDirectory(tmp_path).lock():
            pass

    def test_a_forked_child_does_not_keep_it(self, tmp_path: Path) -> None:
        with RunDirectory(tmp_path).lock():
            child = os.fork()
            if child == 0:
                signal.pause()
        try:
            with RunDirectory(tmp_path).lock():
                pass
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def test_a_child_that_outlives_its_killed_parent_is_explained(self, tmp_path: Path) -> None:
        script = HOLDER.replace("time.sleep(60)", "import os; child = os.fork(); child and (print(child, flush=True), "
                                "os.kill(os.getpid(), 9)); time.sleep(60)")  # fmt: skip
        parent = subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True)
        assert parent.stdout is not None
        assert parent.stdout.readline() == "locked\n"
        child = int(parent.stdout.readline())
        parent.wait()
        try:
            with pytest.raises(RunLockedError, match=f"process {parent.pid} .* has ended, but a process it started"):
                RunDirectory(tmp_path).lock().__enter__()
        finally:
            os.kill(child, signal.SIGKILL)
            parent.stdout.close()

    def test_a_path_that_cannot_be_a_directory_is_a_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ResourceError, match=r"file/run cannot be made: Not a directory"):
            RunDirectory(tmp_path / "file" / "run").lock().__enter__()


class TestJson:
    def test_numbers_of_every_library_and_non_finite_ones_are_standard_json(self, tmp_path: Path) -> None:
        run = RunDirectory(tmp_path)
        value = {
            "a": np.float32(0.5), "b": torch.tensor(2), "c": np.arange(2), "d": Path("x"), "e": (1, True, None),
            "bad": [math.inf, -math.inf, math.nan], "ü": "ß", 3: np.int64(4),
        }  # fmt: skip
        path = run.write_json("figures.json", value)
        strict = json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(word))
        assert strict == run.read_json("figures.json")
        assert strict == {
            "a": 0.5, "b": 2, "c": [0, 1], "d": "x", "e": [1, True, None], "bad": ["inf", "-inf", "nan"], "ü": "ß",
            "3": 4,
        }  # fmt: skip

    def test_a_failed_write_leaves_the_old_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = RunDirectory(tmp_path)
        run.write_json("figures.json", {"n": 1})
        monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(ResourceError, match=r"figures\.json: No space left on device"):
            run.write_json("figures.json", {"n": 2})
        assert run.read_json("figures.json") == {"n": 1}
        assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]

    def test_what_is_absent_or_broken_is_a_sentence(self, tmp_path: Path) -> None:
        run = RunDirectory(tmp_path)
        with pytest.raises(InputError, match=r"no settings\.json"):
            run.read_json("settings.json")
        (tmp_path / "settings.json").write_text("{")
        with pytest.raises(InputError, match=r"settings\.json is damaged"):
            run.read_json("settings.json")


def step_record(loss: float) -> dict[str, Any]:
    """The least that the engine gives of a step."""
    return {"losses": {"total": loss}, "learning_rate": 0.1}


def epoch_record(loss: float) -> dict[str, Any]:
    return step_record(loss) | {"seconds": 1.0, "per_second": {}}


def train(log: MetricsLog, start: int, stop: int) -> None:
    """Steps ``start`` to ``stop`` of epochs of three steps, with the records that the engine gives."""
    if start and start % 3 == 0:  # a resume at an epoch's end reports that epoch again
        log.append("epoch", start // 3, start, epoch_record(1 / start))
    for step in range(start + 1, stop + 1):
        log.append("step", (step - 1) // 3, step, step_record(1 / step))
        if step % 3 == 0:
            log.append("epoch", step // 3, step, epoch_record(1 / step))


class TestMetrics:
    @pytest.mark.parametrize("checkpoint", range(10))
    @pytest.mark.parametrize("torn", [0, 1, 20])
    def test_a_resumed_trace_equals_the_uninterrupted_one(self, tmp_path: Path, checkpoint: int, torn: int) -> None:
        straight, broken = MetricsLog(tmp_path / "straight"), MetricsLog(tmp_path / "broken")
        train(straight, 0, 12)
        train(broken, 0, 10)
        os.truncate(broken.path, broken.path.stat().st_size - torn)
        resumed = MetricsLog(broken.path)
        resumed.truncate_after(checkpoint // 3, checkpoint)
        train(resumed, checkpoint, 12)
        assert resumed.path.read_bytes() == straight.path.read_bytes()

    def test_a_torn_last_line_is_left_out_and_overwritten(self, tmp_path: Path) -> None:
        log = MetricsLog(tmp_path / "metrics.jsonl")
        log.append("step", 0, 1, step_record(0.5))
        log.close()
        with open(log.path, "ab") as file:
            file.write(b'{"kind": "step", "ep')
        assert [record["step"] for record in log.read()] == [1]
        log.append("step", 0, 2, step_record(0.4))
        assert [record["step"] for record in log.read()] == [1, 2]
        assert log.path.read_bytes().count(b"\n") == 2

    @pytest.mark.parametrize("gone", ["losses", "seconds"])
    def test_a_record_that_lost_a_name_is_left_out(self, tmp_path: Path, gone: str) -> None:
        log = MetricsLog(tmp_path / "metrics.jsonl")
        log.append("epoch", 1, 5, epoch_record(0.5))
        log.append("epoch", 2, 10, {name: value for name, value in epoch_record(0.4).items() if name != gone})
        assert [record["epoch"] for record in log.read("epoch")] == [1]

    def test_nothing_but_a_torn_line(self, tmp_path: Path) -> None:
        log = MetricsLog(tmp_path / "metrics.jsonl")
        log.path.write_bytes(b"x" * 200_000)
        assert log.read() == []
        assert log.truncate_after(0, 0) == 0
        assert log.path.read_bytes() == b""

    def test_of_a_run_without_records(self, tmp_path: Path) -> None:
        log = MetricsLog(tmp_path / "metrics.jsonl")
        assert (log.read(), log.truncate_after(0, 0)) == ([], 0)

    def test_a_full_disk_is_a_sentence(self, tmp_path: Path) -> None:
        if not Path("/dev/full").exists():
            pytest.skip("this system has no /dev/full")
        (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
        with pytest.raises(ResourceError, match=r"cannot write .*metrics\.jsonl: "):
            MetricsLog(tmp_path / "metrics.jsonl").append("step", 0, 1, {})


class TestLogs:
    def test_lines_have_a_time_and_stay_out_of_the_global_tree(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        run, before = RunDirectory(tmp_path), set(logging.Logger.manager.loggerDict)
        with run.lock():
            run.log("train").info("epoch %d, loss %.2f", 1, 0.5)
            run.log("val").warning("mrr fell")
        with run.lock():
            run.log("train").info("resumed")
        first, second = (tmp_path / "train.log").read_text().splitlines()
        assert first[:4].isdigit()
        assert first[19:] == " INFO epoch 1, loss 0.50"
        assert second.endswith(" INFO resumed")
        assert (tmp_path / "val.log").read_text().endswith(" WARNING mrr fell\n")
        assert caplog.records == []
        assert set(logging.Logger.manager.loggerDict) == before


class TestPruning:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        """Runs a (oldest) to f, and things that are no runs."""
        for age, name in enumerate("abcdef"):
            run = RunDirectory(tmp_path / "runs" / name)
            with run.lock():
                path = run.write_json("settings.json", {})
            os.utime(path, (1000 + age, 1000 + age))
        (tmp_path / "runs" / "notes").mkdir()
        (tmp_path / "runs" / "table.csv").write_text("x")
        return tmp_path / "runs"

    def left(self, root: Path) -> str:
        return "".join(sorted(path.name for path in root.iterdir() if len(path.name) == 1))

    def test_keeps_the_newest_and_what_is_no_run(self, root: Path) -> None:
        assert [path.name for path in prune_runs(root, 2, set())] == ["a", "b", "c", "d"]
        assert sorted(path.name for path in root.iterdir()) == ["e", "f", "notes", "table.csv"]
        assert prune_runs(root, 2, set()) == []

    def test_removes_nothing_where_there_are_fewer_than_it_keeps(self, root: Path) -> None:
        assert prune_runs(root, 7, set()) == []
        assert prune_runs(root, 100, set()) == []
        assert self.left(root) == "abcdef"

    def test_spares_the_protected_the_locked_and_the_linked(self, root: Path) -> None:
        (root / "latest").symlink_to(root / "b")
        with RunDirectory(root / "c").lock():
            prune_runs(root, 1, {"a"})
        assert self.left(root) == "abcf"

    def test_spares_the_newest_good_one(self, root: Path) -> None:
        for name in "ab":  # complete embeddings
            (root / name / "embeddings" / "manifest.json").write_text("{}")
        prune_runs(root, 1, set())
        assert self.left(root) == "bf"

    def test_a_final_checkpoint_makes_a_run_good_an_ordinary_one_does_not(self, root: Path) -> None:
        for name, final in (("b", True), ("d", False)):
            store = CheckpointStore(root / name / "checkpoints")
            store.save(Snapshot({}), epoch=1, step=1, learning_rate=0.1, loss=1.0, final=final)
        prune_runs(root, 1, set())
        assert self.left(root) == "bf"

    def test_finishes_what_was_interrupted(self, root: Path) -> None:
        os.replace(root / "a", root / ".pruned-a")
        assert prune_runs(root, 10, set()) == []
        assert not (root / ".pruned-a").exists()

    def test_an_absent_root_is_nothing_to_do(self, tmp_path: Path) -> None:
        assert prune_runs(tmp_path / "absent", 1, set()) == []


def test_pruning_removes_what_killed_exports_left_and_nothing_that_is_written(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "runs" / "a")
    with run.lock():
        run.write_json("settings.json", {})
    left = [run.path / name for name in ("embeddings/.embeddings.csv.1.part", "scorer/.weights.safetensors.2.part")]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text("half")
    with replacing(run.path / "recommendations.parquet") as part:
        assert prune_runs(tmp_path / "runs", 5, set()) == []
        assert part.path.exists()
    assert not any(path.exists() for path in left)
