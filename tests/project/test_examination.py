"""``graphmill doctor PROJECT``: each thing that is wrong is named with its place, and nothing else is."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.errors import InputError
from graphmill.project import examination
from graphmill.project.examination import examine_project
from graphmill.promotion.policy import PromotionSettings
from graphmill.promotion.promote import promote_run, versions_folder
from graphmill.runs.export import export_run, restore
from graphmill.runs.train import train
from tests.training.cases import CASES
from tests.training.runs import settings_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a graph, a run and a live version."""
    root = tmp_path_factory.mktemp("project")
    outputs, case = root / "data" / "06_models" / "toy", CASES["hgt-full"]
    values = settings_of(case, case.graph(outputs / "graph"))
    run = train(values, "test", root=str(outputs / "hgt"))["run_dir"]
    export_run(restore(run))
    promote_run(run, versions_folder(run), PromotionSettings(), by="me", person=True, force=True)
    return root


@pytest.fixture
def project(whole: Path, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-a", f"{whole}/.", tmp_path / "project"], check=True)
    return tmp_path / "project"


def problems(root: Path) -> list[tuple[str, str]]:
    return [(each.what, each.detail) for each in examine_project(root) if not each.ok]


def one(root: Path, pattern: str) -> Path:
    [result] = list(root.glob(f"data/{pattern}"))
    return result


def test_a_whole_project_has_no_problem_and_the_command_says_so(project: Path) -> None:
    assert problems(project) == []
    process = CliRunner().invoke(app, ["doctor", str(project), "--json"])
    assert process.exit_code == 0
    assert [each["what"] for each in json.loads(process.stdout)] == [
        "processes",
        "locks",
        "files",
        "versions",
        "free space",
    ]
    assert isinstance(CliRunner().invoke(app, ["doctor", str(project / "nowhere")]).exception, InputError)


@pytest.mark.parametrize(
    ("pattern", "whats"),
    [
        ("06_models/toy/graph/nodes.arrow", ["files"]),
        ("06_models/toy/hgt/*/embeddings/embeddings.parquet", ["files"]),
        ("06_models/toy/hgt/*/settings.json", ["files"]),
        ("07_promoted/toy/hgt/0001-*/weights.safetensors", ["versions"]),
        ("07_promoted/toy/hgt/0001-*/version.json", ["versions"]),
    ],
)
def test_a_flipped_bit_is_found_and_the_file_named(project: Path, pattern: str, whats: list[str]) -> None:
    path = one(project, pattern)
    data, status = bytearray(path.read_bytes()), path.stat()
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    result = problems(project)
    assert [what for what, _ in result] == whats
    assert path.name in result[0][1]
    assert CliRunner().invoke(app, ["doctor", str(project)]).exit_code == 1


def test_checkpoints_leftovers_links_and_space(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = sorted(project.glob("data/06_models/toy/hgt/*/checkpoints/*.safetensors"))[-1]
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    (checkpoint.parent / ".checkpoint.1234.part").write_text("half")
    current = one(project, "07_promoted/toy/hgt/current")
    current.unlink()
    current.symlink_to("0009-12345678")
    monkeypatch.setattr(examination, "LEAST_FREE", 1 << 60)
    result = problems(project)
    assert [what for what, _ in result] == ["files", "files", "versions", "free space"]
    texts = [text for _, text in result]
    assert ".checkpoint.1234.part" in texts[0]
    assert f"{checkpoint} is damaged" in texts[1]
    assert "graphmill rollback toy/hgt VERSION" in texts[2]


HOLDER = """
import fcntl, json, os, socket, subprocess, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
json.dump({"pid": os.getpid(), "host": socket.gethostname(), "since": ""}, lock)
lock.flush()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=[lock.fileno()])
print(child.pid, flush=True)
time.sleep(600)
"""


def killed(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def test_a_lock_of_a_killed_process_and_one_that_its_child_still_holds(project: Path) -> None:
    lock = one(project, "06_models/toy/hgt/*/.lock")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, lock], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    assert problems(project) == [], "it is held by a process that runs"
    killed(holder)
    [(what, text)] = problems(project)
    assert what == "locks"
    assert "has ended, but process" in text
    os.kill(child, signal.SIGKILL)
    while lock.exists():
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                continue
    [(what, text)] = problems(project)
    assert f"process {json.loads(lock.read_text())['pid']} was killed; the lock is free" in text
    assert json.loads(lock.read_text())["host"] == socket.gethostname()


def test_a_worker_whose_parent_has_ended_is_named(project: Path) -> None:
    script = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', "
        "'graphmill.worker'], cwd=sys.argv[1], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL); print(p.pid)"
    )
    process = subprocess.run([sys.executable, "-c", script, project], capture_output=True, text=True, check=True)
    pid = int(process.stdout)
    try:
        [(what, text)] = problems(project)
        assert what == "processes"
        assert f"`kill {pid}`" in text
    finally:
        os.kill(pid, signal.SIGKILL)
