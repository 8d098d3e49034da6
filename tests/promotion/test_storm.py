"""Processes killed while they promote and roll back, readers all the while: never a torn version, never none."""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Mapping
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import pytest

from graphmill.errors import GraphmillError, InputError
from graphmill.promotion.versions import Version, Versions

FORK = multiprocessing.get_context("fork")
FILES, BYTES = 4, 200_000


def write_version(store: Versions, token: str) -> Version:
    """Four files that all hold the same token, some of them larger than one write."""

    def fill(folder: Path) -> Mapping[str, Any]:
        for i in range(FILES):
            (folder / f"part{i}").write_text(token * (BYTES // len(token)))
        return {"token": token}

    return store.add(fill)


def change_for_ever(path: Path) -> None:
    """Promotes, rolls back and prunes until it is killed."""
    store, rng = Versions(path), random.Random(os.getpid())
    while True:
        with store.lock():
            if rng.random() < 0.3 and len(store.all()) > 1:
                target = rng.choice(store.all())
                store.switch(target, kind="rolled back", by=str(os.getpid()), why="storm")
            else:
                version = write_version(store, f"{rng.random():.12f}")
                store.switch(version, kind="promoted", by=str(os.getpid()), why="storm")
            store.prune(3)


def read_for_ever(path: Path, stop: "Synchronized[int]", reads: "Synchronized[int]", bad: Any) -> None:
    """Opens what is live again and again; a version of two tokens, or none, goes into ``bad``."""
    store = Versions(path)
    while not stop.value:
        try:
            version = store.current()
            if version is None:
                bad.put("nothing is live")
                continue
            token = version.about["token"]
            # A reader that is slow may find its version pruned, but never one of mixed content.
            result = {part.read_text()[: len(token)] for part in version.path.glob("part*")}
            if result - {token}:
                bad.put(f"{version.name} holds {result}, not {token}")
            if version.name == store.current_name():
                version.verify()
                reads.value += 1
        except FileNotFoundError:
            continue
        except GraphmillError as error:
            if version is not None and version.path.exists() and version.name == store.current_name():
                bad.put(str(error))


@pytest.mark.parametrize("kills", [15, pytest.param(100, marks=pytest.mark.long)])
def test_kills_during_promotions_and_rollbacks(tmp_path: Path, kills: int) -> None:
    store, rng = Versions(tmp_path / "toy" / "hgt"), random.Random(3)
    with store.lock():
        store.switch(write_version(store, "0.first"), kind="promoted", by="storm", why="first")
    stop, reads, bad = FORK.Value("i", 0), FORK.Value("i", 0), FORK.Queue()
    readers = [FORK.Process(target=read_for_ever, args=(store.path, stop, reads, bad), daemon=True) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(kills):
        # Two at once: one waits for the lock, or takes it over from the one that was killed.
        writers = [FORK.Process(target=change_for_ever, args=(store.path,), daemon=True) for _ in range(2)]
        for writer in writers:
            writer.start()
        time.sleep(rng.uniform(0.01, 0.12))
        for writer in writers:
            assert writer.pid is not None
            os.kill(writer.pid, signal.SIGKILL)
            writer.join()
        live = store.current()
        assert live is not None
        live.verify()
        for version in store.all():
            version.verify()
    stop.value = 1
    for reader in readers:
        reader.join(30)
    assert bad.empty(), bad.get()
    assert reads.value > kills
    history = store.history()
    assert len(history) > kills / 2
    assert [entry.before for entry in history[1:]] == [entry.after for entry in history[:-1]]
    assert history[-1].after == store.current_name()
    with store.lock():
        left = {
            path.name for path in store.path.iterdir() if path.name.startswith((".partial", ".removed", ".current"))
        }
    assert left == set()


def test_two_promotions_at_once_both_happen_one_after_the_other(tmp_path: Path) -> None:
    store = Versions(tmp_path / "toy" / "hgt")

    def promote(token: str) -> None:
        versions = Versions(store.path)
        with versions.lock():
            versions.switch(write_version(versions, token), kind="promoted", by=token, why="")

    both = [FORK.Process(target=promote, args=(f"token {i}",)) for i in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
        assert process.exitcode == 0
    assert [version.number for version in store.all()] == [1, 2]
    history = store.history()
    assert [entry.before for entry in history] == ["", history[0].after]
    with pytest.raises(InputError, match="no version '3'"):
        store.find("3")
