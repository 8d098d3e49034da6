"""The loss of 50 steps of every system is what it was; a change must be meant (``tests.training.renew_golden``)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.errors import SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs import train as worker_run
from graphmill.training import compiling
from tests.training import golden
from tests.training.cases import CASES, STEPPED
from tests.training.runs import run, settings_of


@pytest.mark.parametrize("name", list(STEPPED))
def test_the_trace_is_the_golden_one(
    name: str, graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch fills what is not written yet here, which trainings leave out: what reads it would have another trace.
    configure = worker_run.configure_torch

    def filled(*arguments: Any) -> int:
        threads = configure(*arguments)
        monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
        return threads

    monkeypatch.setattr(worker_run, "configure_torch", filled)
    committed = golden.read(name)
    assert committed["threads"] == golden.THREADS
    losses = golden.trace(name, graphs[name], tmp_path)
    np.testing.assert_allclose(losses, committed["losses"], rtol=1e-4, err_msg="python -m tests.training.renew_golden")
    epoch = len(losses) // golden.LONG["training"]["epochs"]  # all phases of it
    assert np.mean(losses[-epoch:]) < np.mean(losses[:epoch]), "it learns"


def test_every_golden_trace_has_a_case() -> None:
    assert {path.stem for path in golden.FOLDER.glob("*.json")} == {name for name, case in CASES.items() if case.steps}


# -- compile ---------------------------------------------------------------------------------------------------------

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="there is no C++ compiler here")


@needs_compiler
def test_a_compiled_run_has_the_same_trace_and_is_counted(
    graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "sasrec"  # of one function, which is enough to see it
    compiled = {"acceleration": {"compile": "default"}, "model": {"dropout": 0.0}}
    plain = golden.trace(name, graphs[name], tmp_path / "plain", {"model": {"dropout": 0.0}})
    values = settings_of(CASES[name], graphs[name], golden.LONG, compiled)
    result = run(values, tmp_path / "compiled")
    losses = golden.trace(name, graphs[name], tmp_path / "compiled", compiled)
    np.testing.assert_allclose(losses, plain, rtol=1e-5)
    report = result["compile"]
    assert report["functions"] == 1
    assert report["graphs"] >= 1
    assert report["recompiles"] >= 0
    # Compiling happens before the first step: no epoch's time has it.
    assert report["compile_seconds"] > 0
    assert result["seconds"] < result["wall_seconds"] - report["compile_seconds"]
    assert any(note.startswith("compile (default): ") for note in result["notes"])


def test_without_a_compiler_it_is_refused_in_one_sentence(
    graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling.shutil, "which", lambda name: None)
    values = settings_of(CASES["hgt-full"], graphs["hgt-full"], {"acceleration": {"compile": "default"}})
    with pytest.raises(SettingsError, match=r"C\+\+ compiler"):
        run(values, tmp_path)
