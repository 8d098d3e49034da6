"""A project of its own, served by the real webserver and daemon: what a person has after ``make ui``."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from tests.chromium import chromium
from tests.components.conftest import write_kg

PATIENCE_MS = 60_000
READY_SECONDS = 180.0
RUN_SECONDS = 600.0
REPOSITORY = Path(__file__).resolve().parents[2]
# For the README's picture the sample itself is trained, with its own settings.
SAMPLE = bool(os.environ.get("GRAPHMILL_SCREENSHOTS"))
SMALL = {
    "model": {"embedding_dim": 16, "hidden_dim": 16, "num_heads": 2},
    "training": {"epochs": 4, "steps_per_epoch": 3},
    "evaluation": {"eval_every": 2},
}
OTHER_KINDS = """
type: graphmill.components.GraphDataset
attributes:
  name: plays
  sources:
    - {name: plays, format: sequence, path: data/01_raw/plays.tsv}
---
type: graphmill.components.EmbeddingModel
attributes:
  dataset: plays
  system: sasrec
  settings: {training: {learning_rate: 1.0e-7}, tracker: {experiment: "1:30"}}
---
type: graphmill.components.GraphDataset
attributes:
  name: facts
  sources:
    - {name: triples, format: triples, path: data/01_raw/facts}
---
type: graphmill.components.EmbeddingModel
attributes:
  dataset: facts
  system: conve
  settings: {acceleration: {keep_influence: 3}}
  links: {relations: ["no", "17", "1e-3", "on: off", "null", "2026-01-01"], heads: ["0", ""]}
"""
"""Assets of the kinds that the sample's chain lacks; nothing is read before they are materialized."""


