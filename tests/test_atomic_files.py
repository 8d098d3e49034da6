"""One way of writing: a target is the old file or the new one, whoever writes, and however that ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from graphmill.atomic_files import PartFile, copy_atomically, replacing, write_atomically

WRITER = """
import sys, time
from pathlib import Path
from graphmill.atomic_files import PartFile
part = PartFile(Path(sys.argv[1]), int(sys.argv[2]))
part.file.write(b"half")
part.file.flush()
print("writing", flush=True)
time.sleep(600)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_at_the_end_of_the_block_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "new" / "a.txt"
    with replacing(target, 100) as part:  # the size was an estimate
        part.file.write(b"one")
        assert names(target.parent) == [part.path.name]
    assert target.read_bytes() == b"one"
    with pytest.raises(TypeError), replacing(target) as part, part.text() as text:
        text.writelines(["two", 3])  # type: ignore[list-item]
    assert (target.read_bytes(), names(target.parent)) == (b"one", ["a.txt"])
    copy_atomically(target, tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_bytes() == b"one"


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_the_next_writer_removes_what_a_killed_one_left_and_not_what_a_running_one_writes(
    tmp_path: Path, size: int
) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "vectors.npy"), str(size)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "writing\n"
        write_atomically(tmp_path / "a", b"a")
        assert len(names(tmp_path)) == 3
        writers[0].send_signal(signal.SIGKILL)
        writers[0].wait()
        write_atomically(tmp_path / "a", b"b")
        assert len(names(tmp_path)) == 2, "the part of the running one, and the target"
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()


def test_many_writers_of_one_file_lose_nothing(tmp_path: Path) -> None:
    """Each clears the folder while the others are between making a part and locking it."""
    until, wrong = time.monotonic() + 2, list[BaseException]()

    def write(number: int) -> None:
        while time.monotonic() < until:
            try:
                write_atomically(tmp_path / "a", bytes([number]) * 1000)
            except BaseException as error:
                wrong.append(error)
                raise

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert names(tmp_path) == ["a"]
    assert len((tmp_path / "a").read_bytes()) == 1000


def test_a_disk_without_the_room_is_not_filled_up_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for a moment either, in which what others write would fail."""
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: pytest.fail("all that is free was taken"), raising=False)
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    with pytest.raises(OSError, match="No space left"):
        PartFile(tmp_path / "a", free + (1 << 30))
    assert names(tmp_path) == []
