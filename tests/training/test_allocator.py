"""The allocator's environment: chosen by room, and silent where someone chose already."""

import json
import os
import platform
import subprocess
import sys

import pytest

from graphmill.training import allocator
from graphmill.training.allocator import KEEP_HEAP, allocator_environment, heaps

GIB = 1 << 30


@pytest.fixture(autouse=True)
def linux_with_16_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(allocator, "available_memory", lambda: 16 * GIB)


def test_the_heap_is_kept_where_there_is_room_for_it() -> None:
    assert allocator_environment({}) == KEEP_HEAP


def test_a_small_machine_keeps_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "available_memory", lambda: 7 * GIB)
    assert allocator_environment({}) == {}


@pytest.mark.parametrize("name", ["LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_TOP_PAD_", "THP_MEM_ALLOC_ENABLE"])
def test_whoever_has_chosen_is_left_alone(name: str) -> None:
    assert allocator_environment({name: "x"}) == {}


@pytest.mark.parametrize("library", [("", ""), ("musl", "1.2")])
def test_other_systems_need_nothing(monkeypatch: pytest.MonkeyPatch, library: tuple[str, str]) -> None:
    monkeypatch.setattr("platform.libc_ver", lambda: library)
    assert allocator_environment({}) == {}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's variables")
def test_a_process_started_with_it_keeps_what_it_freed() -> None:
    script = (
        "import ctypes, resource\nlibc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\n"
        "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "def use():\n    block = libc.malloc(ctypes.c_size_t(32 << 20))\n    ctypes.memset(block, 1, 32 << 20)\n"
        "    libc.free(ctypes.c_void_p(block))\n"
        "use()\nbefore = faults()\nuse()\nprint(faults() - before)\n"
    )

    def faults(environment: dict[str, str]) -> int:
        process = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        return int(process.stdout)

    if faults({}) < 4000:
        pytest.skip("this C library keeps freed memory by itself")
    assert faults(KEEP_HEAP) < 100


def test_what_a_heap_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert heaps(KEEP_HEAP) == ["kept", "returned"]
    assert heaps({}) == ["stock", "returned"]
    assert heaps({"MALLOC_ARENA_MAX": "2"}) == ["stock", "returned"]
    assert heaps({"LD_PRELOAD": "jemalloc"}) == ["other"]
    assert heaps({**KEEP_HEAP, "MALLOC_MMAP_THRESHOLD_": "1"}) == ["other"]
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert heaps({}) == ["other"]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's switches")
@pytest.mark.parametrize("environment", [{}, KEEP_HEAP], ids=["stock", "kept"])
def test_large_blocks_are_handed_back_once_that_is_asked_for(environment: dict[str, str]) -> None:
    script = (
        "import sys, torch, psutil\nfrom graphmill.training import allocator\n"
        # As installed glibc keeps blocks in the heap up to the size of the largest that was ever freed.
        "torch.ones(30 << 18)\n"
        "if sys.argv[1] == 'yes':\n    allocator.return_large_blocks()\n"
        "before = psutil.Process().memory_info().rss\n"
        # Blocks of different sizes, of which every second one stays: holes in a heap.
        "blocks = [torch.ones((4 << 18) + 4096 * i) for i in range(48)]\n"
        "kept = blocks[::2]\nlive = sum(b.nbytes for b in kept)\ndel blocks\n"
        "print(psutil.Process().memory_info().rss - before - live, ','.join(allocator.heaps()))\n"
    )

    def run(switched: str) -> list[str]:
        command = [sys.executable, "-c", script, switched]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    left, possible = run("yes")
    assert possible == "returned"
    assert int(left) < 16 << 20
    assert int(run("no")[0]) > 48 << 20


HOLES = """
import ctypes, json
from graphmill.training import allocator
from graphmill.training.memory import process_memory
allocator._LOOKS_APART = 0.0
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def block(size):
    place = libc.malloc(ctypes.c_size_t(size))
    ctypes.memset(place, 1, size)
    return place
watch = allocator.HeapWatch()
held = block(200 << 20)
found = [watch.after_step(), watch.after_step()]
big, small = [], []
for _ in range(300):  # each stands between two holes
    big.append(block(1 << 20))
    small.append(block(1 << 10))
for place in big:
    libc.free(ctypes.c_void_p(place))
before = process_memory()
found += [watch.after_step(), watch.after_step()]
print(json.dumps([found, before - process_memory()]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="holes are glibc's")
def test_holes_are_given_back_when_the_heap_has_grown() -> None:
    process = subprocess.run(
        [sys.executable, "-c", HOLES],
        env={**os.environ, **KEEP_HEAP},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    result, given_back = json.loads(process.stdout)
    assert result == [False, False, True, False]
    assert given_back > 250 << 20


def test_a_heap_of_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.libc_ver", lambda: ("musl", "1.2"))
    assert not allocator.HeapWatch().after_step()


def test_it_looks_once_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(allocator, "process_memory", lambda: looks.append(1) or GIB)
    watch = allocator.HeapWatch()
    for _ in range(50):
        watch.after_step()
    assert len(looks) <= 2
