"""Compiles the functions of a step with torch.compile, and counts and times compilation."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from graphmill.errors import SettingsError
from graphmill.training.contract import Compilable

MAX_RECOMPILES = 4


@dataclass(frozen=True)
class CompileReport:
    """What was compiled; recorded in report.json."""

    mode: str
    functions: int
    graphs: int
    recompiles: int
    compile_seconds: float
    graphs_before: int = 0

    def at_the_end(self) -> CompileReport:
        """The same report with the recompilations of the whole run so far."""
        return replace(self, recompiles=graphs_compiled() - self.graphs_before - self.graphs)

    def limit_note(self) -> str | None:
        """A note once the run has used all its recompilations; None before."""
        if self.at_the_end().recompiles < MAX_RECOMPILES:
            return None
        return (
            f"compile: {MAX_RECOMPILES} recompilations, the most that a run may have; shapes that would need another run "
            "uncompiled from here on"
        )

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)

    def sentence(self) -> str:
        """The report as a sentence for the log."""
        return (
            f"compile ({self.mode}): {self.functions} functions, {self.graphs} graphs in {self.compile_seconds:.1f} s"
        )


def require_compiler(device: torch.device) -> None:
    """Raise :class:`SettingsError` if compilation is on and this machine has no compiler for it."""
    if device.type == "cpu" and not any(shutil.which(name) for name in ("g++", "c++", "clang++", "cl")):
        raise SettingsError(
            "acceleration.compile needs a C++ compiler on the CPU, and there is none here; install one, or set it to none"
        )
    if device.type == "mps":
        raise SettingsError("acceleration.compile is not supported on MPS; set compile: none")


def graphs_compiled() -> int:
    """Graphs that dynamo has compiled in this process, recompilations included."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def compile_functions(compilables: list[Compilable], mode: str, trial: Callable[[], None]) -> CompileReport:
    """Compile in place, by one run of ``trial``, which computes one step's gradient and applies nothing.

    ``recompiles`` counts those of the trial; at the end the engine replaces it by the count of the whole run.
    """
    originals = [getattr(c.owner, c.attribute) for c in compilables]
    torch._dynamo.reset()
    most: int | None = None  # graphs of all functions together in this process; not known yet

    def limited(function: Callable[..., Any]) -> Callable[..., Any]:
        """Dynamo's own limit holds for each function alone. Beyond ``most``, a shape that has a graph still uses it, and
        any other shape runs uncompiled. Each call decides this once, so the recomputation in a backward pass does the
        same as its forward pass."""

        def call(*arguments: Any, **options: Any) -> Any:
            if most is None or graphs_compiled() < most:
                return function(*arguments, **options)
            with torch.compiler.set_stance("eager_on_recompile"):
                return function(*arguments, **options)

        return call

    before, started = graphs_compiled(), time.perf_counter()
    for compilable, function in zip(compilables, originals, strict=True):
        compiled = torch.compile(function, mode=None if mode == "default" else mode)
        setattr(compilable.owner, compilable.attribute, limited(compiled))
    trial()
    graphs = graphs_compiled() - before
    most = before + graphs + MAX_RECOMPILES
    return CompileReport(mode, len(compilables), graphs, 0, time.perf_counter() - started, before)
