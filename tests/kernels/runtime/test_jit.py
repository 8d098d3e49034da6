"""Machine code is kept by all kernels' sources: a changed helper is compiled anew, and folders nobody uses go."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import graphmill

pytest.importorskip("numba")

from graphmill.kernels.runtime import jit as module

CALLER = """
import numpy as np
from graphmill.kernels.helper import one
from graphmill.kernels.runtime.jit import jit
from graphmill.runs.messages import watch_compiling

@jit
def twice(x):
    return one(x) * np.float32(2)

if __name__ == "__main__":
    begun = []
    with watch_compiling(lambda: begun.append(1)):
        value = float(twice(np.float32(0)))
    print(value, sum(twice.stats.cache_hits.values()), len(begun) > 0)
"""


HELPER = """
from graphmill.kernels.runtime.jit import jit

@jit
def one(x):
    return x + 1
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the package whose helpers can be edited, with one more kernel."""
    folder = tmp_path / "graphmill"
    shutil.copytree(Path(graphmill.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "kernels" / "caller.py").write_text(CALLER)
    (folder / "kernels" / "helper.py").write_text(HELPER)
    return folder


def run_caller(sources: Path, cache: Path) -> tuple[float, int, bool, str]:
    """The kernel's result, how often its machine code was found, whether compiling was seen, and standard error."""
    environment = os.environ | {"PYTHONPATH": str(sources.parent), "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-m", "graphmill.kernels.caller"]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=250)
    value, hits, seen = process.stdout.split()
    return float(value), int(hits), seen == "True", process.stderr


def test_an_edited_helper_is_seen_by_its_callers(sources: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert run_caller(sources, cache)[:3] == (2.0, 0, True)
    assert run_caller(sources, cache)[:3] == (2.0, 1, False)  # kept
    elsewhere = shutil.copytree(sources, tmp_path / "elsewhere" / "graphmill")
    assert run_caller(elsewhere, cache)[:3] == (2.0, 1, False)  # also for another installation
    (sources / "kernels" / "helper.py").write_text(HELPER.replace("x + 1", "x + 2"))
    assert run_caller(sources, cache)[:3] == (4.0, 0, True)


def test_a_cache_that_cannot_be_written_works_and_is_said(sources: Path, tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    value, *_, said = run_caller(sources, in_the_way)
    assert value == 2.0
    assert "compiled kernels cannot be kept" in said
    assert "NUMBA_CACHE_DIR" in said


def _without_home(sources: Path, script: str, *options: str) -> str:
    """Standard error of the kernel's program, whose value must be right, in a namespace of its own."""
    command = ["unshare", *options, "sh", "-ec", script, "sh", sys.executable, str(sources.parent / "home")]
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    environment = {**kept, "PYTHONPATH": str(sources.parent)}
    try:
        process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=250)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if "unshare" in process.stderr or "mount:" in process.stderr:
        pytest.skip(f"no namespaces here: {process.stderr.strip()}")
    assert process.stdout.split()[:1] == ["2.0"], process.stderr
    return process.stderr


@pytest.mark.parametrize(
    ("script", "options", "why"),
    [
        ('unset HOME USER LOGNAME; exec "$1" -m graphmill.kernels.caller', ("--user", "--map-user=54321"), "no home"),
        ('HOME=/proc/none exec "$1" -m graphmill.kernels.caller', ("--user", "--map-user=54321"), "cannot be written"),
        ('mkdir -p "$2"; mount -t tmpfs -o size=1m none "$2"; HOME="$2" exec "$1" -m graphmill.kernels.caller',
         ("--mount", "--map-root-user"), "No space left on device"),
    ],
    ids=["no HOME and no account", "absent", "full"],
)  # fmt: skip
def test_without_a_home_the_cache_is_a_temporary_folder_with_one_note(
    sources: Path, script: str, options: tuple[str, ...], why: str
) -> None:
    said = _without_home(sources, script, *options)
    assert said.count("compiled kernels cannot be kept") == 1
    assert why in said


def test_folders_of_other_sources_go_after_a_month(tmp_path: Path) -> None:
    for number in range(8):
        folder = tmp_path / f"{number:016x}"
        folder.mkdir()
        old = time.time() - (number * 10 + 1) * 86400
        os.utime(folder, (old, old))
    current = tmp_path / f"{7:016x}"
    module.prune(tmp_path, current)
    # The last four in use stay however old, the fifth (41 days) and later ones go, the current one stays.
    assert sorted(int(each.name, 16) for each in tmp_path.iterdir()) == [0, 1, 2, 3, 7]


def test_the_hash_goes_by_every_source(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    before = module.source_hash(tmp_path)
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "b.py").write_text("2")
    assert module.source_hash(tmp_path) != before
