"""Sizes, limits, peaks, and what out of memory looks like."""

import errno
import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from graphmill.errors import InputError, OutOfMemoryError, SettingsError
from graphmill.training.memory import (
    LIMIT_VARIABLE,
    DeviceMemory,
    available_memory,
    check_allocation,
    device_memory,
    format_size,
    is_out_of_memory,
    memory_in_a_sentence,
    parse_size,
    peak_memory,
    process_memory,
)

MIB = 1 << 20


class TestSizes:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("6GiB", 6 << 30), ("6 gib", 6 << 30), ("1.5g", 1_500_000_000), ("800MB", 800_000_000), ("10KiB", 10240),
            ("1000", 1000), ("12 B", 12), (" .5 TiB ", 1 << 39), ("auto", 7),
        ],
    )  # fmt: skip
    def test_are_understood(self, text: str, expected: int) -> None:
        assert parse_size(text, auto=7) == expected

    @pytest.mark.parametrize("text", ["", "6 gigs", "-1GB", "1iB", "0", "0.1", "1e9", "GiB", "nan"])
    def test_or_refused_with_an_example(self, text: str) -> None:
        with pytest.raises(SettingsError, match=r'memory_budget = ".*" .*"auto" or a size'):
            parse_size(text, auto=7, name="acceleration.memory_budget")

    def test_auto_is_no_size_where_it_means_nothing(self) -> None:
        with pytest.raises(SettingsError, match="give a size such as"):
            parse_size("auto")

    def test_are_shown_with_three_digits(self) -> None:
        sizes = [0, 1000, 1536, 1020 << 10, 3 << 30, 5 << 40]
        assert [format_size(size) for size in sizes] == [
            "0 bytes",
            "1000 bytes",
            "1.5 KiB",
            "0.996 MiB",
            "3 GiB",
            "5 TiB",
        ]


class TestThisProcess:
    def test_a_big_array_is_seen_now_and_in_the_peak(self) -> None:
        before = process_memory()
        # Of the system, not of the heap: that may have so much left from other tests.
        block = mmap.mmap(-1, 64 * MIB)
        np.frombuffer(block, np.uint8)[:] = 1
        assert process_memory() - before > 60 * MIB
        block.close()
        assert peak_memory() - before > 60 * MIB


