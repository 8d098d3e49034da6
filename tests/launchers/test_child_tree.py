"""A child process and its family, when things end in the wrong order."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from graphmill.launchers.child_tree import STDERR_BYTES, STDERR_LINES, ChildTree
from graphmill.orchestration.ui import keep_running

CHILD = """
import signal, sys, time
def save(*_):
    open("saved", "w").close()
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
open("ready", "w").close()
time.sleep(600)
"""
PARENT = """
import os, sys, time
from graphmill.launchers.child_tree import ChildTree
ChildTree([sys.executable, "child.py"], env=os.environ, cwd=None)
time.sleep(600)
"""


def wait_for(path: Path, seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return path.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has died")
def test_a_worker_saves_when_its_step_is_killed(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=tmp_path)
    assert wait_for(tmp_path / "ready")
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert wait_for(tmp_path / "saved")


def test_the_tail_of_stderr_is_bounded(tmp_path: Path) -> None:
    noisy = "import sys\nfor i in range(1000): print('ä' * 300, i, file=sys.stderr)"
    tree = ChildTree([sys.executable, "-c", noisy], env=os.environ, cwd=str(tmp_path))
    tree.wait(30)
    tail = tree.stderr_tail()
    assert tail.endswith("999")
    assert len(tail.encode()) <= STDERR_BYTES
    assert tail.count("\n") < STDERR_LINES


def test_a_process_whose_id_a_thread_has_now_is_forgotten(tmp_path: Path) -> None:
    tree = ChildTree([sys.executable, "-c", "import time; time.sleep(600)"], env=os.environ, cwd=str(tmp_path))
    ended, process = psutil.Process(tree.pid), threading.Event()
    thread = threading.Thread(target=process.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        ended._pid = thread.native_id  # as if the system had given the id away
        tree._seen.add(ended)
        tree.kill()
        tree.kill()
        assert tree.poll() == -signal.SIGKILL
        assert thread.is_alive()
        assert tree._seen == set()
    finally:
        process.set()
        thread.join()


@pytest.mark.parametrize("error", [FileNotFoundError, ProcessLookupError, PermissionError])
def test_whatever_the_system_says_of_a_process_that_is_gone_kill_does_not_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    tree = ChildTree([sys.executable, "-c", "pass"], env=os.environ, cwd=str(tmp_path))
    tree._seen.add(psutil.Process())  # this one: it must not be killed in earnest

    def gone(*_: object, **__: object) -> None:
        raise error(2, "No such file or directory", "/proc/1/stat")

    for name in ("kill", "children", "wait"):
        monkeypatch.setattr(psutil.Process, name, gone)
    tree.kill()
    assert tree._seen == set()


TRAINING = "import os, sys, time; open('training', 'w').write(str(os.getpid())); time.sleep(600)"
DAEMON = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {TRAINING!r}], start_new_session=True)"


def test_a_dying_webserver_is_started_again_and_stops_no_training(tmp_path: Path) -> None:
    programs = {"webserver": "import time; time.sleep(600)", "daemon": DAEMON}
    stopping = threading.Event()

    def start(name: str) -> ChildTree:
        return ChildTree([sys.executable, "-c", programs[name]], env=os.environ, cwd=str(tmp_path))

    children = {name: start(name) for name in programs}
    first, daemon = children["webserver"], children["daemon"]
    watching = threading.Thread(target=keep_running, args=(children, start, stopping))
    watching.start()
    try:
        assert wait_for(tmp_path / "training")
        os.kill(first.pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while children["webserver"] is first and time.monotonic() < deadline:
            time.sleep(0.05)
        assert children["webserver"].poll() is None
        assert children["webserver"] is not first
        assert (children["daemon"], daemon.poll()) == (daemon, None)
        assert psutil.pid_exists(int((tmp_path / "training").read_text()))
    finally:
        stopping.set()
        watching.join()
        for child in children.values():
            child.kill()
    assert not psutil.pid_exists(int((tmp_path / "training").read_text())), "an interrupt ends all of it"
