"""Torn files, flipped bytes, kills, full and read-only disks: real ones. What was saved before is never lost."""

import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphmill.errors import ResourceError
from graphmill.training.checkpoint import CheckpointMissingError, CheckpointStore, Snapshot

CHILDREN = Path(__file__).with_name("checkpoint_children.py")


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    """Two checkpoints of about 20 kB, the older one also the best."""
    store = CheckpointStore(tmp_path / "checkpoints", keep_last=2)
    for epoch in (1, 2):
        tensors = {"w": torch.full((5000,), float(epoch)), "n": torch.tensor(epoch)}
        state = {"history": [epoch] * 50}
        store.save(Snapshot(tensors, state), epoch=epoch, step=epoch, learning_rate=0.1, loss=1.0, metric=1.0 / epoch)
    return store


def newest(store: CheckpointStore) -> Path:
    return store.list()[-1].path


def assert_falls_back(store: CheckpointStore, damaged: Path) -> None:
    loaded = store.load("last")
    assert loaded.epoch == 1
    assert bool((loaded.snapshot.tensors["w"] == 1).all())
    assert loaded.notes[0].startswith(f"the checkpoint {damaged} is damaged: ")
    assert loaded.notes[0].endswith(f"set aside as {damaged.name}.damaged")
    assert loaded.notes[1] == f"went on from {loaded.path.name} (epoch 1, step 1)"
    assert not damaged.exists()
    assert store.load("last").notes == []  # it is not tried again


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_checkpoint_is_set_aside(store: CheckpointStore, part: float) -> None:
    path = newest(store)
    os.truncate(path, int(path.stat().st_size * part))
    assert_falls_back(store, path)


def test_one_byte_too_many_is_seen(store: CheckpointStore) -> None:
    path = newest(store)
    with open(path, "ab") as file:
        file.write(b"\0")
    assert_falls_back(store, path)


@pytest.mark.parametrize("number", range(20))
def test_a_flipped_byte_is_seen_wherever_it_is(store: CheckpointStore, number: int) -> None:
    path, chance = newest(store), random.Random(number)
    content = bytearray(path.read_bytes())
    # Half of them in the header, where a flip can also make another valid header.
    at = chance.randrange(600) if number % 2 else chance.randrange(len(content))
    content[at] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    assert_falls_back(store, path)


def test_every_flip_of_the_length_prefix_is_damage(store: CheckpointStore) -> None:
    path = newest(store)
    good = path.read_bytes()
    for at in range(8):
        content = bytearray(good)
        content[at] ^= 0x08
        path.write_bytes(content)
        assert_falls_back(store, path)


def test_with_nothing_whole_left_the_error_names_every_file(store: CheckpointStore) -> None:
    paths = [info.path for info in store.list()]
    for path in paths:
        os.truncate(path, 100)
    with pytest.raises(CheckpointMissingError, match="there is no last checkpoint") as caught:
        store.load("last")
    assert len(caught.value.notes) == 2
    assert all(path.name in str(caught.value) for path in paths)


def test_a_damaged_best_is_said_to_be_damaged(store: CheckpointStore) -> None:
    best = store.list()[0].path
    os.truncate(best, 30)
    loaded = store.load("best")
    assert loaded.epoch == 2
    assert "is damaged" in loaded.notes[0]


def test_a_required_epoch_that_is_damaged_is_an_error(store: CheckpointStore) -> None:
    os.truncate(newest(store), 100)
    with pytest.raises(
        CheckpointMissingError, match=r"there is no checkpoint of epoch 2 .*epoch 1 step 1 .*is damaged"
    ):
        store.load(2)


def test_damaged_files_do_not_pile_up(store: CheckpointStore) -> None:
    for epoch in (3, 4, 5):
        os.truncate(newest(store), 100)
        store.load("last")
        store.save(Snapshot({}), epoch=epoch, step=epoch, learning_rate=0.1, loss=1.0)
    assert len(list(store.directory.glob("*.damaged"))) == 1


def test_a_file_size_limit_while_writing_leaves_what_was_there(store: CheckpointStore) -> None:
    before = sorted(store.directory.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, hard))
    try:
        with pytest.raises(ResourceError) as caught:
            store.save(Snapshot({"w": torch.ones(1 << 20)}), epoch=3, step=3, learning_rate=0.1, loss=1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    text = str(caught.value)
    assert f"{store.directory}: File too large; it needs 4 MiB" in text
    assert "quota" in text
    assert sorted(store.directory.iterdir()) == before
    assert store.load("last").epoch == 2


def test_a_directory_that_is_a_file_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("not a directory")
    store = CheckpointStore(tmp_path / "checkpoints")
    with pytest.raises(ResourceError, match="checkpoints: File exists"):
        store.check_writable(1000)


def test_a_file_that_cannot_be_read_is_passed_over_but_kept(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, really_open = newest(store), open

    def flaky(name: object, *args: object, **kwargs: object) -> object:
        if name == path:
            raise OSError(5, "Input/output error")
        return really_open(name, *args, **kwargs)  # type: ignore[call-overload]

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", flaky)
        loaded = store.load("last")
    assert (loaded.epoch, "cannot be read (Input/output error)" in loaded.notes[0]) == (1, True)
    assert store.load("last").epoch == 2


def run_child(*command: str | Path) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.parametrize("storm", ["storm", "storm_beside"])
def test_kill_storm(storm: str, tmp_path: Path) -> None:
    output = run_child(sys.executable, CHILDREN, storm, tmp_path)
    steps, partial = (int(part.split("=")[1]) for part in output.split())
    assert steps >= 15
    assert partial >= 1, "no kill fell into the writing; the test shows nothing"


def in_own_mount(tmp_path: Path, script: str) -> str:
    """Run ``script`` where ``$D`` may be mounted without anyone else seeing it."""
    probe = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], capture_output=True)
    if probe.returncode != 0:
        pytest.skip("mounting a small file system needs root (unshare -m, mount)")
    shell = f'set -e; D="{tmp_path}"; PY="{sys.executable} {CHILDREN}"; {script}'
    return run_child("unshare", "-m", "sh", "-c", shell)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses Linux mount namespaces")
class TestRealFileSystems:
    def test_a_full_disk(self, tmp_path: Path) -> None:
        output = in_own_mount(tmp_path, "mount -t tmpfs -o size=1m tmpfs $D; $PY full_disk,too_small $D")
        message, while_writing, at_start = output.splitlines()
        for line in (message, while_writing):
            assert f"{tmp_path}: No space left on device; it needs 1.91 MiB" in line
            assert "free some space" in line
        assert at_start.startswith(f"{tmp_path} has ")
        assert "781 KiB" in at_start

    def test_a_read_only_file_system(self, tmp_path: Path) -> None:
        output = in_own_mount(tmp_path, "mount -t tmpfs tmpfs $D; $PY read_only $D")
        assert len(output.splitlines()) == 2
        for line in output.splitlines():
            assert f"{tmp_path}: Read-only file system" in line
            assert "choose another" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root ignores permissions; the read-only mount covers it")
def test_a_directory_without_write_permission(store: CheckpointStore) -> None:
    store.directory.chmod(0o555)
    try:
        with pytest.raises(ResourceError, match="Permission denied"):
            store.check_writable(1000)
    finally:
        store.directory.chmod(0o755)