def fake_system(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


class TestAvailable:
    def test_without_limits_is_what_is_free(self, tmp_path: Path) -> None:
        free = psutil.virtual_memory().available
        assert abs(available_memory(tmp_path) - free) < 0.2 * free

    def test_respects_the_tightest_cgroup_v2_above_and_does_not_count_file_cache(self, tmp_path: Path) -> None:
        root = fake_system(tmp_path, {
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/inner/memory.max": "max\n",
            "sys/fs/cgroup/outer/inner/memory.current": f"{90 * MIB}\n",
            "sys/fs/cgroup/outer/memory.max": f"{100 * MIB}\n",
            "sys/fs/cgroup/outer/memory.current": f"{95 * MIB}\n",
            "sys/fs/cgroup/outer/memory.stat": f"anon 5\ninactive_file {30 * MIB}\n",
        })  # fmt: skip
        assert available_memory(root) == 35 * MIB

    def test_respects_cgroup_v1_seen_from_inside_a_container(self, tmp_path: Path) -> None:
        root = fake_system(tmp_path, {
            "proc/self/cgroup": "5:cpu:/docker/abc\n4:memory:/docker/abc\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{64 * MIB}",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{60 * MIB}",
            "sys/fs/cgroup/memory/memory.stat": f"inactive_file 7\ntotal_inactive_file {10 * MIB}\n",
        })  # fmt: skip
        assert available_memory(root) == 14 * MIB

    def test_is_never_negative(self, tmp_path: Path) -> None:
        root = fake_system(tmp_path, {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": "100",
            "sys/fs/cgroup/memory.current": "200",
        })  # fmt: skip
        assert available_memory(root) == 0

    def test_respects_the_address_space_limit(self) -> None:
        script = (
            "import resource, psutil\nfrom graphmill.training.memory import available_memory\n"
            f"room, used = 300 * {MIB}, psutil.Process().memory_info().vms\n"
            "resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))\n"
            "print(available_memory() / room)\n"
        )
        process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert 0.8 < float(process.stdout) <= 1.0


class TestOutOfMemory:
    def test_of_the_cpu_allocator_itself(self) -> None:
        with pytest.raises(RuntimeError) as caught:
            torch.empty(1 << 60, dtype=torch.uint8)
        assert is_out_of_memory(caught.value)

    def test_of_numpy_itself(self) -> None:
        with pytest.raises(MemoryError) as caught:
            np.ones(1 << 60, dtype=np.uint8)
        assert is_out_of_memory(caught.value)

    @pytest.mark.parametrize(
        "error",
        [
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
            RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            RuntimeError("MPS backend out of memory (MPS allocated: 8.7 GB, other allocations: 1 GB, max: 9 GB)"),
            RuntimeError("std::bad_alloc"),
            OSError(errno.ENOMEM, "Cannot allocate memory"),
        ],
    )
    def test_in_every_wording(self, error: BaseException) -> None:
        assert is_out_of_memory(error)

    @pytest.mark.parametrize(
        "error",
        [
            RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
            ValueError("CUDA out of memory"),
            OSError(errno.ENOSPC, "No space left on device"),
            KeyboardInterrupt(),
        ],
    )
    def test_and_nothing_else(self, error: BaseException) -> None:
        assert not is_out_of_memory(error)


class TestSimulatedLimit:
    def test_is_off_by_default(self) -> None:
        check_allocation(1 << 60, "anything")

    def test_fails_like_the_allocator_and_names_what_was_wanted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(LIMIT_VARIABLE, "1000")
        check_allocation(1000, "messages")
        with pytest.raises(RuntimeError, match="you tried to allocate 1001 bytes for messages") as caught:
            check_allocation(1001, "messages")
        assert is_out_of_memory(caught.value)

    def test_reaches_worker_processes_by_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(LIMIT_VARIABLE, "1KiB")
        check_allocation(1024, "x")
        with pytest.raises(RuntimeError, match="simulated limit is 1024 bytes"):
            check_allocation(1025, "x")
        monkeypatch.setenv(LIMIT_VARIABLE, "much")
        with pytest.raises(SettingsError, match=f'{LIMIT_VARIABLE} = "much"'):
            check_allocation(1, "x")


class TestDevice:
    def test_the_cpu_has_none(self) -> None:
        assert device_memory(torch.device("cpu")) == DeviceMemory()

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    def test_cuda_counts_a_tensor_and_its_out_of_memory_is_known(self) -> None:
        device = torch.device("cuda")
        before = device_memory(device)
        block = torch.empty(32 * MIB, dtype=torch.uint8, device=device)
        during = device_memory(device)
        assert during.allocated - before.allocated == block.numel()
        assert during.peak >= during.allocated
        assert 0 < during.free < during.total
        with pytest.raises(RuntimeError) as caught:
            torch.empty(during.total * 4, dtype=torch.uint8, device=device)
        assert is_out_of_memory(caught.value)


class TestMemoryInASentence:
    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes\nException raised from"), "9 bytes"),
            (MemoryError(), "MemoryError"),
        ],
    )
    def test_a_failed_allocation_has_its_reason_figures_and_a_remedy(self, error: Exception, reason: str) -> None:
        with pytest.raises(OutOfMemoryError) as caught, memory_in_a_sentence():
            raise error
        said = str(caught.value)
        assert "\n" not in said
        assert f"{reason}); in use " in said
        assert "make the work smaller" in said

    @pytest.mark.parametrize("error", [ValueError("a bug"), InputError("a file"), KeyboardInterrupt()])
    def test_everything_else_passes_as_it_is(self, error: BaseException) -> None:
        with pytest.raises(type(error)) as caught, memory_in_a_sentence():
            raise error
        assert caught.value is error
