"""One contract for every place where a training may run: live figures, a saved checkpoint, a verdict, no orphans.

Kubernetes is a stub of its API server that checks the manifest and runs the pod's command here. Ray is a real cluster.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import psutil
import pytest
import yaml

from graphmill.errors import SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.launchers import contract as remote
from graphmill.launchers import k8s, ray, start
from graphmill.launchers.contract import UNSEEN, WorkerCommand
from graphmill.launchers.settings import LauncherSettings
from graphmill.orchestration import pipes
from graphmill.orchestration.pipes import WorkerClient, WorkerReport, explain
from graphmill.runs.resolve import merge
from graphmill.settings import parse
from graphmill.training.metrics_log import MetricsLog
from tests.training.cases import CASES, typed_graph
from tests.training.runs import settings_of

KEY = dg.AssetKey(["toy", "model"])
WORKER = """
import os, signal, sys, time
from dagster_pipes import open_dagster_pipes
def asked(*_):
    open("checkpoint", "a").close()
    os._exit(75)
signal.signal(signal.SIGTERM, asked)
signal.signal(signal.SIGINT, asked)
with open_dagster_pipes() as pipes:
    what = pipes.extras["what"]
    saved = int(os.path.exists("checkpoint"))
    pipes.report_custom_message({"kind": "started", "device": "cpu", "resumed_from_epoch": saved})
    if what == "wait" and not os.path.exists("checkpoint"):
        open("pid", "w").write(str(os.getpid()))
        time.sleep(600)
    pipes.report_custom_message({"kind": "result", "job": pipes.extras, "cwd": os.getcwd(), "own": os.environ.get("OWN")})
"""


class Cluster:
    """A stub of Kubernetes' API server: takes a Job, runs its pod's command as a process here, and tells its state."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.jobs, self.pods = folder, dict[str, dict[str, Any]](), dict[str, subprocess.Popen[bytes]]()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def config(self) -> Path:
        names = {"name": "stub", "context": {"cluster": "stub", "user": "stub"}}
        text = {"apiVersion": "v1", "kind": "Config", "current-context": "stub", "contexts": [names]}
        text |= {"clusters": [{"name": "stub", "cluster": {"server": self.address}}]}
        path = self.folder / "kubeconfig"
        path.write_text(yaml.safe_dump({**text, "users": [{"name": "stub", "user": {"token": "t"}}]}))
        return path

    def create(self, job: dict[str, Any]) -> None:
        validate = pytest.importorskip("kubernetes_validate")
        validate.validate(job, validate.latest_version(), strict=True)
        name, container = job["metadata"]["name"], job["spec"]["template"]["spec"]["containers"][0]
        self.jobs[name] = job
        given = {each["name"]: each["value"] for each in container["env"]}
        with (self.folder / f"{name}.log").open("wb") as log:
            self.pods[name] = subprocess.Popen(
                container["command"], env={**os.environ, **given}, stdout=log, stderr=log, start_new_session=True
            )

    def pod(self, name: str) -> dict[str, Any]:
        code = self.pods[name].poll()
        code = code if code is None or code >= 0 else 128 - code
        state = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
        status = {"name": "worker", "state": state, "image": "i", "imageID": "i", "ready": False, "restartCount": 0}
        return {"metadata": {"name": f"{name}-pod"}, "status": {"phase": "Running", "containerStatuses": [status]}}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self, content: Any) -> None:
                body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain" if isinstance(content, str) else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                cluster.create(job)
                self._answer(job)

            def do_GET(self) -> None:
                if "/log" in self.path:
                    name = self.path.split("/pods/")[1].split("-pod/")[0]
                    return self._answer((cluster.folder / f"{name}.log").read_text())
                name = self.path.split("job-name%3D")[1].split("&")[0]
                return self._answer({"kind": "PodList", "apiVersion": "v1", "items": [cluster.pod(name)]})

            def do_DELETE(self) -> None:
                name = self.path.split("/jobs/")[1].split("?")[0]
                cluster.pods[name].send_signal(signal.SIGTERM)
                self._answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=30):
        return True
    return False


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[str]:
    """A local Ray of two CPUs, by its command."""
    pytest.importorskip("ray")
    environment = {**os.environ, "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "240", "RAY_DISABLE_IMPORT_WARNING": "1"}
    environment |= {"RAY_AUTH_MODE": "disabled", "PYTHONPATH": os.pathsep.join(sys.path)}
    port, agent_port, client_port = (_free_port() for _ in range(3))
    # Each test process has a cluster of its own. `ray stop` would end those of the others too.
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # a short path, since sockets lie in it
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=2"]
        command += ["--port=0", f"--dashboard-port={port}", f"--dashboard-agent-listen-port={agent_port}"]
        command += [f"--temp-dir={folder}", f"--ray-client-server-port={client_port}", "--disable-usage-stats"]
        with open(Path(folder) / "output", "w+") as output:
            head = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
            try:
                deadline = time.monotonic() + 400
                while not _answers(f"http://127.0.0.1:{port}/api/jobs/"):
                    assert head.poll() is None, Path(folder, "output").read_text()
                    assert time.monotonic() < deadline, Path(folder, "output").read_text()
                    time.sleep(0.2)
                yield f"http://127.0.0.1:{port}"
            finally:
                head.terminate()
                head.wait(120)


@pytest.fixture(
    params=[
        "local",
        "k8s",
        pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ]
)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LauncherSettings]:
    """Settings of a launcher whose machines see ``tmp_path``."""
    kind = request.param
    if kind == "k8s":
        config = pytest.importorskip("kubernetes").config.kube_config
        cluster = Cluster(tmp_path)
        monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", str(cluster.config()))
        yield LauncherSettings(kind="k8s", image="shop:1", python=sys.executable, gpus=1, memory_gib=8)
        cluster.server.shutdown()
    elif kind == "ray":
        address = request.getfixturevalue("ray_cluster")
        yield LauncherSettings(kind="ray", address=address, python=sys.executable)
    else:
        yield LauncherSettings(kind=kind)


