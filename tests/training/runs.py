"""Whole short trainings through the worker, what they leave behind, and ways to interrupt them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import restore
from graphmill.runs.resolve import merge
from graphmill.runs.train import train
from graphmill.systems import registry
from graphmill.training import engine
from graphmill.training.checkpoint import CheckpointStore
from graphmill.training.run_directory import RunDirectory
from graphmill.training.signals import StopRequest
from tests.training.cases import Case

SHORT: dict[str, Any] = {
    "training": {"epochs": 3, "steps_per_epoch": 4, "warmup_steps": 2},
    # On a machine with a GPU "auto" would take it, and these suites hold bits and golden losses of the CPU.
    "acceleration": {"device": "cpu", "micro_batches": 3},
    "evaluation": {"eval_every": 1},
}
# What differs between two runs that do the same: times and memory.
UNEQUAL = ("epoch_seconds", "seconds", "per_second", "memory_bytes", "notes")


def settings_of(case: Case, graph: TypedGraph, *sections: dict[str, Any]) -> dict[str, Any]:
    """The settings file of a short run of a case."""
    values = merge({"system": case.system, "data": str(graph.path), "preset": "none", **case.settings}, SHORT)
    for section in sections:
        values = merge(values, section)
    if not case.steps:  # such a system refuses what only steps read
        values["training"] = {name: value for name, value in values["training"].items() if name == "seed"}
        values["acceleration"] = {"device": "cpu"}
    return values


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the product catches it."""


@dataclass
class Outcome:
    """Everything that two equal runs must share, bit for bit."""

    tensors: dict[str, torch.Tensor]
    state: dict[str, Any]
    steps: list[dict[str, Any]]
    epochs: list[dict[str, Any]]
    embeddings: np.ndarray
    metrics: dict[str, float]


def outcome(result: dict[str, Any]) -> Outcome:
    """What a finished run left."""
    run = RunDirectory(result["run_dir"])
    last = CheckpointStore(run.checkpoints).load("last").snapshot
    restored = restore(run.path)
    vectors = [block.vectors for block in restored.system.embeddings(restored.model)]
    if not registry.entry(restored.system.name).vectors:
        vectors = [restored.system.scorer(restored.model).score_targets(0, np.arange(3)).numpy()]
    return Outcome(
        tensors=last.tensors,
        state=_equal_part(last.state),
        steps=run.metrics.read("step"),
        epochs=[_equal_part(record) for record in run.metrics.read("epoch")],
        embeddings=np.concatenate(vectors),
        metrics=result["metrics"],
    )


def assert_same(a: Outcome, b: Outcome) -> None:
    """Bit-equal weights, optimizer, position, loss trace, epochs, embeddings, final metrics."""
    different = [(x, y) for x, y in zip(a.steps, b.steps, strict=False) if x != y]
    assert a.steps == b.steps, (
        f"{len(a.steps)} and {len(b.steps)} steps, {len(different)} differ, the first {different[:1]}"
    )
    for left, right in zip(a.epochs, b.epochs, strict=True):
        assert left == right, {key: (left.get(key), right.get(key)) for key in left if left.get(key) != right.get(key)}
    assert a.state == b.state
    assert a.tensors.keys() == b.tensors.keys()
    for name in a.tensors:
        assert torch.equal(a.tensors[name], b.tensors[name]), name
    assert a.embeddings.tobytes() == b.embeddings.tobytes()
    assert a.metrics == b.metrics


def _equal_part(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in UNEQUAL}


@dataclass
class Hooks:
    """Counts the steps, chunks and evaluations of a training and calls back at each; ``inside``: a chunk to act at."""

    inside: int = 1
    step: int = 0
    chunk: int = 0
    evaluations: int = 0
    on_chunk: Callable[[int, int], None] = lambda step, chunk: None
    on_gradient: Callable[[int], None] = lambda step: None
    on_evaluation: Callable[[int], None] = lambda number: None

    def install(self, patch: pytest.MonkeyPatch) -> Hooks:
        """Wrap what the worker builds from now on, until the patch is undone."""
        create, compute = registry.create, engine.compute_gradient

        def creating(*arguments: Any) -> Any:
            system: Any = create(*arguments)
            terms, evaluate = system.terms, system.evaluate

            def counted_terms(*args: Any) -> Any:
                self.on_chunk(self.step, self.chunk)
                self.chunk += 1
                return terms(*args)

            def counted_evaluate(*args: Any, **options: Any) -> Any:
                self.on_evaluation(self.evaluations)
                self.evaluations += 1
                return evaluate(*args, **options)

            system.terms, system.evaluate = counted_terms, counted_evaluate
            return system

        def computing(*args: Any, **options: Any) -> Any:
            self.chunk = 0
            gradient = compute(*args, **options)
            self.on_gradient(self.step)
            self.step += 1
            return gradient

        patch.setattr(registry, "create", creating)
        patch.setattr(engine, "compute_gradient", computing)
        return self


def busy_clock(patch: pytest.MonkeyPatch) -> None:
    """A clock that moves on by a second whenever the engine looks at it, so that saves by time happen in mid-epoch."""
    now = iter(range(10**9))
    patch.setattr(engine, "time", SimpleNamespace(monotonic=lambda: float(next(now))))


def run(values: dict[str, Any], root: Path, stop: StopRequest | None = None) -> dict[str, Any]:
    """Train in this process."""
    return train(values, "test", root=str(root), stop=stop)


class Kept:
    """An outlet that keeps what is said."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    @property
    def notes(self) -> list[str]:
        """The texts of the notes."""
        return [message["text"] for message in self.messages if message["kind"] == "note"]

    def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    def close(self) -> None:
        pass
