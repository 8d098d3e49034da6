"""What the fault tests run in processes of their own: ``python checkpoint_children.py NAME DIRECTORY``.

``storm`` forks its writers after torch is imported, so that fifteen kills cost no fifteen imports.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from graphmill.errors import ResourceError
from graphmill.training.checkpoint import CheckpointMissingError, CheckpointStore, Snapshot
from graphmill.training.saving import Saver


def save(store: CheckpointStore | Saver, step: int, size: int) -> None:
    snapshot = Snapshot({"w": torch.full((size // 4,), float(step)), "step": torch.tensor(step)}, {"step": step})
    store.save(snapshot, epoch=step, step=step, learning_rate=0.1, loss=1.0 / step)


def last_step(store: CheckpointStore) -> int:
    """The newest step, after proving that it is whole and that nothing had to be passed over."""
    try:
        loaded = store.load()
    except CheckpointMissingError:
        assert not store.list()
        return 0
    assert loaded.notes == []
    assert loaded.snapshot.state["step"] == loaded.step == int(loaded.snapshot.tensors["step"])
    assert bool((loaded.snapshot.tensors["w"] == loaded.step).all())
    return loaded.step


def storm_beside(directory: Path) -> None:
    """:func:`storm` with checkpoints that a thread writes: what is promised is the one before the newest."""
    storm(directory, threaded=True)


def storm(directory: Path, threaded: bool = False) -> None:
    """Fifteen writers that do nothing but save, each killed at a random moment after a few saves."""
    torch.set_num_threads(1)
    store, chance = CheckpointStore(directory, keep_last=2, keep_influence=2), random.Random(0)
    partial = 0
    for _ in range(15):
        before = last_step(store)
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            step = before
            # Off the CPU a thread writes.
            writer = Saver(store, torch.device("mps")) if threaded else store
            while True:
                step += 1
                save(writer, step, 2_000_000)
                if not threaded or step > before + 1:
                    os.write(writes, b".")  # said only after save() returned
        os.close(writes)
        promised = before
        for _ in range(chance.randrange(1, 4)):
            promised += len(os.read(reads, 1))
        time.sleep(chance.uniform(0.0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        promised += len(os.read(reads, 1 << 16))
        os.close(reads)
        partial += len(list(directory.glob(".*.part")))
        after = last_step(store)
        assert promised <= after <= promised + 1 + threaded, (promised, after)
    save(store, after + 1, 1000)
    left = [path.name for path in directory.iterdir() if path.suffix != ".safetensors"]
    assert left == [], left
    assert len(store.list()) <= 2 + 1 + 4
    print(f"steps={after} killed_while_writing={partial}")


def _expect_refusal(store: CheckpointStore, step: int, size: int) -> None:
    before = sorted(path.name for path in store.directory.iterdir())
    try:
        save(store, step, size)
    except ResourceError as error:
        print(error)
    else:
        raise AssertionError("a save succeeded that could not")
    assert sorted(path.name for path in store.directory.iterdir()) == before
    assert last_step(store) == step - 1


def full_disk(directory: Path) -> None:
    """On a file system of 1 MiB: seen before writing where the system tells, and while writing where it does not."""
    store = CheckpointStore(directory)
    store.check_writable(100_000)
    save(store, 1, 300_000)
    _expect_refusal(store, 2, 2_000_000)
    _expect_refusal(store, 2, 2_000_000)
    save(store, 2, 300_000)
    assert last_step(store) == 2


def too_small(directory: Path) -> None:
    """On a file system of 1 MiB: refused before training starts."""
    try:
        CheckpointStore(directory).check_writable(400_000)
    except ResourceError as error:
        print(error)
    else:
        raise AssertionError("room for four checkpoints of 400 kB was found in 1 MiB")


def read_only(directory: Path) -> None:
    """On a file system that becomes read-only after a checkpoint: it loads, and nothing pretends to write."""
    store = CheckpointStore(directory)
    save(store, 1, 1000)
    subprocess.run(["mount", "-o", "remount,ro", directory], check=True)
    assert last_step(store) == 1
    try:
        store.check_writable(1000)
    except ResourceError as error:
        print(error)
    else:
        raise AssertionError("a read-only directory passed the check")
    _expect_refusal(store, 2, 1000)


if __name__ == "__main__":
    for name in sys.argv[1].split(","):
        globals()[name](Path(sys.argv[2]))