class Materialize:
    def __init__(self, folder: Path, place: LauncherSettings) -> None:
        self.folder, self.place, self.instance = folder, place, dg.DagsterInstance.ephemeral()
        self.reports: list[WorkerReport] = []

    def __call__(self, what: str, root: str = "", **client: float) -> dg.ExecuteInProcessResult:
        path = self.folder / "worker.py"
        path.write_text(textwrap.dedent(WORKER))
        place = self.place.model_copy(update={"root": root}) if root else self.place

        @dg.asset(key=KEY)
        def model(context: dg.AssetExecutionContext, worker: WorkerClient) -> dg.MaterializeResult:
            report = worker.run(
                context,
                extras={"what": what},
                asset_key=KEY,
                cwd=str(self.folder),
                command=[sys.executable, str(path)],
                environment={"OWN": "of the resource"},
                launcher=place,
            )
            self.reports.append(report)
            return dg.MaterializeResult()

        worker = WorkerClient(**{"observe_seconds": 0.0, "retry_wait_seconds": 0.0, "grace_seconds": 10.0, **client})
        return dg.materialize([model], resources={"worker": worker}, instance=self.instance, raise_on_error=False)

    def started(self) -> int:
        return len(self.instance.fetch_observations(KEY, limit=100).records)


@pytest.fixture
def materialize(tmp_path: Path, place: LauncherSettings) -> Materialize:
    return Materialize(tmp_path, place)


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    (event,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    return str(
        event.step_failure_data.user_failure_data.description if event.step_failure_data.user_failure_data else ""
    )


def wait_for(path: Path, seconds: float = 120) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.1)
    raise AssertionError(f"{path.name} did not come")


