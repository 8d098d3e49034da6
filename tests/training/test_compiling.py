"""Compiled functions compute what plain ones do, whatever shapes their steps have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphmill.errors import SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems import registry
from graphmill.training import compiling
from graphmill.training.compiling import CompileReport, compile_functions
from graphmill.training.contract import Compilable
from tests.training.cases import CASES, STEPPED
from tests.training.runs import outcome, run, settings_of


@pytest.fixture(autouse=True)
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Graphs are made, guarded and counted, and run by torch itself: no C++ compiler. Gets a line whenever one runs."""
    compile_, lines = torch.compile, []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            lines.append("a graph")
            return graph.forward(*arguments)

        return call

    monkeypatch.setattr(compiling.torch, "compile", lambda function, mode: compile_(function, backend=backend))
    return lines


@pytest.mark.parametrize("name", list(STEPPED))
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_what_has_nothing_to_compile_refuses_it_and_nothing_else_does(
    name: str, mode: str, graphs: dict[str, TypedGraph]
) -> None:
    case = CASES[name]
    _, system = case.build(graphs[name])
    result = system.compilables(case.model(system))
    request = {"acceleration": {"compile": mode}}
    assert bool(result) == registry.settings_model(case.system).compiles
    if result:
        assert case.job(graphs[name], **request).settings.acceleration.compile == mode
    else:
        sentence = (
            f"acceleration.compile: {mode} is not for {case.system}, which has nothing to compile: .*; set it to none"
        )
        with pytest.raises(SettingsError, match=sentence):
            case.job(graphs[name], **request)


SHORTER = {"training": {"epochs": 2, "steps_per_epoch": 3}, "evaluation": {"eval_every": 2}}


class _Doubling:
    def work(self, x: Tensor) -> Tensor:
        return (x * 2).relu().sum()


class _Shifting:
    def work(self, x: Tensor) -> Tensor:
        return (x - 3).relu().sum() * x.dim()


class _Squaring:
    def work(self, x: Tensor) -> Tensor:
        return (x * x).sum().sqrt()


def compiled() -> tuple[list[Any], CompileReport]:
    """Three compiled functions that have seen vectors of four."""
    owners = [_Doubling(), _Shifting(), _Squaring()]

    def trial() -> None:
        for owner in owners:
            owner.work(torch.ones(4))

    report = compile_functions([Compilable(o, "work") for o in owners], "default", trial)
    return owners, report


def test_compiled_functions_compute_what_plain_ones_do_in_any_shape() -> None:
    owners, report = compiled()
    assert (report.functions, report.graphs, report.recompiles) == (3, 3, 0)
    written = [_Doubling(), _Shifting(), _Squaring()]
    for shape in [(5,), (2, 2), (2, 2, 2), (3, 2, 1, 2), (6,)]:
        for owner, plain in zip(owners, written, strict=True):
            x, y = (torch.arange(1.0, torch.Size(shape).numel() + 1).reshape(shape).requires_grad_() for _ in range(2))
            owner.work(x).backward()
            plain.work(y).backward()
            assert torch.equal(owner.work(x), plain.work(y)), shape
            assert x.grad is not None
            assert y.grad is not None
            assert torch.equal(x.grad, y.grad), shape
    assert report.at_the_end().recompiles > 0


def test_a_compiled_training_has_the_same_trace(graphs: dict[str, TypedGraph], tmp_path: Path) -> None:
    name = "hgt-edge-sampled"
    values = settings_of(CASES[name], graphs[name], {"model": {"dropout": 0.0}}, SHORTER)
    plain = outcome(run(values, tmp_path / "plain"))
    result = run({**values, "acceleration": {**values["acceleration"], "compile": "default"}}, tmp_path / "compiled")
    assert result["compile"]["functions"] > 1
    losses = [[step["losses"]["total"] for step in steps] for steps in (outcome(result).steps, plain.steps)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
