"""The real worker through Dagster: killed, mistaken, in two processes; and ``dg launch``."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest

from graphmill.orchestration import pipes
from graphmill.orchestration.pipes import WorkerClient
from tests.components.conftest import Project, failure
from tests.ui.conftest import write_project

SMALL: dict[str, Any] = {
    "preset": "none",
    "model": {"embedding_dim": 16, "hidden_dim": 16, "num_heads": 2, "num_layers": 1},
    "training": {"epochs": 2, "steps_per_epoch": 2},
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def train(project: Project, part: str = "model", config: dict[str, Any] | None = None, **attributes: Any) -> Any:
    """Materialize one part of a small HGT with the real worker."""
    definitions = [project.dataset(), project.model(settings=SMALL, **attributes)]
    if not (project.root / "data/06_models/toy/graph.json").exists():
        assert project.materialize(definitions[0]).success
    worker = WorkerClient(observe_seconds=0.0, retry_wait_seconds=0.0)
    typed = {f"toy__hgt_{part}": config or {}}
    return project.materialize(*definitions, only=f'key:"toy/hgt_{part}"', worker=worker, **typed)


def observed(project: Project, part: str) -> list[dict[str, Any]]:
    records = project.instance.fetch_observations(dg.AssetKey(["toy", f"hgt_{part}"]), limit=500).records
    return [{k: v.value for k, v in record.asset_observation.metadata.items()} for record in reversed(records)]


def kill_after_the_first_checkpoint(project: Project, killed: list[int]) -> None:
    """SIGKILL, once, as the system does it when memory runs out."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and not killed:
        if list((project.root / "data/06_models/toy/hgt").glob("*/checkpoints/*.safetensors")):
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.Error):  # other tests' children end while they are looked at
                    if "graphmill.worker" in child.cmdline():
                        child.send_signal(signal.SIGKILL)
                        killed.append(child.pid)
        time.sleep(0.02)


def test_a_killed_worker_is_started_again_and_resumes(project: Project) -> None:
    killed: list[int] = []
    killer = threading.Thread(target=kill_after_the_first_checkpoint, args=(project, killed))
    killer.start()
    result = train(project, config={"training": {"epochs": 200}, "evaluation": {"eval_every": 200}})
    killer.join()
    assert killed
    assert result.success
    (retry,) = [event for event in result.all_events if event.event_type_value == "STEP_UP_FOR_RETRY"]
    assert "SIGKILL" in str(retry.event_specific_data)
    first, second = [each for each in observed(project, "model") if "resumed_from_epoch" in each]
    assert first["resumed_from_epoch"] == 0
    assert second["resumed_from_epoch"] >= 1, "it goes on from the checkpoint, not from the start"
    assert project.metadata("toy/hgt_model")["epochs_done"] == 200


def test_too_little_memory_is_retried(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real worker comes to the end of its ladder; when it is started again, there is memory."""
    explain = pipes.explain

    def free_memory(*arguments: Any) -> tuple[str, bool]:
        monkeypatch.delenv("GRAPHMILL_ALLOCATION_LIMIT")
        return explain(*arguments)

    monkeypatch.setenv("GRAPHMILL_ALLOCATION_LIMIT", "1")
    monkeypatch.setattr(pipes, "explain", free_memory)
    result = train(project)
    assert result.success, failure(result)
    (retry,) = [event for event in result.all_events if event.event_type_value == "STEP_UP_FOR_RETRY"]
    assert "OutOfMemoryError: out of memory (" in str(retry.event_specific_data)
    assert project.metadata("toy/hgt_model")["epochs_done"] == 2


def test_a_mistake_that_only_the_worker_can_see_is_told_and_not_retried(project: Project) -> None:
    result = train(project, config={"training": {"init_from": "no/such/run"}})
    assert "no/such/run" in failure(result)
    assert "Traceback" not in failure(result)
    kinds = [event.event_type_value for event in result.all_events]
    assert kinds.count("STEP_START") == 1
    assert "STEP_UP_FOR_RETRY" not in kinds


def test_two_processes_train_as_the_launchpad_says(project: Project) -> None:
    before = set(psutil.Process().children(recursive=True))  # other tests of this process may have servers running
    result = train(project, config={"acceleration": {"processes": 2}})
    assert result.success, failure(result)
    run = project.root / project.value("toy/hgt_model")["run_dir"]
    assert json.loads((run / "manifest.json").read_text())["resolved"]["processes"] == 2
    assert json.loads((run / "report.json").read_text())["bytes_reduced"] > 0
    assert [each for each in observed(project, "model") if each.get("epoch") == 2]
    left = set(psutil.Process().children(recursive=True)) - before
    assert not [child for child in left if "graphmill" in str(child.cmdline())]


def test_dg_launch_materializes_assets(tmp_path: Path) -> None:
    """The command line's way, with a process a step, as the UI's default executor has it."""
    write_project(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    dg_command = str(Path(sys.executable).parent / "dg")
    process = subprocess.run(
        [dg_command, "launch", "--assets", "biomed/raw_edges,biomed/nodes,biomed/edges"],
        cwd=tmp_path,
        env={**os.environ, "DAGSTER_HOME": str(home), "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert process.returncode == 0, (process.stdout + process.stderr)[-3000:]
    with dg.DagsterInstance.from_config(str(home)) as instance:
        for name in ("raw_edges", "nodes", "edges"):
            assert instance.get_latest_materialization_event(dg.AssetKey(["biomed", name])) is not None, name