def wait_until(condition: Callable[[], bool], message: Callable[[], str], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, message()
        time.sleep(0.2)


def test_the_job_arrives_and_its_result_comes_back(materialize: Materialize, tmp_path: Path) -> None:
    assert materialize("end").success
    (report,) = materialize.reports
    assert report.result["job"] == {"what": "end"}
    assert (report.result["cwd"], report.result["own"]) == (str(tmp_path), "of the resource")
    assert materialize.started() == 1
    assert not list(tmp_path.rglob("messages")), "the file of messages is gone"


def test_a_killed_worker_is_started_again_and_goes_on(materialize: Materialize, tmp_path: Path) -> None:
    def kill() -> None:
        pid = int(wait_for(tmp_path / "pid"))
        while not materialize.started():
            time.sleep(0.1)  # its figures come while it runs
        (tmp_path / "checkpoint").touch()
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    result = materialize("wait")
    killer.join()
    assert result.success, failure_of(result)
    assert materialize.reports[-1].started["resumed_from_epoch"] == 1


def test_asked_to_stop_it_saves_and_nothing_is_left(place: LauncherSettings, tmp_path: Path) -> None:
    (tmp_path / "messages").touch()
    script = tmp_path / "worker.py"
    script.write_text(
        "import os, signal, time\n"
        "def asked(*_):\n    open('checkpoint', 'w').write('saved')\n    os._exit(75)\n"
        "signal.signal(signal.SIGTERM, asked)\nsignal.signal(signal.SIGINT, asked)\n"
        "open('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    command = [sys.executable, str(script)]
    worker = start(place, WorkerCommand(command, {}, str(tmp_path), str(tmp_path / "messages")))
    pid = int(wait_for(tmp_path / "pid"))
    assert worker.poll() is None
    worker.stop(60)
    worker.kill()
    assert wait_for(tmp_path / "checkpoint") == "saved"
    deadline = time.monotonic() + 30
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.1)


def test_a_machine_that_does_not_see_the_projects_folder_says_so(materialize: Materialize, tmp_path: Path) -> None:
    if not materialize.place.elsewhere:
        pytest.skip("this machine is the one that asks")
    result = materialize("end", root="/mnt/nowhere")
    assert not result.success
    assert "/mnt/nowhere/data/06_models/.messages/" in failure_of(result)
    assert "launcher.root" in failure_of(result)
    assert not materialize.reports


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (LauncherSettings(kind="k8s", image="shop:1", context="nobody"), "launcher: Kubernetes does not take the Job"),
        (LauncherSettings(kind="ray", address="http://127.0.0.1:9"), "launcher: no Ray cluster takes jobs at"),
    ],
    ids=["k8s", "ray"],
)
def test_a_place_that_is_not_there_is_one_sentence(place: LauncherSettings, sentence: str, tmp_path: Path) -> None:
    pytest.importorskip({"ray": "ray", "k8s": "kubernetes"}.get(place.kind, "dagster"))
    result = Materialize(tmp_path, place)("end")
    assert sentence in failure_of(result)
    assert "\n" not in failure_of(result)


def test_a_setting_of_another_place_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"launcher\.image is of k8s, but launcher\.kind is ray"):
        parse(LauncherSettings, {"kind": "ray", "image": "shop:1"}, "launcher")
    with pytest.raises(SettingsError, match=r"launcher\.image is missing"):
        parse(LauncherSettings, {"kind": "k8s"}, "launcher")


def test_a_pod_that_pulls_no_image_ends_with_the_reason_and_a_server_that_stays_away_counts_as_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = pytest.importorskip("kubernetes").config.kube_config

    class Stuck(Cluster):
        def create(self, job: dict[str, Any]) -> None:
            self.pods[job["metadata"]["name"]] = subprocess.Popen(["sleep", "60"])

        def pod(self, name: str) -> dict[str, Any]:
            result = {**super().pod(name)}
            result["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ErrImagePull"}}
            return result

    cluster, command = Stuck(tmp_path), WorkerCommand(["python"], {}, "/", "/messages")
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", str(cluster.config()))
    monkeypatch.setattr(remote, "ASK_EVERY_SECONDS", 0.0)
    worker = k8s.KubernetesWorker(LauncherSettings(kind="k8s", image="shop:1"), command)
    assert worker.poll() == UNSEEN
    cause, may_pass = explain(UNSEEN, WorkerReport(), worker.stderr_tail())
    assert "ErrImagePull" in cause
    assert "launcher.image" in cause
    assert not may_pass
    (pod,) = cluster.pods.values()
    assert pod.wait(30) == -signal.SIGTERM, "its Job is deleted"

    worker = k8s.KubernetesWorker(LauncherSettings(kind="k8s", image="shop:1"), command)
    cluster.server.shutdown()
    cluster.server.server_close()
    assert worker.poll() is None
    monkeypatch.setattr(remote, "LOST_SECONDS", 0.0)
    assert worker.poll() == -9
    deleted: list[str] = []
    monkeypatch.setattr(worker._jobs, "delete_namespaced_job", lambda name, *_, **__: deleted.append(name))
    worker.kill()
    assert deleted == [worker._name], "it may still run: the next Job would find its run directory locked"
    for pod in cluster.pods.values():
        pod.kill()


