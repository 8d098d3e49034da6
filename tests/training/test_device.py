"""Which device a run gets: what is there, what was asked for, and why it got another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from graphmill.errors import ResourceError, SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.training.device import allowed_cores, available_devices, choose_device, limit_mps_memory, threads_of
from graphmill.training.memory import device_memory
from graphmill.training.precision import Precision, resolve_precision
from graphmill.training.processes import join
from graphmill.training.run_directory import RunDirectory
from tests.training.cases import CASES
from tests.training.runs import run, settings_of


def machine(patch: pytest.MonkeyPatch, *, cuda: bool = False, mps: bool = False, mps_built: bool = False) -> None:
    """A machine with these devices, as far as torch can tell."""
    patch.setattr(torch.cuda, "is_available", lambda: cuda)
    patch.setattr(torch.backends.mps, "is_available", lambda: mps)
    patch.setattr(torch.backends.mps, "is_built", lambda: mps or mps_built)


@pytest.mark.parametrize(("cuda", "mps", "taken"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")])
def test_auto_takes_cuda_then_mps_then_the_cpu(
    cuda: bool, mps: bool, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, cuda=cuda, mps=mps)
    choice = choose_device("auto")
    assert (choice.device.type, choice.requested) == (taken, "auto")
    assert choice.reason.startswith(f"auto took {taken}")


def test_auto_says_why_it_took_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, mps_built=True)
    assert re.fullmatch(r"auto took cpu \(cuda: .*; mps: no Apple GPU\)", choose_device("auto").reason)
    machine(monkeypatch)
    result = available_devices()
    assert result.pop("cpu") == ""
    assert set(result) == {"cuda", "mps"}
    assert all(result.values())


def test_a_device_that_is_here_is_taken_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cuda=True, mps=True)
    for kind in ("cpu", "mps"):
        choice = choose_device(kind)
        assert (choice.device, choice.reason) == (torch.device(kind), f"{kind} as asked for")
    # Each process of a machine has a GPU of its own.
    assert choose_device("cuda", local_rank=3).device == torch.device("cuda", 3)


@pytest.mark.parametrize(("kind", "why"), [("cuda", "no CUDA device"), ("mps", "without MPS")])
def test_an_absent_device_is_refused(kind: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch)
    with pytest.raises(ResourceError, match=f"'{kind}'") as refused:
        choose_device(kind)
    assert why in str(refused.value)
    assert "acceleration.device: auto" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.fixture
def _tf32() -> Iterator[None]:
    """Puts torch's switches for TF32 back."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.usefixtures("_tf32")
def test_tf32_is_cudas_and_is_beside_half_precision_there() -> None:
    with pytest.raises(SettingsError, match=r"tf32 .*CUDA"):
        resolve_precision("tf32", torch.device("mps"))
    assert resolve_precision("tf32", torch.device("cuda")) == "tf32"
    for name, rounded in (("tf32", True), ("fp32", False), ("bf16", True)):
        precision = Precision(name, torch.device("cuda"))
        assert torch.backends.cuda.matmul.allow_tf32 is rounded
    assert (precision.dtype, Precision("tf32", torch.device("cuda")).dtype) == (torch.bfloat16, torch.float32)


def test_mps_needs_a_torch_that_has_what_a_training_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, mps=True)
    monkeypatch.setattr(torch, "__version__", "2.9.1")
    choice = choose_device("auto")
    assert choice.device.type == "cpu"
    assert "mps: torch 2.9.1" in choice.reason
    assert "pip install -U 'torch>=2.10'" in choice.reason


@pytest.mark.parametrize(
    ("available", "held", "part"),
    [(2 << 30, 0, 0.225), (100 << 30, 0, 0.9), (100 << 30, 7 << 30, 0.9875), (0, 0, 0.05)],
)
def test_mps_memory_is_limited_to_what_the_system_has_left(
    available: int, held: int, part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recommended maximum of 8 GiB, of which other programs may have taken the most."""
    said: list[float] = []
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: held)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: held)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 8 << 30)
    monkeypatch.setattr(torch.mps, "set_per_process_memory_fraction", said.append)
    monkeypatch.setattr("graphmill.training.memory.available_memory", lambda: available)
    assert device_memory(torch.device("mps")).free == min(available, (8 << 30) - held)
    assert limit_mps_memory() == said[0] == pytest.approx(part)


def test_ranks_beyond_the_devices_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cuda=True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    ranks = [choose_device("cuda", local_rank=rank).device.index for rank in range(4)]
    assert ranks == [0, 1, 0, 1], "with gloo"


@pytest.mark.parametrize(
    ("on", "chosen", "used", "group_device"),
    [
        ("auto", "nccl", [1], torch.device("cuda", 1)),
        ("cpu", "gloo", [], None),
    ],
)
def test_each_process_joins_with_its_own_device(
    on: str, chosen: str, used: list[int], group_device: torch.device | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's part is mocked: there are no CUDA devices here, so this holds what torch is told, not what it does."""
    machine(monkeypatch, cuda=True)
    devices: list[int] = []
    groups: list[tuple[str, torch.device | None]] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", devices.append)
    monkeypatch.setattr(
        torch.distributed, "init_process_group", lambda name, timeout, device_id: groups.append((name, device_id))
    )
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    ranks = join(on)
    assert (ranks.rank, ranks.world, ranks.local_rank) == (1, 2, 1)
    assert (devices, groups) == (used, [(chosen, group_device)])


def test_threads_are_those_of_openmp_or_all_that_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted, threads in (("3", 3), ("4,2", 4), ("", allowed_cores()), ("0", allowed_cores())):
        monkeypatch.setenv("OMP_NUM_THREADS", wanted)
        assert threads_of(1) == threads


def test_a_run_records_what_it_asked_for_what_it_got_and_why(
    graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch)
    request = {"acceleration": {"device": "auto"}, "training": {"epochs": 1}}
    values = settings_of(CASES["hgt-full"], graphs["hgt-full"], request)
    manifest = RunDirectory(run(values, tmp_path)["run_dir"]).read_json("manifest.json")
    assert manifest["resolved"]["device"] == "cpu"
    assert manifest["resolved"]["device_reason"].startswith("auto took cpu (cuda: ")
    # Where it was computed is no part of what was computed.
    plain = settings_of(CASES["hgt-full"], graphs["hgt-full"], {"training": {"epochs": 1}})
    assert run(plain, tmp_path)["reused"]
