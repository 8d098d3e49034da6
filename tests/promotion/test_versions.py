"""Versions on disk: whole or not there, switched at once, found by name, never without a last good one."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from graphmill.errors import InputError, RunLockedError
from graphmill.promotion.versions import Version, Versions
from graphmill.verified_files import VERSION


def content(text: str) -> Callable[[Path], Mapping[str, Any]]:
    def fill(folder: Path) -> Mapping[str, Any]:
        (folder / "vectors.txt").write_text(text)
        return {"text": text}

    return fill


def promote(store: Versions, text: str) -> Version:
    with store.lock():
        version = store.add(content(text))
        store.switch(version, kind="promoted", by="a test", why=f"it is {text}")
    return version


@pytest.fixture
def store(tmp_path: Path) -> Versions:
    return Versions(tmp_path / "toy" / "hgt")


def test_nothing_is_live_at_first(store: Versions) -> None:
    assert store.current() is None
    assert store.all() == store.history() == []


def test_a_version_is_made_then_goes_live(store: Versions) -> None:
    with store.lock():
        version = store.add(content("one"))
        assert store.current() is None
        store.switch(version, kind="promoted", by="a test", why="first")
    live = store.current()
    assert live is not None
    assert live.name == version.name == os.readlink(store.path / "current")
    assert (store.path / "current" / "vectors.txt").read_text() == "one"
    assert live.about["text"] == "one"
    live.verify()
    assert [(s.kind, s.before, s.after, s.by, s.why) for s in store.history()] == [
        ("promoted", "", version.name, "a test", "first")
    ]


def test_the_same_content_is_not_stored_twice(store: Versions) -> None:
    first = promote(store, "one")
    assert promote(store, "one").name == first.name
    assert len(store.all()) == len(store.history()) == 1


def test_who_opened_the_old_version_finishes_on_it(store: Versions) -> None:
    promote(store, "one")
    old = store.current()
    assert old is not None
    promote(store, "two")
    assert (old.path / "vectors.txt").read_text() == "one"
    old.verify()


def test_a_rollback_goes_further_back_each_time(store: Versions) -> None:
    names = [promote(store, text).name for text in ("one", "two", "three")]
    for expected in (names[1], names[0]):
        with store.lock():
            target = store.before()
            assert target.name == expected
            store.switch(target, kind="rolled back", by="a test", why="worse")
    with pytest.raises(InputError, match="oldest version"):
        store.before()
    assert [s.kind for s in store.history()] == ["promoted"] * 3 + ["rolled back"] * 2


def test_versions_are_found_by_name_number_and_hash(store: Versions) -> None:
    first, second = promote(store, "one"), promote(store, "two")
    assert store.find(first.name).name == store.find("1").name == first.name
    assert store.find("0002").name == store.find(second.name.split("-")[1]).name == second.name
    with pytest.raises(InputError, match=rf"toy/hgt has no version '7'; there are: {first.name}, {second.name}"):
        store.find("7")
    for digit in "03456789":  # hashes may begin with any of them
        with pytest.raises(InputError, match="has no version"):
            store.find(digit)


def test_old_versions_go_but_never_the_live_one_or_the_one_before(store: Versions) -> None:
    names = [promote(store, str(i)).name for i in range(6)]
    with store.lock():
        store.switch(store.find(names[1]), kind="rolled back", by="a test", why="")
        gone = store.prune(1)
    assert [v.name for v in store.all()] == [names[1], names[5]]
    assert gone == [names[0], names[2], names[3], names[4]]


def test_what_a_killed_process_left_is_removed_and_was_never_a_version(store: Versions) -> None:
    live = promote(store, "one")
    (store.path / ".partial-1").mkdir()
    (store.path / ".partial-1" / "vectors.txt").write_text("torn")
    os.symlink("nowhere", store.path / ".current-1")
    assert [v.name for v in store.all()] == [live.name]
    with store.lock():
        pass
    assert sorted(p.name for p in store.path.iterdir()) == sorted([".lock", "current", "history.json", live.name])


def test_a_switch_that_was_announced_but_did_not_happen_is_no_history(store: Versions) -> None:
    live = promote(store, "one")
    entries = json.loads((store.path / "history.json").read_text())
    entries.append({**entries[0], "before": live.name, "after": "0002-00000000"})
    (store.path / "history.json").write_text(json.dumps(entries))
    assert len(store.history()) == 1
    second = promote(store, "two")
    assert [s.after for s in store.history()] == [live.name, second.name]


def test_a_failure_while_filling_leaves_nothing(store: Versions) -> None:
    def fill(folder: Path) -> Mapping[str, Any]:
        (folder / "half").write_text("")
        raise InputError("no")

    with pytest.raises(InputError, match="no"), store.lock():
        store.add(fill)
    assert [p.name for p in store.path.iterdir()] == [".lock"]


def test_a_damaged_file_is_named(store: Versions) -> None:
    version = promote(store, "one")
    (version.path / "vectors.txt").write_text("two")
    with pytest.raises(InputError, match=r"vectors\.txt is damaged: its SHA-256 is not"):
        version.verify()
    (version.path / VERSION).write_text("{")
    with pytest.raises(InputError, match="is damaged: it is not JSON"):
        store.current()


def test_a_link_that_leads_nowhere_is_a_sentence(store: Versions) -> None:
    promote(store, "one")
    os.unlink(store.path / "current")
    os.symlink("0009-00000000", store.path / "current")
    with pytest.raises(InputError, match="leads to 0009-00000000, which is not there; `graphmill rollback toy/hgt"):
        store.current()


def test_a_second_one_waits_and_names_who_holds_the_lock(store: Versions) -> None:
    with store.lock(), pytest.raises(RunLockedError, match=f"process {os.getpid()}"), Versions(store.path).lock(0.05):
        pass