def test_a_pod_and_a_job_that_wait_for_a_node_say_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = pytest.importorskip("kubernetes").config.kube_config
    ray_job = pytest.importorskip("ray.job_submission")

    class Full(Cluster):
        def create(self, job: dict[str, Any]) -> None:
            self.pods[job["metadata"]["name"]] = subprocess.Popen(["sleep", "60"])

        def pod(self, name: str) -> dict[str, Any]:
            why = 'persistentvolumeclaim "graphmill-data" not found.'
            unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
            return {**super().pod(name), "status": {"phase": "Pending", "conditions": [unscheduled]}}

    cluster, command = Full(tmp_path), WorkerCommand(["python"], {}, "/", "/messages")
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", str(cluster.config()))
    pod = k8s.KubernetesWorker(LauncherSettings(kind="k8s", image="shop:1"), command)
    monkeypatch.setattr(remote, "ASK_EVERY_SECONDS", 0.0)
    assert pod.poll() is None
    assert 'persistentvolumeclaim "graphmill-data" not found.' in pod.waits_for()

    class Pending:
        status = "PENDING"

        def __init__(self, address: str | None) -> None:
            pass

        def submit_job(self, **_: Any) -> str:
            return "job"

        def get_job_info(self, job: str) -> SimpleNamespace:
            return SimpleNamespace(status=self.status)

    monkeypatch.setattr(ray_job, "JobSubmissionClient", Pending)
    monkeypatch.setattr(remote, "ASK_EVERY_SECONDS", 0.0)
    job = ray.RayWorker(LauncherSettings(kind="ray"), replace(command, processes=2))
    assert (job.poll(), job.waits_for()) == (None, "")  # many begin within half a minute
    monkeypatch.setattr(ray, "WAITS_SECONDS", 0.0)
    assert job.waits_for() == ray.WAITS
    Pending.status = "RUNNING"
    assert (job.poll(), job.waits_for()) == (None, "")

    said: list[str] = []
    codes = iter([None, None, None, 0])
    waiting = SimpleNamespace(poll=lambda: next(codes), note_descendants=lambda: None, waits_for=lambda: "it waits")
    monkeypatch.setattr(pipes, "NOTE_DESCENDANTS_EVERY_SECONDS", 0.0)
    assert pipes._watch(waiting, SimpleNamespace(read=lambda: None), said.append) == 0  # type: ignore[arg-type]
    assert said == ["it waits"]
    for process in cluster.pods.values():
        process.kill()


def test_a_dashboard_that_is_away_ends_no_training_and_one_that_stays_away_counts_as_a_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray_job = pytest.importorskip("ray.job_submission")

    class Away:
        def __init__(self, address: str | None) -> None:
            self.stopped = 0

        def submit_job(self, **_: Any) -> str:
            return "job"

        def get_job_info(self, job: str) -> None:
            raise ConnectionError("refused")

        def stop_job(self, job: str) -> None:
            self.stopped += 1
            raise ConnectionError("refused")

    monkeypatch.setattr(ray_job, "JobSubmissionClient", Away)
    monkeypatch.setattr(remote, "ASK_EVERY_SECONDS", 0.0)
    worker = ray.RayWorker(LauncherSettings(kind="ray"), WorkerCommand(["python"], {}, "/", "/messages"))
    assert worker.poll() is None
    worker.kill()
    monkeypatch.setattr(remote, "LOST_SECONDS", 0.0)
    assert worker.poll() == -9, "as if it had been killed: the step is repeated, and resumes"
    worker.kill()
    assert worker._client.stopped == 2, "it is asked to end, should it still be there"


