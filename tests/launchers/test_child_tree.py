"""A child process and its family, when things end in the wrong order."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphmill.launchers.child_tree import STDERR_BYTES, STDERR_LINES, ChildTree

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
