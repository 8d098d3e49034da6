"""A real webserver, daemon, code server, run worker and training process, killed in a training: nothing stays stuck."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import httpx
import psutil
import pytest
import yaml
from dagster import DagsterRunStatus

from graphmill.orchestration.lost_runs import INTERVAL_SECONDS, NAME
from graphmill.training.checkpoint import CheckpointStore
from graphmill.training.run_directory import RunDirectory
from tests.components.conftest import write_kg
from tests.runs.processes import paced
from tests.training.runs import assert_same, outcome
from tests.training.runs import run as trained_alone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
REPOSITORY = Path(__file__).resolve().parents[2]
STUCK_SECONDS = 120.0
PATIENCE = 300.0  # for what takes long on a loaded machine, and is not what is judged here
SMALL = {
    "model": {"embedding_dim": 16, "hidden_dim": 16, "num_heads": 2},
    "training": {"epochs": 100000, "steps_per_epoch": 3, "patience_epochs": 0, "lr_decay_epochs": 3},
    "acceleration": {"checkpoint_every_epochs": 5},
    "evaluation": {"eval_every": 100000},
}
DEFS = [
    {
        "type": "graphmill.components.GraphDataset",
        "attributes": {"name": "toy", "sources": [{"name": "edges", "format": "kg_csv", "path": "data/01_raw/kg.csv"}]},
    },
    {
        "type": "graphmill.components.EmbeddingModel",
        "attributes": {"dataset": "toy", "system": "hgt", "settings": SMALL},
    },
]


class Daemon:
    """``dagster-daemon run`` of a project of its own, and its instance."""

    def __init__(self, root: Path, more: Mapping[str, str]) -> None:
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
        self.environment = {**os.environ, "DAGSTER_HOME": str(self.home), "OMP_NUM_THREADS": "1", **more}
        self.instance = dg.DagsterInstance.from_config(str(self.home))
        self.webserver: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "dagster._daemon", "run", "-w", "workspace.yaml"]
        with (self.root / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.root, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def start_webserver(self) -> None:
        """Beside the daemon, as ``make ui`` does."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [sys.executable, "-m", "dagster_webserver", "-p", str(self.port), "-w", "workspace.yaml"]
        with (self.root / "webserver.log").open("ab") as log:
            self.webserver = subprocess.Popen(
                command, cwd=self.root, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        self.wait(self.webserver_answers, what="the webserver")

    def webserver_answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"http://127.0.0.1:{self.port}/server_info", timeout=5).status_code == 200
        return False

    def launch(self, job: str) -> None:
        command = [sys.executable, "-m", "dagster", "job", "launch", "-w", "workspace.yaml", "-j", job]
        subprocess.run(command, cwd=self.root, env=self.environment, check=True, capture_output=True, timeout=PATIENCE)

    def runs(self) -> list[dg.DagsterRun]:
        """All runs, the newest first."""
        return list(self.instance.get_runs())

    def looks(self) -> int:
        """How often the sensor for lost runs has looked."""
        states = [each for each in self.instance.all_instigator_state() if each.instigator_name == NAME]
        return sum(len(self.instance.get_ticks(each.instigator_origin_id, each.selector_id)) for each in states)

    def trace(self) -> int:
        """Steps in the run's trace."""
        result = list((self.root / "data/06_models/toy/hgt").glob("*/metrics.jsonl"))
        return result[0].read_text().count("\n") if result else 0

    def run_directory(self) -> RunDirectory:
        """The one that all trainings of this project go on in."""
        (result,) = (self.root / "data/06_models/toy/hgt").glob("*/manifest.json")
        return RunDirectory(result.parent)

    def saved_step(self) -> int:
        """Of the newest checkpoint; 0 without one."""
        result = CheckpointStore(self.run_directory().checkpoints).list()
        return result[-1].step if result else 0

    def processes(self) -> list[psutil.Process]:
        """Those of this project that are alive, whosever children they are."""
        result = []
        for process in psutil.process_iter(["status"]):
            with contextlib.suppress(psutil.Error):
                if process.info["status"] != psutil.STATUS_ZOMBIE and (
                    process.cwd() == str(self.root) or process.environ().get("DAGSTER_HOME") == str(self.home)
                ):
                    result.append(process)
        return result

    def trainings(self) -> list[psutil.Process]:
        """Training processes of this project that are alive, whosever child they are."""
        result = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                result += [process] * ("graphmill.worker" in process.cmdline())
        return result

    def living_run(self) -> dg.DagsterRun | None:
        """The run that trains: its worker lives, there is one training, and that goes on."""
        for result in self.runs():
            if result.status == DagsterRunStatus.STARTED and lives(self, result):
                before = self.trace()
                time.sleep(0.5)
                if len(self.trainings()) == 1 and self.trace() > before:
                    return result
        return None

    def worker_of(self, run: dg.DagsterRun) -> psutil.Process:
        """The process of a run, from the event log."""
        texts = [entry.message or entry.user_message for entry in self.instance.all_logs(run.run_id)]
        pid = next(text for text in texts if "Started process for run (pid:" in text)
        return psutil.Process(int("".join(filter(str.isdigit, pid))))

    def wait(self, condition: Callable[[], Any], seconds: float = PATIENCE, what: str = "") -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if result := condition():
                return result
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
        """As systemd does, what is gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
            self.start()
        if self.webserver is not None and self.webserver.poll() is not None:
            self.start_webserver()

    def status(self, run: dg.DagsterRun) -> DagsterRunStatus:
        return next(r for r in self.runs() if r.run_id == run.run_id).status

    def stop(self) -> None:
        """Every process: one that was just starting would begin one more."""
        while left := self.processes():
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=10)
        self.instance.dispose()


@pytest.fixture
def daemon(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """The trainings of the long tests are not paced, so that kills come at every moment of them."""
    daemon = Daemon(tmp_path, {} if request.node.get_closest_marker("long") else paced(tmp_path / "paced"))
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
        pytest.param("run worker", marks=pytest.mark.long),
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
    looks = daemon.looks()
    daemon.wait(lambda: daemon.looks() >= looks + 3, what="three looks of the sensor")
    before = daemon.trace()
    daemon.wait(lambda: daemon.trace() > before, what="the training, which nobody has stopped,")
    assert worker.is_running()
    assert daemon.status(run) == DagsterRunStatus.STARTED


SHORT_STORM = ("daemon", "run worker")
ALL_KINDS = ("webserver", "daemon", "code server", "run worker", "training process")


def victim(daemon: Daemon, kind: str, trained: dg.DagsterRun) -> psutil.Process:
    worker = daemon.worker_of(trained)
    if kind == "webserver":
        assert daemon.webserver is not None
        return psutil.Process(daemon.webserver.pid)
    if kind == "code server":  # the one that started the run; where its daemon is gone, the one of the daemon there is
        above = worker.parent()
        servers = psutil.Process(daemon.process.pid).children()
        return above if above is not None and "grpc" in above.cmdline() else servers[0]
    if kind == "training process":
        return daemon.trainings()[0]
    return {"daemon": psutil.Process(daemon.process.pid), "run worker": worker}[kind]


def lives(daemon: Daemon, run: dg.DagsterRun) -> bool:
    """Whether its worker does; one that nobody has waited for is dead."""
    with contextlib.suppress(psutil.Error, StopIteration):
        return daemon.worker_of(run).status() != psutil.STATUS_ZOMBIE
    return False


def is_over(daemon: Daemon, stricken: dg.DagsterRun) -> bool:
    """It has ended, or its worker lives."""
    return daemon.status(stricken) != DagsterRunStatus.STARTED or lives(daemon, stricken)


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("kinds", [SHORT_STORM, pytest.param(ALL_KINDS * 12, marks=pytest.mark.long)], ids=len)
def test_a_storm_of_kills_leaves_nothing_stuck_and_loses_nothing(
    kinds: tuple[str, ...], daemon: Daemon, tmp_path: Path
) -> None:
    """At seeded moments of a training. What systemd would start again, and a schedule launch again, the test does."""
    chance = random.Random(40)
    order = chance.sample(kinds, len(kinds)) if len(kinds) > len(ALL_KINDS) else kinds
    daemon.start_webserver()
    daemon.launch("toy_hgt_retrain")
    slowest = 0.0
    for number, kind in enumerate(order):
        trained = daemon.wait(daemon.living_run, what=f"the training before kill {number + 1}")
        time.sleep(chance.uniform(0.0, 4.0))
        saved = daemon.saved_step()
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            victim(daemon, kind, trained).send_signal(signal.SIGKILL)
        began = time.monotonic()
        daemon.start_again()
        daemon.wait(lambda run=trained: is_over(daemon, run), STUCK_SECONDS, f"the end of what the killed {kind} left")
        took = time.monotonic() - began
        slowest = max(slowest, took)
        print(
            f"{time.strftime('%H:%M:%S')} kill {number + 1}: {kind}, over after {took:.0f} s, step {saved}", flush=True
        )
        daemon.wait(lambda: goes_on(daemon), what=f"the training after the kill of the {kind}")
        assert daemon.saved_step() >= saved, kind
        steps = [record["step"] for record in daemon.run_directory().metrics.read("step")]
        assert steps == list(range(1, len(steps) + 1)), kind
        daemon.wait(daemon.webserver_answers, what="the webserver")
    print(f"{len(order)} kills; the slowest end of a run took {slowest:.0f} s")
    daemon.stop()
    trained_in = daemon.run_directory()
    assert not list(trained_in.checkpoints.glob("*.damaged"))
    values = json.loads((trained_in.path / "settings.json").read_text())
    values["data"] = str(daemon.root / values["data"])
    values["training"]["epochs"] = CheckpointStore(trained_in.checkpoints).load("last").epoch + 1
    together, alone = trained_alone(values, trained_in.path.parent), trained_alone(values, tmp_path / "alone")
    assert together["run_dir"] == str(trained_in.path)
    assert_same(outcome(together), outcome(alone))


def goes_on(daemon: Daemon) -> bool:
    """Whether a run trains. Where all have ended, their retries used up, it is launched as a schedule's next tick would."""
    if daemon.living_run() is not None:
        return True
    if all(each.is_finished for each in daemon.runs()) and not will_be_retried(daemon):
        daemon.launch("toy_hgt_retrain")
    return False


def will_be_retried(daemon: Daemon) -> bool:
    """Whether Dagster starts a run again by itself: given some time to do it."""
    deadline = time.monotonic() + INTERVAL_SECONDS + 20
    while time.monotonic() < deadline:
        if not all(each.is_finished for each in daemon.runs()):
            return True
        time.sleep(1)
    return False
