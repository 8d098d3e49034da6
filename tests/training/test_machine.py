"""What a machine has, told without torch."""

from pathlib import Path

import psutil
import pytest
import torch

from graphmill.training import machine
from graphmill.training.machine import Machine, this_machine, torch_is_built_for_cuda

GIB = 2**30


def tree(root: Path, **limits: str) -> Path:
    """A process in the group a/b of cgroup v2, with the limits given by path (dots for slashes)."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("0::/a/b\n")
    (root / "sys/fs/cgroup/a/b").mkdir(parents=True)
    for path, limit in limits.items():
        group = root / "sys/fs/cgroup" / path.replace("_", "/")
        (group / "memory.max").write_text(limit + "\n")
        (group / "memory.current").write_text("0\n")
    return root


def test_the_version_file_says_what_torch_says() -> None:
    assert torch_is_built_for_cuda() == (torch.version.cuda is not None)


def test_the_smallest_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cuda_memory", lambda: 0)
    monkeypatch.setattr(machine.platform, "system", lambda: "Linux")
    bounded = tree(tmp_path, a=str(2 * GIB), a_b="max")
    assert this_machine(bounded) == Machine("cpu", 2 * GIB)
    assert this_machine(tmp_path / "nowhere") == Machine("cpu", psutil.virtual_memory().total)


def test_a_cuda_device_counts_where_torch_can_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cuda_memory", lambda: 24 * GIB)
    monkeypatch.setattr(machine, "torch_is_built_for_cuda", lambda: True)
    assert this_machine(tmp_path) == Machine("cuda", 24 * GIB)
    monkeypatch.setattr(machine, "torch_is_built_for_cuda", lambda: False)
    assert this_machine(tmp_path).device != "cuda"


def test_apple_silicon_shares_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cuda_memory", lambda: 0)
    monkeypatch.setattr(machine.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(machine.platform, "machine", lambda: "arm64")
    assert this_machine(tmp_path).device == "mps"


@pytest.mark.parametrize(
    ("printed", "size"), [("24564\n24564\n", 24564 << 20), ("No devices were found\n", 0), ("", 0)]
)
def test_what_the_driver_lists_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, size: int
) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text(f"#!/bin/sh\nprintf '{printed}'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert machine.cuda_memory() == size


@pytest.mark.gpu
def test_the_driver_says_what_torch_says() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    assert this_machine().device == "cuda"
    ratio = this_machine().memory_bytes / torch.cuda.get_device_properties(0).total_memory
    assert 0.9 < ratio < 1.1
