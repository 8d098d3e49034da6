"""A real daemon, code server, run worker and training process, each killed in a training: nothing stays stuck."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
import yaml
from dagster import DagsterRunStatus

from graphmill.orchestration.lost_runs import INTERVAL_SECONDS
from tests.components.conftest import write_kg

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
REPOSITORY = Path(__file__).resolve().parents[2]
STUCK_SECONDS = 120.0
PATIENCE = 300.0  # for what takes long on a loaded machine, and is not what is judged here
SMALL = {
    "model": {"embedding_dim": 16, "hidden_dim": 16, "num_heads": 2, "num_layers": 0},
    "training": {"epochs": 100000, "steps_per_epoch": 3, "patience_epochs": 0},
    "objective": {"contrastive_weight": 0.0},
    "acceleration": {"threads": 1, "checkpoint_every_epochs": 5},
    "evaluation": {"eval_every": 100000},
}
DEFS = [
    {
        "type": "graphmill.components.GraphDataset",
        "attributes": {"name": "toy", "sources": [{"name": "edges", "format": "kg_csv", "path": "data/01_raw/kg.csv"}]},
    },
    {
        "type": "graphmill.components.EmbeddingModel",
        "attributes": {"dataset": "toy", "recipe": "hgt", "settings": SMALL},
    },
]


class Daemon:
    """``dagster-daemon run`` of a project of its own, and its instance."""

    def __init__(self, root: Path) -> None:
        self.root, self.home = root, root / "home"
        package = root / "src" / "tiny"
        (package / "defs" / "toy").mkdir(parents=True)
        (package / "__init__.py").touch()
        shutil.copy(REPOSITORY / "src" / "graphmill" / "definitions.py", package)
        (package / "defs" / "toy" / "defs.yaml").write_text(yaml.safe_dump_all(DEFS))
        (root / "pyproject.toml").write_text(
            textwrap.dedent("""
                [tool.dg]
                directory_type = "project"
                [tool.dg.project]
                root_module = "tiny"
            """)
        )
        module = {"module_name": "tiny.definitions", "attribute": "defs", "working_directory": "src"}
        (root / "workspace.yaml").write_text(yaml.safe_dump({"load_from": [{"python_module": module}]}))
        self.home.mkdir()
        shutil.copy(REPOSITORY / "dagster.yaml", self.home)
        write_kg(root / "data" / "01_raw" / "kg.csv")
        self.environment = {**os.environ, "DAGSTER_HOME": str(self.home), "OMP_NUM_THREADS": "1"}
        self.instance = dg.DagsterInstance.from_config(str(self.home))
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "dagster._daemon", "run", "-w", "workspace.yaml"]
        with (self.root / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.root, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def launch(self, job: str) -> None:
        command = [sys.executable, "-m", "dagster", "job", "launch", "-w", "workspace.yaml", "-j", job]
        subprocess.run(command, cwd=self.root, env=self.environment, check=True, capture_output=True, timeout=PATIENCE)

    def runs(self) -> list[dg.DagsterRun]:
        """All runs, the newest first."""
        return list(self.instance.get_runs())

    def trace(self) -> int:
        """Steps in the run's trace."""
        found = list((self.root / "data/06_models/toy/hgt").glob("*/metrics.jsonl"))
        return found[0].read_text().count("\n") if found else 0

    def worker_of(self, run: dg.DagsterRun) -> psutil.Process:
        """The process of a run, from the event log."""
        texts = [entry.message or entry.user_message for entry in self.instance.all_logs(run.run_id)]
        pid = next(text for text in texts if "Started process for run (pid:" in text)
        return psutil.Process(int("".join(filter(str.isdigit, pid))))

    def wait(self, condition: Callable[[], Any], seconds: float = PATIENCE, what: str = "") -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := condition():
                return found
            time.sleep(0.5)
        log = (self.root / "daemon.log").read_text()[-3000:]
        raise AssertionError(f"{what} did not come in {seconds:g} s; runs: {[r.status for r in self.runs()]}\n{log}")

    def training(self) -> tuple[dg.DagsterRun, psutil.Process]:
        """A run that has trained for some epochs, and its worker."""
        self.launch("toy_hgt_retrain")
        self.wait(lambda: self.trace() > 100, what="the training")
        (run,) = self.runs()
        return run, self.worker_of(run)

    def start_again(self) -> None:
        """As systemd does, where it is gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
            self.start()

    def status(self, run: dg.DagsterRun) -> DagsterRunStatus:
        return next(r for r in self.runs() if r.run_id == run.run_id).status

    def stop(self) -> None:
        processes = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        for run in self.runs():
            if not run.is_finished:
                try:
                    worker = self.worker_of(run)
                    processes += [worker, *worker.children(recursive=True)]
                except (psutil.NoSuchProcess, StopIteration):
                    continue
        self.process.kill()
        for process in processes:
            if process.is_running():
                process.kill()
        self.instance.dispose()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.stop()


def resumed_from(daemon: Daemon, run: dg.DagsterRun) -> int:
    """The epoch that the run's training went on from; 0 while it has not begun."""
    for entry in daemon.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION):
        observation = entry.asset_observation
        if observation is not None and "resumed_from_epoch" in observation.metadata:
            return int(str(observation.metadata["resumed_from_epoch"].value))
    return 0


@pytest.mark.parametrize(
    "killed",
    [
        "run worker",
        pytest.param("code server, run worker", marks=pytest.mark.long),
        pytest.param("daemon, code server, run worker", marks=pytest.mark.long),
    ],
)
def test_the_next_run_starts_by_itself_and_goes_on_whatever_is_killed(killed: str, daemon: Daemon) -> None:
    run, worker = daemon.training()
    server = psutil.Process(worker.ppid())
    processes = {"run worker": worker, "code server": server, "daemon": psutil.Process(daemon.process.pid)}
    for name in killed.split(", "):
        processes[name].send_signal(signal.SIGKILL)
    daemon.start_again()
    began = time.monotonic()
    daemon.wait(lambda: daemon.status(run) == DagsterRunStatus.FAILURE, what="the end of the run")
    assert time.monotonic() - began < STUCK_SECONDS
    (fresh,) = daemon.wait(lambda: [r for r in daemon.runs() if not r.is_finished], what="the next run")
    assert fresh.tags["dagster/parent_run_id"] == run.run_id
    assert daemon.wait(lambda: resumed_from(daemon, fresh), what="the training going on") > 0


@pytest.mark.long
def test_a_run_whose_daemon_was_killed_lives_on_and_is_left_alone(daemon: Daemon) -> None:
    run, worker = daemon.training()
    daemon.process.kill()
    daemon.start_again()
    time.sleep(3 * INTERVAL_SECONDS)  # looks of the sensor
    before = daemon.trace()
    daemon.wait(lambda: daemon.trace() > before, what="the training, which nobody has stopped,")
    assert worker.is_running()
    assert daemon.status(run) == DagsterRunStatus.STARTED
