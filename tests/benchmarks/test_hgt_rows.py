"""HGT's rows where steps run on an accelerator. The processes are stood in for: there is no device here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from benchmarks.parts import hgt_step

from benchmarks import hgt


def test_the_limits_are_rates_of_products_and_of_a_copy() -> None:
    result = hgt_step.limits(torch.device("cpu"), size=64, numbers=1 << 12, repeats=2)
    assert set(result) == {"fp32", "bf16", "copy"}
    assert all(rate > 0 for rate in result.values())


def test_steps_of_a_device_say_so_and_their_memory_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    request: list[Sequence[str]] = []

    def fresh(module: str, arguments: Sequence[str], environment: dict[str, str]) -> dict[str, Any]:
        request.append(arguments)
        seconds = [9.0, 9.0, 9.0, 0.02, 0.02] if "ours" in arguments else [9.0, 9.0, 9.0, 0.1, 0.1]
        about = {"device_gb": 1.5, "device": "NVIDIA H100"}
        return {"seconds": seconds, "peak_gb": 4.0, "imported_gb": 3.0, **about}

    monkeypatch.setattr(hgt, "fresh", fresh)
    monkeypatch.setattr(hgt, "DEVICE", hgt.Device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    rows = [hgt._on_device(one) for one in hgt.pyg_rows()]
    assert all(arguments[-2:] == ["--device", "cuda"] for arguments in request)
    assert hgt._label("pyg") == "pyg NVIDIA H100"
    assert rows[0].workload == "67k ours, on cuda"
    assert (rows[0].ours, rows[0].theirs) == (0.02, 0.1)
    assert (rows[1].metric, rows[1].ours) == ("peak memory", 1.5)
