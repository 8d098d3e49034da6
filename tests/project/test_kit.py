"""The folder deploy/: what its files say fits together, and the commands of its compose file run on a real PostgreSQL."""

import contextlib
import inspect
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import httpx
import psutil
import pytest
import yaml
from dagster import DagsterRunStatus

from graphmill.launchers import k8s
from graphmill.project.create import init
from graphmill.training.metrics_log import MetricsLog
from tests.components.conftest import write_kg
from tests.runs.processes import paced

SMALL = {
    "model": {"embedding_dim": 16, "hidden_dim": 16, "num_heads": 2},
    "training": {"epochs": 100000, "steps_per_epoch": 3, "patience_epochs": 0},
    "acceleration": {"checkpoint_every_epochs": 5},
    "evaluation": {"eval_every": 100000, "baselines": []},
}
PATIENCE = 300.0


def chain(name: str) -> str:
    """A dataset of its own, and a model that trains until it is stopped."""
    source = {"name": "edges", "format": "kg_csv", "path": "data/01_raw/kg.csv"}
    return yaml.safe_dump_all(
        [
            {"type": "graphmill.components.GraphDataset", "attributes": {"name": name, "sources": [source]}},
            {
                "type": "graphmill.components.EmbeddingModel",
                "attributes": {"dataset": name, "system": "hgt", "settings": SMALL},
            },
        ]
    )


def project(root: Path, dataset: str, repository: Path) -> Path:
    init(root, sample="none")
    shutil.copytree(repository / "deploy", root / "deploy")
    write_kg(root / "data" / "01_raw" / "kg.csv")
    defs = next(root.glob("*/defs")) / dataset
    defs.mkdir()
    (defs / "defs.yaml").write_text(chain(dataset))
    return root


def interpolated(text: str, variables: dict[str, str]) -> str:
    """As docker compose reads ``${NAME:-default}`` and ``${NAME:?message}``."""

    def value(match: re.Match[str]) -> str:
        name, kind, more = match.groups()
        if kind == ":?" and not variables.get(name):
            raise AssertionError(f"{name} is required: {more}")
        return variables.get(name) or (more or "" if kind == ":-" else "")

    return re.sub(r"(?<!\$)\$\{(\w+)(?:(:[-?])([^}]*))?\}", value, text)


def compose(root: Path, variables: dict[str, str]) -> dict[str, Any]:
    names = {"PROJECT_NAME": root.name, "PROJECT_MODULE": f"{root.name}.definitions", "PROJECT_FOLDER": "."}
    return yaml.safe_load(interpolated((root / "deploy/compose.yaml").read_text(), names | variables))


# -- the files -------------------------------------------------------------------------------------------------------

SECRETS = {"POSTGRES_PASSWORD": "s3cret/@", "GRAPHMILL_TOKEN": "a-token-of-thirty-two-characters"}


@pytest.fixture(scope="module")
def kit(repository: Path) -> Path:
    return repository


def test_secrets_stay_out_of_git_and_image(kit: Path) -> None:
    assert ".env" in (kit / "deploy/.gitignore").read_text().split()
    assert "deploy/.env" in (kit / "deploy/Dockerfile.dockerignore").read_text().split()
    assert not re.search(r"^[^#\n]*=.*#", (kit / "deploy/env.example").read_text(), re.M)  # Kubernetes would read it
    with pytest.raises(AssertionError, match=r"POSTGRES_PASSWORD is required: write it into deploy/\.env"):
        compose(kit, {})


def test_each_part_has_a_health_check_and_what_the_instance_reads(kit: Path) -> None:
    services = compose(kit, SECRETS)["services"]
    assert set(services) == {"postgres", "code", "webserver", "daemon", "serve"}
    assert all("healthcheck" in service and service["restart"] == "unless-stopped" for service in services.values())
    read = set(re.findall(r"env: (\w+)", (kit / "deploy/dagster.yaml").read_text()))
    read |= set(re.findall(r"env: (\w+)", (kit / "deploy/workspace.yaml").read_text()))
    assert read <= set(services["code"]["environment"])
    manifests = manifests_of(kit)
    secrets = set(re.findall(r"^(\w+)=", (kit / "deploy/env.example").read_text(), re.M))
    assert read <= secrets | set(manifests[1]["data"])
    commands = {s: services[s]["command"] for s in ("code", "webserver", "daemon", "serve")}
    pods = [m["spec"]["template"]["spec"] for m in manifests if m["kind"] == "Deployment"]
    names = {"$(PROJECT_NAME)": kit.name, "$(PROJECT_MODULE)": f"{kit.name}.definitions", "$(PROJECT_FOLDER)": "."}
    containers = {each["name"]: each["command"] for pod in pods for each in pod["containers"]}
    containers["code"] = [names.get(part, part) for part in containers["code"]]
    assert containers == commands, "the same parts"
    assert {name[2:-1] for name in names} <= secrets
    assert secrets >= {*SECRETS, "TORCH_INDEX"}
    assert kustomization_of(kit)["secretGenerator"] == [{"name": "graphmill", "envs": [".env"]}]
    assert kustomization_of(kit)["resources"] == ["kubernetes.yaml"]


