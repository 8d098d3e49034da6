"""Trainings on a CUDA device: the CPU's losses, the same end after an interruption, mixed precision, memory that runs out.

Everything here needs a device; elsewhere it skips. What the kernels do there is in ``tests/kernels/test_cuda.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.errors import StoppedError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import export_run, restore
from graphmill.systems.registry import entry
from graphmill.training.run_directory import RunDirectory
from graphmill.training.signals import StopRequest
from tests.device import uses
from tests.training.cases import CASES, STEPPED
from tests.training.runs import Hooks, assert_same, busy_clock, outcome, run, settings_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = {"acceleration": {"device": "cuda", "precision": "fp32"}}
CPU = {"acceleration": {"device": "cpu"}}
STEP = 5


@pytest.fixture(autouse=True)
def _exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deterministic algorithms on CUDA, too."""
    monkeypatch.setattr("graphmill.training.device.DETERMINISTIC", ("cpu", "cuda"))


def without_dropout(system: str) -> dict[str, Any]:
    """Masks are drawn by each device's own generator: what is compared between devices has none."""
    names = {
        "conve": ("input_dropout", "feature_map_dropout", "output_dropout"),
        "hgt": ("dropout",),
        "kgat": ("message_dropout",),
        "sasrec": ("dropout",),
        "tisasrec": ("dropout",),
    }
    return {"model": dict.fromkeys(names.get(system, ()), 0.0)}


def losses(result: dict[str, Any]) -> np.ndarray:
    return np.array([record["losses"]["total"] for record in RunDirectory(result["run_dir"]).metrics.read("step")])


@pytest.mark.parametrize("name", list(STEPPED))
def test_the_losses_and_figures_are_the_cpus(name: str, graphs: dict[str, TypedGraph], tmp_path: Path) -> None:
    base = without_dropout(CASES[name].system)
    # The device is not part of what a run is: in one folder the second would be the first.
    runs = [
        run(settings_of(CASES[name], graphs[name], base, on), tmp_path / f"{n}") for n, on in enumerate((CPU, CUDA))
    ]
    assert [r["device"] for r in runs] == ["cpu", "cuda"]
    np.testing.assert_allclose(losses(runs[1]), losses(runs[0]), rtol=2e-3)
    for key, value in runs[0]["metrics"].items():
        if not key.endswith("_mr"):
            assert abs(runs[1]["metrics"][key] - value) <= 0.05, key


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("name", list(STEPPED))
def test_low_precision_follows_fp32(name: str, precision: str, graphs: dict[str, TypedGraph], tmp_path: Path) -> None:
    base = without_dropout(CASES[name].system)
    low = {"acceleration": {"precision": precision}}
    exact, result = (run(settings_of(CASES[name], graphs[name], base, CUDA, x), tmp_path) for x in ({}, low))
    assert result["precision"] == precision
    a, b = losses(exact), losses(result)
    assert np.isfinite(b).all()
    assert abs(b[-4:].mean() - a[-4:].mean()) <= 0.05 * abs(a[-4:].mean())


@pytest.mark.parametrize("name", list(STEPPED))
def test_a_stopped_run_goes_on_to_the_same_end(
    name: str, graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = settings_of(CASES[name], graphs[name], CUDA)
    expected = outcome(run(values, tmp_path / "whole"))
    stop = StopRequest()
    with monkeypatch.context() as patch:
        hooks = Hooks().install(patch)
        hooks.on_gradient = lambda step: stop.request() if step == STEP else None
        with pytest.raises(StoppedError):
            run(values, tmp_path / "cut", stop)
    with monkeypatch.context() as patch:
        busy_clock(patch)
        hooks = Hooks().install(patch)
        result = run(values, tmp_path / "cut")
    assert 0 < hooks.step < len(expected.steps)
    assert_same(outcome(result), expected)


@pytest.mark.parametrize("name", uses.CASES)
def test_a_finished_run_is_used_on_the_device(name: str, graphs: dict[str, TypedGraph], tmp_path: Path) -> None:
    result = run(settings_of(CASES[name], graphs[name], CUDA), tmp_path / "runs")
    if not entry(CASES[name].system).recommends:
        uses.predicts(result["run_dir"])
    restored = restore(result["run_dir"])
    assert restored.system.device.type == "cuda"
    export_run(restored)
    uses.use(restored, tmp_path / "joining")


@pytest.mark.parametrize("name", ["conve-kvsall", "hgt-full", "sasrec"])
def test_checkpointing_changes_no_loss(name: str, graphs: dict[str, TypedGraph], tmp_path: Path) -> None:
    more = {"acceleration": {"gradient_checkpointing": True}}
    plain, light = (
        losses(run(settings_of(CASES[name], graphs[name], CUDA, x), tmp_path / f"{i}"))
        for i, x in enumerate(({}, more))
    )
    np.testing.assert_allclose(light, plain, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conve-kvsall", "hgt-full", "sasrec"])
def test_a_compiled_run_has_the_same_losses(name: str, graphs: dict[str, TypedGraph], tmp_path: Path) -> None:
    base = without_dropout(CASES[name].system)
    more = {"acceleration": {"compile": "default"}}
    plain, compiled = (
        run(settings_of(CASES[name], graphs[name], CUDA, base, x), tmp_path / f"{i}") for i, x in enumerate(({}, more))
    )
    np.testing.assert_allclose(losses(compiled), losses(plain), rtol=2e-3)
    assert compiled["compile"]["graphs"] > 0


def test_memory_that_runs_out_is_met_by_smaller_chunks(
    graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "hgt-full"
    values = settings_of(CASES[name], graphs[name], CUDA)
    plain = losses(run(values, tmp_path / "plain"))
    room = torch.cuda.get_device_properties(0).total_memory
    failed = []

    def ask_for_too_much(step: int, chunk: int) -> None:
        if step == 2 and not failed:
            failed.append(step)
            torch.empty(2 * room, dtype=torch.uint8, device="cuda")

    with monkeypatch.context() as patch:
        Hooks().install(patch).on_chunk = ask_for_too_much
        result = run(values, tmp_path / "short")
    assert failed
    assert result["shrunk"]
    np.testing.assert_allclose(losses(result), plain, rtol=1e-4)