def write_project(root: Path) -> None:
    """The sample's definitions in a project of their own, on a tiny graph and with tiny settings."""
    package = root / "src" / "tiny"
    (package / "defs" / "biomed").mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copy(REPOSITORY / "src" / "graphmill" / "definitions.py", package)
    documents = list(yaml.safe_load_all((REPOSITORY / "src/graphmill/defs/biomed/defs.yaml").read_text()))
    if not SAMPLE:
        documents[0]["attributes"]["graph"].pop("include_node_types")
        documents[1]["attributes"]["settings"] = SMALL
    (package / "defs" / "biomed" / "defs.yaml").write_text(yaml.safe_dump_all(documents))
    if not SAMPLE:
        (package / "defs" / "others").mkdir()
        (package / "defs" / "others" / "defs.yaml").write_text(OTHER_KINDS)
    (root / "pyproject.toml").write_text(
        textwrap.dedent("""
            [project]
            name = "tiny"
            version = "1"
            [tool.dg]
            directory_type = "project"
            [tool.dg.project]
            root_module = "tiny"
        """)
    )
    (root / "workspace.yaml").write_text(
        textwrap.dedent("""
            load_from:
              - python_module:
                  module_name: tiny.definitions
                  attribute: defs
                  location_name: graphmill
                  working_directory: src
        """)
    )
    shutil.copy(REPOSITORY / "dagster.yaml", root)
    write_kg(root / "data" / "01_raw" / "kg.csv")
    if SAMPLE:
        shutil.copy(REPOSITORY / "data" / "01_raw" / "kg.csv", root / "data" / "01_raw")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page whose own errors fail the test."""
    opened = browser.new_page(viewport={"width": 2200, "height": 760})
    opened.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    opened.close()
    assert not errors


class Server:
    """The UI of a project, and its GraphQL."""

    def __init__(self, root: Path, port: int) -> None:
        self.root, self.address = root, f"http://127.0.0.1:{port}"
        self.home = root / ".dagster_home"
        self._client = httpx.Client(base_url=self.address, timeout=60)

    def query(self, text: str, **variables: Any) -> dict[str, Any]:
        """The data of a GraphQL answer; errors of the query itself fail the test."""
        answer = self._client.post("/graphql", json={"query": text, "variables": variables}).json()
        assert "errors" not in answer, answer["errors"]
        return answer["data"]

    def is_ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError, AssertionError):
            return len(self.query("{ assetNodes { id } }")["assetNodes"]) >= 8
        return False

    def launch(self, job: str, config: dict[str, Any], assets: list[str] | None = None) -> dict[str, Any]:
        """Launch a job as the Launchpad does; the answer, whatever its kind. In process, which saves a spawn a step."""
        selector: dict[str, Any] = {
            "repositoryLocationName": "graphmill",
            "repositoryName": "__repository__",
            "pipelineName": job,
        }
        if assets:
            selector["assetSelection"] = [{"path": key.split("/")} for key in assets]
        run_config = {"execution": {"config": {"in_process": {}}}, **config}
        return self.query(
            LAUNCH, params={"selector": selector, "mode": "default", "runConfigData": json.dumps(run_config)}
        )["launchPipelineExecution"]

    def status(self, run: str) -> str:
        return self.query("query ($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }", id=run)[
            "runOrError"
        ]["status"]

    def wait(self, run: str, until: Callable[[], bool] | None = None) -> str:
        """Wait until the run has ended, or ``until`` holds; its status then."""
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline:
            status = self.status(run)
            if status in ("SUCCESS", "FAILURE", "CANCELED") or (until is not None and until()):
                return status
            time.sleep(0.3)
        raise AssertionError(f"run {run} is still {self.status(run)} after {RUN_SECONDS:.0f} s")

    def workers(self) -> list[psutil.Process]:
        """Worker processes of this project that are alive."""
        result = []
        for process in psutil.process_iter(["cmdline", "status"]):
            with contextlib.suppress(psutil.Error):
                if "graphmill.worker" in (process.info["cmdline"] or []) and process.cwd() == str(self.root):
                    result.append(process)
        return result


LAUNCH = """
mutation ($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on RunConfigValidationInvalid { errors { message } }
    ... on PythonError { message stack }
  }
}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Webserver and daemon as ``make ui`` starts them, one pair for all tests."""
    root = tmp_path_factory.mktemp("project")
    write_project(root)
    running = Server(root, free_port())
    environment = {**os.environ, "DAGSTER_HOME": str(running.home), "OMP_NUM_THREADS": "1"}
    port = running.address.rpartition(":")[2]
    log = (root / "ui.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "graphmill.orchestration.ui", "--port", port],
        cwd=root,
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + READY_SECONDS
        while not running.is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the UI did not come up:\n" + (root / "ui.log").read_text()[-4000:])
            time.sleep(0.3)
        yield running
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.send_signal(signal.SIGINT)  # one Ctrl-C
        code = process.wait(timeout=60)
        log.close()
    left = psutil.wait_procs(children, timeout=10)[1]
    assert not left, "one Ctrl-C must stop webserver, daemon and all that they started"
    assert code == 0


@pytest.fixture(scope="package")
def finished_run(server: Server) -> str:
    """The id of a run of the whole chain, launched through the queue."""
    answer = server.launch("biomed_refresh", {})
    assert answer["__typename"] == "LaunchRunSuccess", answer
    run = answer["run"]["runId"]
    assert server.wait(run) == "SUCCESS", failures(server, run)
    return run


@pytest.fixture(scope="module")
def model_again(server: Server, finished_run: str) -> Iterator[None]:
    """For a file whose tests leave cancelled trainings behind: at its end the finished one is the model's last again."""
    yield
    again = server.launch("biomed_hgt_retrain", {}, assets=["biomed/hgt_model"])["run"]["runId"]
    assert server.wait(again) == "SUCCESS", failures(server, again)


def failures(server: Server, run: str) -> str:
    """What the steps of a run failed of."""
    text = """query ($id: ID!) { logsForRun(runId: $id) { ... on EventConnection { events {
        ... on ExecutionStepFailureEvent { stepKey error { message causes { message } }
            failureMetadata { description } } } } } }"""
    return json.dumps([event for event in server.query(text, id=run)["logsForRun"]["events"] if event])[:4000]