def manifests_of(kit: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((kit / "deploy/kubernetes.yaml").read_text()))


def kustomization_of(kit: Path) -> dict[str, Any]:
    return yaml.safe_load((kit / "deploy/kustomization.yaml").read_text())


def test_the_pod_that_runs_the_steps_may_do_what_the_launcher_k8s_asks_for(kit: Path) -> None:
    named = {(each["kind"], each["metadata"]["name"]): each for each in manifests_of(kit)}
    account = named["Deployment", "dagster"]["spec"]["template"]["spec"]["serviceAccountName"]
    assert ("ServiceAccount", account) in named
    binding = named["RoleBinding", account]
    namespace = kustomization_of(kit)["namespace"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]
    rules = named["Role", binding["roleRef"]["name"]]["rules"]
    allowed = {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    calls = re.findall(r"\.(create|list|read|delete)_namespaced_(\w+)\(", inspect.getsource(k8s))
    resources = {"job": "jobs", "pod": "pods", "pod_log": "pods/log"}
    required = {({"read": "get"}.get(verb, verb), resources[resource]) for verb, resource in calls}
    assert required <= allowed
    assert {("create", "jobs"), ("delete", "jobs"), ("get", "pods/log")} <= required


def test_the_image_installs_the_extras_that_it_is_built_with(kit: Path, repository: Path) -> None:
    dockerfile = (kit / "deploy/Dockerfile").read_text()
    (default,) = re.findall(r"^ARG EXTRAS=(\S+)$", dockerfile, re.M)
    assert re.search(r'^RUN pip install -e \. && pip install "graphmill\[\$\{EXTRAS\}\]"$', dockerfile, re.M)
    assert compose(kit, SECRETS)["services"]["code"]["build"]["args"]["EXTRAS"] == default
    assert (
        compose(kit, {**SECRETS, "EXTRAS": "server,k8s"})["services"]["code"]["build"]["args"]["EXTRAS"] == "server,k8s"
    )
    assert f"EXTRAS={default}\n" in (kit / "deploy/env.example").read_text()
    known = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(default.split(",")) | {"k8s"} <= set(known)


def test_the_manifests_are_valid(kit: Path) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    assert len(manifests_of(kit)) > 10
    for manifest in manifests_of(kit):
        validate.validate(manifest, validate.latest_version(), strict=True)


@pytest.mark.slow  # Dagster tries for half a minute
def test_a_database_that_is_down_at_the_start_is_one_sentence(kit: Path, tmp_path: Path) -> None:
    """Of every part that opens the instance: the command that the compose file has."""
    pytest.importorskip("dagster_postgres")
    (tmp_path / "dagster.yaml").write_text((kit / "deploy/dagster.yaml").read_text())
    services = compose(kit, SECRETS)["services"]
    began = [services[name]["command"][:4] for name in ("code", "webserver", "daemon")]
    assert {tuple(command[:3]) for command in began} == {("python", "-m", "graphmill.orchestration.instance")}
    places = {"POSTGRES_HOST": "127.0.0.1", "POSTGRES_PORT": "9", "DAGSTER_HOME": str(tmp_path)}
    environment = {**os.environ, **services["code"]["environment"], **places}
    command = [sys.executable, *services["daemon"]["command"][1:]]
    process = subprocess.run(
        command, env=environment, cwd=kit, capture_output=True, text=True, timeout=300, check=False
    )
    assert process.returncode == 2
    (line,) = process.stderr.strip().splitlines()
    assert line.startswith("error: Dagster's database cannot be used (connection to server at")
    assert "is PostgreSQL up" in line
    assert SECRETS["POSTGRES_PASSWORD"] not in line


# -- the parts, running ----------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Postgres:
    """A PostgreSQL of the system's packages, in a folder of its own; it refuses to run as root."""

    def __init__(self) -> None:
        self.folder, self.port = Path(tempfile.mkdtemp(prefix="graphmill-pg-")), free_port()
        self.user = "postgres" if os.geteuid() == 0 else None
        if self.user:
            shutil.chown(self.folder, self.user)
        secret = self.folder / "secret"
        secret.write_text(SECRETS["POSTGRES_PASSWORD"])
        secret.chmod(0o644)
        self._run(
            "initdb", "-U", "graphmill", "-A", "scram-sha-256", f"--pwfile={secret}", "-D", str(self.folder / "data")
        )
        self.start()
        self.create("graphmill")

    def create(self, database: str) -> None:
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "graphmill", database)

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run(
            "pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(self.folder / "log"), "-o", options, "start"
        )

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", "immediate", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        path = shutil.which(program) or str(Path(os.path.realpath(str(shutil.which("initdb")))).parent / program)
        environment = {**os.environ, "PGPASSWORD": SECRETS["POSTGRES_PASSWORD"]}
        result = subprocess.run(
            [path, *arguments], user=self.user, cwd=self.folder, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert result.returncode == 0, result.stdout


class Server:
    """The services of a kit's compose file as processes of this machine: its commands, its environment, other ports."""

    def __init__(self, root: Path, postgres: Postgres, second: Path) -> None:
        self.root, self.postgres = root, postgres
        ports = {"4000": str(free_port()), "3000": str(free_port()), "8080": str(free_port())}
        self.address = f"http://127.0.0.1:{ports['3000']}"
        self.services = compose(root, SECRETS)["services"]
        self.ports, self.second_port = ports, str(free_port())
        workspace = yaml.safe_load((root / "deploy/workspace.yaml").read_text())
        other = {"host": "127.0.0.1", "port": int(self.second_port), "location_name": "second"}
        workspace["load_from"].append({"grpc_server": other})
        (root / "deploy/workspace.yaml").write_text(yaml.safe_dump(workspace))
        given = self.services["code"]["environment"]
        places = {"POSTGRES_HOST": "127.0.0.1", "POSTGRES_PORT": str(postgres.port), "CODE_HOST": "127.0.0.1"}
        places |= {"CODE_PORT": ports["4000"], "DAGSTER_HOME": given["DAGSTER_HOME"].replace("/app", str(root))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, **given, **places, "PATH": path, "OMP_NUM_THREADS": "1"}
        self.environment |= paced(root.parent / "paced")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (root / "data" / "07_promoted").mkdir()
        for name in ("code", "webserver", "daemon", "serve"):
            self.start(name, self.services[name]["command"], root, self.services[name]["environment"])
        command = [
            "4000" if part == "4000" else part for part in compose(second, SECRETS)["services"]["code"]["command"]
        ]
        self.start("second", [self.second_port if part == "4000" else part for part in command], second)
        for name in ("POSTGRES_USER", "POSTGRES_PASSWORD", "POSTGRES_HOST", "POSTGRES_PORT", "POSTGRES_DB"):
            os.environ[name] = self.environment[name]
        self.wait(self.is_ready, "the webserver with both code locations")
        self.instance = dg.DagsterInstance.from_config(str(root / "deploy"))

    def start(self, name: str, command: list[str], root: Path, given: Mapping[str, str] | None = None) -> None:
        with (self.root / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [self.ports.get(part, part) for part in command],
                cwd=root, env={**(given or {}), **self.environment}, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def health(self, name: str, **more: str) -> int:
        """The exit code of a service's health check, as docker runs it, with the ports of this test."""
        kind, *words = self.services[name]["healthcheck"]["test"]
        words = [re.sub(r"\b(4000|3000|8080)\b", lambda match: self.ports[match[0]], word) for word in words]
        command = words if kind == "CMD" else ["sh", "-c", words[0].replace("$$", "$")]
        programs = str(Path(os.path.realpath(str(shutil.which("initdb")))).parent)
        given = {**self.services[name]["environment"], **self.environment, "PGPORT": str(self.postgres.port), **more}
        given["PATH"] += os.pathsep + programs
        process = subprocess.run(command, cwd=self.root, env=given, capture_output=True, timeout=120, check=False)
        with (self.root / f"{name}.log").open("ab") as log:
            log.write(process.stdout + process.stderr)
        return process.returncode

    def query(self, text: str, **variables: Any) -> dict[str, Any]:
        body = {"query": text, "variables": variables}
        answer = httpx.post(f"{self.address}/graphql", json=body, timeout=60).json()
        assert "errors" not in answer, answer["errors"]
        return answer["data"]

    def is_ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError, AssertionError, ValueError):
            result = self.query(
                "{ repositoriesOrError { ... on RepositoryConnection { nodes { location { name } } } } }"
            )
            return {node["location"]["name"] for node in result["repositoriesOrError"]["nodes"]} == {"shop", "second"}
        return False

    def launch(self, job: str, epochs: int, location: str = "shop", **execution: Any) -> str:
        """A run through the queue; its id. ``execution``: the section of that name."""
        name = job.removesuffix("_retrain")
        selector = {"repositoryLocationName": location, "repositoryName": "__repository__", "pipelineName": job}
        ops = {f"{name.replace('_hgt', '')}__hgt_model": {"config": {"training": {"epochs": epochs}}}}
        config = {"ops": ops, **({"execution": {"config": execution}} if execution else {})}
        text = """mutation ($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) { __typename
            ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
            ... on RunConfigValidationInvalid { errors { message } } } }"""
        params = {"selector": selector, "mode": "default", "runConfigData": json.dumps(config)}
        answer = self.query(text, params=params)["launchPipelineExecution"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return answer["run"]["runId"]

    def status(self, run: str) -> DagsterRunStatus:
        result = self.instance.get_run_by_id(run)
        assert result is not None
        return result.status

    def observed(self, run: str) -> list[dict[str, Any]]:
        """What the run's training has shown so far."""
        entries = self.instance.all_logs(run, of_type=dg.DagsterEventType.ASSET_OBSERVATION)
        return [
            {key: value.value for key, value in entry.asset_observation.metadata.items()}
            for entry in entries
            if entry.asset_observation is not None
        ]

    def trains(self, run: str) -> bool:
        return any(int(str(seen.get("epoch", 0))) > 10 for seen in self.observed(run))

    def worker(self) -> psutil.Process | None:
        for process in psutil.process_iter(["cmdline", "status"]):
            with contextlib.suppress(psutil.Error):
                if "graphmill.worker" in (process.info["cmdline"] or []) and process.cwd() == str(self.root):
                    return process
        return None

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if result := condition():
                return result
            time.sleep(0.5)
        logs = "\n".join(f"{name}: {(self.root / f'{name}.log').read_text()[-1500:]}" for name in self.processes)
        raise AssertionError(f"{what} did not come in {PATIENCE:g} s\n{logs}")

    def cancel(self, run: str) -> None:
        """As a person does, who asks again where a connection from before the restart has answered with an error."""

        def ended() -> bool:
            if self.status(run) == DagsterRunStatus.STARTED:
                self.query("mutation ($id: String!) { terminateRun(runId: $id) { __typename } }", id=run)
                sent = time.monotonic()
                while self.status(run) != DagsterRunStatus.CANCELED and time.monotonic() < sent + 5:
                    time.sleep(0.5)
            return self.status(run) == DagsterRunStatus.CANCELED

        self.wait(ended, "the end of the cancelled run")

    def stop(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(psutil.Error):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.wait()
        self.instance.dispose()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Server]:
    if shutil.which("initdb") is None:
        pytest.skip("PostgreSQL is not installed")
    pytest.importorskip("dagster_postgres")
    folder = tmp_path_factory.mktemp("server")
    postgres = Postgres()
    before = dict(os.environ)
    shop, second = (project(folder / name, kind, repository) for name, kind in (("shop", "toy"), ("second", "other")))
    running = Server(shop, postgres, second)
    try:
        yield running
    finally:
        running.stop()
        postgres.stop()
        shutil.rmtree(postgres.folder)
        os.environ.clear()
        os.environ.update(before)


slow = [pytest.mark.slow, pytest.mark.timeout(1800)]


class TestTheComposeFilesCommandsOnPostgres:
    pytestmark = slow

    def test_a_training_is_seen_live_goes_on_after_a_kill_and_without_the_database_and_is_cancelled(
        self, server: Server
    ) -> None:
        run = server.launch("toy_hgt_retrain", 100000)
        server.wait(lambda: server.trains(run), "the training's live figures")
        assert server.status(run) == DagsterRunStatus.STARTED
        assert "postgres" in type(server.instance.event_log_storage).__module__
        assert not list((server.root / "deploy").rglob("*.db")), "nothing is kept in SQLite"
        worker = server.worker()
        assert worker is not None
        worker.kill()
        starts = lambda: [s["resumed_from_epoch"] for s in server.observed(run) if "resumed_from_epoch" in s]  # noqa: E731
        server.wait(lambda: len(starts()) == 2, "the training going on")
        assert starts()[1] > 0
        worker = server.wait(server.worker, "the new worker")
        output = server.observed(run)
        folder = next(str(seen["run_dir"]) for seen in output if "run_dir" in seen)
        trace = MetricsLog(server.root / folder / "metrics.jsonl")
        epochs = lambda: [record["epoch"] for record in trace.read("epoch")]  # noqa: E731
        reached = epochs()[-1]
        server.postgres.stop()
        assert server.health("postgres") != 0
        time.sleep(8)  # longer than the pause between two observations
        server.wait(lambda: epochs()[-1] > reached, "the training while the database is away")
        assert worker.is_running(), "a database that is away ends no training"
        meanwhile = epochs()[-1]
        server.postgres.start()
        server.instance.dispose()
        server.instance = dg.DagsterInstance.from_config(str(server.root / "deploy"))
        newest = lambda: max(int(str(seen.get("epoch", 0))) for seen in server.observed(run))  # noqa: E731
        server.wait(lambda: newest() > meanwhile, "figures of epochs after the restart")
        assert server.status(run) == DagsterRunStatus.STARTED
        assert worker.is_running()
        server.cancel(run)
        assert server.worker() is None
        assert server.observed(run)[: len(output)] == output, "what was shown before the restart is still there"
        assert epochs() == list(range(1, epochs()[-1] + 1)), "no epoch is missing or written twice"
        assert epochs()[-1] >= newest()

    def test_the_service_of_vectors_asks_for_its_token(self, server: Server) -> None:
        address = f"http://127.0.0.1:{server.ports['8080']}"
        assert httpx.get(f"{address}/healthz", timeout=30).status_code == 200
        assert httpx.get(f"{address}/v1", timeout=30).status_code == 401
        token = {"Authorization": f"Bearer {SECRETS['GRAPHMILL_TOKEN']}"}
        assert httpx.get(f"{address}/v1", headers=token, timeout=30).status_code == 200

    def test_the_other_code_location_trains_beside_it(self, server: Server) -> None:
        run = server.launch("other_hgt_retrain", 2, "second", in_process={})
        server.wait(lambda: server.instance.get_run_by_id(run).is_finished, "the run")  # type: ignore[union-attr]
        assert server.status(run) == DagsterRunStatus.SUCCESS
        for process in server.processes.values():
            assert process.poll() is None

    def test_the_health_checks_of_parts_that_run_pass(self, server: Server) -> None:
        assert {name: server.health(name) for name in server.services} == dict.fromkeys(server.services, 0)

    def test_processes_that_start_together_on_an_empty_database_all_start(self, server: Server) -> None:
        server.postgres.create("together")
        command = [sys.executable, "-m", "graphmill.orchestration.instance", "true"]
        environment = server.environment | {"POSTGRES_DB": "together"}
        started = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(4)]
        said = [process.communicate(timeout=180)[1] for process in started]
        assert [process.returncode for process in started] == [0] * 4, said

    def test_the_processes_end_when_they_are_asked_to_and_their_health_checks_fail(self, server: Server) -> None:
        for name in ("daemon", "webserver", "serve", "code", "second"):
            server.processes[name].send_signal(signal.SIGTERM)
        for name in ("daemon", "webserver", "serve", "code", "second"):
            server.processes[name].wait(120)
        ended = time.monotonic()
        assert [name for name in ("webserver", "serve", "code") if server.health(name) == 0] == []
        # The last sign of life of a daemon counts for half an hour; here for its interval of 30 seconds, and one more.
        time.sleep(max(0.0, ended + 32 - time.monotonic()))
        assert server.health("daemon", DAGSTER_DAEMON_HEARTBEAT_TOLERANCE="1") != 0