class Together:
    """A training of two processes in a Ray job, and these on this machine."""

    def __init__(self, folder: Path, address: str, checkpoint_every_epochs: int) -> None:
        typed_graph(folder / "graph")
        values = settings_of(CASES["hgt-full"], TypedGraph.open(folder / "graph"))
        more = {"acceleration": {"processes": 2, "checkpoint_every_epochs": checkpoint_every_epochs}}
        self.values = {**merge(values, more), "data": "graph"}
        self.folder, self.instance = folder, dg.DagsterInstance.ephemeral()
        self.place = LauncherSettings(kind="ray", address=address, python=sys.executable, memory_gib=0.5)
        self.reports: list[WorkerReport] = []

    def __call__(self, epochs: int) -> dg.ExecuteInProcessResult:
        @dg.asset(key=KEY)
        def model(context: dg.AssetExecutionContext, worker: WorkerClient) -> dg.MaterializeResult:
            job = {"settings": merge(self.values, {"training": {"epochs": epochs}}), "run_root": "runs"}
            where: Any = {"asset_key": KEY, "cwd": str(self.folder), "processes": 2, "launcher": self.place}
            self.reports.append(worker.run(context, extras=job, **where))
            return dg.MaterializeResult()

        worker = WorkerClient(observe_seconds=0.0, retry_wait_seconds=0.0)
        return dg.materialize([model], resources={"worker": worker}, instance=self.instance, raise_on_error=False)

    def ranks(self) -> list[psutil.Process]:
        result = []
        for process in psutil.process_iter(["cmdline", "status"]):
            with contextlib.suppress(psutil.Error):  # one that ends while it is looked at
                if "graphmill.worker" in (process.info["cmdline"] or []) and process.cwd() == str(self.folder):
                    result.append(process)
        return result

    def epochs(self) -> list[int]:
        """Those that the trace has."""
        traces = list(self.folder.glob("runs/*/metrics.jsonl"))
        return [record["epoch"] for trace in traces for record in MetricsLog(trace).read("epoch")]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_processes_of_a_ray_job_train_together_and_go_on_when_one_is_killed(
    ray_cluster: str, tmp_path: Path
) -> None:
    """The loss of one ends both, and both go on."""
    together = Together(tmp_path, ray_cluster, 1)

    ended = threading.Event()

    def kill() -> None:
        while not list(tmp_path.glob("runs/*/checkpoints/*.safetensors")):
            if ended.wait(0.05):
                return
        max(together.ranks(), key=lambda process: process.create_time()).kill()

    killer = threading.Thread(target=kill)
    killer.start()
    result = together(60)
    ended.set()
    killer.join()
    assert result.success, failure_of(result)
    assert together.reports[-1].started["resumed_from_epoch"] > 0
    assert together.reports[-1].result["run_dir"].startswith("runs/")
    assert not together.ranks()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_cancelled_training_of_two_processes_on_ray_saves_leaves_nothing_and_resumes(
    ray_cluster: str, tmp_path: Path
) -> None:
    """As the UI cancels: Dagster notes it and interrupts the step. Only the stop itself writes a checkpoint here."""
    together = Together(tmp_path, ray_cluster, 100_000)

    def cancel() -> None:
        while len(together.epochs()) < 3:
            time.sleep(0.05)
        (run,) = together.instance.get_runs()
        together.instance.report_run_canceling(run)
        os.kill(os.getpid(), signal.SIGINT)

    canceller = threading.Thread(target=cancel)
    canceller.start()
    result = together(100_000)
    assert not together.ranks(), "a rank outlives the run"
    canceller.join()
    assert not result.success
    (run,) = together.instance.get_runs()
    assert run.status == dg.DagsterRunStatus.CANCELED
    assert list(tmp_path.glob("runs/*/checkpoints/*.safetensors"))
    reached = together.epochs()[-1]
    result = together(reached + 3)
    assert result.success, failure_of(result)
    assert together.reports[-1].started["resumed_from_epoch"] >= reached - 1
    assert together.epochs() == list(range(1, reached + 4)), "no epoch is missing or written twice"
    assert not together.ranks()
