"""Compiles the functions of a step with torch.compile, and counts and times compilation."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from graphmill.errors import SettingsError
from graphmill.training.contract import Compilable


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

    ``recompiles`` counts those of the trial; at the end the engine replaces it by the count of the whole run. Beyond
    torch's own limit of recompilations, a function runs uncompiled.
    """
    torch._dynamo.reset()
    # The compiler has a flag of its own, which only this function sets.
    torch.use_deterministic_algorithms(torch.are_deterministic_algorithms_enabled(), warn_only=True)
    before, started = graphs_compiled(), time.perf_counter()
    for each in compilables:
        compiled = torch.compile(getattr(each.owner, each.attribute), mode=None if mode == "default" else mode)
        setattr(each.owner, each.attribute, compiled)
    trial()
    graphs = graphs_compiled() - before
    return CompileReport(mode, len(compilables), graphs, 0, time.perf_counter() - started, before)
