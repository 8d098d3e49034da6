"""Checkpoints off the CPU: the training goes on while a thread writes what it was, and hears of what went wrong."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmill.errors import ResourceError
from graphmill.training.checkpoint import CheckpointStore, Snapshot
from graphmill.training.saving import Saver

DETAILS: dict[str, Any] = {"epoch": 1, "learning_rate": 0.1, "loss": 1.0}


class SlowStore(CheckpointStore):
    """Writes when it may."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.may = threading.Event()

    def save(self, snapshot: Snapshot, **details: Any) -> Path:
        assert self.may.wait(60)
        return super().save(snapshot, **details)


@pytest.fixture
def store(tmp_path: Path) -> SlowStore:
    return SlowStore(tmp_path)


def train_on(saver: Saver) -> None:
    for _ in range(1000):
        time.sleep(0.01)
        saver.raise_failure()


def test_what_is_written_is_what_was_there_when_it_was_asked_for(store: SlowStore) -> None:
    saver, weights = Saver(store, torch.device("mps")), torch.ones(5)
    saver.save(Snapshot({"w": weights}, {}), step=1, **DETAILS)
    saver.raise_failure()  # is still being written: nothing to say
    weights.zero_()
    store.may.set()
    saver.wait()
    result = store.load().snapshot.tensors
    assert result["w"].tolist() == [1.0] * 5


def test_one_is_written_at_a_time_and_the_end_waits(store: SlowStore) -> None:
    saver = Saver(store, torch.device("mps"))
    saver.save(Snapshot({"w": torch.ones(1)}), step=1, **DETAILS)
    threading.Timer(0.05, store.may.set).start()
    saver.save(Snapshot({"w": torch.ones(1)}), step=2, **DETAILS)
    assert store.load().step >= 1
    saver.close()
    assert store.load().step == 2


def test_an_error_of_the_disk_is_heard_of_at_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    saver = Saver(CheckpointStore(tmp_path / "file" / "checkpoints"), torch.device("mps"))
    saver.save(Snapshot({"w": torch.ones(1)}), step=1, **DETAILS)
    with pytest.raises(ResourceError, match="cannot write a checkpoint"):
        train_on(saver)
    saver.wait()  # is said once


def test_on_the_cpu_it_is_written_at_once(store: SlowStore) -> None:
    store.may.set()
    Saver(store, torch.device("cpu")).save(Snapshot({"w": torch.ones(1)}), step=1, **DETAILS)
    assert store.load().step == 1
